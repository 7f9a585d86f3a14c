"""Performance counters that answer by a script, in the place of the kernel: numbers that a test can derive by hand."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable

from sonde.native.perf_event import Attr

Step = tuple[int, int, int]  # value, time enabled and time running, in nanoseconds
Course = Callable[[Attr, int, int, int], Step]  # of an event on a pid and CPU at a tick


class ScriptedSource:
    """As a processor with so many counters. `refused` gives the errno with which an event is refused, 0 to open it."""

    def __init__(
        self,
        course: Course = lambda attr, pid, cpu, tick: (tick * 1000, tick * 10**9, tick * 10**9),
        *,
        counters: int = 6,
        refused: Callable[[Attr, int, int], int] = lambda attr, pid, cpu: 0,
    ) -> None:
        self.course = course
        self.counters = counters
        self.refused = refused
        self.tick = 1
        self.opened: dict[int, tuple[Attr, int, int, int]] = {}  # by descriptor: attr, pid, cpu, leader
        self.gone: set[int] = set()  # CPUs that were taken away: their groups fall apart
        self.started: set[int] = set()  # leaders that were told to begin, once their group was whole
        self.cgroups: list[tuple[int, int]] = []
        self._next = 100

    def open(self, attr: Attr, pid: int, cpu: int, group: int, *, cgroup: bool) -> int:
        number = self.refused(attr, pid, cpu)
        members = [fd for fd, event in self.opened.items() if group >= 0 and group in (fd, event[3])]
        if not number and group >= 0 and attr.type != 1 and len(members) >= self.counters:
            number = errno.EINVAL  # a group that the processor could never count
        if not number and cpu in self.gone:
            number = errno.ENODEV
        if number:
            raise OSError(number, os.strerror(number))
        if cgroup:
            self.cgroups.append((pid, cpu))
        self._next += 1
        self.opened[self._next] = (attr, pid, cpu, group)
        return self._next

    def identify(self, fd: int) -> int:
        return fd * 7

    def enable(self, fd: int) -> None:
        self.started.add(fd)

    def read(self, fd: int, size: int) -> bytes:
        _, _, cpu, _ = self.opened[fd]
        members = [fd] if cpu in self.gone else [fd, *(one for one in sorted(self.opened) if self.opened[one][3] == fd)]
        steps = [self.course(*self.opened[one][:3], self.tick) for one in members]
        _, enabled, running = steps[0]
        words = [len(members), enabled, running]
        for one, step in zip(members, steps, strict=True):
            words += [step[0] % 2**64, self.identify(one)]
        return struct.pack(f"={len(words)}Q", *words)[:size]

    def close(self, fd: int) -> None:
        del self.opened[fd]

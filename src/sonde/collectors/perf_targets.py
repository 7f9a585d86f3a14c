"""Whom counters count: all CPUs, the cgroup of a job, or a tree of processes.

A task carries its counters on to the children it makes later (`inherit`), and so does each of these; so a tree is
attached once, thread by thread, and only processes that come from elsewhere are attached afterwards: a rank that
another launcher has started. Whether a new process has inherited its counters is not told by the kernel. It has if its
parent was being counted when it began, or, when its parent is gone, the leader of its session was.

A cgroup or the whole machine needs one group per CPU, however many processes there are.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable, Iterator, Sequence

from sonde.collectors.perf_events import Meter, Part, Possible, added, cpus, descriptors
from sonde.collectors.proctree import read_identity
from sonde.hostfs import HostFS
from sonde.native.perf_event import ANYWHERE, Counts, Source

_ONLINE = "sys/devices/system/cpu/online"
_GONE = (errno.ESRCH, errno.ENOENT)
_FULL = (errno.EMFILE, errno.ENFILE)


class Budget:
    """Descriptors left for counting; an event is one."""

    def __init__(self, limit: int | None = None) -> None:
        self._left = descriptors() if limit is None else limit

    def take(self, count: int) -> bool:
        if count > self._left:
            return False
        self._left -= count
        return True

    def give(self, count: int) -> None:
        self._left += count


class Target:
    """Somebody counters count, with the labels of its series."""

    def __init__(self, source: Source, possible: Possible, budget: Budget, labels: tuple[str, str, str, str]) -> None:
        self._source = source
        self._budget = budget
        self._inherit = False
        self.labels = labels  # scope, job_id, scheduler, pid
        self.parts: Sequence[Part] = possible.parts
        self.user_only = possible.user_only
        self.meters: list[list[Meter]] = [[] for _ in possible.parts]
        self.beyond = 0  # tasks or CPUs there were no descriptors for
        self.denied = 0  # tasks that may not be counted

    def read(self) -> list[Counts]:
        """What each part has counted so far."""
        return [
            added([meter.read() for meter in meters], len(part.events))
            for part, meters in zip(self.parts, self.meters, strict=True)
        ]

    def _open(self, pid: int, cpu: int, *, cgroup: bool = False) -> list[Meter]:
        """A meter per part, or none at all and OSError."""
        needed = sum(len(part.events) for part in self.parts)
        if not self._budget.take(needed):
            raise OSError(errno.EMFILE, "no descriptors left for counting")
        opened: list[Meter] = []
        try:
            for part in self.parts:
                attrs = part.attrs(user_only=self.user_only, inherit=self._inherit)
                opened.append(Meter(self._source, attrs, pid, cpu, cgroup=cgroup))
        except OSError:
            for meter in opened:
                meter.close()
            self._budget.give(needed)
            raise
        return opened

    def _keep(self, opened: Iterable[Meter]) -> None:
        for meters, meter in zip(self.meters, opened, strict=True):
            meters.append(meter)

    def close(self) -> None:
        for part, meters in zip(self.parts, self.meters, strict=True):
            for meter in meters:
                meter.close()
            self._budget.give(len(part.events) * len(meters))
            meters.clear()


class Tree(Target):
    """Processes with their threads, and what they start from now on."""

    def __init__(
        self, source: Source, possible: Possible, budget: Budget, labels: tuple[str, str, str, str], host: HostFS
    ) -> None:
        super().__init__(source, possible, budget, labels)
        self._inherit = True
        self._host = host
        self._counted: dict[int, tuple[int, float]] = {}  # pid: start, and since when it is counted (ticks since boot)

    def follow(self, pid: int) -> None:
        """Count this process, unless it is counted already."""
        identity = read_identity(self._host, pid)
        if identity is None:
            return
        parent, session, start = identity
        known = self._counted.get(pid)
        if known is not None and known[0] == start:
            return
        self._counted.pop(pid, None)  # of another process that had this id
        if self._inherits(parent, start) or self._inherits(session, start):
            self._counted[pid] = (start, start)
            return
        now = _ticks()
        if self._attach(pid):
            self._counted[pid] = (start, now)

    def follow_with_descendants(self, pid: int) -> None:
        children: dict[int, list[int]] = {}
        for other in _pids(self._host):
            identity = read_identity(self._host, other)
            if identity is not None:
                children.setdefault(identity[0], []).append(other)
        waiting = [pid]
        while waiting:
            one = waiting.pop()
            self.follow(one)
            waiting += children.pop(one, ())

    def _inherits(self, relative: int, start: int) -> bool:
        """Was this relative counted when a process began? In the same tick of the clock it is taken to have been."""
        known = self._counted.get(relative)
        return known is not None and start >= int(known[1])

    def _attach(self, pid: int) -> bool:
        attached = False
        for task in self._tasks(pid):
            try:
                self._keep(self._open(task, ANYWHERE))
                attached = True
            except OSError as error:
                if error.errno in _GONE:
                    continue  # ended since it was listed
                if error.errno in _FULL:
                    self.beyond += 1
                elif error.errno in (errno.EACCES, errno.EPERM):
                    self.denied += 1
                else:
                    raise
        return attached

    def _tasks(self, pid: int) -> list[int]:
        try:
            return [int(name) for name in self._host.names(f"proc/{pid}/task") if name.isdigit()]
        except (FileNotFoundError, ProcessLookupError):
            return []


class Everywhere(Target):
    """All CPUs, for everybody or for a cgroup; with `number`, only that one. CPUs may come and go."""

    def __init__(
        self,
        source: Source,
        possible: Possible,
        budget: Budget,
        labels: tuple[str, str, str, str],
        host: HostFS,
        *,
        cgroup: str = "",
        number: int | None = None,
    ) -> None:
        """`cgroup` is a directory relative to the host's root. OSError when it may not or cannot be counted."""
        super().__init__(source, possible, budget, labels)
        self._online = host.record(_ONLINE)
        self._text = b""
        self._number = number
        self._current: dict[int, list[Meter]] = {}
        self._cgroup = -1
        try:
            if cgroup:
                self._cgroup = os.open(host.path(cgroup), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._renew(self._online.read())
        except OSError:
            self.close()
            raise

    def read(self) -> list[Counts]:
        text = self._online.read()
        if text != self._text:
            self._renew(text)
        return super().read()

    def _renew(self, text: bytes) -> None:
        """Open on the CPUs that have come. What was counted on those that went is kept."""
        online = [cpu for cpu in cpus(text.decode("ascii", "replace")) if self._number in (None, cpu)]
        for cpu in [cpu for cpu in self._current if cpu not in online]:
            for meter in self._current.pop(cpu):
                meter.read()
                meter.close()
        self.beyond = 0
        for cpu in online:
            if cpu not in self._current:
                self._add(cpu)
        self._text = text

    def _add(self, cpu: int) -> None:
        try:
            whom = self._cgroup if self._cgroup >= 0 else ANYWHERE
            opened = self._open(whom, cpu, cgroup=self._cgroup >= 0)
        except OSError as error:
            if error.errno in _FULL:
                self.beyond += 1
                return
            if error.errno == errno.ENODEV or (error.errno == errno.EINVAL and self._current):
                return  # gone offline since the list was read: perf_event_open answers ENODEV or EINVAL
            raise
        self._current[cpu] = opened
        self._keep(opened)

    def close(self) -> None:
        super().close()
        self._online.close()
        if self._cgroup >= 0:
            os.close(self._cgroup)
            self._cgroup = -1


def online_cpus(host: HostFS) -> list[int]:
    return cpus(host.text(_ONLINE))


def _ticks() -> float:
    """Now, as /proc/PID/stat counts: clock ticks since boot, suspended time included (fs/proc/array.c)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")


def _pids(host: HostFS) -> Iterator[int]:
    return (int(name) for name in os.listdir(host.path("proc")) if name.isdigit())

"""Counters of the processor and the kernel: perf_event_open(2), include/uapi/linux/perf_event.h.

One descriptor per event. Events opened with the descriptor of a leader are scheduled with it or not at all, and one
read of the leader gives them all (PERF_FORMAT_GROUP | TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING | ID):

    u64 nr, time_enabled, time_running; { u64 value, id } [nr]

When there are more groups than counters the kernel takes turns; then time_running is less than time_enabled. What is
counted for a task (`inherit`) includes the children it makes later; their counts are added when they end, and lost to
nobody as long as the descriptor stays open.
"""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import struct
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from sonde.errors import Denied, ReadError, Unavailable

_SYSCALL = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
_SIZE = 112  # PERF_ATTR_SIZE_VER5, Linux 4.1; later kernels take the rest as 0
_ATTR = struct.Struct("=IIQQQQQIIQQQQIiQIHH")
_HEAD = struct.Struct("=QQQ")
_ID = struct.Struct("=Q")
_FORMAT = 1 | 2 | 4 | 8  # TOTAL_TIME_ENABLED, TOTAL_TIME_RUNNING, ID, GROUP
_DISABLED, _INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HV, _ENABLE_ON_EXEC = 1 << 0, 1 << 1, 1 << 5, 1 << 6, 1 << 12
_FLAG_PID_CGROUP, _FLAG_CLOEXEC = 1 << 2, 1 << 3
_IOC_ENABLE, _IOC_DISABLE, _IOC_ID, _IOC_FLAG_GROUP = 0x2400, 0x2401, 0x80082407, 1

ANYWHERE = -1  # as a CPU: wherever the task is; as a pid: whoever is on the CPU
PARANOID = "proc/sys/kernel/perf_event_paranoid"

# What perf_event_open answers when the kernel or the processor does not have the event: ENOENT (no such event or PMU),
# EOPNOTSUPP, ENODEV, ENXIO; EINVAL for a selector the PMU rejects.
UNSUPPORTED = frozenset({errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV, errno.ENXIO, errno.EINVAL})
DENIED = frozenset({errno.EACCES, errno.EPERM})


class Attr(NamedTuple):
    """The part of struct perf_event_attr that counting needs."""

    type: int
    config: int
    config1: int = 0
    inherit: bool = False  # children made from now on are counted too
    user_only: bool = False
    disabled: bool = False
    enable_on_exec: bool = False  # begin when the task becomes another program


class Counts(NamedTuple):
    """What a group has counted so far."""

    enabled_ns: int
    running_ns: int
    values: tuple[int, ...]  # in the order of the events of the group


class Detached(ReadError):
    """The group is no longer whole: its CPU has been taken away."""


class Source(Protocol):
    """Where events are opened: the kernel, or a script in its place."""

    def open(self, attr: Attr, pid: int, cpu: int, group: int, *, cgroup: bool) -> int:
        """A descriptor; OSError as the kernel gives it."""
        ...

    def identify(self, fd: int) -> int: ...
    def enable(self, fd: int) -> None: ...
    def read(self, fd: int, size: int) -> bytes: ...
    def close(self, fd: int) -> None: ...


class Kernel:
    """The real source."""

    def __init__(self) -> None:
        number = _SYSCALL.get(platform.machine())
        if number is None:
            raise Unavailable(f"perf_event_open has no known number on {platform.machine()}")
        import ctypes  # 0.7 MB that only counting needs

        self._number = number
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long
        self._long, self._string, self._errno = ctypes.c_long, ctypes.c_char_p, ctypes.get_errno

    def open(self, attr: Attr, pid: int, cpu: int, group: int, *, cgroup: bool) -> int:
        flags = _FLAG_CLOEXEC | (_FLAG_PID_CGROUP if cgroup else 0)
        long = self._long
        packed = self._string(encode_attr(attr))
        fd = self._syscall(long(self._number), packed, long(pid), long(cpu), long(group), long(flags))
        if fd < 0:
            number = self._errno()
            raise OSError(number, os.strerror(number))
        return int(fd)

    def identify(self, fd: int) -> int:
        return int(_ID.unpack(fcntl.ioctl(fd, _IOC_ID, bytes(8)))[0])

    def enable(self, fd: int) -> None:
        """Start the group that this descriptor leads."""
        fcntl.ioctl(fd, _IOC_ENABLE, _IOC_FLAG_GROUP)

    def disable(self, fd: int) -> None:
        fcntl.ioctl(fd, _IOC_DISABLE, _IOC_FLAG_GROUP)

    def read(self, fd: int, size: int) -> bytes:
        return os.read(fd, size)

    def close(self, fd: int) -> None:
        os.close(fd)


class EventGroup:
    """Events that are counted together, for one task, cgroup or CPU."""

    __slots__ = ("_fds", "_ids", "_size", "_source", "_unpack")

    def __init__(self, source: Source, attrs: Sequence[Attr], pid: int, cpu: int, *, cgroup: bool = False) -> None:
        """Counting begins when all are there, unless the first is `disabled`; then it decides for all.

        OSError of the event that cannot be opened, with its place in `attrs` as `filename`.
        """
        self._source = source
        self._fds: list[int] = []
        try:
            # The leader waits until all are there. One that joins a group on the counters would stay off them until the
            # group is scheduled anew, which on a whole CPU may be never: it would count 0.
            self._add(attrs[0]._replace(disabled=True), pid, cpu, 0, cgroup=cgroup)
            for place, attr in enumerate(attrs[1:], start=1):
                self._add(attr._replace(disabled=False), pid, cpu, place, cgroup=cgroup)
            self._ids = tuple(map(source.identify, self._fds))
            if not attrs[0].disabled:
                source.enable(self._fds[0])
        except OSError:
            self.close()
            raise
        self._size = _HEAD.size + 16 * len(attrs)
        self._unpack = struct.Struct(f"={3 + 2 * len(attrs)}Q").unpack

    def _add(self, attr: Attr, pid: int, cpu: int, place: int, *, cgroup: bool) -> None:
        leader = self._fds[0] if self._fds else -1
        try:
            self._fds.append(self._source.open(attr, pid, cpu, leader, cgroup=cgroup))
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(place)) from None

    @property
    def leader(self) -> int:
        return self._fds[0]

    def read(self) -> Counts:
        """The present counts. Detached when events have left the group; OSError as the kernel gives it."""
        data = self._source.read(self._fds[0], self._size)
        if len(data) != self._size:
            # A CPU that goes offline breaks its groups up (perf_event_exit_cpu, kernel/events/core.c): a leader on its
            # own then answers with fewer events, or at its end with none.
            raise Detached(f"a counter group of {len(self._ids)} answered with {len(data)} bytes")
        words = self._unpack(data)
        if words[4::2] != self._ids:
            raise Detached("a counter group answered with other events")
        return Counts(words[1], words[2], words[3::2])

    def close(self) -> None:
        # Members before the leader: closing a leader first would make each member a group of its own on the way.
        for fd in reversed(self._fds):
            self._source.close(fd)
        self._fds = []

    def __del__(self) -> None:
        self.close()


def encode_attr(attr: Attr) -> bytes:
    """struct perf_event_attr up to VER5, the exclusions for user mode included."""
    flags = (
        (_DISABLED if attr.disabled else 0)
        | (_INHERIT if attr.inherit else 0)
        | (_EXCLUDE_KERNEL | _EXCLUDE_HV if attr.user_only else 0)
        | (_ENABLE_ON_EXEC if attr.enable_on_exec else 0)
    )
    return _ATTR.pack(
        attr.type, _SIZE, attr.config, 0, 0, _FORMAT, flags, 0, 0, attr.config1, 0, 0, 0, 0, 0, 0, 0, 0, 0
    )  # fmt: skip


def refusal(level: int, *, whole_cpu: bool) -> Denied:
    """Why counting was refused: what perf_event_paranoid allows whom (Documentation/admin-guide/sysctl/kernel.rst)."""
    needed = 0 if whole_cpu else 2
    what = "whole CPUs and cgroups" if whole_cpu else "processes"
    if level > needed:
        reason = f"perf_event_paranoid is {level}: counting {what} needs root, CAP_PERFMON or a level of {needed}"
        hint = f"as root: sysctl kernel.perf_event_paranoid={needed}, or give the program CAP_PERFMON"
    else:
        reason = f"counting {what} is refused although perf_event_paranoid is {level}: a container or security module"
        hint = "a container needs CAP_PERFMON and a seccomp profile that allows perf_event_open"
    return Denied(reason, hint=hint)

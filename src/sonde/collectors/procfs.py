"""The numbers of one process, from the text of /proc/PID/{stat,statm,io,schedstat,status,smaps_rollup} (proc(5)).

stat       4711 (python3 (x)) S 1 4711 4711 0 -1 4194304 5106 0 3 0 12 21 0 0 20 0 1 0 99386 3133440 366 ...
statm      765 410 382 5 0 123 0                          pages: size, resident, shared (file and shmem), ...
io         rchar: 7295\\nwchar: 319\\n...read_bytes: 0\\nwrite_bytes: 0\\ncancelled_write_bytes: 0\\n
schedstat  2144008 87483 3                                ns on a CPU, ns waiting for one, times it got one
"""

from __future__ import annotations

from operator import itemgetter
from typing import NamedTuple

from sonde.errors import ParseError

# What a parent inherits from a child it waits for: minor faults, major faults, user and system ticks.
Spent = tuple[int, int, int, int]

# minflt majflt utime stime, cminflt cmajflt cutime cstime, ppid session num_threads starttime
_FIELDS = itemgetter(7, 9, 11, 12, 8, 10, 13, 14, 1, 3, 17, 19)


class Stat(NamedTuple):
    state: bytes  # R running, S sleeping, D in the kernel, Z ended and not waited for
    own: Spent  # of the process, its ended threads included
    waited: Spent  # of its children that have ended and been waited for, and of theirs
    parent: int
    session: int
    threads: int
    start: int  # clock ticks since boot


def parse_stat(text: bytes) -> Stat:
    try:
        # The name is in parentheses and may contain some.
        fields = text[text.rindex(b")") + 2 :].split(None, 20)
        a, b, c, d, e, f, g, h, parent, session, threads, start = map(int, _FIELDS(fields))
    except (ValueError, IndexError):
        raise ParseError("/proc/PID/stat", text) from None
    return Stat(fields[0], (a, b, c, d), (e, f, g, h), parent, session, threads, start)


def parse_statm(text: bytes) -> tuple[int, int, int]:
    """Pages of address space, resident, and resident that are file or shmem."""
    try:
        size, resident, shared, _ = text.split(None, 3)
        return int(size), int(resident), int(shared)
    except ValueError:
        raise ParseError("/proc/PID/statm", text) from None


def parse_io(text: bytes) -> tuple[int, int]:
    """Bytes fetched from and sent to storage."""
    tokens = text.split()
    try:
        if tokens[8] != b"read_bytes:" or tokens[10] != b"write_bytes:":
            raise ValueError
        return int(tokens[9]), int(tokens[11])
    except (ValueError, IndexError):
        raise ParseError("/proc/PID/io", text) from None


def parse_schedstat(text: bytes) -> int:
    """Nanoseconds the main thread was runnable and waited for a CPU."""
    try:
        _, waiting, _ = text.split()
        return int(waiting)
    except ValueError:
        raise ParseError("/proc/PID/schedstat", text) from None


class Status(NamedTuple):
    swap_bytes: int
    voluntary: int  # context switches of the main thread
    involuntary: int


def parse_status(text: bytes) -> Status:
    """`VmSwap:	       0 kB` is missing where there is no memory: a kernel thread, a process that has ended."""
    return Status(
        _after(text, b"\nVmSwap:", default=0) * 1024,
        _after(text, b"\nvoluntary_ctxt_switches:"),
        _after(text, b"\nnonvoluntary_ctxt_switches:"),
    )


class Rollup(NamedTuple):
    pss_bytes: int
    uss_bytes: int
    swap_pss_bytes: int


def parse_rollup(text: bytes) -> Rollup:
    """/proc/PID/smaps_rollup: `Pss:     1482 kB`, Private_Clean and Private_Dirty, SwapPss."""
    own = _after(text, b"\nPrivate_Clean:") + _after(text, b"\nPrivate_Dirty:")
    return Rollup(_after(text, b"\nPss:") * 1024, own * 1024, _after(text, b"\nSwapPss:", default=0) * 1024)


def _after(text: bytes, name: bytes, *, default: int | None = None) -> int:
    at = text.find(name)
    if at < 0:
        if default is None:
            raise ParseError("/proc/PID", text)
        return default
    try:
        return int(text[at + len(name) : at + len(name) + 40].split(None, 1)[0])
    except (ValueError, IndexError):
        raise ParseError("/proc/PID", text[at : at + 40]) from None

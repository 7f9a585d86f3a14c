"""Groups of processes, read at each tick through kept descriptors, from /proc/PID/{stat,statm,io,schedstat}.

How the readings become totals is ledger.py's. A process that was not on a CPU since the last tick (the third number of
schedstat, counted in sched_info_arrive, kernel/sched/stats.h) and has one thread cannot have changed its stat and io:
they are not read again. Its memory can have changed, since the kernel reclaims pages of a sleeper: statm always is.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterable

from sonde.collectors.ledger import Group, Ledger, Member, leave
from sonde.collectors.procfs import Stat, parse_io, parse_schedstat, parse_stat, parse_statm, parse_status
from sonde.errors import ParseError
from sonde.hostfs import HostFS

SLOW = 10  # ticks between two readings of status and fd
_NO_SCHEDSTAT = (b"", b"0 0 0\n")  # the kernel was built without it
_FILES = ("stat", "statm", "io", "schedstat")
_RESERVED = 256  # descriptors left to the rest of the daemon, whatever the limit


class Walker:
    """Reads the processes it was told to follow. `details` adds swap, descriptors and context switches."""

    def __init__(self, host: HostFS, *, max_processes: int, details: bool = True) -> None:
        self._host = host
        self._max = max_processes
        self._details = details
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._room = max(0, limit // 2 - _RESERVED) // len(_FILES)  # members whose files stay open
        self._missing = {name for name in ("io", "schedstat") if not host.exists(f"proc/self/{name}")}
        self._swapping = True
        self._ticks = 0
        self._followed = 0
        self._ledger = Ledger(self._read_again)
        self.members = self._ledger.members
        self.refused = 0  # processes there was no room for
        self.unreadable = 0  # members that could not be read in the last tick, and why one of them
        self.complaint = ""

    @property
    def has_io(self) -> bool:
        return "io" not in self._missing

    @property
    def has_schedstat(self) -> bool:
        return "schedstat" not in self._missing

    def follow(self, pid: int, start: int, group: Group) -> bool:
        """Count this process in this group from the next tick on; False when there is no room or no such process."""
        known = self.members.get(pid)
        if known is not None and known.start == start:
            return True
        if known is not None:
            self._ledger.bury({pid: known})
        if len(self.members) >= self._max:
            self.refused += 1
            return False
        member = Member(pid, start, group, self._followed)
        if self._room > 0:
            try:
                self._open(member)
                self._room -= 1
            except (ProcessLookupError, FileNotFoundError):
                return False
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):
                    raise
                self._room = 0  # others have used up the descriptors: this one is opened at each tick
        self._followed += 1
        self.members[pid] = member
        group.processes += 1
        return True

    def drop(self, group: Group) -> None:
        """Follow the processes of a group no longer."""
        for member in [member for member in self.members.values() if member.group is group]:
            del self.members[member.pid]
            leave(member)
            self._release(member)

    def close(self) -> None:
        for member in self.members.values():
            self._shut(member)
        self.members.clear()

    def tick(self) -> list[Member]:
        """Read every member once; the members that have ended since the last tick."""
        self._ticks += 1
        ledger = self._ledger
        ledger.close_tick(self._read_all())
        ended, ledger.ended = ledger.ended, []
        for member in ended:
            self._release(member)
        if self._details:
            self._read_details()
        return ended

    def _read_all(self) -> dict[int, Member]:
        gone = {}
        self.unreadable = 0
        pread, advance = os.pread, self._advance
        for member in self.members.values():
            try:
                if member.stat < 0:
                    self._read_unkept(member)
                    continue
                schedstat = pread(member.schedstat, 96, 0) if member.schedstat >= 0 else b""
                if not member.idle or schedstat != member.seen_schedstat:
                    advance(member, schedstat)
                statm = pread(member.statm, 128, 0)
                if statm != member.seen_statm:
                    self._resize(member, statm)
            except (ProcessLookupError, FileNotFoundError):
                gone[member.pid] = member
            except (OSError, ParseError) as error:
                # One that cannot be read disturbs no other; it keeps what it had.
                self.unreadable += 1
                self.complaint = f"process {member.pid}: {error}"
        return gone

    def _read_unkept(self, member: Member) -> None:
        """A member beyond the descriptor budget: open, read and close, at twice the cost."""
        self._open(member)
        try:
            self._advance(member, os.pread(member.schedstat, 96, 0) if member.schedstat >= 0 else b"")
            self._resize(member, os.pread(member.statm, 128, 0))
        finally:
            self._shut(member)

    def _advance(self, member: Member, schedstat: bytes) -> None:
        if member.io >= 0 and not member.denied:
            self._read_io(member)  # before stat: ledger.py says why
        self._account(member)
        if schedstat not in _NO_SCHEDSTAT:
            wait_ns = parse_schedstat(schedstat)
            member.group.wait_ns += wait_ns - member.wait_ns
            member.wait_ns = wait_ns
            # A task that has a CPU to itself arrives on it only once: what is seen running is read again.
            member.idle = member.threads <= 1 and member.state != b"R"
        member.seen_schedstat = schedstat
        member.ran = True

    def _account(self, member: Member) -> None:
        text = os.pread(member.stat, 1024, 0)
        if text == member.seen_stat:
            return
        stat = parse_stat(text)
        if stat.start != member.start:
            raise ProcessLookupError(f"{member.pid} is another process now")
        member.seen_stat = text
        self._ledger.account(member, stat)

    def _read_io(self, member: Member) -> None:
        try:
            text = os.pread(member.io, 512, 0)
        except PermissionError:  # checked at each read: do_io_accounting in fs/proc/base.c
            _deny(member)
            return
        if text != member.seen_io:
            self._ledger.move(member, parse_io(text))
            member.seen_io = text

    def _resize(self, member: Member, text: bytes) -> None:
        pages = size, resident, shared = parse_statm(text)
        group, before = member.group, member.pages
        group.size += size - before[0]
        group.resident += resident - before[1]
        group.shared += shared - before[2]
        member.pages = pages
        member.seen_statm = text

    def _read_again(self, member: Member) -> Stat | None:
        unkept = member.stat < 0
        try:
            if unkept:
                self._open(member)
            stat = parse_stat(os.pread(member.stat, 1024, 0))
        except (ProcessLookupError, FileNotFoundError):
            return None
        finally:
            if unkept:
                self._shut(member)
        return stat if stat.start == member.start else None

    def _read_details(self) -> None:
        """Each member at every tenth tick, a tenth of them at each, so that no tick is dearer than the others."""
        turn = self._ticks % SLOW
        if turn == 0 or self._ticks == 1:
            self._swapping = self._host_swaps()
        for member in self.members.values():
            # Of one that has not run, only the kernel can have changed something: by swapping it out.
            if (member.number % SLOW == turn or not member.detailed) and (member.ran or self._swapping):
                self._read_detail(member)

    def _host_swaps(self) -> bool:
        try:
            return self._host.read("proc/swaps").count(b"\n") > 1  # a heading, and a line per device
        except OSError:
            return False

    def _read_detail(self, member: Member) -> None:
        try:
            status = parse_status(self._host.read(f"proc/{member.pid}/status"))
            open_files = self._open_files(member)
        except (ProcessLookupError, FileNotFoundError):
            return  # the next tick notices
        group = member.group
        group.swap_bytes += status.swap_bytes - member.swap_bytes
        group.voluntary += max(0, status.voluntary - member.voluntary)
        group.involuntary += max(0, status.involuntary - member.involuntary)
        group.fds += open_files - member.open_files
        member.swap_bytes, member.voluntary, member.involuntary = status
        member.open_files = open_files
        member.ran, member.detailed = False, True

    def _open_files(self, member: Member) -> int:
        try:
            return len(os.listdir(self._host.path(f"proc/{member.pid}/fd")))
        except PermissionError:  # the same check as for io, which reports it
            return 0

    def _open(self, member: Member) -> None:
        # Through the directory, so that all four belong to one process even if the id is reused meanwhile.
        directory = os.open(self._host.path(f"proc/{member.pid}"), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fds: list[int] = []
        try:
            for name in _FILES:
                fds.append(self._open_in(directory, name, member))  # noqa: PERF401 (a failure closes the first ones)
        except OSError:
            _close(fds)
            raise
        finally:
            os.close(directory)
        member.fds = tuple(fds)
        member.stat, member.statm, member.io, member.schedstat = fds

    def _open_in(self, directory: int, name: str, member: Member) -> int:
        if name in self._missing or (name == "io" and member.denied):
            return -1
        try:
            return os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
        except PermissionError:
            if name != "io":
                raise
            _deny(member)
            return -1

    def _release(self, member: Member) -> None:
        if member.fds:
            self._room += 1
            self._shut(member)

    def _shut(self, member: Member) -> None:
        _close(member.fds)
        member.fds = ()
        member.stat = member.statm = member.io = member.schedstat = -1


def _deny(member: Member) -> None:
    member.denied = True
    member.group.denied += 1


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        if fd >= 0:
            os.close(fd)


def read_identity(host: HostFS, pid: int) -> tuple[int, int, int] | None:
    """Parent, session and start time of a process; None when there is none (any more)."""
    try:
        stat = parse_stat(host.read(f"proc/{pid}/stat"))
    except (ProcessLookupError, FileNotFoundError, ParseError):
        return None
    return stat.parent, stat.session, stat.start

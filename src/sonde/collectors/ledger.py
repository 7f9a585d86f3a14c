"""What groups of processes have used, counted once and never backwards, although their members end.

A group's total is the sum of what each tick added, so that it survives the end of any member. What a tick adds follows
from how the kernel passes on the account of a process that ends:

- utime, stime, minflt, majflt of a child, and what it had from its own children, are added to the parent's cutime,
  cstime, cminflt, cmajflt by the parent's wait, before the child's entry in /proc goes (kernel/exit.c,
  wait_task_zombie, then release_task). So once a member is gone, a reading of its parent made *after* that shows
  whether it was waited for: the rise holds at least what the member had when last seen. That part has been counted
  and is taken off; the rest (its last moments, children that lived between two ticks) is new.
- A parent that ignores SIGCHLD, or an init outside of the group, passes nothing on: there is no rise to take from.
- When the parent itself has ended, the child was given to the nearest subreaper, an ancestor, or to init
  (find_new_reaper): every living ancestor's rise is tried, nearest first.
- /proc/PID/io contains waited-for children within the same numbers (wait_task_zombie adds their ioac to the parent's
  signal struct). What a waited-for member had is owed by its parent's next growth. So io must be read before stat:
  a wait that is seen in io is then seen in stat as well.
- schedstat and the context switches of status are passed on to nobody: the last seen value stays counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import add, le, sub

from sonde.collectors.procfs import Spent, Stat

_NOTHING: Spent = (0, 0, 0, 0)


class Group:
    """The running totals of one set of processes: counters only rise, gauges follow the members."""

    __slots__ = (
        "denied", "fds", "involuntary", "major", "minor", "processes", "read_bytes", "resident", "shared", "size",
        "swap_bytes", "system", "threads", "user", "voluntary", "wait_ns", "written_bytes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.minor = self.major = self.user = self.system = 0  # faults; clock ticks
        self.read_bytes = self.written_bytes = 0
        self.wait_ns = self.voluntary = self.involuntary = 0
        self.processes = self.threads = self.fds = 0
        self.size = self.resident = self.shared = 0  # pages
        self.swap_bytes = 0
        self.denied = 0  # members whose io or descriptors may not be read

    def spend(self, spent: Iterable[int]) -> None:
        minor, major, user, system = spent
        self.minor += minor
        self.major += major
        self.user += user
        self.system += system


class Member:
    """One process (pid and start time) and its last readings. A descriptor is -1 when there is none."""

    __slots__ = (
        "denied", "detailed", "fds", "group", "idle", "involuntary", "io", "moved", "number", "open_files", "owed",
        "own", "pages", "parent", "pid", "ran", "schedstat", "seen_io", "seen_schedstat", "seen_stat", "seen_statm",
        "start", "stat", "state", "statm", "swap_bytes", "threads", "voluntary", "wait_ns", "waited",
    )  # fmt: skip

    def __init__(self, pid: int, start: int, group: Group, number: int) -> None:
        self.pid, self.start, self.group, self.number = pid, start, group, number
        self.fds: tuple[int, ...] = ()
        self.stat = self.statm = self.io = self.schedstat = -1
        self.seen_stat = self.seen_statm = self.seen_io = self.seen_schedstat = b""
        self.state, self.parent, self.threads = b"", 0, 0
        self.own = self.waited = _NOTHING
        self.moved = (0, 0)  # bytes read and written
        self.owed = (0, 0)  # of what will yet appear in moved, what is counted already
        self.pages = (0, 0, 0)
        self.wait_ns = self.voluntary = self.involuntary = self.swap_bytes = self.open_files = 0
        self.idle = False  # cannot have changed while schedstat reads the same
        self.ran = True  # since status was read
        self.detailed = self.denied = False

    @property
    def counted(self) -> Spent:
        """What of this process, and of the children it waited for, is in a total."""
        minor, major, user, system = map(add, self.own, self.waited)
        return minor, major, user, system

    @property
    def ended(self) -> bool:
        """A zombie. A main thread that has ended before the others shows Z too, but has threads."""
        return self.state in (b"Z", b"X") and not self.threads


class Ledger:
    """The members and what the present tick found about them. `read(member)` gives a member's stat as it is now, None
    when it is gone."""

    def __init__(self, read: Callable[[Member], Stat | None]) -> None:
        self._read = read
        self.members: dict[int, Member] = {}
        self._rises: dict[Member, list[int]] = {}
        self._moves: dict[Member, tuple[int, int]] = {}
        self._buried: dict[int, Member] = {}  # in this tick
        self._taken_by: dict[Member, Member] = {}  # who waited for it, of the buried
        self._orphaned: set[int] = set()  # pids whose children have got another parent
        self.ended: list[Member] = []  # taken out since the owner last emptied this

    def account(self, member: Member, stat: Stat) -> None:
        group = member.group
        group.spend(map(sub, stat.own, member.own))
        if stat.waited != member.waited:
            rise = self._rises.setdefault(member, [0, 0, 0, 0])
            rise[:] = map(add, rise, map(sub, stat.waited, member.waited))
        member.own, member.waited, member.state, member.parent = stat.own, stat.waited, stat.state, stat.parent
        threads = stat.threads
        if stat.state == b"Z" and threads <= 1:
            threads = 0
            self._orphaned.add(member.pid)
        group.threads += threads - member.threads
        member.threads = threads

    def move(self, member: Member, moved: tuple[int, int]) -> None:
        self._moves[member] = moved

    def close_tick(self, gone: dict[int, Member]) -> None:
        """Take out the members that were found gone and settle what the tick has found."""
        if gone:
            for member in gone.values():
                # Its io is newer than its stat, and may contain children whose wait was not seen: its heir has it all.
                self._moves.pop(member, None)
            self.bury(gone)
        if self._rises:
            while reaped := self._reaped_while_reading():
                self._remove(reaped)
                self._pass_on(reaped)
            for member, rise in self._rises.items():
                member.group.spend(rise)
            self._rises.clear()
        for member in list(self._moves):
            self._transfer(member)
        self._buried.clear()
        self._taken_by.clear()
        if self._orphaned:
            for member in self.members.values():
                if member.parent in self._orphaned:
                    member.idle = False  # its stat names another parent now
            self._orphaned.clear()

    def bury(self, gone: dict[int, Member]) -> None:
        """Take members out, and what their reapers inherited from them off the reapers' rises."""
        all_gone: dict[int, Member] = {}
        fresh = gone
        while fresh:
            all_gone |= fresh
            self._remove(fresh)
            # Only a reading made after the end of a member tells whether its parent waited for it.
            heirs = {heir for member in fresh.values() for heir in self._heirs(member) if heir.pid in self.members}
            fresh = {heir.pid: heir for heir in heirs if not self._account_again(heir)}
        self._settle(all_gone)

    def _account_again(self, member: Member) -> bool:
        stat = self._read(member)
        if stat is not None:
            self.account(member, stat)
        return stat is not None

    def _remove(self, gone: dict[int, Member]) -> None:
        for pid, member in gone.items():
            self.members.pop(pid, None)
            leave(member)
        self._buried |= gone
        self._orphaned |= gone.keys()
        self.ended += gone.values()

    def _settle(self, gone: dict[int, Member]) -> None:
        """Take what was counted of these off the rises that contain it.

        First those with one possible heir, the largest first: these fit nowhere else. Then the orphans. What fits
        nowhere was not waited for by anybody in sight, or another was mistaken for it: as much as is left of the
        heirs' rises is taken off then, so that a doubt costs a little of the total and never counts twice.
        """
        claims = [(member, list(self._heirs(member))) for member in gone.values()]
        claims.sort(key=lambda claim: (len(claim[1]), [-part for part in claim[0].counted]))
        doubtful = [(member, heirs) for member, heirs in claims if not self._take(member, heirs)]
        for member, heirs in doubtful:
            self._take_rest(member, heirs)
        self._pass_on(gone)

    def _pass_on(self, gone: dict[int, Member]) -> None:
        """Let the heirs owe what was counted of the transfers of these. From the leaves upwards, because an heir that
        is gone itself passes on what it owes."""
        depth = {member: sum(heir.pid in gone for heir in self._heirs(member)) for member in gone.values()}
        for member in sorted(depth, key=lambda member: -depth[member]):
            self._transfer(member)
            heir = self._taken_by.get(member)
            while heir is not None and heir.pid in self._buried and heir.pid not in gone:
                heir = self._taken_by.get(heir)
            if heir is not None:
                heir.owed = _sum(heir.owed, _sum(member.moved, member.owed))

    def _take(self, member: Member, heirs: list[Member]) -> bool:
        counted = member.counted
        for heir in heirs:
            rise = self._rises.get(heir)
            if rise is not None and all(map(le, counted, rise)):
                rise[:] = map(sub, rise, counted)
                self._taken_by[member] = heir
                return True
        return False

    def _take_rest(self, member: Member, heirs: list[Member]) -> None:
        left = list(member.counted)
        for rise in [self._rises[heir] for heir in heirs if heir in self._rises]:
            taken = list(map(min, rise, left))
            rise[:] = map(sub, rise, taken)
            left = list(map(sub, left, taken))

    def _heirs(self, member: Member) -> Iterator[Member]:
        """Who may have waited for it: its parent or, when that has ended too, any ancestor; nearest first.

        One that is buried itself may have been read after its wait and before its end: its rise comes first then.
        """
        pid = member.parent
        for _ in range(len(self.members) + len(self._buried)):  # a circle is impossible but for reused ids
            ancestor = self.members.get(pid) or self._buried.get(pid)
            if ancestor is None:
                return
            yield ancestor
            if pid == member.parent and pid in self.members and not ancestor.ended:
                return
            pid = ancestor.parent

    def _reaped_while_reading(self) -> dict[int, Member]:
        """Members that were read while they lived and waited for before their heir was read, in this tick.

        They would be counted twice. Only one that fits into an heir's rise can be such, which leaves hardly any to be
        tried. If it ended after its heir was read, the next tick adds what this one takes off; if another has taken
        its place in the rise, the next tick finds it gone. Nothing is accounted for here: a new rise would bring new
        suspects.
        """
        risen = {member.pid for member, rise in self._rises.items() if any(rise)}
        if not risen:
            return {}
        near = risen | self._buried.keys()
        suspects = [member for member in self.members.values() if member.parent in near and self._fits(member)]
        gone = [member for member in suspects if self._read(member) is None]
        return {member.pid: member for member in gone if self._take(member, list(self._heirs(member)))}

    def _fits(self, member: Member) -> bool:
        counted = member.counted
        rises = [self._rises[heir] for heir in self._heirs(member) if heir in self._rises]
        return any(all(map(le, counted, rise)) for rise in rises)

    def _transfer(self, member: Member) -> None:
        moved = self._moves.pop(member, None)
        if moved is None:
            return
        grown = (moved[0] - member.moved[0], moved[1] - member.moved[1])
        paid = (min(grown[0], member.owed[0]), min(grown[1], member.owed[1]))
        member.group.read_bytes += grown[0] - paid[0]
        member.group.written_bytes += grown[1] - paid[1]
        member.owed = (member.owed[0] - paid[0], member.owed[1] - paid[1])
        member.moved = moved


def leave(member: Member) -> None:
    """Take a member's share out of the gauges of its group."""
    group = member.group
    group.processes -= 1
    group.threads -= member.threads
    group.size -= member.pages[0]
    group.resident -= member.pages[1]
    group.shared -= member.pages[2]
    group.swap_bytes -= member.swap_bytes
    group.fds -= member.open_files
    group.denied -= member.denied


def _sum(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]

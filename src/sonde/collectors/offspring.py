"""The descendants of given processes, from the parent and session in /proc/PID/stat.

A member stays one when it is orphaned. A daemon that detached by forking twice before it was ever seen is still found
if it belongs to a session that a member leads.
"""

from __future__ import annotations

from sonde.collectors.ledger import Group
from sonde.collectors.proctree import Walker, read_identity
from sonde.hostfs import HostFS
from sonde.schedulers.pids import PidTable


class Offspring:
    def __init__(self, host: HostFS, walker: Walker) -> None:
        self._host = host
        self._walker = walker
        self._pids = PidTable(host)
        self._sessions: dict[int, Group] = {}

    def add(self, pid: int, group: Group) -> bool:
        """Follow a process and all that descends from it; False when there is no such process."""
        identity = read_identity(self._host, pid)
        return identity is not None and self._follow(pid, identity[1], identity[2], group)

    def _follow(self, pid: int, session: int, start: int, group: Group) -> bool:
        if not self._walker.follow(pid, start, group):
            return False
        if session == pid:
            self._sessions[pid] = group
        return True

    def scan(self, groups: frozenset[Group]) -> None:
        """Follow what was born to these groups since the last scan."""
        self._sessions = {pid: group for pid, group in self._sessions.items() if group in groups}
        new, _ = self._pids.changes()
        unplaced = {pid: found for pid in new if (found := read_identity(self._host, pid)) is not None}
        placed = True
        while placed:  # a generation at a time: the parent may be as new as the child
            placed = False
            for pid, (parent, session, start) in list(unplaced.items()):
                group = self._group_of(parent, session)
                if group is not None and group in groups:
                    del unplaced[pid]
                    placed |= self._follow(pid, session, start, group)

    def _group_of(self, parent: int, session: int) -> Group | None:
        member = self._walker.members.get(parent)
        return member.group if member is not None else self._sessions.get(session)

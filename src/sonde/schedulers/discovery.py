"""Which processes of this host belong to which job, step and rank, from /proc/PID/{cgroup,environ,stat}.

A scan looks only at processes that are new since the last one, forks nothing and keeps of an environment only what the
schedulers ask for. What one process tells of its job is the rule of membership.py. An environment that may not be read
is counted as denied. Where the batch system goes by sessions, a process that says nothing of a job belongs to the one
that has its session.

A `Scope` narrows a scan down to some jobs, and makes a job out of given processes and all that descends from them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.procstat import parse_kinship, parse_stat
from sonde.schedulers import cgroupfs, hostlist
from sonde.schedulers.job import NO_RANK, Job, JobId, Rank, Scheduler
from sonde.schedulers.membership import Membership, Sight
from sonde.schedulers.pids import PidTable

_AT_ONCE = 500  # new processes looked at in one scan: at 40 µs each this keeps the other collectors punctual
_NOBODY = JobId("", "")
Known = tuple[JobId, int]  # the job a process was of, and when it started
# The batch system's own helpers sit in a job's cgroup under a system account: oarexec as oar, slurmstepd as root.
# Accounts of people begin here (login.defs(5), UID_MIN).
_FIRST_USER = 1000


class Process(NamedTuple):
    pid: int
    start: int  # clock ticks since boot: tells a reused pid
    step: str = ""
    task: str = ""
    rank: Rank = NO_RANK


class Scope(NamedTuple):
    """What is looked for. Empty: every job there is."""

    jobs: frozenset[str] = frozenset()  # only these, by their ids
    roots: Mapping[int, Job] = MappingProxyType({})  # processes that are of a job, with all below them
    without_pids: frozenset[int] = frozenset()  # that are of no job, whatever they say
    without_steps: frozenset[str] = frozenset()  # of a job, that do not count as its work

    def wants(self, job: Job) -> bool:
        if self.jobs and job.id.text not in self.jobs and job.key.text not in self.jobs:
            return False
        return not job.step or job.step not in self.without_steps


EVERYTHING = Scope()


class Found:
    """A job on this host. `cgroups` are the job's own directories by controller, `leaves` those of its tasks.

    A job of several parts (the pods of a training job) has them all in `parts`, and in `cgroups` those of the first.
    """

    __slots__ = ("cgroups", "job", "leaves", "parts", "processes", "uid_told")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.processes: dict[int, Process] = {}
        self.cgroups: dict[str, str] = {}
        self.parts: dict[str, dict[str, str]] = {}
        self.leaves: set[str] = set()  # in the v1 memory hierarchy
        self.uid_told = False

    def place(self, controller: str, directory: str, part: str) -> None:
        if part:
            self.parts.setdefault(part, {}).setdefault(controller, directory)
        self.cgroups.setdefault(controller, directory)

    def take_in(self, other: Found) -> None:
        """Make the other's processes and directories this job's."""
        self.processes |= other.processes
        self.leaves |= other.leaves
        for part, directories in other.parts.items():
            for controller, directory in directories.items():
                self.place(controller, directory, part)

    def ranks(self) -> list[Process]:
        """One process per step and rank: the first started, the top of the rank's tree. Its children inherit RANK."""
        first: dict[tuple[str, int], Process] = {}
        for process in sorted(self.processes.values(), key=lambda process: (process.start, process.pid)):
            if process.rank.global_rank is not None:
                first.setdefault((process.step, process.rank.global_rank), process)
        return [first[key] for key in sorted(first)]


def denial(count: int) -> str:
    """That so many processes hide their environment, and what would open it to us."""
    whose = "1 process" if count == 1 else f"{count} processes"
    needed = "needs root or CAP_SYS_PTRACE" if os.geteuid() else "the kernel refuses it even to root"
    return f"the environment of {whose} may not be read: {needed}"


class Discovery:
    """Holds the jobs of this host. `scan` brings it up to date; call it when due or when `disturbed`."""

    def __init__(self, host: HostFS, schedulers: Sequence[Scheduler], scope: Scope = EVERYTHING) -> None:
        self._host = host
        self._scope = scope
        self._rooted = {job.key: job for job in scope.roots.values()}
        self._root_starts: dict[int, int] = {}  # the id of a root that has ended may be given out again
        self._membership = Membership(host, schedulers, adopted=self._adopt)
        self.mounts = cgroupfs.mounts(host)
        patterns = [pattern for scheduler in schedulers for pattern in scheduler.cgroup_parents]
        self._watch = cgroupfs.Watch(host, self.mounts, patterns)
        self._pids = PidTable(host)
        self._second_look: set[int] = set()
        self._denied: set[int] = set()
        self.unfinished = False  # the last scan has left processes for the next
        self._changed = False
        self._node_files = {scheduler.name: scheduler.node_files for scheduler in schedulers}
        self._sessions: dict[int, JobId] = {}
        self._owners: dict[int, JobId] = {}
        self.jobs: dict[JobId, Found] = {}

    @property
    def denied(self) -> int:
        """Processes in no job's cgroup whose environment this user may not read."""
        return len(self._denied)

    def disturbed(self) -> bool:
        """Cheap enough for every tick: a job directory came or went, or the last scan left processes for the next."""
        return self.unfinished or self._watch.disturbed()

    def scan(self) -> bool:
        """Look at the new processes; True when a job has got or lost one, or a denied one came or went."""
        self._changed = False
        self._watch.refresh()
        new, gone = self._pids.changes()
        for pid in gone:
            self._forget(pid)
        self.unfinished = len(new) > _AT_ONCE
        if self.unfinished:
            self._pids.again(new[_AT_ONCE:])
        repeated = [pid for pid in new[:_AT_ONCE] if not self._look(pid)]
        # A process caught between fork and exec, or before its launcher moved it, shows its parent's cgroup and
        # environment: what belongs to no job is looked at twice.
        once_more = [pid for pid in repeated if pid not in self._second_look]
        self._second_look = set(once_more)
        self._pids.again(once_more)
        if self._changed:
            self.jobs = {key: found for key, found in self.jobs.items() if found.processes}
            self._sessions = {session: key for session, key in self._sessions.items() if key in self.jobs}
        return self._changed

    def close(self) -> None:
        self._watch.close()

    def forget(self, key: JobId) -> None:
        """Drop a job whose end was noticed before the next scan. Its processes are not looked at again."""
        found = self.jobs.pop(key, None)
        for pid in found.processes if found is not None else ():
            self._owners.pop(pid, None)

    def _forget(self, pid: int) -> Known | None:
        key = self._owners.pop(pid, _NOBODY)
        found = self.jobs.get(key)
        known = None
        if found is not None:
            known = key, found.processes.pop(pid).start
            self._changed = True
        if pid in self._denied:
            self._denied.remove(pid)
            self._changed = True
        return known

    def _look(self, pid: int) -> bool:
        """File a new process under its job; False when it has none."""
        before = self._forget(pid)  # of a reused id, or of one that is presented once more
        try:
            return self._file(pid, before)
        except (FileNotFoundError, ProcessLookupError):
            return True  # gone again: nothing to look at twice
        except PermissionError:
            return True  # /proc is mounted with hidepid
        except ParseError:
            return False

    def _file(self, pid: int, before: Known | None) -> bool:
        if pid in self._scope.without_pids:
            return True
        sight = self._membership.look(pid)
        job = (self._job_of_root(pid, before) if self._rooted else None) or sight.job
        if sight.hidden and not sight.inside and not self._rooted:
            self._denied.add(pid)
            self._changed = True
        if job is None and self._sessions:
            job = self._job_of_session(pid)
        if job is None:
            return False
        if self._scope.wants(job):
            self._add(pid, job, sight)
        return True

    def _job_of_root(self, pid: int, before: Known | None) -> Job | None:
        """The job of a given process or of its parent. What a launcher in the tree calls its own does not matter."""
        text = self._host.read(f"proc/{pid}/stat")
        start = parse_stat(text)[1]
        if before is not None and before[0] in self._rooted and before[1] == start:
            return self._rooted[before[0]]  # its parent may have ended since
        job = self._scope.roots.get(pid)
        if job is not None:
            return job if self._root_starts.setdefault(pid, start) == start else None
        return self._rooted.get(self._owners.get(parse_kinship(text).parent, _NOBODY))

    def _adopt(self, part: JobId, whole: Job) -> None:
        """Those already found in a part belong to the whole as well."""
        orphan = self.jobs.pop(part, None)
        if orphan is not None:
            found = self.jobs.setdefault(whole.key, Found(whole))
            found.take_in(orphan)
            self._owners |= dict.fromkeys(orphan.processes, whole.key)

    def _add(self, pid: int, job: Job, sight: Sight) -> None:
        session, start = parse_stat(self._host.read(f"proc/{pid}/stat"))
        process = Process(pid, start, job.step, job.task, sight.rank)
        found = self.jobs.get(job.key)
        if found is None:
            found = self.jobs[job.key] = Found(self._with_nodes(job))
        else:
            found.job = found.job.completed(job)
        if not found.uid_told:
            self._note_uid(found, job.uid, pid)
        if job.key in self._rooted:
            if session == pid:  # one that it has opened; the one it was born into is its user's
                self._sessions.setdefault(session, job.key)
        elif job.id.scheduler in self._membership.by_session:
            self._note_session(session, pid, job.key)
        found.processes[pid] = process
        self._owners[pid] = job.key
        self._denied.discard(pid)
        self._changed = True
        for name, path, owner in sight.inside:
            found.place(name, owner.cgroup, job.part)
            if name == "memory":
                found.leaves.add(path)

    def _note_uid(self, found: Found, told: int | None, pid: int) -> None:
        """Take the user from the batch system's word, else from the first process that is a person's."""
        known = found.job.uid
        if told is not None:
            found.job, found.uid_told = found.job._replace(uid=told), True
        elif known is None or known < _FIRST_USER:
            uid = self._uid(pid)
            if known is None or (uid is not None and uid >= _FIRST_USER):
                found.job = found.job._replace(uid=uid)

    def _note_session(self, session: int, pid: int, key: JobId) -> None:
        """A session is a job's if its leader is: one exported variable does not make a job of a login session.

        A member speaks for a leader that has ended. Session 0 is one of another namespace.
        """
        if session and (session == pid or not self._host.exists(f"proc/{session}")):
            self._sessions.setdefault(session, key)

    def _job_of_session(self, pid: int) -> Job | None:
        """The job whose session a process shares that says nothing of a job itself."""
        session, _ = parse_stat(self._host.read(f"proc/{pid}/stat"))
        if session == pid:
            # It has left its session, or has the id of a leader that is gone. No id is given out while a session
            # has it (kernel/pid.c), so nobody is left of that one.
            self._sessions.pop(session, None)
            return None
        found = self.jobs.get(self._sessions.get(session, _NOBODY))
        return None if found is None else found.job._replace(step="", task="")

    def _with_nodes(self, job: Job) -> Job:
        """The job with the hosts its batch system wrote down. The path a process' environment names is not followed:

        it could be any file of any user, and we may be root.
        """
        for pattern in self._node_files.get(job.id.scheduler, ()) if not job.nodes else ():
            try:
                text = self._host.text(pattern.format(id=job.key.text))
                return job._replace(nodes=tuple(hostlist.parse_node_file(text)))
            except (OSError, ParseError):
                continue  # another spool directory, or a job whose file is on its first node only
        return job

    def _uid(self, pid: int) -> int | None:
        """The real user of a process: the first number behind `Uid:` in /proc/PID/status."""
        try:
            words = self._host.read(f"proc/{pid}/status").partition(b"\nUid:")[2].split(None, 1)
        except OSError:
            return None
        return int(words[0]) if words and words[0].isdigit() else None

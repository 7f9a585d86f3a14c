"""The jobs on this node and what each has used, from their cgroups or, where they have none, their processes.

Reading a cgroup costs the same for one process and for a thousand (cgroup.py); a job without one is walked
(proctree.py). Where a cgroup lacks a controller the job is walked too if that concerns CPU time or memory, and the
rest is a gap. docs/jobs.md shows how to join these series with the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

from sonde.collectors import cgroup
from sonde.collectors.account_metrics import account_gaps
from sonde.collectors.account_sum import Sum
from sonde.collectors.job_metrics import (
    CPU,
    INFO,
    KEYS,
    PEAK,
    POD,
    PROCESSES,
    RANK,
    RSS,
    STALLED,
    WAITING,
    WALKED,
)
from sonde.collectors.ledger import Group
from sonde.collectors.proctree import Walker
from sonde.collectors.roster import Roster
from sonde.collectors.scope import parse_pids, scope_of
from sonde.errors import ParseError, ReadError
from sonde.hostfs import HostFS
from sonde.model import Event, Gap, MetricSpec, Quality, Reading, Series
from sonde.registry import SCHEDULERS, load
from sonde.schedulers import hostlist
from sonde.schedulers.discovery import Discovery, Found, denial
from sonde.schedulers.job import Job, JobId
from sonde.units import Duration

_WORTH_WALKING = ("cpu_user", "rss")


class JobConfig(NamedTuple):
    scan: Duration = Duration(10)  # how long a job without a cgroup may go unnoticed
    schedulers: tuple[str, ...] = ()  # in the order in which they are asked; empty: all
    max_jobs: int = 1000
    max_processes: int = 10000  # that are walked, of all jobs together
    only: tuple[str, ...] = ()  # jobs, by their ids; empty: all
    pids: tuple[str, ...] = ()  # processes that are a job, with all that descends from them
    name: str = ""  # the id of that job; empty: the pids
    without_pids: tuple[str, ...] = ()  # processes that are not counted
    without_steps: tuple[str, ...] = ()  # steps of a job that are not counted, where it has no cgroup


class Tracked:
    """One job and where its numbers come from."""

    def __init__(self, key: JobId, found: Found, account: cgroup.Account | Sum) -> None:
        self.key = key
        self.account = account
        self.group: Group | None = None
        self.name = ""  # the job id its series carry
        self.keys = account.keys
        self._walk: tuple[Callable[[Group], int | float], ...] = ()
        self._has_io = True
        self.values: list[int | float] = []
        self.kills: int | float | None = None
        self.update(found)

    def update(self, found: Found) -> None:
        self.found = found
        if isinstance(self.account, Sum):
            self.account.follow(found.parts, found.leaves)
            self.keys = self.account.keys
            self.choose(has_io=self._has_io)
        else:
            self.account.add_leaves(found.leaves)

    def walk(self) -> Group:
        """Take from the processes what the cgroup does not give."""
        self.group = Group()
        return self.group

    def choose(self, *, has_io: bool) -> bool:
        """Settle which keys there are; True when they are others than before."""
        self._has_io = has_io
        if self.group is None:
            return False
        unread = () if has_io and not self.group.denied else ("read", "written")
        extra = [key for key in WALKED if key not in self.account.keys and key not in unread]
        before, self.keys = self.keys, (*self.account.keys, *extra)
        self._walk = tuple(WALKED[key] for key in extra)
        return self.keys != before

    def read(self) -> list[int | float]:
        self.values = values = self.account.read()
        if self.group is not None:
            values += [take(self.group) for take in self._walk]
        return values

    def value(self, key: str) -> int | float | None:
        return self.values[self.keys.index(key)] if key in self.keys and self.values else None

    @property
    def parts(self) -> list[str]:
        return self.account.parts if isinstance(self.account, Sum) else []

    @property
    def labels(self) -> tuple[str, str]:
        return self.name, self.key.scheduler

    def gaps(self) -> list[Gap]:
        denied = self.group.denied if self.group is not None else 0
        told_below = ("read", "written") if denied else ()
        gaps = account_gaps(KEYS, {*self.keys, *told_below}, self.labels, self.account.missing, "job")
        if isinstance(self.account, Sum) and len(self.account.parts) > 1 and "peak" in self.keys:
            gaps.append(Gap(PEAK, self.labels, Quality.ESTIMATED, "added up over pods, which peak at different times"))
        if self.group is not None and "rss" not in self.account.keys:
            summed = "added up over processes: a page that several share counts for each"
            gaps.append(Gap(RSS, self.labels, Quality.ESTIMATED, summed))
        if denied:
            whose = f"I/O of {denied} processes of another user may not be read"
            gaps += [Gap(KEYS[key][0], self.labels, Quality.DENIED, whose) for key in ("read", "written")]
        return gaps

    def event(self, name: str, **more: str | int | float | None) -> Event:
        job = self.found.job
        about = {"job_id": self.name, "scheduler": self.key.scheduler, "user": job.user, "name": job.name}
        return Event(time.time_ns(), name, {**about, **more})


class JobCollector:
    Config: ClassVar[type] = JobConfig
    metrics: ClassVar[tuple[MetricSpec, ...]] = (
        INFO,
        RANK,
        POD,
        PROCESSES,
        *dict.fromkeys(spec for spec, _ in KEYS.values()),
    )
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: JobConfig) -> None:
        names = config.schedulers or tuple(SCHEDULERS)
        self._host = host
        self._config = config
        schedulers = [load(SCHEDULERS, name, "collectors.job.schedulers")() for name in names]
        roots = parse_pids(config.pids, "collectors.job.pids")
        whole = Job(JobId("local", config.name or "+".join(config.pids)))
        self._discovery = Discovery(host, schedulers, scope_of(config, dict.fromkeys(roots, whole), "job"))
        self._walker = Walker(host, max_processes=config.max_processes)
        self._jobs: dict[JobId, Tracked] = {}
        self._roster = Roster(KEYS)
        self._gaps: tuple[Gap, ...] = ()
        self._scan_due_ns = 0
        self._events: list[Event] = []

    def collect(self) -> Reading:
        now = time.monotonic_ns()
        if now >= self._scan_due_ns or self._discovery.disturbed():
            self._scan_due_ns = now + self._config.scan.ns
            self._scan()
        if self._walker.members:
            self._walk()
        self._read()
        events, self._events = self._events, []
        return Reading(self._roster.layout, self._roster.values(list(self._jobs.values())), events, self._gaps)

    def _walk(self) -> None:
        if self._walker.tick() and any(job.group and not job.group.processes for job in self._jobs.values()):
            self._scan_due_ns = 0  # the last process of a job has ended: let the next tick say so
        changed = [job for job in self._jobs.values() if job.choose(has_io=self._walker.has_io)]
        if changed:
            self._arrange()

    def _read(self) -> None:
        for _ in range(len(self._jobs) + 2):
            for job in self._jobs.values():
                try:
                    job.read()
                except (cgroup.Vanished, cgroup.Reshaped, OSError, ParseError) as change:
                    # A fresh account leaves out what cannot be read; the other jobs are none the worse for it.
                    self._replace(job, ended=isinstance(change, cgroup.Vanished))
                    break
                if (kills := job.value("oom_kills")) != job.kills:
                    self._report_kills(job, kills)
            else:
                return
        raise ReadError("the cgroups of the jobs change faster than they can be read")

    def _report_kills(self, job: Tracked, kills: int | float | None) -> None:
        if job.kills is not None and kills is not None and kills > job.kills:
            self._events.append(job.event("oom.kill", kills=kills - job.kills))
        job.kills = kills

    def _replace(self, job: Tracked, *, ended: bool) -> None:
        if ended:
            self._discovery.forget(job.key)
            self._end(job)
        elif isinstance(job.account, Sum):
            job.update(job.found)  # it has made itself anew
        else:
            job.account.close()
            if job.group is not None:
                self._walker.drop(job.group)
            fresh = self._jobs[job.key] = self._tracked(job.key, job.found)
            fresh.name = job.name
        self._arrange()

    def _scan(self) -> None:
        if not self._discovery.scan() and not self._walker.refused:
            return
        jobs = self._discovery.jobs
        for key in [key for key in self._jobs if key not in jobs]:
            self._end(self._jobs[key])
        self._walker.refused = 0
        started = []
        for key, found in jobs.items():
            if key in self._jobs:
                self._jobs[key].update(found)
            elif len(self._jobs) < self._config.max_jobs:
                started.append(self._jobs.setdefault(key, self._tracked(key, found)))
            else:
                continue
            self._follow(self._jobs[key])
        self._arrange()
        self._events += [job.event("job.start") for job in started]

    def _tracked(self, key: JobId, found: Found) -> Tracked:
        account: cgroup.Account | Sum = (
            Sum(self._host, self._discovery.mounts)
            if found.parts
            else cgroup.Account(self._host, self._discovery.mounts, found.cgroups, found.leaves)
        )
        job = Tracked(key, found, account)
        if any(key not in job.keys for key in _WORTH_WALKING):
            job.walk()
            job.choose(has_io=self._walker.has_io)
            self._follow(job)
        return job

    def _follow(self, job: Tracked) -> None:
        if job.group is not None:
            for process in job.found.processes.values():
                self._walker.follow(process.pid, process.start, job.group)

    def _end(self, job: Tracked) -> None:
        user, system = job.value("cpu_user"), job.value("cpu_system")
        cpu = None if user is None or system is None else user + system
        self._events.append(job.event("job.end", cpu_seconds=cpu, memory_peak_bytes=job.value("peak")))
        job.account.close()
        if job.group is not None:
            self._walker.drop(job.group)
        del self._jobs[job.key]

    def _arrange(self) -> None:
        """Lay out the series anew if they are other ones than before."""
        jobs = list(self._jobs.values())
        _name(jobs)
        fixed: list[tuple[Series, int]] = [((INFO, _info_labels(job)), 1) for job in jobs]
        fixed += [((RANK, labels), 1) for job in jobs for labels in _rank_labels(job)]
        fixed += [((POD, (*job.labels, part)), 1) for job in jobs for part in job.parts]
        fixed += [((PROCESSES, job.labels), len(job.found.processes)) for job in jobs]
        self._roster.arrange(fixed, jobs)
        self._note_gaps(jobs)

    def _note_gaps(self, jobs: Sequence[Tracked]) -> None:
        gaps = [gap for job in jobs for gap in job.gaps()]
        if jobs and not any("waiting_cpu" in job.keys for job in jobs):
            reason = "only cgroup v2 accounts for the pressure of a job"
            gaps += [Gap(spec, (), Quality.UNSUPPORTED, reason) for spec in (WAITING, STALLED)]
        if self._discovery.denied:
            gaps.append(Gap(INFO, (), Quality.DENIED, denial(self._discovery.denied)))
        if self._walker.refused:
            reason = f"{self._walker.refused} processes are beyond max_processes"
            gaps.append(Gap(CPU, (), Quality.ESTIMATED, reason))
        left_out = len(self._discovery.jobs) - len(jobs)
        if left_out > 0:
            gaps.append(Gap(INFO, (), Quality.BLANK, f"{left_out} jobs are beyond max_jobs"))
        if tuple(gaps) != self._gaps:
            self._gaps = tuple(gaps)

    def close(self) -> None:
        self._walker.close()
        self._discovery.close()
        for job in self._jobs.values():
            job.account.close()


def _name(jobs: Sequence[Tracked]) -> None:
    """Give each job its id as label. A user can put anybody's id into an environment: the second keeps its key."""
    taken: set[tuple[str, str]] = set()
    for job in jobs:
        texts = [job.found.job.id.text, job.key.text]
        texts += [f"{job.key.text}~{number}" for number in range(2, len(jobs) + 2)]
        job.name = next(text for text in texts if (text, job.key.scheduler) not in taken)
        taken.add(job.labels)


def _info_labels(job: Tracked) -> tuple[str, ...]:
    about = job.found.job
    uid = "" if about.uid is None else str(about.uid)
    return (*job.labels, about.user, uid, about.name, about.partition, about.account, hostlist.compress(about.nodes))


def _rank_labels(job: Tracked) -> list[tuple[str, ...]]:
    return [
        (
            *job.labels,
            process.step,
            *("" if number is None else str(number) for number in process.rank),
            str(process.pid),
        )
        for process in job.found.ranks()
    ]

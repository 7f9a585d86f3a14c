"""Containers on this node and what each has used, from the accounting files of their cgroups, v1 or v2.

A container is found as a job is: by the cgroup path of its processes (schedulers/container.py), in a scan of the new
ones. The numbers are those of its own cgroup (cgroup.py), at the same cost for one process and for a thousand.
Names come from the kubelet's log directories, the environment and the mounts of its first process (schedulers/pods.py);
nothing is asked of the API server or the runtime. docs/how-to/containers.md shows how to join these series.

The working set is usage less the page cache that goes first when memory is short: what the kubelet evicts by.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from sonde.collectors import cgroup
from sonde.collectors.account_metrics import Keys, account_gaps, account_keys, is_pressure
from sonde.collectors.roster import Roster
from sonde.errors import ParseError, ReadError, Unavailable
from sonde.hostfs import HostFS
from sonde.model import Event, Gap, Kind, MetricSpec, Quality, Reading, Series, Unit
from sonde.schedulers.container import CONTAINER_PARENTS, Container, container_of
from sonde.schedulers.discovery import Discovery, Found
from sonde.schedulers.job import Environ, Job, JobId, parse_environ
from sonde.schedulers.pods import LogNames, Names, container_name, names_from_environ
from sonde.units import Duration

_CONTAINER = ("container_id",)
INFO = MetricSpec(
    "sonde_container_info",
    Kind.INFO,
    Unit.NONE,
    "A container that has processes on this node; always 1.",
    (*_CONTAINER, "pod_uid", "namespace", "pod", "container", "runtime", "qos"),
)
PROCESS = MetricSpec(
    "sonde_container_process_info",
    Kind.INFO,
    Unit.NONE,
    "A process of a container, as of the last scan; always 1.",
    (*_CONTAINER, "pid"),
)
PROCESSES = MetricSpec(
    "sonde_container_processes", Kind.GAUGE, Unit.NONE, "Processes of the container, as of the last scan.", _CONTAINER
)
KEYS: Keys = {
    **account_keys("container", _CONTAINER),
    "cpu_usage": (
        MetricSpec(
            "sonde_container_cpu_usage_seconds_total",
            Kind.COUNTER,
            Unit.SECONDS,
            "CPU time of both modes, as exact as the kernel has it.",
            _CONTAINER,
        ),
        (),
    ),
    "working_set": (
        MetricSpec(
            "sonde_container_memory_working_set_bytes",
            Kind.GAUGE,
            Unit.BYTES,
            "Memory charged to the container, less the page cache that goes first.",
            _CONTAINER,
        ),
        (),
    ),
}
_PRESSURE = tuple(dict.fromkeys(spec for key, (spec, _) in KEYS.items() if is_pressure(key)))


class ContainerConfig(NamedTuple):
    scan: Duration = Duration(10)  # how long a new container may go unnoticed
    per_process: bool = False  # a series per process, to join sonde_process_* and sonde_job_rank_info on its pid
    max_containers: int = 300  # each keeps some 15 files open


class ContainerFinder:
    """Lets Discovery find containers as it finds the jobs of a batch system."""

    name: ClassVar[str] = "container"
    environ_marks: ClassVar[tuple[bytes, ...]] = ()
    cgroup_parents: ClassVar[tuple[str, ...]] = CONTAINER_PARENTS
    by_session: ClassVar[bool] = False
    node_files: ClassVar[tuple[str, ...]] = ()

    def job_from_cgroup(self, path: str) -> Job | None:
        container = container_of(path)
        return Job(JobId(self.name, container.id), cgroup=container.cgroup) if container is not None else None

    def job_from_environ(self, environ: Environ) -> Job | None:
        return None

    def running_here(self) -> Sequence[Job]:
        return ()

    def describe(self, job: Job) -> Job:
        return job


class Tracked:
    """One container and its account."""

    def __init__(self, container: Container, found: Found, account: cgroup.Account) -> None:
        self.container = container
        self.account = account
        self.found = found
        self.names = Names()
        self.values: list[int | float] = []
        self.kills: int | float | None = None
        keys = account.keys
        self._derived = (keys.index("usage"), keys.index("inactive")) if {"usage", "inactive"} <= set(keys) else None
        self.keys = (*keys, "working_set") if self._derived is not None else keys

    def read(self) -> None:
        self.values = self.account.read()
        if self._derived is not None:
            usage, inactive = self._derived
            # memory.stat is up to 2 s older than the usage: the cache may seem larger than the whole.
            self.values.append(max(0, self.values[usage] - self.values[inactive]))

    @property
    def labels(self) -> tuple[str]:
        return (self.container.id,)

    @property
    def about(self) -> tuple[str, ...]:
        """The labels of the info metric."""
        pod = self.container.pod
        uid, qos = (pod.uid, pod.qos) if pod is not None else ("", "")
        return (*self.labels, uid, *self.names, self.container.runtime, qos)

    def event(self, name: str, **more: int | float) -> Event:
        labels = dict(zip(INFO.labels, self.about, strict=True))
        return Event(time.time_ns(), name, {**labels, **more})


class ContainerCollector:
    Config: ClassVar[type] = ContainerConfig
    metrics: ClassVar[tuple[MetricSpec, ...]] = (
        INFO,
        PROCESS,
        PROCESSES,
        *dict.fromkeys(spec for spec, _ in KEYS.values()),
    )
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: ContainerConfig) -> None:
        self._host = host
        self._config = config
        self._discovery = Discovery(host, [ContainerFinder()])
        if not self._discovery.mounts:
            self._discovery.close()
            raise Unavailable(
                "no cgroup filesystem is mounted", hint="a container needs the host's /sys with all its mounts"
            )
        self._logs = LogNames()
        self._containers: dict[JobId, Tracked] = {}
        self._roster = Roster(KEYS)
        self._gaps: tuple[Gap, ...] = ()
        self._events: list[Event] = []
        self._scan_due_ns = 0

    def collect(self) -> Reading:
        now = time.monotonic_ns()
        if now >= self._scan_due_ns or self._discovery.disturbed():
            self._scan_due_ns = now + self._config.scan.ns
            self._scan()
        self._read()
        events, self._events = self._events, []
        return Reading(self._roster.layout, self._roster.values(list(self._containers.values())), events, self._gaps)

    def _scan(self) -> None:
        if not self._discovery.scan():
            return
        found = self._discovery.jobs
        for key in [key for key in self._containers if key not in found]:
            self._end(key)
        for key, one in found.items():
            if key in self._containers:
                self._containers[key].found = one
                self._containers[key].account.add_leaves(one.leaves)
            elif len(self._containers) < self._config.max_containers:
                self._containers[key] = self._tracked(one)
                self._events.append(self._containers[key].event("container.start"))
        for container in self._containers.values():
            self._name(container)
        self._arrange()

    def _tracked(self, found: Found) -> Tracked:
        account = cgroup.Account(self._host, self._discovery.mounts, found.cgroups, found.leaves, precise=True)
        container = container_of(found.job.cgroup)
        if container is None:
            raise ReadError(f"{found.job.cgroup} is not the directory of a container")
        tracked = Tracked(container, found, account)
        self._name(tracked)
        return tracked

    def _name(self, tracked: Tracked) -> None:
        """Look for the names that are not known yet, where the kubelet says them and where the container does."""
        if all(tracked.names):
            return
        names = tracked.names.completed(self._logs.of_container(self._host, tracked.container.id))
        if tracked.container.pod is not None:
            names = names.completed(self._logs.of_pod(self._host, tracked.container.pod.uid))
        if tracked.names == Names() and tracked.found.processes:
            first = min(tracked.found.processes.values(), key=lambda process: (process.start, process.pid))
            names = names.completed(self._told(first.pid))
        tracked.names = names

    def _told(self, pid: int) -> Names:
        try:
            names = names_from_environ(parse_environ(self._host.read(f"proc/{pid}/environ")))
        except OSError:
            names = Names()
        return Names(names.namespace, names.pod, container_name(self._host, pid) or names.container)

    def _read(self) -> None:
        for _ in range(len(self._containers) + 2):
            for key, container in self._containers.items():
                try:
                    container.read()
                except (cgroup.Vanished, cgroup.Reshaped, OSError, ParseError) as change:
                    self._replace(key, ended=isinstance(change, cgroup.Vanished))
                    break
                self._report_kills(container)
            else:
                return
        raise ReadError("the cgroups of the containers change faster than they can be read")

    def _replace(self, key: JobId, *, ended: bool) -> None:
        if ended:
            self._discovery.forget(key)
            self._end(key)
        else:
            old = self._containers[key]
            old.account.close()
            self._containers[key] = fresh = self._tracked(old.found)
            fresh.names, fresh.kills = old.names, old.kills
        self._arrange()

    def _end(self, key: JobId) -> None:
        container = self._containers.pop(key)
        container.account.close()
        self._events.append(container.event("container.end"))

    def _report_kills(self, container: Tracked) -> None:
        if "oom_kills" not in container.keys:
            return
        kills = container.values[container.keys.index("oom_kills")]
        if container.kills is not None and kills > container.kills:
            self._events.append(container.event("container.oom_kill", kills=kills - container.kills))
        container.kills = kills

    def _arrange(self) -> None:
        entries = list(self._containers.values())
        fixed: list[tuple[Series, int]] = [((INFO, entry.about), 1) for entry in entries]
        if self._config.per_process:
            fixed += [((PROCESS, (*entry.labels, str(pid))), 1) for entry in entries for pid in entry.found.processes]
        fixed += [((PROCESSES, entry.labels), len(entry.found.processes)) for entry in entries]
        self._roster.arrange(fixed, entries)
        gaps = [
            gap
            for entry in entries
            for gap in account_gaps(KEYS, entry.keys, entry.labels, entry.account.missing, "container")
        ]
        if entries and not any("waiting_cpu" in entry.keys for entry in entries):
            reason = "only cgroup v2 accounts for the pressure of a container"
            gaps += [Gap(spec, (), Quality.UNSUPPORTED, reason) for spec in _PRESSURE]
        left_out = len(self._discovery.jobs) - len(entries)
        if left_out > 0:
            gaps.append(Gap(INFO, (), Quality.BLANK, f"{left_out} containers are beyond max_containers"))
        self._gaps = tuple(gaps)

    def close(self) -> None:
        self._discovery.close()
        for container in self._containers.values():
            container.account.close()

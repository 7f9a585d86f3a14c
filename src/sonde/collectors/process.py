"""Trees of processes and the processes of jobs, walked at each tick, from /proc/PID/{stat,statm,io,schedstat,status}.

Off by default: the job collector has a job's totals for a hundredth of the price. This one adds what no cgroup counts
(time on the run queue, context switches, open files), follows any process by its id, and gives one series per process
if asked to. Proportional and unique set size cost milliseconds per gigabyte and hold the job's mmap lock meanwhile:
they are read on request only, by `measure_memory`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import ClassVar, NamedTuple

from sonde.collectors.ledger import Group, Member
from sonde.collectors.offspring import Offspring
from sonde.collectors.procfs import parse_rollup
from sonde.collectors.proctree import Walker
from sonde.collectors.scope import parse_pids, scope_of
from sonde.errors import ParseError, Unavailable
from sonde.hostfs import HostFS
from sonde.model import EMPTY_LAYOUT, Event, Gap, Kind, Layout, MetricSpec, Quality, Reading, Series, Unit
from sonde.registry import SCHEDULERS, load
from sonde.schedulers.discovery import Discovery, denial
from sonde.units import Duration

_HERTZ = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_NS = 10**9
_TREE = ("root", "job_id", "scheduler")
_ONE = ("pid", "comm", "job_id", "scheduler")

Take = Callable[[Group], int | float]
TakeOne = Callable[[Member], int | float]


def _tree(name: str, kind: Kind, unit: Unit, text: str, *labels: str) -> MetricSpec:
    return MetricSpec(f"sonde_process_tree_{name}", kind, unit, text, (*_TREE, *labels))


def _one(name: str, kind: Kind, unit: Unit, text: str, *labels: str) -> MetricSpec:
    return MetricSpec(f"sonde_process_{name}", kind, unit, text, (*_ONE, *labels))


_C, _G = Kind.COUNTER, Kind.GAUGE
CPU = _tree("cpu_seconds_total", _C, Unit.SECONDS, "CPU time, of processes that have ended too.", "mode")
FAULTS = _tree("page_faults_total", _C, Unit.NONE, "Page faults, of processes that have ended too.", "kind")
SWITCHES = _tree("context_switches_total", _C, Unit.NONE, "Context switches of the main threads.", "kind")
WAIT = _tree("runqueue_wait_seconds_total", _C, Unit.SECONDS, "Time the main threads were ready and waited for a CPU.")
READ = _tree("read_bytes_total", _C, Unit.BYTES, "Bytes fetched from storage.")
WRITTEN = _tree("written_bytes_total", _C, Unit.BYTES, "Bytes sent to storage.")
OPEN_FILES = _tree("open_files", _G, Unit.NONE, "Open file descriptors.")

TREES: tuple[tuple[MetricSpec, tuple[str, ...], Take], ...] = (
    (_tree("processes", _G, Unit.NONE, "Processes alive."), (), lambda group: group.processes),
    (_tree("threads", _G, Unit.NONE, "Threads alive."), (), lambda group: group.threads),
    (CPU, ("user",), lambda group: group.user / _HERTZ),
    (CPU, ("system",), lambda group: group.system / _HERTZ),
    (
        _tree("memory_rss_bytes", _G, Unit.BYTES, "Resident memory; a page that several share counts for each."),
        (),
        lambda group: group.resident * _PAGE,
    ),
    (
        _tree("memory_shared_bytes", _G, Unit.BYTES, "Resident memory of files and shared memory."),
        (),
        lambda group: group.shared * _PAGE,
    ),
    (_tree("memory_virtual_bytes", _G, Unit.BYTES, "Address space."), (), lambda group: group.size * _PAGE),
    (_tree("memory_swap_bytes", _G, Unit.BYTES, "Memory swapped out."), (), lambda group: group.swap_bytes),
    (READ, (), lambda group: group.read_bytes),
    (WRITTEN, (), lambda group: group.written_bytes),
    (WAIT, (), lambda group: group.wait_ns / _NS),
    (FAULTS, ("minor",), lambda group: group.minor),
    (FAULTS, ("major",), lambda group: group.major),
    (OPEN_FILES, (), lambda group: group.fds),
    (SWITCHES, ("voluntary",), lambda group: group.voluntary),
    (SWITCHES, ("involuntary",), lambda group: group.involuntary),
)

ONE_CPU = _one("cpu_seconds_total", _C, Unit.SECONDS, "CPU time of the process itself.", "mode")
ONES: tuple[tuple[MetricSpec, tuple[str, ...], TakeOne], ...] = (
    (ONE_CPU, ("user",), lambda member: member.own[2] / _HERTZ),
    (ONE_CPU, ("system",), lambda member: member.own[3] / _HERTZ),
    (_one("threads", _G, Unit.NONE, "Threads alive."), (), lambda member: member.threads),
    (_one("memory_rss_bytes", _G, Unit.BYTES, "Resident memory."), (), lambda member: member.pages[1] * _PAGE),
    (
        _one("read_bytes_total", _C, Unit.BYTES, "Bytes fetched from storage, by waited-for children too."),
        (),
        lambda member: member.moved[0],
    ),
    (
        _one("written_bytes_total", _C, Unit.BYTES, "Bytes sent to storage, by waited-for children too."),
        (),
        lambda member: member.moved[1],
    ),
    (
        _one("runqueue_wait_seconds_total", _C, Unit.SECONDS, "Time the main thread was ready and waited for a CPU."),
        (),
        lambda member: member.wait_ns / _NS,
    ),
)

PSS = MetricSpec(
    "sonde_process_memory_pss_bytes", _G, Unit.BYTES, "Resident memory, shared pages divided by their users.", ("pid",)
)
USS = MetricSpec("sonde_process_memory_uss_bytes", _G, Unit.BYTES, "Resident memory of nobody else.", ("pid",))


class ProcessConfig(NamedTuple):
    pids: tuple[str, ...] = ()  # processes to follow with all their descendants
    jobs: bool = True  # follow the processes of the jobs on this node
    per_process: bool = False  # one series per process, beside the totals
    scan: Duration = Duration(10)  # how long a new process may go unnoticed; its CPU time is not lost if waited for
    max_processes: int = 4096
    schedulers: tuple[str, ...] = ()  # in the order in which they are asked; empty: all
    only: tuple[str, ...] = ()  # jobs, by their ids; empty: all
    without_pids: tuple[str, ...] = ()  # processes of a job that are not counted
    without_steps: tuple[str, ...] = ()  # steps of a job that are not counted


class ProcessCollector:
    Config: ClassVar[type] = ProcessConfig
    metrics: ClassVar[tuple[MetricSpec, ...]] = (
        *dict.fromkeys(spec for spec, _, _ in TREES),
        *dict.fromkeys(spec for spec, _, _ in ONES),
        PSS,
        USS,
    )
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: ProcessConfig) -> None:
        if not config.pids and not config.jobs:
            raise Unavailable("nothing to follow", hint="set pids or jobs in [collectors.process]")
        self._config = config
        self._walker = Walker(host, max_processes=config.max_processes)
        self._offspring = Offspring(host, self._walker)
        names = config.schedulers or tuple(SCHEDULERS)
        schedulers = [load(SCHEDULERS, name, "collectors.process.schedulers")() for name in names]
        self._discovery = Discovery(host, schedulers, scope_of(config, {}, "process")) if config.jobs else None
        self._groups: dict[tuple[str, str, str], Group] = {}
        self._absent: list[str] = []
        parse_pids(config.pids, "collectors.process.pids")
        for pid in config.pids:
            self._add_root(pid)
        self._layout = EMPTY_LAYOUT
        self._plan: list[tuple[Take, Group]] = []
        self._shown: list[Member] = []
        self._changed = True
        self._gaps: tuple[Gap, ...] = ()
        self._scan_due_ns = 0

    def _add_root(self, pid: str) -> None:
        group = Group()
        if self._offspring.add(int(pid), group):
            self._groups[pid, "", ""] = group
        else:
            self._absent.append(pid)

    def collect(self) -> Reading:
        now = time.monotonic_ns()
        if now >= self._scan_due_ns or (self._discovery is not None and self._discovery.disturbed()):
            self._scan_due_ns = now + self._config.scan.ns
            self._scan()
        ended = self._walker.tick()
        if ended or self._changed:
            self._arrange()
        values = [take(group) for take, group in self._plan]
        if self._shown:
            values += [take(member) for _, _, take in ONES for member in self._shown]
        return Reading(self._layout, values, self._exits(ended), self._gaps)

    def _scan(self) -> None:
        self._walker.refused = 0
        alive = {labels: group for labels, group in self._groups.items() if group.processes}
        self._groups = alive
        roots = frozenset(group for (root, _, _), group in alive.items() if root)
        if roots:
            self._offspring.scan(roots)
        if self._discovery is not None:
            self._discovery.scan()
            for key, found in self._discovery.jobs.items():
                group = self._groups.setdefault(("", found.job.id.text, key.scheduler), Group())
                for process in found.processes.values():
                    self._walker.follow(process.pid, process.start, group)
        self._changed = True

    def _arrange(self) -> None:
        self._changed = False
        planned = [
            (spec, (*labels, *extra), take, group)
            for spec, extra, take in TREES
            for labels, group in self._groups.items()
            if self._readable(spec, group)
        ]
        self._plan = [(take, group) for _, _, take, group in planned]
        series: list[Series] = [(spec, labels) for spec, labels, _, _ in planned]
        if self._config.per_process:
            owner = {group: labels for labels, group in self._groups.items()}
            self._shown = [member for member in self._walker.members.values() if member.group in owner]
            labelled = [(str(member.pid), _comm(member), *owner[member.group][1:]) for member in self._shown]
            series += [(spec, (*labels, *extra)) for spec, extra, _ in ONES for labels in labelled]
        if list(self._layout) != series:
            self._layout = Layout(series)
        self._gaps = tuple(self._missing())

    def _readable(self, spec: MetricSpec, group: Group) -> bool:
        """A total that lacks some of its processes is none."""
        if spec in (READ, WRITTEN, OPEN_FILES):
            return not group.denied and (self._walker.has_io or spec is OPEN_FILES)
        return spec is not WAIT or self._walker.has_schedstat

    def _missing(self) -> Iterable[Gap]:
        walker = self._walker
        for pid in self._absent:
            yield Gap(CPU, (), Quality.BLANK, f"there is no process {pid}")
        if walker.refused:
            yield Gap(CPU, (), Quality.ESTIMATED, f"{walker.refused} processes are beyond max_processes")
        if walker.unreadable:
            yield Gap(CPU, (), Quality.STALE, f"{walker.unreadable} processes cannot be read: {walker.complaint}")
        denied = sum(group.denied for group in self._groups.values())
        if denied:
            reason = f"{denied} processes belong to another user"
            yield from (Gap(spec, (), Quality.DENIED, reason) for spec in (READ, WRITTEN, OPEN_FILES))
        if not walker.has_io:
            reason = "this kernel has no /proc/PID/io"
            yield from (Gap(spec, (), Quality.UNSUPPORTED, reason) for spec in (READ, WRITTEN))
        if not walker.has_schedstat:
            yield Gap(WAIT, (), Quality.UNSUPPORTED, "this kernel has no /proc/PID/schedstat")
        if self._discovery is not None and self._discovery.denied:
            yield Gap(CPU, (), Quality.DENIED, denial(self._discovery.denied))

    def _exits(self, ended: list[Member]) -> list[Event]:
        roots = {group: root for (root, _, _), group in self._groups.items() if root}
        return [
            Event(time.time_ns(), "process.exit", {"pid": member.pid})
            for member in ended
            if roots.get(member.group) == str(member.pid)
        ]

    def close(self) -> None:
        self._walker.close()
        if self._discovery is not None:
            self._discovery.close()


def _comm(member: Member) -> str:
    text = member.seen_stat
    return text[text.find(b"(") + 1 : text.rfind(b")")].decode("utf-8", "replace")


def measure_memory(host: HostFS, pids: Iterable[int]) -> Reading:
    """Proportional and unique set size of processes, read now, on request.

    Walks their page tables under the mmap lock: 10 ms per GB of small pages. Each value's gap carries when it was
    read, because it is not followed.
    """
    read: dict[str, tuple[int, int]] = {}
    gaps: list[Gap] = []
    for pid in dict.fromkeys(pids):
        labels = (str(pid),)
        try:
            rollup = parse_rollup(host.read(f"proc/{pid}/smaps_rollup"))
        except PermissionError:
            gaps += [Gap(spec, labels, Quality.DENIED, "a process of another user") for spec in (PSS, USS)]
        except (FileNotFoundError, ProcessLookupError, ParseError):  # a kernel thread or a zombie has no memory
            gaps += [Gap(spec, labels, Quality.BLANK, "no such process, or one without memory") for spec in (PSS, USS)]
        else:
            read[labels[0]] = (rollup.pss_bytes, rollup.uss_bytes)
            now = time.time_ns()
            gaps += [Gap(spec, labels, Quality.STALE, "read once, on request", now) for spec in (PSS, USS)]
    layout = Layout([*((PSS, (pid,)) for pid in read), *((USS, (pid,)) for pid in read)])
    values = [*(pss for pss, _ in read.values()), *(uss for _, uss in read.values())]
    return Reading(layout, values, (), gaps)

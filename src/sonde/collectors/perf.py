"""Events of the processor and the kernel, from perf_event_open(2): of all CPUs, of jobs, of trees of processes.

What is counted is data: src/sonde/counters has the events of each microarchitecture, in groups that are counted
together. Counts are raw. When there are more groups than counters, each is counted part of the time only
(`sonde_perf_running_ratio`); a reader scales by enabled over running time, and derives rates and ratios by the formulas
beside the events. docs/counters.md tells what can be counted where.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple

from sonde.collectors.perf_events import Part, Possible, Probe
from sonde.collectors.perf_targets import Budget, Everywhere, Target, Tree, online_cpus
from sonde.counters import catalogue
from sonde.counters.microarchitecture import Cpu, parse_cpuinfo
from sonde.errors import ConfigError, ParseError, Unavailable
from sonde.hostfs import HostFS
from sonde.model import EMPTY_LAYOUT, Gap, Kind, Layout, MetricSpec, Quality, Reading, Series, Unit
from sonde.native.perf_event import DENIED, PARANOID, Counts, Kernel, Source, refusal
from sonde.registry import SCHEDULERS, load
from sonde.schedulers import cgroupfs
from sonde.schedulers.discovery import Discovery, Found
from sonde.schedulers.job import JobId
from sonde.units import Duration

_WHOM = ("scope", "job_id", "scheduler", "pid", "cpu", "mode")
_NS = 1_000_000_000
_NAMED = 4  # events a reason names

INFO = MetricSpec(
    "sonde_perf_info",
    Kind.INFO,
    Unit.NONE,
    "The microarchitecture whose events are counted: a file of src/sonde/counters.",
    ("microarchitecture", "title"),
)
EVENTS = MetricSpec(
    "sonde_perf_events_total",
    Kind.COUNTER,
    Unit.NONE,
    "Events counted, while they were: not scaled to the whole time. mode=user: without the kernel's part.",
    ("event", "group", *_WHOM),
)
ENABLED = MetricSpec(
    "sonde_perf_enabled_seconds_total",
    Kind.COUNTER,
    Unit.SECONDS,
    "Time in which the group was to be counted, added up over tasks or CPUs.",
    ("group", *_WHOM),
)
RUNNING = MetricSpec(
    "sonde_perf_running_seconds_total",
    Kind.COUNTER,
    Unit.SECONDS,
    "Time in which the group was on the counters, added up over tasks or CPUs.",
    ("group", *_WHOM),
)
RATIO = MetricSpec(
    "sonde_perf_running_ratio",
    Kind.GAUGE,
    Unit.RATIO,
    "Running over enabled time since counting began: below 1, counts are to be scaled up by it.",
    ("group", *_WHOM),
)

_SHARED = "more groups than counters: counted part of the time, as sonde_perf_running_ratio says"
_NEVER = "never got onto a counter: others (the NMI watchdog, another profiler) hold those it needs"


class PerfConfig(NamedTuple):
    system: bool = True  # count all CPUs, whoever runs on them; needs root, CAP_PERFMON or perf_event_paranoid 0
    per_cpu: bool = False  # one series per CPU instead of the sum
    jobs: bool = False  # count the jobs on this node: by cgroup where that is allowed, else by process
    pids: tuple[str, ...] = ()  # processes to count with all their descendants
    groups: tuple[str, ...] = ()  # of events, as in docs/counters.md; empty: all. Fewer groups share fewer counters
    kernel: bool = True  # count what the kernel does for them too, where that is allowed
    scan: Duration = Duration(10)  # how long a job's new process that another launcher has started may go uncounted
    schedulers: tuple[str, ...] = ()  # in the order in which they are asked; empty: all


class PerfCollector:
    Config: ClassVar[type] = PerfConfig
    metrics: ClassVar[tuple[MetricSpec, ...]] = (INFO, EVENTS, ENABLED, RUNNING, RATIO)
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: PerfConfig, source: Source | None = None) -> None:
        if not host.exists(PARANOID):
            raise Unavailable(f"no /{PARANOID}: this kernel was built without perf events")
        self._host = host
        self._config = config
        self._level = paranoid_level(host)
        self._catalogue = identify(host)
        self._source = source or Kernel()
        self._possible = self._probe()
        self._budget = Budget()
        self._refusals: list[Gap] = []
        self._targets: list[Target] = []
        self._labels: dict[Target, tuple[str, str]] = {}  # cpu and mode
        self._jobs: dict[JobId, Target] = {}
        self._discovery: Discovery | None = None
        self._scan_due_ns = 0
        self._layout = EMPTY_LAYOUT
        self._gaps: tuple[Gap, ...] = ()
        self._states: list[int] | None = None  # None: somebody came or went
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _probe(self) -> Possible:
        known = {group.name for group in self._catalogue.groups}
        for name in self._config.groups:
            if name not in known:
                raise ConfigError(
                    f"collectors.perf.groups: {self._catalogue.title} has no group {name!r}",
                    hint=f"known here: {', '.join(sorted(known))}",
                )
        wanted = [
            group for group in self._catalogue.groups if not self._config.groups or group.name in self._config.groups
        ]
        try:
            return Probe(self._source, self._host).possible(wanted, kernel=self._config.kernel)
        except PermissionError:
            raise refusal(self._level, whole_cpu=False) from None
        except OSError as error:
            raise Unavailable(f"perf_event_open: {error.strerror}", hint=_hint(error)) from None

    def _begin(self) -> None:
        config = self._config
        if not config.system and not config.jobs and not config.pids:
            raise Unavailable("nothing to count", hint="set system, jobs or pids in [collectors.perf]")
        if not self._possible.parts:
            reason = self._possible.lacking[0].reason if self._possible.lacking else "no event is asked for"
            raise Unavailable(reason)
        for pid in config.pids:
            self._add_tree(pid)
        if config.system:
            self._add_system()
        if config.jobs:
            names = config.schedulers or tuple(SCHEDULERS)
            schedulers = [load(SCHEDULERS, name, "collectors.perf.schedulers")() for name in names]
            self._discovery = Discovery(self._host, schedulers)

    def _add(self, target: Target, cpu: str = "") -> None:
        self._targets.append(target)
        self._labels[target] = (cpu, "user" if target.user_only else "all")
        self._states = None

    def _add_tree(self, pid: str) -> None:
        if not pid.isascii() or not pid.isdigit() or not 0 < int(pid) < 1 << 31:
            raise ConfigError(f"collectors.perf.pids: {pid!r} is not a process id")
        tree = Tree(self._source, self._possible, self._budget, ("tree", "", "", pid), self._host)
        tree.follow_with_descendants(int(pid))
        self._add(tree)

    def _add_system(self) -> None:
        possible = self._possible.of_cpus
        numbers: Iterable[int | None] = online_cpus(self._host) if self._config.per_cpu else (None,)
        try:
            for number in numbers:
                labels = ("system", "", "", "")
                target = Everywhere(self._source, possible, self._budget, labels, self._host, number=number)
                self._add(target, "" if number is None else str(number))
        except OSError as error:
            if error.errno not in DENIED:
                raise Unavailable(f"perf_event_open: {error.strerror}", hint=_hint(error)) from None
            denied = refusal(self._level, whole_cpu=True)
            if not self._config.jobs and not self._config.pids:
                raise denied from None
            self._refusals.append(Gap(EVENTS, (), Quality.DENIED, str(denied)))

    def collect(self) -> Reading:
        if self._discovery is not None:
            self._follow_jobs(self._discovery)
        counted = [(target, target.read()) for target in self._targets]
        states = [_state(counts) for _, parts in counted for counts in parts]
        if states != self._states:
            self._states = states
            self._arrange(counted)
        return Reading(self._layout, list(_values(counted)), (), self._gaps)

    def _follow_jobs(self, discovery: Discovery) -> None:
        now = time.monotonic_ns()
        if now < self._scan_due_ns and not discovery.disturbed():
            return
        self._scan_due_ns = now + self._config.scan.ns
        discovery.scan()
        for key in [key for key in self._jobs if key not in discovery.jobs]:
            self._drop(self._jobs.pop(key))
        for key, found in discovery.jobs.items():
            target = self._jobs.get(key)
            if target is None:
                target = self._jobs[key] = self._job(key, found, discovery)
                self._add(target)
            if isinstance(target, Tree):
                for pid in sorted(found.processes, key=lambda pid: found.processes[pid].start):
                    target.follow(pid)

    def _job(self, key: JobId, found: Found, discovery: Discovery) -> Target:
        name = found.job.id.text
        for directory in self._cgroups(found, discovery):
            try:
                return Everywhere(
                    self._source,
                    self._possible,
                    self._budget,
                    ("cgroup", name, key.scheduler, ""),
                    self._host,
                    cgroup=directory,
                )
            except OSError:
                break  # not allowed, or not a hierarchy that counts: its processes are
        return Tree(self._source, self._possible, self._budget, ("tree", name, key.scheduler, ""), self._host)

    def _cgroups(self, found: Found, discovery: Discovery) -> Iterator[str]:
        """The job's directory in the hierarchy that counts: perf_event's own (v1), else v2. Not of several parts."""
        for controller in ("perf_event", cgroupfs.UNIFIED):
            mount = discovery.mounts.get(controller)
            if mount is None or controller not in found.cgroups or len(found.parts) > 1:
                continue
            directory = cgroupfs.locate(self._host, mount, found.cgroups[controller])
            if directory is not None:
                yield directory

    def _drop(self, target: Target) -> None:
        target.close()
        self._targets.remove(target)
        del self._labels[target]
        self._states = None

    def _arrange(self, counted: list[tuple[Target, list[Counts]]]) -> None:
        shown = list(self._shown(counted))
        series: list[Series] = [(INFO, (self._catalogue.key, self._catalogue.title))]
        series += [
            (EVENTS, (event.key, part.name, *whom))
            for part, whom, state in shown
            if state != 1
            for event in part.events
        ]
        series += [(ENABLED, (part.name, *whom)) for part, whom, _ in shown]
        series += [(RUNNING, (part.name, *whom)) for part, whom, _ in shown]
        series += [(RATIO, (part.name, *whom)) for part, whom, state in shown if state]
        if list(self._layout) != series:
            self._layout = Layout(series)
        self._gaps = (*self._missing(), *_qualified(shown))

    def _shown(self, counted: list[tuple[Target, list[Counts]]]) -> Iterator[tuple[Part, tuple[str, ...], int]]:
        for target, parts in counted:
            whom = (*target.labels, *self._labels[target])
            for part, counts in zip(target.parts, parts, strict=True):
                yield part, whom, _state(counts)

    def _missing(self) -> Iterator[Gap]:
        for events, quality, reason in self._possible.lacking:
            yield Gap(EVENTS, (), quality, f"{_listed(events)}: {reason}")
        yield from self._refusals
        beyond, denied = (sum(getattr(target, what) for target in self._targets) for what in ("beyond", "denied"))
        if beyond:
            yield Gap(EVENTS, (), Quality.ESTIMATED, f"{beyond} tasks or CPUs are beyond the limit of open files")
        if denied:
            yield Gap(EVENTS, (), Quality.DENIED, f"{denied} tasks of another user may not be counted")

    def close(self) -> None:
        for target in self._targets:
            target.close()
        self._targets = []
        if self._discovery is not None:
            self._discovery.close()
            self._discovery = None


def identify(host: HostFS) -> catalogue.Catalogue:
    """The event set of this processor."""
    try:
        cpu = parse_cpuinfo(host.text("proc/cpuinfo"))
    except (FileNotFoundError, ParseError):
        cpu = Cpu("")
    return catalogue.load(catalogue.find(cpu))


def paranoid_level(host: HostFS) -> int:
    """Whom the kernel lets count what: kernel.perf_event_paranoid, -1 to 4."""
    try:
        return int(host.read(PARANOID))
    except ValueError:
        raise ParseError(f"/{PARANOID}", host.text(PARANOID)) from None


def _listed(events: Sequence[str]) -> str:
    more = f" and {len(events) - _NAMED} more" if len(events) > _NAMED else ""
    return ", ".join(events[:_NAMED]) + more


def _hint(error: OSError) -> str:
    return (
        "a seccomp filter hides it: allow perf_event_open in the container's profile"
        if error.errno == errno.ENOSYS
        else ""
    )


def _state(counts: Counts) -> int:
    """0 not to be counted yet, 1 never on a counter, 2 always, 3 part of the time."""
    if not counts.enabled_ns:
        return 0
    if not counts.running_ns:
        return 1
    return 2 if counts.running_ns >= counts.enabled_ns else 3


def _values(counted: list[tuple[Target, list[Counts]]]) -> Iterator[int | float]:
    flat = [counts for _, parts in counted for counts in parts]
    yield 1
    for enabled, running, values in flat:
        if running or not enabled:
            yield from values
    for counts in flat:
        yield counts.enabled_ns / _NS
    for counts in flat:
        yield counts.running_ns / _NS
    for enabled, running, _ in flat:
        if enabled:
            yield min(1.0, running / enabled)


def _qualified(shown: list[tuple[Part, tuple[str, ...], int]]) -> Iterator[Gap]:
    for part, whom, state in shown:
        for event in part.events if state in (1, 3) else ():
            quality, reason = (Quality.BLANK, _NEVER) if state == 1 else (Quality.MULTIPLEXED, _SHARED)
            yield Gap(EVENTS, (event.key, part.name, *whom), quality, reason)

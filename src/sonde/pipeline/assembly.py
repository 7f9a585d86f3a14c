"""The pipeline of a configuration: runners in their sampling threads, outlets behind them.

Collectors that only read pseudo-files share one sampling thread; one that can block has its own, so that a hung mount
or driver stops nothing else. A collector whose host has nothing to read is left out and remembered with the reason.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from sonde.clock import NS, Clock
from sonde.config import CollectorConfig, Config, SinkConfig, split
from sonde.errors import ConfigError, Denied, Unavailable
from sonde.hostfs import HostFS
from sonde.model import Collector, Frame, Sink
from sonde.pipeline.enrich import Enricher
from sonde.pipeline.outlet import QUEUE, Outlet
from sonde.pipeline.runner import Runner
from sonde.pipeline.sampler import Sampler
from sonde.pipeline.selection import sieve_for
from sonde.registry import COLLECTORS, OFF_BY_DEFAULT, SINKS, load

log = logging.getLogger(__name__)

# Threads that wake in the same instant fight for the interpreter's lock: every loser goes to sleep again, at a cost.
# So a collector with its own thread comes a moment after the shared ones, and the sinks a moment after all of them.
_BLOCKING_PHASE_NS = 20_000_000
_OUTLET_PHASE_NS = 50_000_000


class Absent(NamedTuple):
    """A collector that is switched on but has nothing to read here."""

    name: str
    reason: str
    denied: bool
    retry: bool


class Plan(NamedTuple):
    """One collector of the configuration, bound and checked, not yet built."""

    name: str
    cls: type[Collector]
    common: CollectorConfig
    own: object
    period_ns: int


def plan_collectors(config: Config) -> list[Plan]:
    """Every collector that is switched on, its keys checked. Raises ConfigError before anything runs."""
    only = config.daemon.collectors
    for name in only:
        if name not in COLLECTORS:
            raise ConfigError(
                f"daemon.collectors: no collector is called {name!r}", hint=f"known: {', '.join(COLLECTORS)}"
            )
    plans = []
    for name in COLLECTORS:
        table = config.collectors.get(name, {})
        default = name in only if only else name not in OFF_BY_DEFAULT
        if not default and not table:
            continue  # not even imported: what is off costs nothing
        cls = load(COLLECTORS, name)
        common, own = split(CollectorConfig, cls.Config, table, f"collectors.{name}")  # type: ignore[attr-defined]
        if common.enabled if common.enabled is not None else default:
            period_ns = (common.period or config.daemon.period).ns
            if period_ns < 10_000_000:
                raise ConfigError(f"collectors.{name}.period: the shortest period is 10ms")
            plans.append(Plan(name, cls, common, own, period_ns))
    return plans


def build_sinks(config: Config, make: Callable[[str, type, object], Sink]) -> list[Outlet]:
    """The outlets of the configuration's [sinks.*]. `make` gives a sink what only the composer knows."""
    outlets = []
    for name, table in config.sinks.items():
        cls = load(SINKS, name)
        common, own = split(SinkConfig, cls.Config, table, f"sinks.{name}")  # type: ignore[attr-defined]
        if common.enabled:
            outlets.append(outlet_for(name, make(name, cls, own), common))
    return outlets


def outlet_for(name: str, sink: Sink, common: SinkConfig) -> Outlet:
    limit = common.queue if common.queue is not None else getattr(sink, "default_queue", QUEUE)
    if limit < 1:
        raise ConfigError(f"sinks.{name}.queue must hold at least one frame")
    return Outlet(
        name,
        sink,
        sieve=sieve_for(name, common),
        limit=limit,
        memory=common.queue_memory,
        translate=getattr(sink, "translate", None),
    )


def construct(cls: type[Collector], host: HostFS, own: object) -> Collector:
    """Build a collector; a file that is missing or forbidden becomes Unavailable or Denied with its path."""
    try:
        return cls(host, own)  # type: ignore[call-arg]
    except FileNotFoundError as error:
        raise Unavailable(f"no /{_below_root(host, error)} on this host") from None
    except PermissionError as error:
        raise Denied(f"this user may not read /{_below_root(host, error)}") from None


def _below_root(host: HostFS, error: OSError) -> str:
    return str(error.filename or error).removeprefix(host.root)


class Assembly:
    """A running pipeline."""

    def __init__(self, config: Config, host: HostFS, clock: Clock, outlets: Sequence[Outlet]) -> None:
        self._host = host
        self._clock = clock
        self._enricher = Enricher(config.daemon.labels)
        self.outlets = tuple(outlets)
        self.absent: list[Absent] = []
        self._stopping = False
        self._retries: list[Plan] = []
        plans = plan_collectors(config)
        built = [runner for plan in plans if (runner := self._build(plan))]
        shared = [runner for runner in built if not runner.collector.blocks]
        self.samplers = [Sampler("host", shared, self.deliver, clock, self._set_apart)] if shared else []
        self.samplers += [self._own(runner) for runner in built if runner.collector.blocks]
        for outlet in self.outlets:
            outlet.pace(min((runner.period_ns for runner in built), default=NS), _OUTLET_PHASE_NS)
        self._introduce()

    def _build(self, plan: Plan) -> Runner | None:
        try:
            collector = construct(plan.cls, self._host, plan.own)
        except Unavailable as error:
            self._left_out(plan, error)
            return None
        phase_ns = _BLOCKING_PHASE_NS if collector.blocks else 0
        return Runner(plan.name, collector, plan.period_ns, self._clock, phase_ns)

    def _left_out(self, plan: Plan, error: Unavailable) -> None:
        policy = plan.common.on_unavailable
        if policy == "fail":
            raise ConfigError(
                f"collectors.{plan.name} is required (on_unavailable = fail) but {error}", hint=error.hint
            )
        log.info("collector %s is left out: %s", plan.name, error)
        self.absent.append(Absent(plan.name, str(error), isinstance(error, Denied), policy == "retry"))
        if policy == "retry":
            self._retries.append(plan)

    def _own(self, runner: Runner) -> Sampler:
        return Sampler(runner.name, [runner], self.deliver, self._clock)

    def _set_apart(self, runner: Runner) -> None:
        """Called by the shared sampling thread, which has just let go of the runner."""
        sampler = self._own(runner)
        self.samplers.append(sampler)
        if not self._stopping:
            sampler.start()

    def _introduce(self) -> None:
        """Let the collector of the daemon itself see what it reports on."""
        for runner in self.runners:
            watch = getattr(runner.collector, "watch", None)
            if watch is not None:
                watch(lambda: self.runners, lambda: self.outlets)

    @property
    def runners(self) -> list[Runner]:
        return [runner for sampler in self.samplers for runner in sampler.runners]

    @property
    def waits(self) -> bool:
        """Is a collector waiting to be tried again?"""
        return bool(self._retries)

    def retry(self) -> None:
        """Try again what was not available (on_unavailable = retry); call it now and then."""
        plans, self._retries = self._retries, []
        for plan in plans:
            self.absent = [absent for absent in self.absent if absent.name != plan.name]
            runner = self._build(plan)
            if runner is not None:
                log.info("collector %s is available now", plan.name)
                sampler = self._own(runner)
                self.samplers.append(sampler)
                sampler.start()

    def deliver(self, frames: Sequence[Frame]) -> None:
        """Hand a batch to every outlet. Called by the sampling threads; never blocks on a sink."""
        frames = self._enricher.apply(frames)
        for outlet in self.outlets:
            outlet.offer(frames)

    def start(self) -> None:
        for outlet in self.outlets:
            outlet.start()
        for sampler in self.samplers:
            sampler.start()

    def stop(self, deadline: float, keep: Collection[Outlet] = (), *, last_look: bool = False) -> bool:
        """End sampling, flush the sinks, all within `deadline` seconds. False when something hung.

        The outlets to `keep` go on: another pipeline has them. With a last look, what cannot block is read once more.
        """
        until = time.monotonic() + deadline
        self._stopping = True
        # All are asked before any is waited for, so that one that hangs takes its own time only.
        for sampler in self.samplers:
            sampler.ask_to_stop()
        clean = [
            sampler.stop(
                max(0.0, min(until - time.monotonic(), deadline / 3)),
                last_look=last_look and not any(runner.collector.blocks for runner in sampler.runners),
            )
            for sampler in self.samplers
        ]
        ending = [outlet for outlet in self.outlets if outlet not in keep]
        for outlet in ending:
            outlet.ask_to_stop()
        clean += [outlet.stop(max(0.05, until - time.monotonic())) for outlet in ending]
        return all(clean)

"""The daemon itself: each collector's pace and health, each sink's queue, own CPU and memory from /proc/self.

    /proc/self/statm  4096 4250 1800 ...      size, resident, shared in pages

The runner and the outlet keep plain numbers; this collector only reads them. A collector that hangs shows here within
two periods by its staleness, because this one runs in the shared sampling thread and the hung one in its own.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, ClassVar, Protocol

from sonde.config import NoKeys
from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.model import EMPTY_LAYOUT, Gap, Kind, Layout, MetricSpec, Reading, Series, Unit, Value
from sonde.version import VERSION

_RUNNER = attrgetter("gaps", "took_ns", "lateness_ns", "failures", "skipped")
_OUTLET = attrgetter("delivered", "dropped", "rejected", "failures", "depth")
_COLLECTOR = ("collector",)
_SINK = ("sink",)
DURATION = MetricSpec(
    "sonde_collector_duration_seconds", Kind.GAUGE, Unit.SECONDS, "Time the last tick took.", _COLLECTOR
)
LATENESS = MetricSpec(
    "sonde_collector_lateness_seconds", Kind.GAUGE, Unit.SECONDS, "How late the last tick began.", _COLLECTOR
)
STALENESS = MetricSpec(
    "sonde_collector_staleness_seconds",
    Kind.GAUGE,
    Unit.SECONDS,
    "How long the newest value is overdue; 0 while the collector keeps its pace.",
    _COLLECTOR,
)
FAILURES = MetricSpec("sonde_collector_failures_total", Kind.COUNTER, Unit.NONE, "Ticks that failed.", _COLLECTOR)
SKIPPED = MetricSpec(
    "sonde_collector_skipped_total",
    Kind.COUNTER,
    Unit.NONE,
    "Ticks skipped because they came a period late.",
    _COLLECTOR,
)
QUALITY = MetricSpec(
    "sonde_collector_quality",
    Kind.GAUGE,
    Unit.NONE,
    "Values of the last tick that are missing or qualified, by quality.",
    ("collector", "quality"),
)
DELIVERED = MetricSpec("sonde_sink_delivered_total", Kind.COUNTER, Unit.NONE, "Frames a sink has taken.", _SINK)
DROPPED = MetricSpec(
    "sonde_sink_dropped_total", Kind.COUNTER, Unit.NONE, "Frames pushed out of a sink's full queue.", _SINK
)
REJECTED = MetricSpec("sonde_sink_rejected_total", Kind.COUNTER, Unit.NONE, "Frames a sink refused for good.", _SINK)
SINK_FAILURES = MetricSpec("sonde_sink_failures_total", Kind.COUNTER, Unit.NONE, "Deliveries that failed.", _SINK)
POINTS_REJECTED = MetricSpec(
    "sonde_sink_points_rejected_total",
    Kind.COUNTER,
    Unit.NONE,
    "Values a receiver refused of deliveries it took otherwise.",
    _SINK,
)
QUEUE = MetricSpec("sonde_sink_queue_frames", Kind.GAUGE, Unit.NONE, "Frames waiting for a sink.", _SINK)
CPU = MetricSpec(
    "sonde_daemon_cpu_seconds_total", Kind.COUNTER, Unit.SECONDS, "CPU time of the daemon, user and system."
)
RSS = MetricSpec("sonde_daemon_resident_bytes", Kind.GAUGE, Unit.BYTES, "Resident memory of the daemon.")
THREADS = MetricSpec("sonde_daemon_threads", Kind.GAUGE, Unit.NONE, "Threads of the daemon.")
START = MetricSpec(
    "sonde_daemon_start_time_seconds", Kind.GAUGE, Unit.SECONDS, "When the daemon started, since the epoch."
)
BUILD = MetricSpec(
    "sonde_build_info", Kind.INFO, Unit.NONE, "Versions of the daemon and its interpreter.", ("version", "python")
)


class RunnerState(Protocol):
    """What is read of a pipeline runner."""

    name: str
    took_ns: int
    lateness_ns: int
    failures: int
    skipped: int

    @property
    def gaps(self) -> Sequence[Gap]: ...
    def staleness_ns(self, now_ns: int) -> int: ...


class OutletState(Protocol):
    """What is read of a pipeline outlet."""

    name: str
    delivered: int
    dropped: int
    rejected: int
    failures: int

    @property
    def sink(self) -> object: ...
    @property
    def depth(self) -> int: ...


class Receiver(Protocol):
    """A sink whose server can take a delivery and refuse some of its values."""

    points_rejected: int


class DaemonCollector:
    Config: ClassVar[type] = NoKeys
    metrics: ClassVar[tuple[MetricSpec, ...]] = (
        DURATION,
        LATENESS,
        STALENESS,
        FAILURES,
        SKIPPED,
        QUALITY,
        DELIVERED,
        DROPPED,
        REJECTED,
        SINK_FAILURES,
        QUEUE,
        POINTS_REJECTED,
        CPU,
        RSS,
        THREADS,
        START,
        BUILD,
    )
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: NoKeys) -> None:
        # Always the real /proc/self: the daemon is this process, whatever tree it reads the host from.
        self._statm = HostFS().record("proc/self/statm")
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._started = time.time()
        self._runners: Callable[[], Sequence[RunnerState]] = tuple
        self._outlets: Callable[[], Sequence[OutletState]] = tuple
        self._key: object = None
        self._shown: object = None
        self._qualities: list[int] = []
        self._receivers: list[Receiver] = []
        self._layout = EMPTY_LAYOUT

    def watch(self, runners: Callable[[], Sequence[RunnerState]], outlets: Callable[[], Sequence[OutletState]]) -> None:
        """Be told what to report on; the pipeline does so when it is assembled."""
        self._runners = runners
        self._outlets = outlets

    def collect(self) -> Reading:
        runners, outlets = self._runners(), self._outlets()
        now = time.monotonic_ns()
        # Column by column, fetched in C: a comprehension for each costs half as much again.
        columns = zip(*map(_RUNNER, runners), strict=True) if runners else ((),) * 5
        gaps, took, late, failures, skipped = columns
        # Lists of the same objects compare by identity: a few pointers when nothing has come or gone.
        key = (runners, outlets, gaps)
        if key != self._key:
            self._learn(runners, outlets)
            self._key = key
        # Microseconds are finer than the scheduler is; and six decimals compress in the archive.
        values: list[Value] = [ns // 1000 / 1e6 for ns in (*took, *late)]
        values += [runner.staleness_ns(now) // 1000 / 1e6 for runner in runners]
        values += (
            *failures,
            *skipped,
            *self._qualities,
            *chain.from_iterable(zip(*map(_OUTLET, outlets), strict=True)),
        )
        values += [sink.points_rejected for sink in self._receivers]
        values += (time.process_time_ns() // 1000 / 1e6, self._resident(), threading.active_count(), self._started, 1)
        return Reading(self._layout, values)

    def _learn(self, runners: Sequence[RunnerState], outlets: Sequence[OutletState]) -> None:
        qualities = _qualities(runners)
        self._qualities = list(qualities.values())
        receivers: dict[str, Any] = {o.name: o.sink for o in outlets if hasattr(o.sink, "points_rejected")}
        self._receivers = list(receivers.values())
        shown = ([runner.name for runner in runners], [outlet.name for outlet in outlets], list(qualities))
        if shown == self._shown:
            return
        self._shown = names, sinks, pairs = shown
        series: list[Series] = [
            (spec, (name,)) for spec in (DURATION, LATENESS, STALENESS, FAILURES, SKIPPED) for name in names
        ]
        series += [(QUALITY, pair) for pair in pairs]
        series += [(spec, (name,)) for spec in (DELIVERED, DROPPED, REJECTED, SINK_FAILURES, QUEUE) for name in sinks]
        series += [(POINTS_REJECTED, (name,)) for name in receivers]
        series += [(CPU, ()), (RSS, ()), (THREADS, ()), (START, ())]
        series.append((BUILD, (VERSION, sys.version.split()[0])))
        self._layout = Layout(series)

    def _resident(self) -> int:
        text = self._statm.read()
        try:
            return int(text.split(None, 2)[1]) * self._page_bytes
        except (IndexError, ValueError):
            raise ParseError("/proc/self/statm", text) from None

    def close(self) -> None:
        self._statm.close()


def _qualities(runners: Sequence[RunnerState]) -> dict[tuple[str, str], int]:
    counts: dict[tuple[str, str], int] = {}
    for runner in runners:
        for gap in runner.gaps:
            pair = (runner.name, gap.quality.value)
            counts[pair] = counts.get(pair, 0) + 1
    return counts

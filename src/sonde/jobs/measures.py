"""What of a run is compared with another: how long it took, what it used and what it waited for.

Each measure has a value for the whole run and, where it was sampled, its course over time: the sum or mean over all
nodes at one pace. From the course comes the noise. What was not recorded is no measure of the run, never a 0.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sonde.jobs.columns import Column, columns, grid_for, rate, resampled
from sonde.jobs.noise import Series
from sonde.jobs.recording import Node, Recording

_LONGEST = 8192  # steps of a course: a week at 1 Hz is cut to 74 s each
_NS = 1_000_000_000


class Better(enum.Enum):
    LESS = "less"
    MORE = "more"
    NEITHER = "neither"


class Measure(NamedTuple):
    name: str
    unit: str
    better: Better
    floor: float  # below it, a value is as good as none
    selectors: tuple[str, ...]  # the first that finds something counts
    how: str  # one of _HOWS
    primary: bool = False  # what a run is judged by first


class Measured(NamedTuple):
    measure: Measure
    value: float
    course: Series | None  # its noise is the value's; None: one value and no more
    resolution: float = 0.0  # how far off the value may be for how it was read, as a share of it


_JOB = "sonde_job_{0}"
_TREE = "sonde_process_tree_{0}"
_FABRIC = "node_infiniband_port_data_{0}_bytes_total"


def _of_job(name: str) -> tuple[str, ...]:
    """A job's own, or that of the process tree that was followed."""
    return (_JOB.format(name), _TREE.format(name))


_STEPS = ("*step_seconds", "*step_duration_seconds")
_PEAKS = ("sonde_job_memory_peak_bytes", *_of_job("memory_rss_bytes"))
MEASURES = (
    Measure("step time", "seconds", Better.LESS, 1e-6, _STEPS, "ratio", True),
    Measure("CPU time", "seconds", Better.LESS, 1.0, _of_job("cpu_seconds_total"), "work"),
    Measure("memory", "bytes", Better.LESS, 2.0**24, _of_job("memory_rss_bytes"), "mean"),
    Measure("memory peak", "bytes", Better.LESS, 2.0**24, _PEAKS, "peak"),
    Measure("read", "bytes", Better.NEITHER, 2.0**24, _of_job("read_bytes_total"), "count"),
    Measure("written", "bytes", Better.NEITHER, 2.0**24, _of_job("written_bytes_total"), "count"),
    Measure("received", "bytes", Better.NEITHER, 2.0**26, ('node_network_receive_bytes_total{device!="lo"}',), "total"),
    Measure("sent", "bytes", Better.NEITHER, 2.0**26, ('node_network_transmit_bytes_total{device!="lo"}',), "total"),
    Measure("fabric received", "bytes", Better.NEITHER, 2.0**26, (_FABRIC.format("received"),), "total"),
    Measure("fabric sent", "bytes", Better.NEITHER, 2.0**26, (_FABRIC.format("transmitted"),), "total"),
    Measure("energy", "joules", Better.LESS, 10.0, ("node_rapl_package_joules_total",), "total"),
    Measure("memory energy", "joules", Better.LESS, 10.0, ("node_rapl_dram_joules_total",), "total"),
    Measure("waiting for CPU", "ratio", Better.LESS, 0.02, ("node_pressure_cpu_waiting_seconds_total",), "share"),
    Measure("waiting for I/O", "ratio", Better.LESS, 0.02, ("node_pressure_io_waiting_seconds_total",), "share"),
    Measure("waiting for memory", "ratio", Better.LESS, 0.02, ("node_pressure_memory_waiting_seconds_total",), "share"),
    Measure("CPU steal", "ratio", Better.LESS, 0.02, ('node_cpu_seconds_total{mode="steal"}',), "share"),
    Measure("major page faults", "", Better.LESS, 1000.0, _of_job("major_page_faults_total"), "count"),
)  # fmt: skip
_BUSY = ('node_cpu_seconds_total{mode=~"user|nice|system"}',)
_PACES = ((_STEPS, "_count"), (_of_job("cpu_seconds_total"), ""), (_BUSY, ""))
DURATION = Measure("duration", "seconds", Better.LESS, 1.0, (), "duration", True)


def measured(recording: Recording, more: Sequence[Measure] = ()) -> dict[str, Measured]:
    """All measures a recording has, by name; `more` are those a user asks for."""
    grid = _grid(recording)
    found = {DURATION.name: _duration(recording, grid)._replace(course=_pace(recording, grid))} if len(grid) else {}
    for measure in (*MEASURES, *more):
        by_node = [_columns(node, measure.selectors) for node in recording.nodes]
        if len(grid) and any(by_node):
            one = _HOWS[measure.how](measure, by_node, grid)
            if one is not None and np.isfinite(one.value):
                found[measure.name] = one
    return found


def _grid(recording: Recording) -> NDArray[np.int64]:
    period_ns = max((node.about.period_ns for node in recording.nodes), default=_NS)
    grid = grid_for(recording, max(period_ns, 1))
    if len(grid) <= _LONGEST:
        return grid
    return grid_for(recording, period_ns * -(-len(grid) // _LONGEST))


def _columns(node: Node, selectors: Sequence[str]) -> list[Column]:
    for selector in selectors:
        found = [column for column in columns(node, selector) if len(column.times)]
        if found:
            return found
    return []


def _duration(recording: Recording, grid: NDArray[np.int64]) -> Measured:
    begun = min(node.about.begun_ns - node.about.offset_ns for node in recording.nodes)
    ends = [node.about.ended_ns - node.about.offset_ns for node in recording.nodes if node.about.ended_ns is not None]
    last = max(ends) if len(ends) == len(recording.nodes) else int(grid[-1])
    seconds = max(last - begun, 1) / _NS
    # A recorder beside the job sees its end within a period; one that wraps it knows to the millisecond.
    wrapped = all(node.about.ended_by == "command" for node in recording.nodes)
    period_ns = max(node.about.period_ns for node in recording.nodes)
    return Measured(DURATION, seconds, None, 0.0 if wrapped else period_ns / _NS / seconds)


def _pace(recording: Recording, grid: NDArray[np.int64]) -> Series | None:
    """How the work went on: steps per second, else the CPUs at work. Its noise is that of how long the work took."""
    for selectors, end in _PACES:
        by_node = [[one for one in _columns(node, selectors) if one.name.endswith(end)] for node in recording.nodes]
        if any(by_node):
            return _rates(by_node, grid)
    return None


def _total(measure: Measure, by_node: Sequence[list[Column]], grid: NDArray[np.int64]) -> Measured:
    value = sum(increase(column) for node in by_node for column in node)
    return Measured(measure, value, _rates(by_node, grid))


def _count(measure: Measure, by_node: Sequence[list[Column]], grid: NDArray[np.int64]) -> Measured:
    """A total whose course says nothing about its noise: data that is read at the beginning, once, is read exactly."""
    return Measured(measure, sum(increase(column) for node in by_node for column in node), None)


def _share(measure: Measure, by_node: Sequence[list[Column]], grid: NDArray[np.int64]) -> Measured | None:
    """The mean over CPUs or nodes of a share of time."""
    course = _rates(by_node, grid) / sum(len(node) for node in by_node)
    return Measured(measure, _mean(course), course)


def _mean_of(measure: Measure, by_node: Sequence[list[Column]], grid: NDArray[np.int64]) -> Measured | None:
    course = _summed([_together([resampled(column, grid, "mean") for column in node]) for node in by_node if node])
    return Measured(measure, _mean(course), course)


def _peak(measure: Measure, by_node: Sequence[list[Column]], grid: NDArray[np.int64]) -> Measured | None:
    """The largest of a node: what one must ask for."""
    tops = [np.nanmax(_together([resampled(column, grid, "max") for column in node])) for node in by_node if node]
    return Measured(measure, float(max(tops)), None)


def _ratio(measure: Measure, by_node: Sequence[list[Column]], grid: NDArray[np.int64]) -> Measured | None:
    """What each of something took: the sum of a histogram by its count; of a gauge, its mean."""
    sums = [[column for column in node if column.name.endswith("_sum")] for node in by_node]
    counts = [[column for column in node if column.name.endswith("_count")] for node in by_node]
    if not any(sums) or not any(counts):
        gauges = [[column for column in node if column.kind == "gauge"] for node in by_node]
        return _mean_of(measure, gauges, grid) if any(gauges) else None
    total = sum(increase(column) for node in sums for column in node)
    count = sum(increase(column) for node in counts for column in node)
    if count <= 0:
        return None
    value = total / count
    tops, bottoms = _rates(sums, grid), _rates(counts, grid)
    # Of a ratio of means the noise is that of what is left over, by the mean of the lower one (the delta method).
    course = value + (tops - value * bottoms) / _mean(bottoms)
    return Measured(measure, value, course)


def _own(measure: Measure, by_node: Sequence[list[Column]], grid: NDArray[np.int64]) -> Measured | None:
    """What a user names: of a counter its rate, so that a longer run is no better one; of anything else its mean."""
    counters = [[column for column in node if column.kind in ("counter", "untyped")] for node in by_node]
    if not any(counters):
        return _mean_of(measure, by_node, grid)
    course = _rates(counters, grid)
    return Measured(measure, _mean(course), course)


def increase(column: Column) -> float:
    """How much a counter has grown; one that decreased was reset and has counted from 0 since."""
    values = column.values if column.order is None else column.values[np.argsort(column.order)]
    steps = np.diff(values)
    return float(np.where(steps < 0, values[1:], steps).sum())


def _rates(by_node: Sequence[list[Column]], grid: NDArray[np.int64]) -> Series:
    return _summed([_together([resampled(rate(column), grid, "mean") for column in node]) for node in by_node if node])


def _together(rows: Sequence[Series]) -> Series:
    """Of one node: a process that has not begun or has ended adds nothing; NaN where nobody has a value."""
    every = np.array(rows)
    return np.where(np.isnan(every).all(axis=0), np.nan, np.nansum(every, axis=0))


def _summed(nodes: Sequence[Series]) -> Series:
    """Over nodes: only where all of them were recorded, else a node that began later would look like a change."""
    return np.asarray(np.sum(np.array(nodes), axis=0), np.float64)


def _mean(course: Series) -> float:
    known = course[np.isfinite(course)]
    return float(known.mean()) if len(known) else float("nan")


_HOWS: dict[str, Callable[[Measure, Sequence[list[Column]], NDArray[np.int64]], Measured | None]] = {
    "total": _total,
    "work": _total,
    "count": _count,
    "share": _share,
    "mean": _mean_of,
    "peak": _peak,
    "ratio": _ratio,
    "own": _own,
}

"""What one node's series say, from its archive: totals, means, peaks, and curves on a grid that all nodes share.

    counter   100 100 150 200 (reset) 10 60        increase 160, of which the reset is bridged: it has counted from 0
    gap       no value for more than 2.5 periods   nothing is assumed in between: no rate, no share of a mean
    curve     least, mean and most per cell of the grid; a cell without a value is None and is drawn as a hole

Times are the gatherer's: the node's own, less what its clock is ahead. It is plain Python, so that a report needs no
third party: sums, least and most of slices run in C, at 0.1 µs per value. Reading uses numpy where it is (reading.py).
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from operator import sub
from typing import Any, NamedTuple

from sonde.clock import NS
from sonde.jobs.reading import ALWAYS, read
from sonde.jobs.recording import Node
from sonde.model import Histogram
from sonde.store import query
from sonde.store.form import Series
from sonde.store.query import Points, Selector
from sonde.store.reader import GapRow

_RECENT_NS = 10 * NS
_BRIDGED = 2.5  # periods a missing value may take

Cells = list[float | None]


class Grid(NamedTuple):
    """Cells of equal width, from the first to the last moment of a recording."""

    start_ns: int
    width_ns: int
    cells: int

    @property
    def seconds(self) -> list[float]:
        """The begin of each cell, since the begin of the recording."""
        return [cell * self.width_ns / NS for cell in range(self.cells)]


class Curve(NamedTuple):
    """A series on a grid. The three lists are as long as the grid."""

    least: Cells
    mean: Cells
    most: Cells

    @property
    def empty(self) -> bool:
        return all(value is None for value in self.mean)


class _AnyOf(Selector):
    """All series whose name is known, or begins with one of `families`."""

    known: frozenset[str]
    families: tuple[str, ...]

    def matches(self, series: Series) -> bool:
        return series.metric in self.known or series.metric.startswith(self.families)


class Readings:
    """Everything wanted of one node, read at once: each block of the archive is opened a single time."""

    def __init__(self, node: Node, names: Collection[str], families: Sequence[str] = ()) -> None:
        self.about = node.about
        self.node = node
        selector = _AnyOf("*")
        selector.known = frozenset(names)
        selector.families = tuple(families)
        with node.archive() as reader:
            found = read(reader, selector, node.about.offset_ns)
            self.gaps: list[GapRow] = reader.gaps(*ALWAYS)
            self.damaged = reader.damaged
        self.folded = found.folded
        self._by_name: dict[str, list[Points]] = {}
        for points in _of_this_job(found.points, node.about.job):
            self._by_name.setdefault(points.series.metric, []).append(points)

    @property
    def names(self) -> list[str]:
        return sorted(self._by_name)

    @property
    def empty(self) -> bool:
        return not self._by_name

    @property
    def running(self) -> bool:
        """Whether it is still being recorded: there is no end, and the last value is a few periods old at most."""
        span = self.span()
        recent_ns = max(_RECENT_NS, 5 * self.about.period_ns)
        return self.about.ended_ns is None and span is not None and time.time_ns() - span[1] < recent_ns

    def of(self, metric: str, **labels: str) -> list[Points]:
        """The series of a metric that have these labels; histograms are left out."""
        return [
            points
            for points in self._by_name.get(metric, ())
            if labels.items() <= dict(points.series.labels).items() and not isinstance(points.values[0], Histogram)
        ]

    def total(self, *metrics: str, **labels: str) -> Points | None:
        """The sum of all series of the first of these metrics that is there; None when none is."""
        for metric in metrics:
            found = self.of(metric, **labels)
            if found:
                return total(found)
        return None

    def rate(self, *metrics: str, **labels: str) -> Points | None:
        """The same, per second. Each series becomes a rate before it is added: one may be reset alone."""
        for metric in metrics:
            rates = [made for points in self.of(metric, **labels) if (made := rate(points)) is not None]
            if rates:
                return total(rates)
        return None

    def increase(self, *metrics: str, **labels: str) -> float | None:
        for metric in metrics:
            found = [made for points in self.of(metric, **labels) if (made := increase(points)) is not None]
            if found:
                return sum(found)
        return None

    def span(self) -> tuple[int, int] | None:
        """The first and the last time of any value."""
        edges = [(points.times[0], points.times[-1]) for found in self._by_name.values() for points in found]
        return (min(first for first, _ in edges), max(last for _, last in edges)) if edges else None


def _of_this_job(found: Sequence[Points], job: Mapping[str, Any] | None) -> Iterable[Points]:
    """Without the series of other jobs: a recording that was taken from a daemon has those of the whole node."""
    ids = {str((job or {}).get(key) or "") for key in ("id", "raw_id")} - {""}
    owners = {points.series: dict(points.series.labels).get("job_id", "") for points in found}
    if not ids.intersection(owners.values()):
        return found
    return [points for points in found if not owners[points.series] or owners[points.series] in ids]


def longest_gap_ns(period_ns: int) -> float:
    return _BRIDGED * period_ns


def increase(points: Points) -> float | None:
    """By how much a counter has grown; one value alone says nothing."""
    if len(points.values) < 2:
        return None
    return float(sum(_grown(points.values)))


def _grown(values: Sequence[Any]) -> list[Any]:
    steps = list(map(sub, values[1:], values))
    if min(steps) < 0:  # it was reset, and has counted from 0 since
        steps = [later - earlier if later >= earlier else later for earlier, later in pairwise(values)]
    return steps


def rate(points: Points) -> Points | None:
    """Growth per second at the later of two neighbours; None when no two are near enough to each other."""
    times = points.times
    if len(times) < 2:
        return None
    elapsed = list(map(sub, times[1:], times))
    steps = _grown(points.values)
    later = times[1:]
    if min(elapsed) <= 0 or max(elapsed) > longest_gap_ns(points.period_ns):
        limit = longest_gap_ns(points.period_ns)
        kept = [place for place, width in enumerate(elapsed) if 0 < width <= limit]
        if not kept:
            return None
        elapsed, steps, later = ([column[place] for place in kept] for column in (elapsed, steps, later))
    values = [step * 1e9 / width for step, width in zip(steps, elapsed, strict=True)]
    return Points(points.series._replace(kind="gauge"), points.period_ns, later, values)


def total(found: Sequence[Points]) -> Points:
    """The sum of series by time. Where some have no value near, the sum is of the others."""
    first = found[0]
    if len(found) == 1:
        return first
    if all(points.times is first.times or points.times == first.times for points in found):
        values = list(map(sum, zip(*[points.values for points in found], strict=True)))
        return Points(first.series, first.period_ns, first.times, values)
    times = sorted({time for points in found for time in points.times})
    period_ns = max(points.period_ns for points in found)
    same = [Points(first.series, period_ns, points.times, points.values) for points in found]
    # Each counts from its first to its last value and up to a period longer: a process that has ended is gone.
    added = query.summed_by(same, [], times, period_ns)[0]
    return Points(first.series, period_ns, added.times, added.values)


def mean(points: Points | None) -> float | None:
    return sum(points.values) / len(points.values) if points is not None and points.values else None


def most(points: Points | None) -> float | None:
    return max(points.values) if points is not None and points.values else None


def least(points: Points | None) -> float | None:
    return min(points.values) if points is not None and points.values else None


def last(points: Points | None) -> float | None:
    return points.values[-1] if points is not None and points.values else None


def since(points: Points | None, begin_ns: int) -> Points | None:
    """The values from a moment on; None when there is none."""
    if points is None:
        return None
    place = bisect_left(points.times, begin_ns)
    if place == len(points.times):
        return None
    return Points(points.series, points.period_ns, points.times[place:], points.values[place:])


def ratio(part: float | None, whole: float | None) -> float | None:
    """None when either is not known, or there is nothing to have a share of."""
    return part / whole if part is not None and whole else None


class Plotter:
    """Puts series on a grid. The series of a collector share their times: where the cells begin is found once."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._times: list[int] = []
        self._edges: list[tuple[int, int, int]] = []

    def curve(self, points: Points) -> Curve:
        empty: Cells = [None] * self._grid.cells
        low, middle, high = list(empty), list(empty), list(empty)
        values = points.values
        for cell, begin, end in self._edges_of(points):
            inside = values[begin:end]
            low[cell], high[cell] = min(inside), max(inside)
            middle[cell] = sum(inside) / len(inside)
        if points.period_ns > self._grid.width_ns:
            for column in (low, middle, high):
                self._bridge(points, column)
        return Curve(low, middle, high)

    def _edges_of(self, points: Points) -> list[tuple[int, int, int]]:
        if points.times is not self._times and points.times != self._times:
            self._times = points.times
            self._edges = list(_edges(points.times, self._grid))
        return self._edges

    def _bridge(self, points: Points, column: Cells) -> None:
        """A series slower than the grid has a value for the cells it skips, unless it missed more than it may."""
        start, width, count = self._grid
        for earlier, later in pairwise(points.times):
            if later - earlier <= longest_gap_ns(points.period_ns):
                first = (earlier - start) // width
                for cell in range(max(0, first + 1), min(count, (later - start) // width)):
                    column[cell] = column[first] if first >= 0 else None


def _edges(times: Sequence[int], grid: Grid) -> Iterable[tuple[int, int, int]]:
    begin, end = 0, len(times)
    while begin < end:
        cell = (times[begin] - grid.start_ns) // grid.width_ns
        until = bisect_left(times, grid.start_ns + (cell + 1) * grid.width_ns, begin)
        if 0 <= cell < grid.cells:
            yield cell, begin, until
        begin = until


def combined(curves: Sequence[Curve], how: str) -> tuple[Cells, list[int]]:
    """Sum or mean of the nodes in each cell, and how many nodes are in it; None where there is none."""
    values: Cells = []
    counts = []
    for cell in zip(*[curve.mean for curve in curves], strict=True):
        there = [value for value in cell if value is not None]
        counts.append(len(there))
        added = sum(there) if there else None
        values.append(added / len(there) if added is not None and how == "mean" else added)
    return values, counts

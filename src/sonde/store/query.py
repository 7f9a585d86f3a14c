"""What readers do with stored series: select them, turn counters into rates, put them on a common grid.

    node_cpu_seconds_total{cpu="0",mode=~"user|system"}      one metric, two matchers
    node_memory_*                                            all metrics of a family

The functions are pure. Times are integer nanoseconds. A `Source` is whatever can answer a selection: the archive on
disk (reader.py), a Prometheus-compatible server (server.py).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Protocol

from sonde.errors import UsageError
from sonde.model import Histogram
from sonde.store.form import Series

AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda values: sum(values) / len(values),
    "min": min,
    "max": max,
    "last": lambda values: values[-1],
    "sum": sum,
    "count": len,
}

_SELECTOR = re.compile(r"\s*([A-Za-z_:*?\[][A-Za-z0-9_:*?\[\]!-]*)\s*(?:\{(.*)\})?\s*", re.DOTALL)
_MATCHER = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)', re.DOTALL)


class Span(NamedTuple):
    """From the first to the last time something holds data for."""

    start_ns: int
    end_ns: int


@dataclass(slots=True)
class Points:
    """A series and its values, in the order they were recorded unless a function says otherwise."""

    series: Series
    period_ns: int
    times: list[int]
    values: list[Any]  # numbers; or histograms, until `flattened`


class Source(Protocol):
    """Something that can be asked for stored series."""

    @property
    def path(self) -> str: ...  # where it is, for messages
    @property
    def damaged(self) -> int: ...  # rows that were skipped
    @property
    def notes(self) -> list[str]: ...  # what else should be told beside an answer
    def span(self) -> Span | None: ...
    def names(self) -> list[str]: ...
    def series(self, selector: Selector | None = None) -> list[Series]: ...
    def read(self, selector: Selector, since_ns: int, until_ns: int) -> list[Points]: ...


class Matcher(NamedTuple):
    label: str
    operator: str
    value: str

    def matches(self, labels: dict[str, str]) -> bool:
        """As in PromQL: a missing label is an empty one, and an expression must match the whole value."""
        value = labels.get(self.label, "")
        if self.operator in ("=", "!="):
            return (value == self.value) == (self.operator == "=")
        return (re.fullmatch(self.value, value) is not None) == (self.operator == "=~")


class Selector(NamedTuple):
    metric: str  # a shell pattern
    matchers: tuple[Matcher, ...] = ()

    def matches(self, series: Series) -> bool:
        if not fnmatchcase(series.metric, self.metric):
            return False
        labels = dict(series.labels)
        return all(matcher.matches(labels) for matcher in self.matchers)


def parse_selector(text: str) -> Selector:
    """`name{label="value",...}`; UsageError says what is wrong with it."""
    found = _SELECTOR.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} is not a metric", hint='write it as node_load1 or node_cpu_seconds_total{cpu="0"}')
    metric, inside = found[1], found[2] or ""
    matchers = []
    while inside.strip():
        part = _MATCHER.match(inside)
        if part is None:
            raise UsageError(f"{inside!r} is not a label matcher", hint='write matchers as label="value", =~, != or !~')
        matchers.append(_matcher(part[1], part[2], part[3]))
        inside = inside[part.end() :]
    return Selector(metric, tuple(matchers))


def _matcher(label: str, operator: str, quoted: str) -> Matcher:
    # \\, \" and \n are escapes of the string; other backslashes are left for the expression: "eth\d" needs no doubling.
    value = re.sub(r'\\(["\\n])', lambda match: "\n" if match[1] == "n" else match[1], quoted)
    if operator in ("=~", "!~"):
        try:
            re.compile(value)
        except re.error as error:
            raise UsageError(f"{value!r} is not an expression: {error}") from None
    return Matcher(label, operator, value)


def select(source: Source, selector: Selector, since_ns: int, until_ns: int) -> list[Points]:
    """What a source has for a selector, histograms as their parts: `x_count` finds the count of histogram `x`."""
    found = [part for points in source.read(selector, since_ns, until_ns) for part in flattened(points)]
    for suffix in ("_bucket", "_count", "_sum"):
        if not found and selector.metric.endswith(suffix):
            others = tuple(matcher for matcher in selector.matchers if matcher.label != "le")
            whole = Selector(selector.metric.removesuffix(suffix), others)
            parts = (part for points in source.read(whole, since_ns, until_ns) for part in flattened(points))
            found = [part for part in parts if selector.matches(part.series)]
    return found


def flattened(points: Points) -> list[Points]:
    """A histogram as `_count`, `_sum` and cumulative `_bucket` series; anything else as it is."""
    if not any(isinstance(value, Histogram) for value in points.values):
        return [points]
    series = points.series
    rows = [
        (time, value) for time, value in zip(points.times, points.values, strict=True) if isinstance(value, Histogram)
    ]
    parts: dict[Series, tuple[list[int], list[float]]] = {}

    def add(suffix: str, labels: tuple[tuple[str, str], ...], time: int, value: float) -> None:
        key = Series(series.metric + suffix, "counter", series.unit, series.labels + labels)
        times, values = parts.setdefault(key, ([], []))
        times.append(time)
        values.append(value)

    for time, histogram in rows:
        below = 0
        for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
            below += count
            add("_bucket", (("le", "+Inf" if bound == float("inf") else f"{bound:g}"),), time, below)
        add("_count", (), time, below)
        add("_sum", (), time, histogram.sum)
    return [Points(key, points.period_ns, times, values) for key, (times, values) in parts.items()]


def in_order(points: Points) -> Points:
    """The same, sorted by time: a wall clock that was set back leaves later values with earlier times."""
    times = points.times
    if all(map(int.__le__, times, times[1:])):
        return points
    order = sorted(range(len(times)), key=times.__getitem__)
    return Points(points.series, points.period_ns, [times[n] for n in order], [points.values[n] for n in order])


def rate(points: Points, *, max_gap_ns: int) -> Points:
    """Increase per second between neighbours, at the time of the later one; in order of time.

    A counter that decreases was reset and has counted from 0 since. Neighbours further apart than `max_gap_ns` are not
    bridged: nobody knows how often it was reset in between. Works on recorded order, so a wall clock that was set back
    costs the one pair around it and makes no false resets.
    """
    times: list[int] = []
    values: list[float] = []
    before_time, before = 0, None
    for time, value in zip(points.times, points.values, strict=True):
        elapsed = time - before_time
        if before is not None and 0 < elapsed <= max_gap_ns:
            times.append(time)
            values.append((value - before if value >= before else value) * 1e9 / elapsed)
        before_time, before = time, value
    unit = f"{points.series.unit}/s" if points.series.unit else "1/s"
    series = points.series._replace(kind="gauge", unit=unit)
    return in_order(Points(series, points.period_ns, times, values))


def downsampled(points: Points, step_ns: int, aggregate: str) -> Points:
    """One value per bucket of `step_ns`, at the bucket's begin; buckets begin at multiples of the step."""
    chosen = AGGREGATES[aggregate]
    times: list[int] = []
    values: list[float] = []
    bucket: list[float] = []
    ordered = in_order(points)
    for time, value in zip(ordered.times, ordered.values, strict=True):
        begin = time - time % step_ns
        if not times or begin != times[-1]:
            if bucket:
                values.append(chosen(bucket))
            times.append(begin)
            bucket = []
        bucket.append(value)
    if bucket:
        values.append(chosen(bucket))
    return Points(points.series, step_ns, times, values)


def default_aggregate(series: Series) -> str:
    return "last" if series.kind in ("counter", "info") else "mean"


def aligned(points: Points, times: Sequence[int], *, lookback_ns: int) -> list[float | None]:
    """The newest value at or before each time, unless it is older than `lookback_ns`: then None."""
    ordered = in_order(points)
    values: list[float | None] = []
    for time in times:
        place = bisect_right(ordered.times, time) - 1
        fresh = place >= 0 and time - ordered.times[place] <= lookback_ns
        values.append(ordered.values[place] if fresh else None)
    return values


def summed_by(points: Iterable[Points], labels: Sequence[str], times: Sequence[int], lookback_ns: int) -> list[Points]:
    """Sums over series that agree in the metric and in `labels`, on a grid; a missing addend is left out."""
    groups: dict[Series, list[list[float | None]]] = {}
    for item in points:
        kept = tuple((name, value) for name, value in item.series.labels if name in labels)
        key = item.series._replace(labels=kept)
        groups.setdefault(key, []).append(aligned(item, times, lookback_ns=lookback_ns))
    result = []
    for key, rows in groups.items():
        sums = [[value for value in column if value is not None] for column in zip(*rows, strict=True)]
        present = [(time, sum(column)) for time, column in zip(times, sums, strict=True) if column]
        result.append(Points(key, lookback_ns, [time for time, _ in present], [total for _, total in present]))
    return result

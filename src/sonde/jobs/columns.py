"""The series of a recorded node as columns of numbers, on the clock of whoever gathered; rates, and a common grid.

What was not measured is NaN or absent, never 0. Nodes are aligned by time: put each column on `grid_for(recording)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sonde.errors import Denied, Unavailable
from sonde.jobs import stored
from sonde.jobs.recording import Node, Recording
from sonde.store.query import Selector, parse_selector

How = Literal["mean", "last", "sum", "max"]

_BRIDGED_PERIODS = 2.5  # one tick that was missed, and jitter; over more, nobody knows what a counter did


class Column(NamedTuple):
    """One series of a node, in order of time."""

    name: str
    labels: Mapping[str, str]
    kind: str
    unit: str
    times: NDArray[np.int64]  # Unix nanoseconds
    values: NDArray[np.float64]
    period_ns: int = 0  # 0: not known
    order: NDArray[np.intp] | None = None  # of recording, where the clock was set back


def columns(
    node: Node, selector: str = "", *, since_ns: int | None = None, until_ns: int | None = None
) -> list[Column]:
    """The series a selector matches, as `sonde query` takes it; all, by name, without one.

    A range is of the gatherer's clock, both ends included. What is damaged is left out: `sonde archive check` names it.
    """
    wanted = parse_selector(selector) if selector else Selector("*")
    offset_ns = node.about.offset_ns
    since = stored.ALWAYS[0] if since_ns is None else since_ns + offset_ns
    until = stored.ALWAYS[1] if until_ns is None else until_ns + offset_ns
    try:
        reader = node.archive()
    except Denied:
        raise
    except Unavailable:  # killed before its first second
        return []
    with reader:
        return [_column(found, offset_ns) for found in stored.read(reader, wanted, since, until)]


def _column(found: stored.Stored, offset_ns: int) -> Column:
    series = found.series
    times = found.times - offset_ns if offset_ns else found.times
    values = found.values.astype(np.float64, copy=False)
    return Column(
        series.metric, dict(series.labels), series.kind, series.unit, times, values, found.period_ns, found.order
    )


def rate(column: Column) -> Column:
    """Increase per second, at the time of the later of two values; the first has none and is NaN.

    A counter that decreases was reset and has counted from 0 since. Neighbours further apart than 2.5 periods are not
    bridged. Works in the order of recording: a clock that was set back costs the one pair around it.
    """
    times, values, order = column.times, column.values, column.order
    if order is not None:
        back = np.argsort(order)
        times, values = times[back], values[back]
    result = np.full(len(values), np.nan)
    if len(values) > 1:
        elapsed, increase = np.diff(times), np.diff(values)
        increase = np.where(increase < 0, values[1:], increase)
        period_ns = column.period_ns or float(np.median(elapsed))
        known = (elapsed > 0) & (elapsed <= _BRIDGED_PERIODS * period_ns)
        result[1:][known] = increase[known] * 1e9 / elapsed[known]
    unit = f"{column.unit}/s" if column.unit else "1/s"
    return column._replace(kind="gauge", unit=unit, values=result if order is None else result[order])


def resampled(column: Column, grid: NDArray[np.int64], how: How) -> NDArray[np.float64]:
    """One value for each step of a grid, of the values from it up to the next; NaN where there is none."""
    out = np.full(len(grid), np.nan)
    if not len(grid):
        return out
    step_ns = int(grid[1] - grid[0]) if len(grid) > 1 else 2**62
    places = (column.times - grid[0]) // step_ns
    inside = (places >= 0) & (places < len(grid)) & ~np.isnan(column.values)
    places, values = places[inside], column.values[inside]
    if not len(places):
        return out
    starts = np.concatenate(([0], np.nonzero(np.diff(places))[0] + 1))  # columns are in order of time
    filled = places[starts]
    if how == "last":
        out[filled] = values[np.append(starts[1:], len(values)) - 1]
    elif how == "max":
        out[filled] = np.maximum.reduceat(values, starts)
    else:
        sums = np.add.reduceat(values, starts)
        out[filled] = sums / np.diff(np.append(starts, len(values))) if how == "mean" else sums
    return out


def grid_for(recording: Recording, step_ns: int) -> NDArray[np.int64]:
    """The steps of all nodes' time together, at multiples of the step; empty when no node has a value."""
    spans = [span for node in recording.nodes if (span := _span(node)) is not None]
    if not spans:
        return np.empty(0, np.int64)
    begin = min(start for start, _ in spans) // step_ns * step_ns
    end = max(end for _, end in spans)
    return np.arange(begin, end + 1, step_ns, dtype=np.int64)


def _span(node: Node) -> tuple[int, int] | None:
    try:
        with node.archive() as reader:
            span = reader.span()
    except Denied:
        raise
    except Unavailable:
        return None
    offset_ns = node.about.offset_ns
    return None if span is None else (span.start_ns - offset_ns, span.end_ns - offset_ns)

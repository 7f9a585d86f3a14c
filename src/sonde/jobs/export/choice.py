"""What of a recording is exported: which series, as they were recorded or resampled, counters as they are or as rates.

A node's series come with exact times and without holes: a value that was not read is absent. Formats of one row per
value write them as they are; formats of one row per moment get them through `table`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sonde.errors import Denied, Unavailable
from sonde.jobs import stored
from sonde.jobs.columns import Column, rate
from sonde.jobs.recording import Node, Recording
from sonde.jobs.stored import Stored
from sonde.store.form import Series
from sonde.store.query import Selector, default_aggregate, parse_selector
from sonde.store.reader import ArchiveReader


class Choice(NamedTuple):
    selectors: tuple[Selector, ...] = (Selector("*"),)
    step_ns: int = 0  # 0: as recorded
    rate: bool = False  # counters as increase per second


class Gap(NamedTuple):
    """A value that was missing or qualified on a node, and why."""

    host: str
    from_ns: int
    to_ns: int | None  # None: to the end
    metric: str
    labels: tuple[str, ...]  # their values; empty: all series of the metric
    quality: str
    reason: str


class Chosen(NamedTuple):
    """What a node has of a choice, on the gatherer's clock."""

    series: list[Stored]
    gaps: list[Gap]
    notes: list[str]
    damaged: int = 0  # rows of the archive that were left out


def choice_of(selectors: Sequence[str], step_ns: int = 0, *, rate: bool = False) -> Choice:
    """UsageError when a selector makes no sense."""
    return Choice(tuple(map(parse_selector, selectors)) or Choice().selectors, step_ns, rate)


def chosen(node: Node, choice: Choice) -> Chosen:
    """Read a node. A node that kept nothing, or whose archive is damaged, says so in its notes."""
    notes = list(node.about.notes)
    try:
        reader = node.archive()
    except Denied:
        raise
    except Unavailable as error:
        return Chosen([], [], [*notes, f"no values were kept: {error}"])
    with reader:
        found = _read(reader, choice)
        gaps = [_gap(node, row) for row in reader.gaps(*stored.ALWAYS)]
        damaged = reader.damaged
        if damaged:
            notes.append(f"{reader.damaged} damaged rows were left out: sonde archive check {node.archive_path}")
    if node.about.ended_ns is None:
        notes.append("the recording has no end: the recorder was interrupted, or still runs")
    offset_ns = node.about.offset_ns
    if offset_ns:
        found = [one._replace(times=one.times - offset_ns) for one in found]
    if choice.rate:
        found = [one for one in map(_rated, found) if len(one.times)]
    if choice.step_ns:
        found = [_stepped(one, choice.step_ns) for one in found]
    return Chosen(found, gaps, notes, damaged)


def _read(reader: ArchiveReader, choice: Choice) -> list[Stored]:
    found: dict[Series, Stored] = {}
    for selector in choice.selectors:
        found |= {one.series: one for one in stored.read(reader, selector, *stored.ALWAYS)}
    return [found[series] for series in sorted(found)]


def _gap(node: Node, row: tuple[int, int | None, str, str, str, str, str]) -> Gap:
    from_ns, to_ns, _, metric, labels, quality, reason = row
    offset_ns = node.about.offset_ns
    try:
        values = tuple(map(str, json.loads(labels)))
    except (ValueError, TypeError):  # damaged: the metric and the reason are told all the same
        values = ()
    end_ns = None if to_ns is None else to_ns - offset_ns
    return Gap(node.host, from_ns - offset_ns, end_ns, metric, values, quality, reason)


def _rated(one: Stored) -> Stored:
    """A counter's increase per second, under a name that says so; anything else as it is."""
    series = one.series
    if series.kind != "counter":
        return one
    raw = Column(series.metric, {}, series.kind, series.unit, one.times, one.values, one.period_ns, one.order)
    result = rate(raw)
    known = ~np.isnan(result.values)
    name = f"{series.metric.removesuffix('_total')}_per_second"
    renamed = series._replace(metric=name, kind="gauge", unit=result.unit)
    return Stored(renamed, one.period_ns, one.times[known], result.values[known])


def _stepped(one: Stored, step_ns: int) -> Stored:
    """One value per step that has any, at the step's begin: the last of a counter, the mean of a gauge."""
    steps = one.times // step_ns
    starts = np.concatenate(([0], np.nonzero(np.diff(steps))[0] + 1))
    ends = np.append(starts[1:], len(steps))
    if default_aggregate(one.series) == "last":
        values = one.values[ends - 1]
    else:
        values = np.add.reduceat(one.values.astype(np.float64), starts) / (ends - starts)
    return Stored(one.series, step_ns, steps[starts] * step_ns, values)


def column_name(series: Series, recording: Recording) -> str:
    """`node_cpu_seconds_total{cpu="0",mode="user"}`; the labels that name the recorded job itself are left out."""
    job = recording.job or {}
    own = {("job_id", str(job.get("id", ""))), ("scheduler", str(job.get("scheduler", "")))}
    left = [pair for pair in series.labels if pair not in own] if own <= set(series.labels) else series.labels
    inside = ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in left)
    return f"{series.metric}{{{inside}}}" if inside else series.metric

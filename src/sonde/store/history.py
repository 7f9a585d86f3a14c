"""The frames of an archive again, in order of time, as the collectors gave them.

A block holds the ticks of one layout for a minute or more, so blocks of different collectors overlap: they are opened
when their time has come and merged. Memory is that of the blocks that overlap, however long the archive is. What the
archive does not keep is empty: help texts, and how long a reading took.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from sonde.errors import StoreError
from sonde.model import EMPTY_LAYOUT, Event, Frame, Gap, Kind, Layout, MetricSpec, Quality, Unit
from sonde.store.form import Form, Series
from sonde.store.reader import ArchiveReader, GapRow
from sonde.store.tail import Packed

_EVENTS = 1000  # read at once
_LAYOUTS = 256  # kept for the next block of the same form; sinks find what they cached by a layout's identity


def frames(reader: ArchiveReader, since_ns: int, until_ns: int) -> Iterator[Frame]:
    """Every frame from `since` to `until`, both included. Damaged blocks are left out and counted by the reader."""
    layouts = _Layouts()
    gaps = _Gaps(reader, since_ns, until_ns)
    starts, rows, tail = reader.catalogue(since_ns, until_ns)
    heap: list[tuple[int, int, Frame, Iterator[Frame]]] = []

    def push(number: int, stream: Iterator[Frame]) -> None:
        frame = next(stream, None)
        if frame is not None:
            heapq.heappush(heap, (frame.time_ns, number, frame, stream))

    push(-2, _events(reader, since_ns, until_ns))
    push(-1, _tail_frames(reader, layouts, tail, since_ns, until_ns))
    place = 0
    while heap or place < len(rows):
        while place < len(rows) and (not heap or starts[place] <= heap[0][0]):
            push(place, _block_frames(reader, layouts, rows[place], since_ns, until_ns))
            place += 1
        if heap:
            _, number, frame, stream = heapq.heappop(heap)
            yield gaps.put_on(frame)
            push(number, stream)


class _Layouts:
    """The layout of each form; the newest are remembered."""

    def __init__(self) -> None:
        self._layouts: dict[int, Layout] = {}
        self._specs: dict[tuple[str, str, str, tuple[str, ...]], MetricSpec] = {}

    def of(self, form: Form) -> Layout:
        layout = self._layouts.pop(form.id, None) or self._built(form)
        self._layouts[form.id] = layout  # the newest stands last
        if len(self._layouts) > _LAYOUTS:
            del self._layouts[next(iter(self._layouts))]
        return layout

    def _built(self, form: Form) -> Layout:
        series = form.series()
        try:
            return Layout(self._series(series))
        except ValueError:  # two specs that read the same, apart from each other: they need to be two again
            self._specs.clear()
            runs = groupby(series, key=_spec_key)
            return Layout((spec, _values(one)) for key, run in runs for spec in [_spec(*key)] for one in run)

    def _series(self, series: Sequence[Series]) -> Iterator[tuple[MetricSpec, tuple[str, ...]]]:
        for one in series:
            key = _spec_key(one)
            spec = self._specs.get(key)
            if spec is None:
                spec = self._specs[key] = _spec(*key)
            yield spec, _values(one)


def _spec_key(series: Series) -> tuple[str, str, str, tuple[str, ...]]:
    return series.metric, series.kind, series.unit, tuple(name for name, _ in series.labels)


def _values(series: Series) -> tuple[str, ...]:
    return tuple(value for _, value in series.labels)


def _spec(name: str, kind: str, unit: str, labels: tuple[str, ...]) -> MetricSpec:
    """A kind or unit of a newer sonde is no reason to lose the values."""
    kinds, units = {each.value: each for each in Kind}, {each.value: each for each in Unit}
    return MetricSpec(name, kinds.get(kind, Kind.UNTYPED), units.get(unit, Unit.NONE), "", labels)


def _block_frames(
    reader: ArchiveReader, layouts: _Layouts, row_id: int, since_ns: int, until_ns: int
) -> Iterator[Frame]:
    found = reader.block(row_id)
    if found is None:
        return
    form, block = found
    columns: list[list[Any]] = [[]] * len(form.order)
    try:
        for column, place in enumerate(form.order):
            columns[place] = block.column(column)
    except (StoreError, IndexError):
        reader.damaged += 1
        return
    layout = layouts.of(form)
    ticks = zip(block.times, zip(*columns, strict=True), strict=True)
    for time_ns, values in sorted(ticks, key=itemgetter(0)):  # a clock that was set back leaves them out of order
        if since_ns <= time_ns <= until_ns:
            yield Frame(form.source, time_ns, 0, form.period_ns, layout, values)


def _tail_frames(
    reader: ArchiveReader, layouts: _Layouts, tail: Iterable[Packed], since_ns: int, until_ns: int
) -> Iterator[Frame]:
    inside = [packed for packed in tail if since_ns <= packed.time_ns <= until_ns]
    for packed in sorted(inside, key=lambda packed: packed.time_ns):
        form = reader.form(packed.form)
        if form is None:
            continue
        unpacked = form.unpack(packed.fixed, packed.rest)
        values: list[Any] = [None] * len(form.order)
        for column, place in enumerate(form.order):
            values[place] = unpacked[column]
        yield Frame(form.source, packed.time_ns, 0, form.period_ns, layouts.of(form), values)


def _events(reader: ArchiveReader, since_ns: int, until_ns: int) -> Iterator[Frame]:
    """Each event in a frame of its own: which frame it came with is not known any more."""
    after = (since_ns - 1, 2**63 - 1)
    while found := reader.events_after(*after, until_ns, _EVENTS):
        after = (found[-1][1].time_ns, found[-1][0])
        for _, row in found:
            try:
                event = Event(row.time_ns, row.name, json.loads(row.attrs))
            except ValueError:  # damaged
                reader.damaged += 1
                continue
            yield Frame(row.source, row.time_ns, 0, 0, EMPTY_LAYOUT, (), (event,))


class _Span(NamedTuple):
    from_ns: int
    to_ns: int  # no longer at this time
    gap: Gap


class _Gaps:
    """Which gaps a frame had. The same tuple is given for as long as nothing changes: sinks compare by identity."""

    def __init__(self, reader: ArchiveReader, since_ns: int, until_ns: int) -> None:
        rows = reader.gaps(since_ns, until_ns)
        labelled = any(row.labels != "[]" for row in rows)
        names = {one.metric: tuple(name for name, _ in one.labels) for one in reader.series()} if labelled else {}
        self._spans: dict[str, list[_Span]] = {}
        for row in rows:
            gap = _gap(row, names)
            if gap is None:
                reader.damaged += 1
                continue
            end = until_ns + 1 if row.to_ns is None else row.to_ns
            self._spans.setdefault(row.source, []).append(_Span(row.from_ns, end, gap))
        self._now: dict[str, tuple[int, int, tuple[Gap, ...]]] = {}  # from, to, and what holds in between

    def put_on(self, frame: Frame) -> Frame:
        spans = self._spans.get(frame.source)
        if spans is None or not frame.layout:
            return frame
        now = self._now.get(frame.source)
        if now is None or not now[0] <= frame.time_ns < now[1]:
            now = self._now[frame.source] = _holding(spans, frame.time_ns)
        return frame._replace(gaps=now[2]) if now[2] else frame


def _holding(spans: Sequence[_Span], at_ns: int) -> tuple[int, int, tuple[Gap, ...]]:
    changes = [moment for span in spans for moment in span[:2]]
    begin = max((moment for moment in changes if moment <= at_ns), default=-(2**63))
    end = min((moment for moment in changes if moment > at_ns), default=2**63)
    return begin, end, tuple(span.gap for span in spans if span.from_ns <= at_ns < span.to_ns)


def _gap(row: GapRow, names: dict[str, tuple[str, ...]]) -> Gap | None:
    """The gap of a row. Label names are those the metric has elsewhere in the archive: a gap has only the values."""
    try:
        labels = tuple(map(str, json.loads(row.labels)))
        quality = Quality(row.quality)
    except (ValueError, TypeError):
        return None
    known = names.get(row.metric, ())
    if len(known) != len(labels):
        known = tuple(f"label{number}" for number in range(1, len(labels) + 1))
    return Gap(MetricSpec(row.metric, Kind.UNTYPED, Unit.NONE, "", known), labels, quality, row.reason)

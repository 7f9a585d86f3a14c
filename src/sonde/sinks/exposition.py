"""Frames as a page of metrics: the Prometheus text format 0.0.4 and OpenMetrics 1.0.0.

    # HELP node_cpu_seconds_total Seconds the CPUs spent in each mode.
    # TYPE node_cpu_seconds_total counter
    node_cpu_seconds_total{cpu="0",mode="idle"} 214.07

Names, labels and help texts are rendered once per layout. The text of a value is kept until the value changes, so a
page is one comparison of all values in C, the text of those that differ, and one join; benchmarks/exposition.py
measures it. The series of one family must stand in one group on a page: when two sources bring the same family, the
later one's is left out and counted.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, compress
from math import isfinite
from operator import is_not, itemgetter, ne
from typing import Any

from sonde.model import Frame, Histogram, Kind, Layout, MetricSpec, Series, Value
from sonde.shape import picker

log = logging.getLogger(__name__)

_BLOCK = 2000  # series rendered at once: a millisecond, ten when their names are new
_UNSEEN = object()  # unequal to every value
_SPECIAL = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}


class Format(enum.Enum):
    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


_TEXT_TYPES = {Kind.INFO: "gauge"}
_OPENMETRICS_TYPES = {Kind.UNTYPED: "unknown"}
_OPENMETRICS_SUFFIXES = {Kind.COUNTER: "_total", Kind.INFO: "_info"}


def family(spec: MetricSpec, form: Format) -> tuple[str, str]:
    """The name and the type a metric's family has in a format.

    OpenMetrics calls a counter's family by its name without `_total`, an info's without `_info`. Names that lack the
    suffix (node_exporter has such counters) cannot be declared as what they are there: they are `unknown`.
    """
    if form is Format.TEXT:
        return spec.name, _TEXT_TYPES.get(spec.kind, spec.kind.value)
    suffix = _OPENMETRICS_SUFFIXES.get(spec.kind, "")
    if not spec.name.endswith(suffix):
        return spec.name, "unknown"
    return spec.name.removesuffix(suffix), _OPENMETRICS_TYPES.get(spec.kind, spec.kind.value)


def claims(spec: MetricSpec, form: Format) -> set[str]:
    """Every name a metric takes on the page, for itself, its samples and its declaration."""
    name, type_ = family(spec, form)
    names = {name, spec.name}
    if type_ == "histogram":
        names |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
    return names


def is_of_one_process(spec: MetricSpec) -> bool:
    """A metric with a series per process: too many to keep for most, while the totals of trees are few."""
    return spec.name.startswith("sonde_process_") and not spec.name.startswith("sonde_process_tree_")


def _escape_help(text: str, form: Format) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if form is Format.OPENMETRICS else text


def escape_label(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def label_text(names: Sequence[str], values: Sequence[str]) -> str:
    """`cpu="0",mode="idle"`."""
    return ",".join([f'{name}="{escape_label(value)}"' for name, value in zip(names, values, strict=True)])


def number(value: float) -> str:
    text = repr(value)
    return _SPECIAL.get(text, text)


def _declaration(spec: MetricSpec, form: Format) -> str:
    name, type_ = family(spec, form)
    return f"# HELP {name} {_escape_help(spec.help, form)}\n# TYPE {name} {type_}\n"


class _Buckets:
    """The lines of one histogram series: cumulative buckets, sum and count."""

    def __init__(self, name: str, labels: str) -> None:
        self._name = name
        self._labels = labels
        self._bounds: tuple[float, ...] | None = None
        self._lines: list[str] = []

    def __call__(self, value: Histogram) -> str:
        if value.bounds != self._bounds:
            comma = "," if self._labels else ""
            ends = [*map(number, map(float, value.bounds)), "+Inf"]
            self._bounds = value.bounds
            self._lines = [f'{self._name}_bucket{{{self._labels}{comma}le="{end}"}} ' for end in ends]
        cumulative = list(accumulate(value.counts))
        lines = [f"{line}{count}\n" for line, count in zip(self._lines, cumulative, strict=True)]
        braces = f"{{{self._labels}}}" if self._labels else ""
        lines.append(f"{self._name}_sum{braces} {number(value.sum)}\n{self._name}_count{braces} {cumulative[-1]}")
        return "".join(lines)


class _Block:
    """Some neighbouring series of a layout, and the text of their last values between their names."""

    def __init__(self, series: Sequence[Series], previous: MetricSpec | None, form: Format) -> None:
        parts = [""] * (2 * len(series) + 1)
        self._histograms: dict[int, _Buckets] = {}
        end = ""  # of the line before
        for index, (spec, labels) in enumerate(series):
            declared = end if spec is previous else end + _declaration(spec, form)
            previous = spec
            text = label_text(spec.labels, labels)
            if spec.kind is Kind.HISTOGRAM:
                self._histograms[2 * index + 1] = _Buckets(spec.name, text)
                parts[2 * index] = declared
            else:
                parts[2 * index] = f"{declared}{spec.name}{{{text}}} " if text else f"{declared}{spec.name} "
            end = "\n"
        parts[-1] = end
        self._parts = parts
        self._places = range(1, len(parts), 2)
        self._values: Sequence[object] = [_UNSEEN] * len(series)
        self._text = ""

    def render(self, values: Sequence[Value]) -> str:
        if values is self._values:
            return self._text
        try:
            self._update(values)
        except (TypeError, ValueError):
            self._values = [_UNSEEN] * len(self._places)  # half updated: nothing here is known any more
            raise
        self._values = values
        self._text = "".join(self._parts)
        return self._text

    def _update(self, values: Sequence[Value]) -> None:
        parts = self._parts
        changed = compress(zip(self._places, values, strict=True), map(ne, values, self._values))
        if self._histograms or not _all_finite(values):
            self._update_any(changed)
            return
        for place, value in changed:
            parts[place] = repr(value)

    def _update_any(self, changed: Iterable[tuple[int, Value]]) -> None:
        for place, value in changed:
            if isinstance(value, Histogram):
                self._parts[place] = self._histograms[place](value)
            else:
                self._parts[place] = number(value)


def _all_finite(values: Sequence[Any]) -> bool:
    # One infinity makes the sum infinite or NaN; summing is the cheapest look at all values (9 ns each).
    try:
        return isfinite(sum(values))
    except OverflowError:
        return False  # an int beyond the floats: written digit by digit like any other


class _Sheet:
    """One source's part of the page."""

    def __init__(self, layout: Layout, form: Format) -> None:
        self.layout = layout
        self._form = form
        self.claims = [(spec, claims(spec, form)) for spec in dict.fromkeys(map(itemgetter(0), layout))]
        self._refused: frozenset[MetricSpec] = frozenset()
        self._pick: Callable[[Any], Any] | None = None
        self._series: Sequence[Series] = tuple(layout)
        self._blocks: list[_Block] = []

    def __len__(self) -> int:
        return len(self._series)

    def refuse(self, refused: frozenset[MetricSpec]) -> None:
        """Leave these metrics out."""
        if refused == self._refused:
            return
        everything = len(refused) == len(self.claims)
        kept = [] if everything else [index for index, (spec, _) in enumerate(self.layout) if spec not in refused]
        self._refused = refused
        self._pick = picker(kept) if refused else None
        self._series = [self.layout[index] for index in kept]
        self._blocks = []

    def render(self, frame: Frame) -> Iterator[str]:
        """The text, a block at a time."""
        values = frame.values if self._pick is None else self._pick(frame.values)
        blocks = self._blocks
        if len(self._series) <= _BLOCK:
            yield self._block(blocks, 0).render(values)
            return
        for index, start in enumerate(range(0, len(self._series), _BLOCK)):
            yield self._block(blocks, index).render(values[start : start + _BLOCK])

    def _block(self, blocks: list[_Block], index: int) -> _Block:
        if index == len(blocks):
            start = index * _BLOCK
            previous = self._series[start - 1][0] if start else None
            blocks.append(_Block(self._series[start : start + _BLOCK], previous, self._form))
        return blocks[index]


class Page:
    """The page of one format. Keeps one sheet per source; belongs to the thread that renders."""

    def __init__(self, form: Format, wanted: Callable[[MetricSpec], bool] = lambda _: True) -> None:
        self.form = form
        self._wanted = wanted
        self._sheets: dict[str, _Sheet] = {}
        self._layouts: list[Layout] = []
        self._clashes: frozenset[tuple[str, str]] = frozenset()  # source and metric
        self._broken: set[str] = set()  # sources whose values do not fit their layout
        self.dropped = 0  # families left out because an earlier source had their name, summed over all pages

    def blocks(self, frames: Sequence[Frame]) -> tuple[int, Iterator[str]]:
        """The number of series, and the text in blocks that are rendered when they are asked for."""
        layouts = [frame.layout for frame in frames]
        if len(layouts) != len(self._layouts) or any(map(is_not, layouts, self._layouts)):
            self._arrange(frames)
            self._layouts = layouts
        self.dropped += len(self._clashes)
        sheets = [(self._sheets[frame.source], frame) for frame in frames]
        return sum([len(sheet) for sheet, _ in sheets]), self._render(sheets)

    def render(self, frames: Sequence[Frame]) -> str:
        return "".join(self.blocks(frames)[1])

    def _render(self, sheets: Sequence[tuple[_Sheet, Frame]]) -> Iterator[str]:
        for sheet, frame in sheets:
            try:
                if len(sheet):
                    yield from sheet.render(frame)
            except (TypeError, ValueError):  # a collector broke the promises of the model: the others stay visible
                if frame.source not in self._broken:
                    log.exception("the values of source %s cannot be shown", frame.source)
                self._broken.add(frame.source)
            else:
                self._broken.discard(frame.source)
        if self.form is Format.OPENMETRICS:
            yield "# EOF\n"

    def _arrange(self, frames: Sequence[Frame]) -> None:
        """Decide which source has which family: the first that brings it."""
        taken: set[str] = set()
        clashes: set[tuple[str, str]] = set()
        sheets: dict[str, _Sheet] = {}
        for frame in frames:
            sheet = self._sheets.get(frame.source)
            if sheet is None or sheet.layout is not frame.layout:
                sheet = _Sheet(frame.layout, self.form)
            refused = []
            for spec, names in sheet.claims:
                if not self._wanted(spec):
                    refused.append(spec)
                elif taken.isdisjoint(names):
                    taken |= names
                else:
                    refused.append(spec)
                    clashes.add((frame.source, spec.name))
            sheet.refuse(frozenset(refused))
            sheets[frame.source] = sheet
        for source, name in clashes - self._clashes:
            log.warning("%s of source %s is left out of the page: another source has that family", name, source)
        self._clashes = frozenset(clashes)
        self._sheets = sheets

"""Frames as an OTLP ExportMetricsServiceRequest, in protobuf (opentelemetry/proto/metrics/v1/metrics.proto).

A number's point has the same length at every tick, because its times and its value are 64 bits each:

    0a 3d              a point of 61 bytes
    3a …               its attributes
    11 start           nanoseconds, for sums
    19 time            nanoseconds
    31 value           a whole number; 21 value: a double

So the lengths around it stay too, and all that is not time or value is made once per layout: a tick is one
`struct.pack` over prefixes and values. docs/adr/0017 has what it costs and when a counter's start is what.

What is encoded is provisional until `commit`: a batch that could not be delivered comes again, and the counters in it
must then be compared with what was delivered before it, not with themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import lt
from struct import Struct, error, pack
from typing import Any, NamedTuple

from sonde.model import Frame, Histogram, Labels, Layout, MetricSpec, Unit
from sonde.shape import picker
from sonde.sinks.otlp_names import INSTRUMENTS, INTEGERS, Instrument, Rule, Rules
from sonde.sinks.protobuf import FIXED64, LENGTH, VARINT, double, field, message, text, varint

_UNITS = {  # UCUM (ucum.org)
    # No unit, not "1": that is a ratio's, and readers that make Prometheus names append `_ratio` to it.
    Unit.NONE: "",
    Unit.RATIO: "1",
    Unit.SECONDS: "s",
    Unit.BYTES: "By",
    Unit.JOULES: "J",
    Unit.WATTS: "W",
    Unit.CELSIUS: "Cel",
    Unit.HERTZ: "Hz",
    Unit.VOLTS: "V",
    Unit.AMPERES: "A",
}
_CUMULATIVE = 2  # AggregationTemporality
_MONOTONIC = field(3, VARINT) + varint(1)
_TEMPORALITY = field(2, VARINT) + varint(_CUMULATIVE)
# The member of Metric that holds the points, and what stands in it beside them.
_DATA = {
    Instrument.GAUGE: (5, b""),
    Instrument.COUNTER: (7, _TEMPORALITY + _MONOTONIC),
    Instrument.UPDOWN: (7, _TEMPORALITY),
    Instrument.HISTOGRAM: (9, _TEMPORALITY),
}
_START, _TIME = field(2, FIXED64), field(3, FIXED64)
_NUMBER = 27  # bytes of start, time and value with their tags
_WITHOUT_START = 18
_MIDDLE = Struct("<1sQ1s")  # the time, and what kind of value follows
_AS_DOUBLE, _AS_INT = field(4, FIXED64), field(6, FIXED64)
# Counted by the kernel since it started, but for these: RAPL counts from some point in the past.
_SINCE_BOOT, _NOT_SINCE_BOOT = "node_", "node_rapl_"
_GUESTS = frozenset({"textfile"})  # whoever wrote the file may call a metric node_*


def attribute(key: str, value: str) -> bytes:
    """A KeyValue without the field it stands in."""
    if key in INTEGERS and value.isascii() and value.isdigit() and len(value) < 19:  # 63 bits
        return text(1, key) + message(2, field(3, VARINT) + varint(int(value)))
    return text(1, key) + message(2, text(1, value))


class _Point(NamedTuple):
    """One data point of a layout."""

    place: int  # of its value in the frame
    minus: tuple[int, ...]
    scale: float
    attributes: bytes
    key: bytes  # metric and attributes: what makes it the same point in another layout
    start: int | None  # when it began to be counted; 0: nobody knows; None: it is not a sum


class _Metric(NamedTuple):
    head: bytes  # name, description, unit
    instrument: Instrument
    points: list[_Point]

    def opening(self, size: int) -> bytes:
        """All that stands before the points, whose length is `size`."""
        number, extra = _DATA[self.instrument]
        data = field(number, LENGTH) + varint(len(extra) + size) + extra
        return field(2, LENGTH) + varint(len(self.head) + len(data) + size) + self.head + data


class Plan:
    """What a layout looks like in OTLP."""

    def __init__(self, source: str, layout: Layout, rules: Rules, boot_ns: int) -> None:
        self.layout = layout
        metrics = _metrics(source, layout, rules, boot_ns)
        numbers = [metric for metric in metrics if metric.instrument is not Instrument.HISTOGRAM]
        self.histograms = [metric for metric in metrics if metric.instrument is Instrument.HISTOGRAM]
        self.points = [point for metric in numbers for point in metric.points]
        self.heads = [head for metric in numbers for head in _heads(metric)]
        self.pick = picker([point.place for point in self.points])
        self.adjusted = [
            (index, point.minus, point.scale)
            for index, point in enumerate(self.points)
            if point.minus or type(point.scale) is float or point.scale != 1
        ]
        kinds = [metric.instrument for metric in numbers for _ in metric.points]
        self.monotonic = [index for index, kind in enumerate(kinds) if kind is Instrument.COUNTER]
        self.pick_monotonic = picker(self.monotonic)
        self._kinds: Sequence[type] = ()
        self._struct = Struct("")

    def values(self, frame: Frame) -> list[Any]:
        values = list(self.pick(frame.values))
        for index, minus, scale in self.adjusted:
            for place in minus:
                values[index] -= frame.values[place]
            values[index] *= scale
        return values

    def pack(self, prefixes: Sequence[bytes], values: list[Any], time_ns: int) -> bytes:
        """The numbers of a tick."""
        kinds = tuple(map(type, values))
        if kinds != self._kinds:
            self._struct = _struct(prefixes, kinds)
            self._kinds = kinds
        middles = (_MIDDLE.pack(_TIME, time_ns, _AS_INT), _MIDDLE.pack(_TIME, time_ns, _AS_DOUBLE))
        parts: list[Any] = [None] * (3 * len(values))
        parts[::3] = prefixes
        parts[1::3] = [middles[kind is float] for kind in kinds]
        parts[2::3] = values
        try:
            return self._struct.pack(*parts)
        except error:
            plain = [_plain(value) for value in values]
            if tuple(map(type, plain)) == kinds:
                raise
            return self.pack(prefixes, plain, time_ns)


def _plain(value: Any) -> int | float:
    """What fits in 64 bits: an int that does not loses digits as a double, but not its size."""
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return int(value)
    return float(value)


def _struct(prefixes: Sequence[bytes], kinds: Sequence[type]) -> Struct:
    sizes = zip(prefixes, kinds, strict=True)
    return Struct("<" + "".join([f"{len(prefix)}s10s{'d' if kind is float else 'q'}" for prefix, kind in sizes]))


def _heads(metric: _Metric) -> Iterator[bytes]:
    """What stands before the start of each point: its length and attributes, and before the first its metric."""
    heads = [_head(point) for point in metric.points]
    sizes = [
        len(head) + (_WITHOUT_START if point.start is None else _NUMBER)
        for head, point in zip(heads, metric.points, strict=True)
    ]
    heads[0] = metric.opening(sum(sizes)) + heads[0]
    return iter(heads)


def _head(point: _Point) -> bytes:
    size = len(point.attributes) + (_WITHOUT_START if point.start is None else _NUMBER)
    return field(1, LENGTH) + varint(size) + point.attributes


def _metrics(source: str, layout: Layout, rules: Rules, boot_ns: int) -> list[_Metric]:
    """The metrics of a layout, each with all its points, in the order of their first one."""
    places = {(spec.name, labels): place for place, (spec, labels) in enumerate(layout)}
    metrics: dict[tuple[str, str, Instrument], _Metric] = {}
    for place, (spec, labels) in enumerate(layout):
        for rule in _rules(spec, rules):
            minus = [places.get((name, labels), -1) for name in rule.minus]
            if -1 in minus:
                continue  # what should be subtracted is not there: no value is better than a wrong one
            instrument = rule.instrument or INSTRUMENTS.get(spec.kind, Instrument.GAUGE)
            identity = (rule.name, rule.unit, instrument)
            metric = metrics.get(identity)
            if metric is None:
                metric = metrics[identity] = _Metric(_description(rule, spec), instrument, [])
            attributes = _attributes(rule, spec, labels, 9 if instrument is Instrument.HISTOGRAM else 7)
            key = text(1, f"{rule.name} {rule.unit} {instrument.value}") + attributes
            start = None if instrument is Instrument.GAUGE else _start(source, spec, boot_ns)
            metric.points.append(_Point(place, tuple(minus), rule.scale, attributes, key, start))
    return list(metrics.values())


def _rules(spec: MetricSpec, rules: Rules) -> Sequence[Rule]:
    found = rules.get(spec.name)
    return (Rule(spec.name, _UNITS[spec.unit]),) if found is None else found


def _description(rule: Rule, spec: MetricSpec) -> bytes:
    """Under another name the conventions describe the metric; ours would be that of one part of it."""
    described = text(2, spec.help) if rule.name == spec.name and spec.help else b""
    return text(1, rule.name) + described + (text(3, rule.unit) if rule.unit else b"")


def _attributes(rule: Rule, spec: MetricSpec, labels: Labels, number: int) -> bytes:
    pairs = dict(rule.attributes)
    for name, value in zip(spec.labels, labels, strict=True):
        pairs[rule.labels.get(name, name)] = rule.values.get(value, value)
    return b"".join([message(number, attribute(key, value)) for key, value in pairs.items()])


def _start(source: str, spec: MetricSpec, boot_ns: int) -> int:
    kernel = spec.name.startswith(_SINCE_BOOT) and not spec.name.startswith(_NOT_SINCE_BOOT)
    return boot_ns if kernel and source not in _GUESTS else 0


class _State(NamedTuple):
    """What was sent of a source last."""

    plan: Plan
    time_ns: int
    values: list[Any]
    starts: Sequence[int | None]
    prefixes: Sequence[bytes]
    histograms: Mapping[bytes, tuple[int, int]]  # start and count of each


class Encoder:
    """Makes requests of frames. Keeps a plan per source and what was last delivered of it."""

    def __init__(self, resource: bytes, scope: bytes, rules: Rules, boot_ns: int, schema: str = "") -> None:
        self._before = message(1, resource)
        self._scope = message(1, scope)
        self._schema = text(3, schema) if schema else b""
        self._rules = rules
        self._boot_ns = boot_ns
        self._delivered: dict[str, _State] = {}
        self._encoded: dict[str, _State] = {}

    def encode(self, frames: Iterable[Frame]) -> bytes:
        """The request; empty when there is nothing to say."""
        self._encoded = {}
        metrics = b"".join([self._frame(frame) for frame in frames if frame.values])
        if not metrics:
            return b""
        scope_metrics = message(2, self._scope + metrics + self._schema)
        return message(1, self._before + scope_metrics + self._schema)

    def commit(self) -> None:
        """What was encoded last is done with: delivered, or refused for good."""
        self._delivered |= self._encoded
        self._encoded = {}

    def _frame(self, frame: Frame) -> bytes:
        last = self._encoded.get(frame.source) or self._delivered.get(frame.source)
        if last is not None and last.plan.layout is frame.layout:
            plan, starts, prefixes = last.plan, last.starts, last.prefixes
            values = plan.values(frame)
            if any(map(lt, plan.pick_monotonic(values), plan.pick_monotonic(last.values))):
                starts = _restarted(plan, values, last, frame.time_ns)
                prefixes = _prefixes(plan, starts)
        else:
            plan = Plan(frame.source, frame.layout, self._rules, self._boot_ns)
            values = plan.values(frame)
            starts = _started(plan, values, last, frame.time_ns)
            prefixes = _prefixes(plan, starts)
        body = plan.pack(prefixes, values, frame.time_ns)
        histograms: dict[bytes, tuple[int, int]] = {}
        for metric in plan.histograms:
            body += _histogram(metric, frame, last, histograms)
        self._encoded[frame.source] = _State(plan, frame.time_ns, values, starts, prefixes, histograms)
        return body


def _prefixes(plan: Plan, starts: Sequence[int | None]) -> list[bytes]:
    pairs = zip(plan.heads, starts, strict=True)
    return [head if start is None else head + _START + pack("<Q", start) for head, start in pairs]


def _started(plan: Plan, values: Sequence[Any], last: _State | None, time_ns: int) -> list[int | None]:
    """The start of each point of a new layout.

    A point that was there before keeps its start, unless it has fallen. One whose start nobody knows begins with this
    frame, and its first interval is empty: that is how OTLP says that the value is only a point of reference (metrics
    data model, "unknown start time").
    """
    starts = [None if point.start is None else min(point.start or time_ns, time_ns) for point in plan.points]
    if last is None:
        return starts
    before = {point.key: index for index, point in enumerate(last.plan.points)}
    monotonic = set(plan.monotonic)
    for index, point in enumerate(plan.points):
        known = before.get(point.key)
        if known is not None:
            fallen = index in monotonic and values[index] < last.values[known]
            starts[index] = min(last.time_ns, time_ns) if fallen else last.starts[known]
    return starts


def _restarted(plan: Plan, values: Sequence[Any], last: _State, time_ns: int) -> list[int | None]:
    """A counter that has fallen was set to 0 after it was last seen."""
    starts = list(last.starts)
    for index in plan.monotonic:
        if values[index] < last.values[index]:
            starts[index] = min(last.time_ns, time_ns)
    return starts


def _histogram(metric: _Metric, frame: Frame, last: _State | None, seen: dict[bytes, tuple[int, int]]) -> bytes:
    points = []
    for point in metric.points:
        value = frame.values[point.place]
        if not isinstance(value, Histogram):
            raise TypeError(f"{frame.layout[point.place]!r} is not a histogram: {value!r}")
        count = sum(value.counts)
        start, before = (last.histograms.get(point.key) if last is not None else None) or (0, 0)
        if last is not None and count < before:
            start = min(last.time_ns, frame.time_ns)
        start = start or min(point.start or frame.time_ns, frame.time_ns)
        seen[point.key] = (start, count)
        points.append(message(1, point.attributes + _buckets(value, count, start, frame.time_ns)))
    body = b"".join(points)
    return metric.opening(len(body)) + body


def _buckets(value: Histogram, count: int, start: int, time_ns: int) -> bytes:
    """Times, count, sum, buckets and bounds of a HistogramDataPoint; its bounds are inclusive upper ends as ours."""
    fixed = pack("<1sQ1sQ1sQ", _START, start, _TIME, time_ns, field(4, FIXED64), count)
    counts = message(6, pack(f"<{len(value.counts)}Q", *value.counts))
    bounds = message(7, pack(f"<{len(value.bounds)}d", *value.bounds)) if value.bounds else b""
    return fixed + double(5, value.sum) + counts + bounds

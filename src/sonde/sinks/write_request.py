"""Frames as the WriteRequest of Prometheus remote write 1.0 (prompb/remote.proto, prompb/types.proto).

    WriteRequest   timeseries = 1, metadata = 3            TimeSeries   labels = 1, samples = 2
    Label          name = 1, value = 2                     Sample       value = 1 (double), timestamp = 2 (ms)
    MetricMetadata type = 1, metric_family_name = 2, help = 4, unit = 5

All that names and labels decide is written once per layout. A time is padded to six bytes (protobuf allows it, and six
hold the milliseconds until 2109), so every sample has 18 bytes and all lengths stand still: a frame is one pack() of
2,000 values between 2,000 prefixes, 0.1 ms. benchmarks/remote_write.py measures it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import accumulate
from math import inf
from typing import Any

from sonde.model import Frame, Histogram, Kind, Layout, MetricSpec, Unit, Value
from sonde.shape import picker
from sonde.sinks.exposition import number
from sonde.sinks.protobuf import LENGTH, VARINT, field, message, text, varint

_TIMESERIES, _METADATA = 1, 3
BLOCK = 2000  # rows packed at once: a tenth of a millisecond
_SAMPLE = field(2, LENGTH) + b"\x10" + b"\x09"  # of 16 bytes: a double, field 1, and
_SAMPLE_SIZE = 18
_TIME = b"\x10"  # a varint, field 2
# A NaN of its own marks the end of a series (Prometheus' model/value/value.go). As bytes: it is a signalling NaN, and
# a float need not keep its bits.
_STALE = (0x7FF0000000000002).to_bytes(8, "little")
_TYPES = {Kind.COUNTER: 1, Kind.GAUGE: 2, Kind.HISTOGRAM: 3, Kind.INFO: 6, Kind.UNTYPED: 0}  # types.proto, MetricType
_NAME_REFUSED = re.compile(r"[^a-zA-Z0-9_:]|^(?=[0-9])")
_LABEL_REFUSED = re.compile(r"[^a-zA-Z0-9_]|^(?=[0-9])")


class Labels:
    """Renders the labels of series: sorted by name, the identity of this host among them, no empty values."""

    def __init__(self, identity: Mapping[str, str]) -> None:
        self._identity = dict(identity)
        self._pairs: dict[tuple[str, str], bytes] = {}
        self._orders: dict[MetricSpec, list[tuple[str, int, str]]] = {}

    def __call__(self, spec: MetricSpec, values: Sequence[str], suffix: str = "", end: str = "") -> bytes:
        """`end` is the `le` of a bucket, `suffix` what stands behind the name for it."""
        found = [
            (name, values[index] if index >= 0 else fixed)
            for name, index, fixed in self._orders.get(spec) or self._order(spec)
        ]
        if suffix:
            found = [(name, value + suffix if name == "__name__" else value) for name, value in found]
        if end:
            found = sorted([pair for pair in found if pair[0] != "le"] + [("le", end)])
        pairs = self._pairs
        return b"".join([pairs.get(pair) or self._pair(pair) for pair in found if pair[1]])

    def _order(self, spec: MetricSpec) -> list[tuple[str, int, str]]:
        """Names in order, each with the place of its value, or the value that all series share."""
        # A dot is the only character a name of ours can have that Prometheus would refuse in silence: it has been
        # renamed for OpenTelemetry.
        fixed = {**self._identity, "__name__": _NAME_REFUSED.sub("_", spec.name)}
        own = {_LABEL_REFUSED.sub("_", name): index for index, name in enumerate(spec.labels)}
        order = [(name, own.get(name, -1), fixed.get(name, "")) for name in sorted({**fixed, **own})]
        self._orders[spec] = order
        return order

    def _pair(self, pair: tuple[str, str]) -> bytes:
        rendered = self._pairs[pair] = message(1, text(1, pair[0]) + text(2, pair[1]))
        return rendered

    def forget(self) -> None:
        """Let go of what was rendered: a form is complete and keeps its own."""
        self._pairs.clear()
        self._orders.clear()


def padded_time(time_ms: int) -> bytes:
    """A timestamp field whose varint has six bytes, whatever the time."""
    time_ms = min(max(time_ms, 0), 2**42 - 1)
    groups = [time_ms >> shift & 0x7F | 0x80 for shift in range(0, 35, 7)]
    return _TIME + bytes((*groups, time_ms >> 35))


class _Block:
    """Some rows: their prefixes, and the places of their values between them."""

    __slots__ = ("_labels", "_parts", "_struct")

    def __init__(self, labels: Sequence[bytes]) -> None:
        self._labels = labels
        heads = [_head(row, 1) + _SAMPLE for row in labels]
        self._parts: list[object] = [b""] * (3 * len(heads))
        self._parts[0::3] = heads
        self._struct = struct.Struct("<" + "".join([f"{len(head)}sd7s" for head in heads]))

    def one(self, numbers: Sequence[float], time_ms: int) -> bytes:
        parts = self._parts
        parts[1::3] = numbers
        parts[2::3] = [padded_time(time_ms)] * len(self._labels)
        return self._struct.pack(*parts)

    def many(self, columns: Sequence[Sequence[float]], times_ms: Sequence[int]) -> bytes:
        """Several samples of each row together: the labels stand once."""
        samples = struct.Struct("<" + "3sd7s" * len(columns)).pack
        parts: list[object] = [_SAMPLE] * (3 * len(columns))
        parts[2::3] = map(padded_time, times_ms)
        out: list[bytes] = []
        for row, values in zip(self._labels, zip(*columns, strict=True), strict=True):
            parts[1::3] = values
            out += (_head(row, len(columns)), samples(*parts))
        return b"".join(out)


def _head(labels: bytes, samples: int) -> bytes:
    return field(_TIMESERIES, LENGTH) + varint(len(labels) + samples * _SAMPLE_SIZE) + labels


class Form:
    """The rows of one layout: everything but the numbers and the times.

    A row is a series as Prometheus has it: a histogram is several. `refused` metrics have none.
    """

    def __init__(
        self,
        layout: Layout,
        values: Sequence[Value],
        labels: Labels,
        refused: Container[MetricSpec] = (),
        block: int = BLOCK,
    ) -> None:
        self.layout = layout
        self._block = block
        chosen = [index for index, (spec, _) in enumerate(layout) if spec not in refused]
        self._pick = picker(chosen) if len(chosen) < len(layout) else None
        self.specs = tuple(dict.fromkeys(layout[index][0] for index in chosen))
        self._places = tuple(index for index in chosen if isinstance(values[index], Histogram))
        self._bounds = self._bounds_of(values)
        self.rows: list[bytes] = []
        for index in chosen:
            self.rows += _rows(*layout[index], values[index], labels)
        self._blocks = [_Block(self.rows[start : start + block]) for start in range(0, len(self.rows), block)]

    def fits(self, frame: Frame) -> bool:
        if frame.layout is not self.layout:
            return False
        return not self._places or self._bounds_of(frame.values) == self._bounds

    def _bounds_of(self, values: Sequence[Value]) -> list[tuple[float, ...] | None]:
        return [getattr(values[place], "bounds", None) for place in self._places]

    def encode(self, frames: Sequence[Frame]) -> Iterator[bytes]:
        """The time series of some frames, a block of rows at a time.

        Raises TypeError or ValueError for values that are not what the model promises.
        """
        times_ms = [frame.time_ns // 1_000_000 for frame in frames]
        columns = [self._numbers(frame.values) for frame in frames]
        for place, block in enumerate(self._blocks):
            cut = slice(place * self._block, (place + 1) * self._block)
            part = columns if len(self._blocks) == 1 else [column[cut] for column in columns]
            try:
                yield _packed(block, part, times_ms)
            except struct.error:  # an int beyond the floats, or no number at all
                yield _packed(block, [[_float(value) for value in column] for column in part], times_ms)

    def _numbers(self, values: Sequence[Value]) -> Sequence[float]:
        """A number per row."""
        chosen: Sequence[Any] = values if self._pick is None else self._pick(values)
        if not self._places:
            return chosen
        flat: list[float] = []
        for value in chosen:
            if isinstance(value, Histogram):
                flat += accumulate(value.counts)
                flat += (value.sum, flat[-1])
            else:
                flat.append(value)
        return flat


def _packed(block: _Block, columns: Sequence[Sequence[float]], times_ms: Sequence[int]) -> bytes:
    return block.one(columns[0], times_ms[0]) if len(columns) == 1 else block.many(columns, times_ms)


def _float(value: float) -> float:
    try:
        return value + 0.0
    except OverflowError:
        return inf if value > 0 else -inf


def _rows(spec: MetricSpec, values: Sequence[str], value: Value, labels: Labels) -> Iterator[bytes]:
    if not isinstance(value, Histogram):
        yield labels(spec, values)
        return
    for end in (*map(number, map(float, value.bounds)), "+Inf"):
        yield labels(spec, values, "_bucket", end)
    yield labels(spec, values, "_sum")
    yield labels(spec, values, "_count")


def stale(rows: Sequence[bytes], time_ms: int) -> bytes:
    """The end of some series."""
    sample = _SAMPLE + _STALE + padded_time(time_ms)
    return b"".join([_head(row, 1) + sample for row in rows])


def metadata(specs: Sequence[MetricSpec]) -> bytes:
    """Type, help and unit of metrics."""
    return b"".join([message(_METADATA, _describe(spec)) for spec in specs])


def _describe(spec: MetricSpec) -> bytes:
    body = field(1, VARINT) + varint(_TYPES[spec.kind]) + text(2, _NAME_REFUSED.sub("_", spec.name))
    return body + text(4, spec.help) + (text(5, spec.unit.value) if spec.unit is not Unit.NONE else b"")

"""One JSON object per frame and line, to a file that is rotated or to standard output.

    {"time":"2026-11-15T21:42:38.123Z","source":"load","host":"node01","took_ns":41250,
     "values":{"node_load1":0.03,"node_load5":0.07},"gaps":[],"events":[]}

A series is called as on the /metrics page: `name{label="x"}`. Names are rendered once per layout. An infinity is the
string "+Inf" or "-Inf".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any, ClassVar, NamedTuple

from sonde.clock import NS, iso
from sonde.model import Event, Frame, Gap, Histogram, Kind, Layout, MetricSpec, Value
from sonde.sinks.exposition import label_text, number
from sonde.sinks.linefile import STDOUT, LineFile
from sonde.units import Size


class JsonlConfig(NamedTuple):
    path: str = STDOUT  # "-" is standard output
    max_size: Size = Size(100 * 10**6)  # the file is rotated before it grows beyond this
    keep: int = 5  # rotated files kept: path.1 is the youngest


class _Line:
    """The parts of a source's line: what its layout decides stands still, the values are put between."""

    __slots__ = ("begin", "gaps", "gaps_text", "layout", "parts", "plain")

    def __init__(self, source: str, host: str, layout: Layout) -> None:
        self.layout = layout
        self.begin = f'Z","source":{json.dumps(source)},"host":{json.dumps(host)},"took_ns":'
        keys = [json.dumps(_series_name(spec, labels)) for spec, labels in layout]
        self.parts = [""] * (2 * len(keys))
        self.parts[::2] = [f"{',' if index else ''}{key}:" for index, key in enumerate(keys)]
        self.plain = all(spec.kind is not Kind.HISTOGRAM for spec, _ in layout)
        self.gaps: Sequence[Gap] = ()
        self.gaps_text = ""

    def values_text(self, values: Sequence[Value]) -> str:
        text = repr if self.plain and _all_finite(values) else _value_text
        # Slice assignment refuses a wrong number of values; it also beats adding 30 strings to 30 others by a third.
        self.parts[1::2] = map(text, values)
        return "".join(self.parts)


class JsonlSink:
    """Writes lines."""

    Config: ClassVar[type] = JsonlConfig
    inline: ClassVar[bool] = False

    def __init__(self, config: JsonlConfig, host: str) -> None:
        self._file = LineFile("jsonl", config.path, config.max_size, config.keep)
        self._host = host
        self._lines: dict[str, _Line] = {}
        self._second = -1
        self._second_text = ""

    def write(self, frames: Sequence[Frame]) -> None:
        self._file.write("".join([self._line(frame) for frame in frames]).encode("utf-8", "surrogateescape"))

    def _line(self, frame: Frame) -> str:
        source, time_ns, took_ns, _, layout, values, events, gaps = frame
        line = self._lines.get(source)
        if line is None or line.layout is not layout:
            line = self._lines[source] = _Line(source, self._host, layout)
        second, rest = divmod(time_ns, NS)
        if second != self._second:
            self._second = second
            self._second_text = iso(second * NS, digits=0)[:-1]
        if gaps is not line.gaps:
            line.gaps = gaps
            line.gaps_text = ",".join([_gap_text(gap) for gap in gaps])
        happened = ",".join([_event_text(event) for event in events]) if events else ""
        return (
            f'{{"time":"{self._second_text}.{rest // 1_000_000:03}{line.begin}{took_ns},"values":{{'
            f'{line.values_text(values)}}},"gaps":[{line.gaps_text}],"events":[{happened}]}}\n'
        )

    def reopen(self) -> None:
        """Write to a new file of the same name from the next batch on: somebody has moved the old one away."""
        self._file.reopen()

    def close(self) -> None:
        self._file.close()


def _series_name(spec: MetricSpec, labels: Sequence[str]) -> str:
    return f"{spec.name}{{{label_text(spec.labels, labels)}}}" if labels else spec.name


def _all_finite(values: Sequence[Any]) -> bool:
    try:
        return isfinite(sum(values))
    except OverflowError:
        return False


def _value_text(value: Value) -> str:
    if isinstance(value, Histogram):
        return json.dumps({"bounds": value.bounds, "counts": value.counts, "sum": value.sum}, separators=(",", ":"))
    text = number(value)
    return text if isfinite(value) else f'"{text}"'


def _gap_text(gap: Gap) -> str:
    name = _series_name(gap.spec, gap.labels) if gap.labels else gap.spec.name
    return _dumps({"name": name, "quality": gap.quality.value, "reason": gap.reason})


def _event_text(event: Event) -> str:
    return _dumps({"time": iso(event.time_ns), "name": event.name, "attrs": event.attrs})


_dumps: Callable[[object], str] = json.JSONEncoder(separators=(",", ":")).encode

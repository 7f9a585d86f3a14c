"""One JSON object per frame and line, to a file that is rotated or to standard output.

    {"time":"2026-11-15T21:42:38.123Z","source":"load","host":"node01","took_ns":41250,
     "values":{"node_load1":0.03,"node_load5":0.07},"gaps":[],"events":[]}

A series is called as on the /metrics page: `name{label="x"}`. Names are rendered once per layout; a batch is one
write(2), so a crash leaves at most one torn line. An infinity is the string "+Inf" or "-Inf".
"""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any, ClassVar, NamedTuple

from sonde.clock import NS, iso
from sonde.errors import ConfigError, SinkError, Unavailable
from sonde.model import Event, Frame, Gap, Histogram, Kind, Layout, MetricSpec, Value
from sonde.rotation import rotate
from sonde.sinks.exposition import label_text, number
from sonde.units import Size

log = logging.getLogger(__name__)

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_STDOUT = "-"


class JsonlConfig(NamedTuple):
    path: str = _STDOUT  # "-" is standard output
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
    """Writes lines. `reopen` may be called by any thread and takes effect with the next batch."""

    Config: ClassVar[type] = JsonlConfig
    inline: ClassVar[bool] = False

    def __init__(self, config: JsonlConfig, host: str) -> None:
        if config.keep < 0 or config.max_size < 1:
            raise ConfigError("sinks.jsonl: max_size must be positive and keep not negative")
        self._config = config
        self._host = host
        self._lines: dict[str, _Line] = {}
        self._second = -1
        self._second_text = ""
        self._is_file = config.path != _STDOUT
        self._reopen = False
        self._torn = False  # the last line of a pipe could not be ended
        self._size = 0
        try:
            self._fd = self._open() if self._is_file else os.dup(sys.__stdout__.fileno() if sys.__stdout__ else 1)
        except OSError as error:
            raise Unavailable(f"cannot write to {config.path}: {error.strerror}") from None

    def _open(self) -> int:
        fd = os.open(self._config.path, _FLAGS, 0o644)
        self._size = os.fstat(fd).st_size
        return fd

    def write(self, frames: Sequence[Frame]) -> None:
        data = "".join([self._line(frame) for frame in frames]).encode("utf-8", "surrogateescape")
        if self._is_file:
            if self._reopen:
                self._follow()
            if self._size + len(data) > self._config.max_size and self._size:
                self._rotate()
        elif self._torn:
            data = b"\n" + data
        try:
            written = os.write(self._fd, data)
            if written < len(data):
                written += self._write_rest(data, written)
        except OSError as error:
            raise self._failure(error) from None
        self._torn = False
        self._size += written

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

    def _write_rest(self, data: bytes, written: int) -> int:
        """Go on after a short write; when that fails, leave no half line behind."""
        view = memoryview(data)
        begun = written
        try:
            while written < len(data):
                written += os.write(self._fd, view[written:])
        except OSError:
            self._take_back(written)
            raise
        return written - begun

    def _take_back(self, written: int) -> None:
        if not self._is_file:
            self._torn = True
            return
        # The offset is behind what this descriptor wrote last (O_APPEND), whatever others did to the file before.
        end = os.lseek(self._fd, 0, os.SEEK_CUR) - written
        os.ftruncate(self._fd, end)
        self._size = end

    def _failure(self, error: OSError) -> SinkError:
        retry = error.errno not in (errno.EPIPE, errno.EBADF)  # nobody reads our output any more
        return SinkError(f"{self._config.path}: {error.strerror}", retry=retry)

    def reopen(self) -> None:
        """Write to a new file of the same name from the next batch on: somebody has moved the old one away."""
        self._reopen = True

    def _follow(self) -> None:
        self._reopen = False
        try:
            fd = self._open()
        except OSError as error:
            self._reopen = True
            raise self._failure(error) from None
        os.close(self._fd)
        self._fd = fd

    def _rotate(self) -> None:
        try:
            rotate(self._config.path, self._config.keep)
        except OSError as error:
            raise self._failure(error) from None
        self._follow()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


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

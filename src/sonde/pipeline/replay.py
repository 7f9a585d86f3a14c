"""Frames of the past through a sink: as fast as it takes them or paced, tried again when it fails, counted.

Unlike an outlet it may wait: nothing is dropped, and a sink that stays away for longer than `patience` ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from sonde.clock import NS
from sonde.config import SinkConfig
from sonde.errors import SinkError, TimedOut
from sonde.model import Frame, Sink
from sonde.pipeline.selection import Selection

_BATCH = 500  # frames handed to a sink at once, as an outlet does
_FIRST_BACKOFF = 0.5  # seconds
_LAST_BACKOFF = 30.0


class Counts(NamedTuple):
    frames: int = 0  # wanted by the sink's filters
    delivered: int = 0
    rejected: int = 0  # refused by the sink for good
    retries: int = 0
    reached_ns: int = 0  # everything up to here has been dealt with
    reason: str = ""  # of the last rejection


class Pace(NamedTuple):
    """Time as a parameter: `speed` seconds of history per second, 0 for as fast as it goes."""

    speed: float
    now: Callable[[], float]
    sleep: Callable[[float], None]


class Replay:
    """One pass. `counts` is current at all times, also after an interruption."""

    def __init__(self, sink: Sink, common: SinkConfig, pace: Pace, *, patience: float) -> None:
        self._sink = sink
        self._selection = Selection(common.include, common.exclude, common.rename)
        self._min_period_ns = common.min_period.ns
        self._last: dict[str, int] = {}
        self._pace = pace
        self._patience = patience
        self.counts = Counts()

    def run(self, frames: Iterable[Frame]) -> Iterator[Counts]:
        """Send everything; gives the counts after each batch. Raises TimedOut when the sink stays away."""
        begun_at, begun_ns = self._pace.now(), None
        batch: list[Frame] = []
        for frame in frames:
            if self._pace.speed:
                begun_ns = frame.time_ns if begun_ns is None else begun_ns
                due = begun_at + (frame.time_ns - begun_ns) / NS / self._pace.speed
                if due > self._pace.now():
                    yield self._send(batch)
                    batch = []
                    self._pace.sleep(max(0.0, due - self._pace.now()))
            if wanted := self._wanted(frame):
                batch.append(wanted)
            if len(batch) >= _BATCH:
                yield self._send(batch)
                batch = []
        yield self._send(batch)

    def _wanted(self, frame: Frame) -> Frame | None:
        if self._min_period_ns and not frame.events:
            # A tenth of slack: two ticks of one pace are rarely exactly a period apart.
            last = self._last.get(frame.source)
            if last is not None and frame.time_ns - last < self._min_period_ns - frame.period_ns // 10:
                return None
            self._last[frame.source] = frame.time_ns
            frame = frame._replace(period_ns=max(frame.period_ns, self._min_period_ns))
        return self._selection.apply(frame)

    def _send(self, batch: Sequence[Frame]) -> Counts:
        if batch:
            counts = self.counts._replace(frames=self.counts.frames + len(batch))
            reason = self._write(batch)
            if reason:
                counts = counts._replace(rejected=counts.rejected + len(batch), reason=reason)
            else:
                counts = counts._replace(delivered=counts.delivered + len(batch))
            self.counts = counts._replace(retries=self.counts.retries, reached_ns=batch[-1].time_ns)
        return self.counts

    def _write(self, batch: Sequence[Frame]) -> str:
        """Try until it is done with; gives the reason when the sink refuses it for good."""
        until = self._pace.now() + self._patience
        backoff = _FIRST_BACKOFF
        while True:
            try:
                self._sink.write(batch)
            except SinkError as error:
                if not error.retry:
                    return str(error)
                remaining = until - self._pace.now()
                if remaining <= 0:
                    raise TimedOut(f"gave up after {self._patience:g} s: {error}", hint=error.hint) from None
                self.counts = self.counts._replace(retries=self.counts.retries + 1)
                self._pace.sleep(min(backoff, remaining))
                backoff = min(backoff * 2, _LAST_BACKOFF)
            else:
                return ""

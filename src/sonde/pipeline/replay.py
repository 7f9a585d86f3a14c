"""Frames of the past through a sink: as fast as it takes them or paced, tried again when it fails, counted.

Unlike an outlet it may wait: nothing is dropped, and a sink that stays away for longer than `patience` ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from sonde.clock import NS
from sonde.errors import SinkError, TimedOut
from sonde.model import Frame, Sink
from sonde.pipeline.selection import Sieve

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

    def __init__(self, sink: Sink, sieve: Sieve, pace: Pace, *, patience: float) -> None:
        self._sink = sink
        self._sieve = sieve
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
            batch += self._sieve.pass_on((frame,))
            if len(batch) >= _BATCH:
                yield self._send(batch)
                batch = []
        yield self._send(batch)

    def _send(self, batch: Sequence[Frame]) -> Counts:
        """Try until all of the batch is done with."""
        until = self._pace.now() + self._patience
        backoff = _FIRST_BACKOFF
        self._count(frames=len(batch))
        while batch:
            reached_ns = batch[-1].time_ns
            try:
                self._sink.write(batch)
            except SinkError as error:
                batch = self._refused(batch, error)
                if batch:
                    self._wait(error, backoff, until)
                    backoff = min(backoff * 2, _LAST_BACKOFF)
                    continue
            else:
                self._count(delivered=len(batch))
                batch = ()
            self.counts = self.counts._replace(reached_ns=reached_ns)
        return self.counts

    def _refused(self, batch: Sequence[Frame], error: SinkError) -> Sequence[Frame]:
        """Count what the sink has done with in spite of the error; gives what is worth another try."""
        done = error.delivered + error.refused if error.retry else len(batch)
        self._count(delivered=error.delivered, rejected=done - error.delivered)
        if done > error.delivered:
            self.counts = self.counts._replace(reason=str(error))
        return batch[done:]

    def _wait(self, error: SinkError, backoff: float, until: float) -> None:
        remaining = until - self._pace.now()
        if remaining <= 0:
            raise TimedOut(f"gave up after {self._patience:g} s: {error}", hint=error.hint) from None
        self._count(retries=1)
        self._pace.sleep(min(max(backoff, error.retry_after), remaining))

    def _count(self, **more: int) -> None:
        counts = self.counts
        self.counts = counts._replace(**{name: getattr(counts, name) + value for name, value in more.items()})

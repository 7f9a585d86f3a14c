"""One collector, one pace: deadlines on the monotonic clock, failures counted, health logged when it changes."""

from __future__ import annotations

import logging
import time

from sonde.clock import Clock
from sonde.errors import ReadError
from sonde.model import Collector, Frame, Gap

log = logging.getLogger(__name__)


class Runner:
    """Ticks one collector. Only its sampling thread calls `tick`; anyone may read the plain attributes."""

    def __init__(self, name: str, collector: Collector, period_ns: int, clock: Clock) -> None:
        if period_ns <= 0:
            raise ValueError(f"{name}: a period must be positive, not {period_ns} ns")
        self.name = name
        self.collector = collector
        self.period_ns = period_ns
        self._clock = clock
        self.due_ns = self._next_due(clock.monotonic_ns())
        self.ticks = 0
        self.failures = 0
        self.skipped = 0  # ticks that were due while the collector was still busy or the machine asleep
        self.lateness_ns = 0  # of the last tick
        self.took_ns = 0  # of the last tick, successful or not
        self.took_total_ns = 0
        self.error = ""  # of the last tick; empty when it went well
        self.gaps: tuple[Gap, ...] = ()
        self.started_ns = 0  # monotonic, while a tick runs; 0 between ticks
        self.last_ok_ns = 0  # monotonic; 0 before the first success
        self.created_ns = clock.monotonic_ns()

    def _next_due(self, now_ns: int) -> int:
        # On multiples of the period, so that what has the same period is due together: one wake-up, one batch.
        return (now_ns // self.period_ns + 1) * self.period_ns

    def tick(self) -> Frame | None:
        """Collect once and plan the next tick. Never raises for what a collector does."""
        begun = self._clock.monotonic_ns()
        self.lateness_ns = lateness = begun - self.due_ns
        if lateness >= self.period_ns:
            self.skipped += lateness // self.period_ns
        self.due_ns = self._next_due(begun)
        self.started_ns = begun
        self.ticks += 1
        frame = self._collect(begun)
        self.started_ns = 0
        return frame

    def _collect(self, begun: int) -> Frame | None:
        wall = self._clock.time_ns()
        try:
            layout, values, events, gaps = self.collector.collect()
        except (ReadError, OSError) as error:
            self._failed(begun, str(error))
            return None
        except Exception as error:
            if not self.error:
                log.exception("collector %s: a bug", self.name)
            self._failed(begun, f"bug: {error!r}")
            return None
        ended = self._clock.monotonic_ns()
        took = ended - begun
        self.took_ns = took
        self.took_total_ns += took
        self.last_ok_ns = ended
        if self.error:
            log.info("collector %s works again", self.name)
            self.error = ""
        if gaps is not self.gaps:
            self.gaps = tuple(gaps)
        return Frame(self.name, wall, took, self.period_ns, layout, values, events, gaps)

    def _failed(self, begun: int, message: str) -> None:
        self.took_ns = self._clock.monotonic_ns() - begun
        self.took_total_ns += self.took_ns
        self.failures += 1
        if message != self.error:
            log.warning("collector %s fails: %s", self.name, message)
        self.error = message

    def staleness_ns(self, now_ns: int) -> int:
        """How long the newest value is overdue; 0 while the collector keeps its pace."""
        age = now_ns - (self.last_ok_ns or self.created_ns)
        return max(0, age - self.period_ns)

    @property
    def stale(self) -> bool:
        """Nothing new for two periods: its series have left the exposition."""
        return self.staleness_ns(time.monotonic_ns()) > self.period_ns

    def close(self) -> None:
        self.collector.close()

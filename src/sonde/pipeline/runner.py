"""One collector, one pace: deadlines on the monotonic clock, failures counted, health logged when it changes."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sonde.clock import Clock
from sonde.errors import ReadError
from sonde.model import Collector, Frame, Gap

log = logging.getLogger(__name__)


class Runner:
    """Ticks one collector. Only its sampling thread calls `tick`; anyone may read the plain attributes."""

    def __init__(self, name: str, collector: Collector, period_ns: int, clock: Clock, phase_ns: int = 0) -> None:
        if period_ns <= 0:
            raise ValueError(f"{name}: a period must be positive, not {period_ns} ns")
        self.name = name
        self.collector = collector
        self.period_ns = period_ns
        self._phase_ns = phase_ns % period_ns
        self._clock = clock
        self.due_ns = clock.monotonic_ns()  # the first at once, so that nobody waits a period for the first value
        self.ticks = 0
        self.failures = 0
        self.skipped = 0  # ticks that were due while the collector was still busy or the machine asleep
        self.lateness_ns = 0  # of the last tick
        self.took_ns = 0  # of the last tick, successful or not
        self.error = ""  # of the last tick; empty when it went well
        self.gaps: Sequence[Gap] = ()
        self.started_ns = 0  # monotonic, while a tick runs; 0 between ticks
        self.last_ok_ns = 0  # monotonic; 0 before the first success
        self.created_ns = clock.monotonic_ns()

    def tick(self) -> Frame | None:
        """Collect once and plan the next tick. Never raises for what a collector does."""
        # One function, few attributes: at 1 Hz every line of code is read from memory anew (docs/adr/0003).
        clock = self._clock
        period = self.period_ns
        self.started_ns = begun = clock.monotonic_ns()
        wall = clock.time_ns()
        self.lateness_ns = lateness = begun - self.due_ns
        if lateness >= period:
            self.skipped += lateness // period
        # On multiples of the period, so that what has the same period is due together: one wake-up, one batch.
        phase = self._phase_ns
        self.due_ns = ((begun - phase) // period + 1) * period + phase
        self.ticks += 1
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
        self.last_ok_ns = ended = clock.monotonic_ns()
        self.took_ns = took = ended - begun
        self.started_ns = 0
        if self.error:
            log.info("collector %s works again", self.name)
            self.error = ""
        self.gaps = gaps
        return Frame(self.name, wall, took, period, layout, values, events, gaps)

    def _failed(self, begun: int, message: str) -> None:
        self.took_ns = self._clock.monotonic_ns() - begun
        self.started_ns = 0
        self.failures += 1
        if message != self.error:
            log.warning("collector %s fails: %s", self.name, message)
        self.error = message

    def staleness_ns(self, now_ns: int) -> int:
        """How long the newest value is overdue; 0 while the collector keeps its pace."""
        age = now_ns - (self.last_ok_ns or self.created_ns)
        return max(0, age - self.period_ns)

    def is_stale(self, now_ns: int) -> bool:
        """Nothing new for two periods: its series have left the exposition."""
        return self.staleness_ns(now_ns) > self.period_ns

    def close(self) -> None:
        self.collector.close()

"""A sampling thread: sleeps until a runner is due, ticks all that are due together, hands on one batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from sonde.clock import NS, Clock
from sonde.model import Frame
from sonde.pipeline.runner import Runner
from sonde.pipeline.worker import Worker

log = logging.getLogger(__name__)

_LONGEST_NS = 3600 * NS  # sleep no longer than this in one go: sem_timedwait has a largest time-out

Deliver = Callable[[Sequence[Frame]], None]
Release = Callable[[Runner], None]


class Sampler:
    """Owns one thread. The pseudo-file readers share one sampler; a collector that can block has one of its own.

    A shared sampler gives a runner away through `release` when its collector has become one that can block.
    """

    def __init__(
        self, name: str, runners: Sequence[Runner], deliver: Deliver, clock: Clock, release: Release | None = None
    ) -> None:
        self.name = name
        self._release = release
        self.runners = tuple(runners)
        self._deliver = deliver
        self._clock = clock
        self._worker = Worker(f"sample-{name}", self._run)
        self.start = self._worker.start
        self.ask_to_stop = self._worker.ask_to_stop
        self.wakeups = 0

    def _run(self) -> None:
        worker = self._worker
        while self.runners and not worker.stopping:
            remaining = self.tick()
            if remaining > 0:
                worker.sleep(remaining / NS)

    def tick(self) -> int:
        """Run what is due now, deliver the frames as one batch; nanoseconds until something is due again."""
        monotonic_ns = self._clock.monotonic_ns
        now = monotonic_ns()
        frames = []
        next_due = now + _LONGEST_NS
        for runner in self.runners:
            if runner.due_ns <= now:
                frame = runner.tick()
                if frame is not None:
                    frames.append(frame)
                if self._release is not None and runner.collector.blocks:
                    self._let_go(runner, self._release)
            if runner.due_ns < next_due:
                next_due = runner.due_ns
        self.wakeups += 1
        if frames:
            self._deliver(frames)
        return next_due - monotonic_ns()

    def _let_go(self, runner: Runner, release: Release) -> None:
        self.runners = tuple(other for other in self.runners if other is not runner)
        log.info("collector %s gets a thread of its own: from now on it reads what can hang", runner.name)
        release(runner)

    def stop(self, timeout: float, *, last_look: bool = False) -> bool:
        """End the thread; False when it hangs in a collector. A hung thread is left alone.

        With a last look everything is read once more, here: what has happened since the last tick.
        """
        if not self._worker.stop(timeout):
            log.warning("sampling thread %s hangs and is left behind", self.name)
            return False
        if last_look:
            frames = [frame for runner in self.runners if (frame := runner.tick()) is not None]
            if frames:
                self._deliver(frames)
        for runner in self.runners:
            runner.close()
        return True

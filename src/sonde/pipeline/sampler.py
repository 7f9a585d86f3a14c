"""A sampling thread: sleeps until a runner is due, ticks all that are due together, hands on one batch."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from sonde.clock import NS, Clock
from sonde.model import Frame
from sonde.pipeline.runner import Runner

log = logging.getLogger(__name__)

Deliver = Callable[[Sequence[Frame]], None]


class Sampler:
    """Owns one thread. The pseudo-file readers share one sampler; a collector that can block has one of its own."""

    def __init__(self, name: str, runners: Sequence[Runner], deliver: Deliver, clock: Clock) -> None:
        self.name = name
        self.runners = tuple(runners)
        self._deliver = deliver
        self._clock = clock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"sample-{name}"[:15], daemon=True)
        self.wakeups = 0

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        runners = self.runners
        clock = self._clock
        wait = self._stop.wait
        while runners:
            due = min([runner.due_ns for runner in runners])
            remaining = due - clock.monotonic_ns()
            if remaining > 0 and wait(remaining / NS):
                return
            if self._stop.is_set():
                return
            self.wakeups += 1
            self.tick()

    def tick(self) -> None:
        """Run what is due now and deliver the frames as one batch."""
        now = self._clock.monotonic_ns()
        frames = []
        for runner in self.runners:
            if runner.due_ns <= now:
                frame = runner.tick()
                if frame is not None:
                    frames.append(frame)
        if frames:
            self._deliver(frames)

    def stop(self, timeout: float) -> bool:
        """Ask the thread to end; False when it hangs in a collector. A hung thread is left alone."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout)
        if self._thread.is_alive():
            log.warning("sampling thread %s hangs and is left behind", self.name)
            return False
        for runner in self.runners:
            runner.close()
        return True

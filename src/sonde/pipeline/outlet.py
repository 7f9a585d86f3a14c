"""One sink, one bounded queue: filters, paces, translates, retries with back-off, drops the oldest and counts it.

An outlet's thread is not woken by every frame. It wakes by itself, once per pace and a moment after the sampling
threads, and takes what has gathered: one wake-up, one batch, one commit. A wake-up from a sampling thread would also
meet that thread's hold on the interpreter lock and be put to sleep again: eight switches per tick instead of three.

A sink that cannot deliver is tried again after half a second, then after twice as long, up to four seconds: what has
gathered arrives within five seconds of the server's return. A thousand nodes that wait for one server knock 280 times
a second, spread out by chance. A server that names a time (Retry-After) is left alone for that long.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from sonde.errors import SinkError
from sonde.model import Frame, Sink
from sonde.pipeline.selection import Selection, Sieve
from sonde.pipeline.worker import Worker

log = logging.getLogger(__name__)

Translate = Callable[[Sequence[Frame]], Sequence[Frame]]

_BATCH, _BATCH_BYTES = 500, 8_000_000  # frames handed to a sink at once: bounds the memory of one delivery
_FIRST_BACKOFF = 0.5  # seconds
_LAST_BACKOFF = 4.0
_JITTER = 0.25  # the share of a wait that chance decides
_VALUE_BYTES, _FRAME_BYTES = 40, 400  # of what is queued: a number and the reference to it; a tuple and its sequence
QUEUE = 1000  # frames, for a sink that does not say what it needs
MEMORY = 32_000_000  # bytes
_LONGEST = 3600.0  # seconds slept in one go
_PACE_NS = 100_000_000  # the shortest: ten batches a second are enough for everybody


class Outlet:
    """Stands between the sampling threads and a sink. `offer` never blocks on the sink.

    A sink that is `inline` only keeps references: it is called at once and has no thread. `translate` is a dialect's:
    it is asked once for every frame and before the queue, because an increment since the frame before cannot be had a
    second time when a delivery is tried again (docs/adr/0018).
    """

    def __init__(
        self,
        name: str,
        sink: Sink,
        *,
        sieve: Sieve | None = None,
        limit: int = QUEUE,
        memory: int = MEMORY,
        translate: Translate | None = None,
    ) -> None:
        if limit < 1:
            raise ValueError(f"{name}: a queue holds at least one frame, not {limit}")
        self.name = name
        self.sink = sink
        self._sieve = sieve or Sieve(Selection())
        self._translate = translate
        self._limit = limit
        self._memory = memory
        self._queue: deque[Frame] = deque()
        self._held = 0  # bytes of the queue, about
        self._lock = threading.Lock()  # of the queue and the counts
        self._inline = sink.inline
        self._pace_ns = _PACE_NS
        self._phase_ns = 0
        self.delivered = 0
        self.dropped = 0  # pushed out of a full queue
        self.rejected = 0  # refused by the sink for good, or lost to a bug
        self.failures = 0
        self.error = ""
        self._started = False
        self._retry_after = 0.0  # seconds the server asked for with its last refusal
        self._worker = Worker(f"sink-{name}", self._run)
        self.ask_to_stop = self._worker.ask_to_stop

    def pace(self, period_ns: int, phase_ns: int) -> None:
        """Wake once per period, but not more often than ten times a second; from the next time on."""
        self._pace_ns = max(period_ns, _PACE_NS)
        self._phase_ns = phase_ns

    def start(self) -> None:
        """Once; an outlet that goes on under another configuration is started already."""
        if not self._inline and not self._started:
            self._started = True
            self._worker.start()

    @property
    def depth(self) -> int:
        return len(self._queue)

    def offer(self, frames: Sequence[Frame]) -> None:
        if not self._sieve.everything:
            frames = self._sieve.pass_on(frames)
        if self._translate is not None:
            frames = self._translated(self._translate, frames)
        if not frames:
            return
        with self._lock:
            if self._inline:
                self._deliver(frames)
                return
            queue = self._queue
            queue.extend(frames)
            self._held += _size(frames)
            while len(queue) > self._limit or (self._held > self._memory and len(queue) > 1):
                self._held -= _size((queue.popleft(),))
                self.dropped += 1

    def _translated(self, translate: Translate, frames: Sequence[Frame]) -> Sequence[Frame]:
        try:
            return translate(frames)
        except Exception as error:  # it runs in the sampling thread, which must go on
            with self._lock:
                if not self.error:
                    log.exception("sink %s: a bug in its translation", self.name)
                self._failed(f"bug: {error!r}")
                self.rejected += len(frames)
            return ()

    def _run(self) -> None:
        try:
            self._deliver_until_the_end()
        except Exception as error:
            log.exception("sink %s: a bug has ended its thread", self.name)
            self._failed(f"bug: its thread has ended: {error!r}")

    def _deliver_until_the_end(self) -> None:
        backoff = 0.0
        while True:
            self._sleep(self._wait(backoff))
            # Until the queue is empty: after a time without delivery there is more than one batch.
            while batch := self._take():
                rest = self._deliver(batch)
                if not rest:
                    backoff = 0.0
                    continue
                self._put_back(rest)
                if self._worker.stopping:
                    log.warning("sink %s: gave up %d frames at the end: %s", self.name, self.depth, self.error)
                    return
                backoff = min(backoff * 2 or _FIRST_BACKOFF, _LAST_BACKOFF)
                break
            if self._worker.stopping:
                return

    def _wait(self, backoff: float) -> float:
        """The back-off with its share of chance, and not less than the server has asked for."""
        if not backoff:
            return 0.0
        chance = os.urandom(1)[0] / 255 * _JITTER  # the random module would bring 0.3 MB
        # Before the back-off has passed, but after the time the server has named.
        return max(backoff * (1 - chance), self._retry_after * (1 + chance))

    def _sleep(self, backoff: float) -> None:
        """Until the next multiple of the pace, or for the back-off."""
        pace = self._pace_ns
        wait = backoff or (pace - (time.monotonic_ns() - self._phase_ns) % pace) / 1e9
        self._worker.sleep(min(wait, _LONGEST))  # sem_timedwait has a largest time-out

    def _take(self) -> list[Frame]:
        with self._lock:
            queue = self._queue
            if len(queue) <= _BATCH and self._held <= _BATCH_BYTES:
                batch = list(queue)
                queue.clear()
                self._held = 0
                return batch
            batch = []
            size = 0
            while queue and len(batch) < _BATCH and size < _BATCH_BYTES:
                batch.append(queue.popleft())
                size += _size(batch[-1:])
            self._held -= size
            return batch

    def _deliver(self, batch: Sequence[Frame]) -> Sequence[Frame]:
        """Write once. What is left to be tried again: nothing when all is delivered, or refused for good."""
        try:
            self.sink.write(batch)
        except SinkError as error:
            self._failed(f"{error} ({error.hint})" if error.hint else str(error))
            self.delivered += error.delivered
            if not error.retry:
                self.rejected += len(batch) - error.delivered
                return ()
            self.rejected += error.refused
            self._retry_after = error.retry_after
            return batch[error.delivered + error.refused :]
        except Exception as error:
            if not self.error:
                log.exception("sink %s: a bug", self.name)
            self._failed(f"bug: {error!r}")
            self.rejected += len(batch)
            return ()
        self.delivered += len(batch)
        if self.error:
            log.info("sink %s works again", self.name)
            self.error = ""
        return ()

    def _failed(self, message: str) -> None:
        self.failures += 1
        if message != self.error:
            log.warning("sink %s fails: %s", self.name, message)
        self.error = message

    def _put_back(self, batch: Sequence[Frame]) -> None:
        """As many as there is room for, the newest of them, in front of what has come since."""
        with self._lock:
            queue = self._queue
            kept = 0
            for frame in reversed(batch):
                size = _size((frame,))
                if len(queue) >= self._limit or (self._held + size > self._memory and queue):
                    break
                queue.appendleft(frame)
                self._held += size
                kept += 1
            self.dropped += len(batch) - kept

    def stop(self, timeout: float) -> bool:
        """Flush what is queued and close the sink; False when the sink hangs. A hung sink is left alone."""
        if not self._worker.stop(timeout):
            log.warning("sink %s hangs with %d frames queued and is left behind", self.name, self.depth)
            return False
        self.sink.close()
        return True


def _size(frames: Sequence[Frame]) -> int:
    """Bytes that frames hold in memory, about: their values are theirs, the layout is shared."""
    return len(frames) * _FRAME_BYTES + sum([len(frame.values) for frame in frames]) * _VALUE_BYTES

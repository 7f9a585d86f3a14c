"""One sink, one bounded queue: filters, paces, retries with back-off, drops the oldest and counts it."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence

from sonde.errors import SinkError
from sonde.model import Frame, Sink
from sonde.pipeline.selection import Selection

log = logging.getLogger(__name__)

_BATCH = 500  # frames handed to a sink at once: bounds the memory of one delivery
_FIRST_BACKOFF = 0.5  # seconds
_LAST_BACKOFF = 30.0


class Outlet:
    """Stands between the sampling threads and a sink. `offer` never blocks on the sink.

    A sink that is `inline` only keeps references: it is called at once and has no thread.
    """

    def __init__(
        self,
        name: str,
        sink: Sink,
        *,
        selection: Selection | None = None,
        min_period_ns: int = 0,
        limit: int = 1000,
    ) -> None:
        if limit < 1:
            raise ValueError(f"{name}: a queue holds at least one frame, not {limit}")
        self.name = name
        self.sink = sink
        self._selection = selection or Selection()
        self._plain = self._selection.everything and not min_period_ns
        self._min_period_ns = min_period_ns
        self._last: dict[str, int] = {}
        self._limit = limit
        self._queue: deque[Frame] = deque()
        self._ready = threading.Condition(threading.Lock())
        self._closing = False
        self._inline = sink.inline
        self.delivered = 0
        self.dropped = 0  # pushed out of a full queue
        self.rejected = 0  # refused by the sink for good, or lost to a bug
        self.failures = 0
        self.error = ""
        self._thread = threading.Thread(target=self._run, name=f"sink-{name}"[:15], daemon=True)

    def start(self) -> None:
        if not self._inline:
            self._thread.start()

    @property
    def depth(self) -> int:
        return len(self._queue)

    def offer(self, frames: Sequence[Frame]) -> None:
        if not self._plain:
            frames = self._wanted(frames)
        if not frames:
            return
        with self._ready:
            if self._inline:
                self._deliver(frames)
                return
            queue = self._queue
            queue.extend(frames)
            excess = len(queue) - self._limit
            if excess > 0:
                self.dropped += excess
                for _ in range(excess):
                    queue.popleft()
            self._ready.notify()

    def _wanted(self, frames: Sequence[Frame]) -> list[Frame]:
        wanted = []
        for frame in frames:
            if self._min_period_ns and not self._due(frame):
                continue
            chosen = self._selection.apply(frame)
            if chosen is not None:
                wanted.append(chosen)
        return wanted

    def _due(self, frame: Frame) -> bool:
        # A tenth of slack: two ticks of one pace are rarely exactly a period apart.
        last = self._last.get(frame.source)
        if last is not None and 0 <= frame.time_ns - last < self._min_period_ns - frame.period_ns // 10:
            return bool(frame.events)
        self._last[frame.source] = frame.time_ns
        return True

    def _run(self) -> None:
        backoff = 0.0
        while True:
            with self._ready:
                while not self._queue and not self._closing:
                    self._ready.wait()
                if backoff and not self._closing:
                    self._wait_unless_closing(backoff)
                if not self._queue:
                    return
                batch = [self._queue.popleft() for _ in range(min(len(self._queue), _BATCH))]
            if self._deliver(batch):
                backoff = 0.0
                continue
            self._put_back(batch)
            if self._closing:
                log.warning("sink %s: gave up %d frames at the end: %s", self.name, self.depth, self.error)
                return
            backoff = min(backoff * 2 or _FIRST_BACKOFF, _LAST_BACKOFF)

    def _wait_unless_closing(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._closing and (remaining := until - time.monotonic()) > 0:
            self._ready.wait(remaining)

    def _deliver(self, batch: Sequence[Frame]) -> bool:
        """Write once. True when the batch is done with: delivered, or refused for good."""
        try:
            self.sink.write(batch)
        except SinkError as error:
            self._failed(str(error))
            if not error.retry:
                self.rejected += len(batch)
            return not error.retry
        except Exception as error:
            if not self.error:
                log.exception("sink %s: a bug", self.name)
            self._failed(f"bug: {error!r}")
            self.rejected += len(batch)
            return True
        self.delivered += len(batch)
        if self.error:
            log.info("sink %s works again", self.name)
            self.error = ""
        return True

    def _failed(self, message: str) -> None:
        self.failures += 1
        if message != self.error:
            log.warning("sink %s fails: %s", self.name, message)
        self.error = message

    def _put_back(self, batch: list[Frame]) -> None:
        with self._ready:
            room = self._limit - len(self._queue)
            kept = batch[-room:] if room > 0 else []
            self.dropped += len(batch) - len(kept)
            self._queue.extendleft(reversed(kept))

    def stop(self, timeout: float) -> bool:
        """Flush what is queued and close the sink; False when the sink hangs. A hung sink is left alone."""
        with self._ready:
            self._closing = True
            self._ready.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout)
        if self._thread.is_alive():
            log.warning("sink %s hangs with %d frames queued and is left behind", self.name, self.depth)
            return False
        self.sink.close()
        return True

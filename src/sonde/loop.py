"""One epoll loop: descriptors, timers and posts from other threads, on epoll(7) and eventfd(2).

The loop never polls: with nothing due it blocks in the kernel without a timeout. Everything it calls runs in the
thread that called `run`; other threads and signal handlers reach that thread only through `post`.
docs/adr/0002 has the reason and the numbers for a loop of our own.
"""

from __future__ import annotations

import heapq
import logging
import os
import select
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Protocol

log = logging.getLogger(__name__)

READ = select.EPOLLIN
WRITE = select.EPOLLOUT
_TIMERS = 256  # that may be there before cancelled ones are looked for
_AT_ONCE = 64  # descriptors served before timers and posts are looked at again


class HasFileno(Protocol):
    def fileno(self) -> int: ...


FileObject = int | HasFileno
OnEvents = Callable[[int], None]  # called with READ, WRITE, EPOLLHUP and EPOLLERR, as epoll reports them


class Timer:
    """A call that is due once. `cancel` may be called at any time, also after it was made."""

    __slots__ = ("_callback", "when")

    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self._callback = None

    @property
    def callback(self) -> Callable[[], None] | None:
        return self._callback


class Loop:
    """Calls what is ready, due or posted, one after the other, until it is stopped.

    A callback that raises is logged with its traceback and counted in `failures`; the loop goes on. `register`,
    `modify`, `unregister` and `call_at` belong to the loop's thread; `post` and `stop` to every thread.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, OnEvents] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._crowded = _TIMERS
        self._order = count()  # timers of the same instant fire in the order they were asked for
        self._posted: deque[Callable[[], None]] = deque()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stopped = False
        self.failures = 0
        self.wakeups = 0
        self.ready = 0  # descriptors that are served in this turn
        self.register(self._bell, READ, self._answer_bell)

    def register(self, fileobj: FileObject, events: int, callback: OnEvents) -> None:
        fd = _fd(fileobj)
        self._epoll.register(fd, events)
        self._callbacks[fd] = callback

    def modify(self, fileobj: FileObject, events: int) -> None:
        self._epoll.modify(_fd(fileobj), events)

    def unregister(self, fileobj: FileObject) -> None:
        fd = _fd(fileobj)
        del self._callbacks[fd]
        self._epoll.unregister(fd)

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call once at `when`, in seconds of time.monotonic(); at most a millisecond late by epoll's rounding."""
        timer = Timer(when, callback)
        if len(self._timers) >= self._crowded:
            self._forget_cancelled()
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def _forget_cancelled(self) -> None:
        """A connection that ends early leaves its deadline behind: 3,000 a second were 15,000 timers that nobody needs.

        They are looked for when the timers have doubled since the last look, and so at little cost for each.
        """
        self._timers[:] = [entry for entry in self._timers if entry[2].callback is not None]
        heapq.heapify(self._timers)
        self._crowded = max(_TIMERS, 2 * len(self._timers))

    def post(self, callback: Callable[[], None]) -> None:
        """Have the loop's thread call this soon. Safe in any thread and in a signal handler."""
        if self._bell < 0:
            return  # closed: a thread that was left behind speaks to nobody
        self._posted.append(callback)  # atomic; the bell is rung after it, so nothing posted is overlooked
        try:
            os.eventfd_write(self._bell, 1)
        except BlockingIOError:
            pass  # the counter is at its limit: the bell is ringing already

    def stop(self) -> None:
        """End `run` after the callback it is in. Safe in any thread and in a signal handler."""
        self.post(self._stop)

    def _stop(self) -> None:
        self._stopped = True

    def run(self) -> None:
        """Serve until `stop`.

        A wake-up finds the caches cold, where every function on the way costs microseconds: so few are called.
        """
        self._stopped = False
        poll, callbacks, timers = self._epoll.poll, self._callbacks, self._timers
        while not self._stopped:
            ready = poll(self._patience() if timers else None, _AT_ONCE)
            self.wakeups += 1
            self.ready = len(ready)
            for fd, events in ready:
                # One callback of this batch may have closed the descriptor of a later one.
                callback = callbacks.get(fd)
                if callback is None:
                    continue
                try:
                    callback(events)
                except Exception:
                    self.failures += 1
                    log.exception("a callback of the loop failed: %r", callback)
            if timers:
                self._call_due()

    def _patience(self) -> float | None:
        """Seconds until the next timer; None, for ever, when there is none."""
        timers = self._timers
        while timers and timers[0][2].callback is None:
            heapq.heappop(timers)  # cancelled: must not wake us up
        if not timers:
            return None
        return max(0.0, timers[0][0] - time.monotonic())

    def _call_due(self) -> None:
        timers = self._timers
        now = time.monotonic()
        while timers and timers[0][0] <= now:
            timer = heapq.heappop(timers)[2]
            callback = timer.callback
            timer.cancel()
            if callback is not None:
                self._guard(callback)

    def _answer_bell(self, _events: int) -> None:
        os.eventfd_read(self._bell)
        for _ in range(len(self._posted)):  # what these post comes next time round: nobody is starved
            self._guard(self._posted.popleft())

    def _guard(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            self.failures += 1
            log.exception("a callback of the loop failed: %r", callback)

    def close(self) -> None:
        """Give the descriptors back. What was registered stays open: it is its owner's."""
        if self._bell >= 0:
            bell, self._bell = self._bell, -1
            self._epoll.close()
            os.close(bell)


def _fd(fileobj: FileObject) -> int:
    return fileobj if isinstance(fileobj, int) else fileobj.fileno()

"""Many exchanges at once in one thread, on one epoll(7): begun as places are free, ended by a reply or their deadline.

A loop of its own, because its caller takes each result as it comes: a generator stands still between two of them,
which sonde.loop, made of callbacks, cannot. docs/adr/0022 has the numbers.
"""

from __future__ import annotations

import errno
import heapq
import os
import resource
import select
import time
from collections import deque
from collections.abc import Iterator
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING

from sonde.address import Address
from sonde.errors import SondeError
from sonde.rpc import failures
from sonde.rpc.exchange import WRITE, Exchange, Line
from sonde.rpc.names import THREADS, Resolver, Route, numeric_routes
from sonde.rpc.turns import Turns

if TYPE_CHECKING:
    import ssl

_BURST = 16  # connections begun before replies are looked at again
_RETRY = 0.01  # seconds until what is not possible now is tried again: nothing tells when it is
_RESERVE = 16 + THREADS  # descriptors left to others: files, pipes, the look-up of names
# The queue of a Unix socket is full (connect(2)), or others have taken the descriptors we counted on.
_NOT_NOW = (errno.EAGAIN, errno.EMFILE, errno.ENFILE)


class Switchboard:
    """Drives exchanges from `source`, at most `at_once` at a time, each within `timeout` of its beginning.

    With `turns` their round trips are timed: they are set up as they come and ask when it is their turn. Time during
    which the caller holds a result is nobody's: deadlines move by it.
    """

    def __init__(
        self,
        source: Iterator[Exchange],
        *,
        timeout: float,
        at_once: int,
        tls: ssl.SSLContext | None = None,
        turns: Turns | None = None,
    ) -> None:
        self._source: Iterator[Exchange] | None = source
        self._timeout = timeout
        self._tls = tls
        self._turns = turns
        self._epoll = select.epoll()
        self._limit = places(at_once)
        self._active = 0  # begun and not finished
        self._open: dict[int, tuple[Exchange, Line]] = {}
        self._ready: deque[Exchange] = deque()  # before what the source has
        self._postponed = 0
        self._timers: list[tuple[float, int, Exchange]] = []
        self._order = count()
        self._finished: deque[Exchange] = deque()
        self._away = 0.0  # seconds the caller had the turn
        self._resolver: Resolver[Exchange] = Resolver()
        self._epoll.register(self._resolver.fileno(), select.EPOLLIN)
        self._known: dict[Address, list[Route]] = {}

    def __enter__(self) -> Switchboard:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for _, line in self._open.values():
            line.sock.close()
        self._open.clear()
        self._epoll.close()
        self._resolver.close()

    def now(self) -> float:
        return time.monotonic() - self._away

    def later(self, exchange: Exchange, seconds: float) -> None:
        """Begin one more exchange, not before `seconds` from now."""
        self._postponed += 1
        self._remind(exchange, self.now() + seconds)

    def results(self) -> Iterator[Exchange]:
        """Finished exchanges, in the order in which they finish, until there are no more."""
        while True:
            more = self._begin_some()
            while self._finished:
                exchange = self._finished.popleft()
                given = time.monotonic()
                yield exchange
                self._away += time.monotonic() - given
                exchange.reply = None  # its timer goes on holding the rest
            if self._active or self._postponed:
                self._serve(0.0 if more else self._patience())
            elif not more and not self._ready:
                return

    def _begin_some(self) -> bool:
        """Fill free places, a few at a time. Is there more to begin at once?"""
        for _ in range(_BURST):
            if self._active >= self._limit:
                return False
            exchange = self._next()
            if exchange is None:
                return False
            self._begin(exchange)
        return True

    def _next(self) -> Exchange | None:
        if self._ready:
            return self._ready.popleft()
        if self._source is not None:
            for exchange in self._source:
                return exchange
            self._source = None
        return None

    def _begin(self, exchange: Exchange) -> None:
        self._active += 1
        exchange.begun = self.now()
        if exchange.error is not None:  # it has no address
            self._finish(exchange)
            return
        exchange.deadline = exchange.begun + self._timeout
        self._remind(exchange, exchange.deadline)
        exchange.routes = list(self._known.get(exchange.where) or numeric_routes(exchange.where))
        if exchange.routes:
            self._attempt(exchange)
        else:
            self._resolver.ask(exchange.where, exchange)

    def _looked_up(self) -> None:
        for exchange, routes, error in self._resolver.found():
            if exchange.finished:
                continue  # too late for it
            if error is not None:
                self._finish(exchange, failures.unreachable(exchange.where, error))
                continue
            self._known[exchange.where] = routes
            exchange.routes = list(routes)
            self._attempt(exchange)

    def _attempt(self, exchange: Exchange) -> None:
        """Connect along the next route that does not fail at once."""
        while True:
            try:
                line = Line(exchange, self._tls, timed=self._turns is not None)
                break
            except OSError as error:
                if error.errno in _NOT_NOW:
                    self._hold(exchange, error)
                    return
                del exchange.routes[0]
                if not exchange.routes:
                    self._finish(exchange, failures.unreachable(exchange.where, error))
                    return
        del exchange.routes[0]
        exchange.fd = fd = line.sock.fileno()
        self._open[fd] = exchange, line
        self._epoll.register(fd, WRITE)
        if exchange.routes:
            # What is left of the time is divided among the routes that are left: one that swallows everything must not
            # keep the next from being tried.
            now = self.now()
            exchange.patience = now + (exchange.deadline - now) / (len(exchange.routes) + 1)
            self._remind(exchange, exchange.patience)

    def _hold(self, exchange: Exchange, error: OSError) -> None:
        if error.errno != errno.EAGAIN:
            self._limit = max(1, len(self._open))
        self._remind(exchange, self.now() + _RETRY)

    def _serve(self, patience: float | None) -> None:
        """Wait for sockets, names and deadlines, and go on with all that are ready."""
        ready = self._epoll.poll(patience, self._limit + 1)
        for fd, events in ready:
            if fd == self._resolver.fileno():
                self._looked_up()
            else:
                self._advance(*self._open[fd], events)
        self._expire()
        if self._turns is not None:
            for exchange, line in self._turns.granted(self.now()):
                self._advance(exchange, line, 0)

    def _advance(self, exchange: Exchange, line: Line, events: int) -> None:
        try:
            wanted = line.advance(events)
        except SondeError as error:
            self._finish(exchange, error)
            return
        except (OSError, ValueError) as error:
            self._disconnect(exchange)
            if exchange.routes:
                self._attempt(exchange)
            else:
                self._finish(exchange, failures.unreachable(exchange.where, error))
            return
        if self._turns is not None and line.is_set_up and not exchange.waits:
            exchange.waits = True
            self._turns.enter(exchange, line)
        if not wanted:
            self._finish(exchange)
        elif wanted != line.watched:
            line.watched = wanted
            self._epoll.modify(exchange.fd, wanted)

    def _remind(self, exchange: Exchange, when: float) -> None:
        heapq.heappush(self._timers, (when, next(self._order), exchange))

    def _patience(self) -> float | None:
        timers = self._timers
        while timers and timers[0][2].finished:
            heapq.heappop(timers)
        due = [timers[0][0]] if timers else []
        turn = self._turns.next_turn() if self._turns is not None else None
        if turn is not None:
            due.append(turn)
        return max(0.0, min(due) - self.now()) if due else None

    def _expire(self) -> None:
        timers = self._timers
        now = self.now()
        while timers and timers[0][0] <= now:
            exchange = heapq.heappop(timers)[2]
            if not exchange.finished:
                self._due(exchange, now)

    def _due(self, exchange: Exchange, now: float) -> None:
        if not exchange.begun:
            self._postponed -= 1
            self._ready.append(exchange)
        elif now >= exchange.deadline:
            self._finish(exchange, failures.late(exchange.where, self._timeout))
        elif not exchange.routes:
            return  # names are being looked up, or this is the last route
        elif exchange.fd < 0:
            self._attempt(exchange)  # it was not possible before
        elif now >= exchange.patience and not self._open[exchange.fd][1].connected:
            self._disconnect(exchange)
            self._attempt(exchange)

    def _disconnect(self, exchange: Exchange) -> None:
        if exchange.fd >= 0:
            # close(2) alone is not enough: a child that another thread has just forked holds the socket until its
            # execve(2), and so long epoll(7) goes on to report it, under a number that means nothing here any more.
            self._epoll.unregister(exchange.fd)
            self._open.pop(exchange.fd)[1].sock.close()
            exchange.fd = -1

    def _finish(self, exchange: Exchange, error: SondeError | None = None) -> None:
        self._disconnect(exchange)
        if self._turns is not None:
            self._turns.leave(exchange)
        if error is not None:
            exchange.error = error
        exchange.finished = True
        exchange.took = self.now() - exchange.begun
        self._active -= 1
        self._finished.append(exchange)


def places(at_once: int) -> int:
    """How many connections may be open: what is asked for, or what this process has descriptors for (getrlimit(2))."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return max(1, at_once)
    free = limit - len(os.listdir("/proc/self/fd")) - _RESERVE
    return max(1, min(at_once, free))

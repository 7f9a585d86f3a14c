"""Who may ask now, of many connections that are set up: a few at a time, so that a round trip has no queue in it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from sonde.rpc.exchange import Exchange, Line

AT_ONCE = 8
PATIENCE = 0.005  # seconds; who has not answered by then is not waited for, and its round does not count for much


class Turns:
    """Lets AT_ONCE exchanges ask at a time. One that takes longer than PATIENCE keeps nobody from asking."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Exchange, Line]] = deque()
        self._asking: dict[Exchange, float] = {}  # and since when; the longest is the first

    def enter(self, exchange: Exchange, line: Line) -> None:
        self._waiting.append((exchange, line))

    def leave(self, exchange: Exchange) -> None:
        self._asking.pop(exchange, None)

    def granted(self, now: float) -> Iterator[tuple[Exchange, Line]]:
        """Those whose turn it is."""
        while self._waiting:
            self._forget(now)
            if len(self._asking) >= AT_ONCE:
                return
            exchange, line = self._waiting.popleft()
            if exchange.finished:
                continue  # it has failed meanwhile
            self._asking[exchange] = now
            line.may_ask = True
            yield exchange, line

    def _forget(self, now: float) -> None:
        for exchange, since in tuple(self._asking.items()):
            if since + PATIENCE > now:
                return
            del self._asking[exchange]

    def next_turn(self) -> float | None:
        """When somebody's patience ends, if anybody waits for that."""
        return min(self._asking.values(), default=0.0) + PATIENCE if self._waiting else None

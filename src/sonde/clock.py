"""Time as a parameter: the monotonic clock paces, the wall clock stamps."""

from __future__ import annotations

import time
from typing import Protocol

NS = 1_000_000_000


class Clock(Protocol):
    def monotonic_ns(self) -> int: ...
    def time_ns(self) -> int: ...


class SystemClock:
    """The kernel's clocks."""

    monotonic_ns = staticmethod(time.monotonic_ns)
    time_ns = staticmethod(time.time_ns)


class ManualClock:
    """A clock that moves only when told to; the wall clock can jump by itself."""

    def __init__(self, *, monotonic_ns: int = 0, time_ns: int = 1_700_000_000 * NS) -> None:
        self._monotonic_ns = monotonic_ns
        self._time_ns = time_ns

    def monotonic_ns(self) -> int:
        return self._monotonic_ns

    def time_ns(self) -> int:
        return self._time_ns

    def advance(self, seconds: float) -> None:
        step = round(seconds * NS)
        self._monotonic_ns += step
        self._time_ns += step

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, as NTP or an operator would."""
        self._time_ns += round(seconds * NS)


def iso(time_ns: int, *, digits: int = 3) -> str:
    """`2026-11-15T21:42:38.123Z`: UTC, always."""
    seconds, rest = divmod(time_ns, NS)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{text}.{rest:09d}"[: len(text) + 1 + digits] + "Z" if digits else text + "Z"

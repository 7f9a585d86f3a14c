"""Times on a command line: `5m` ago, `2026-11-15T20:00Z`, seconds since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime

from sonde.clock import NS
from sonde.errors import UsageError
from sonde.store.query import Span
from sonde.units import Duration


def parse_span(since: str, until: str, now_ns: int) -> Span:
    """From --since to --until; nothing as --until is now."""
    span = Span(parse_when(since, now_ns), parse_when(until or "0s", now_ns))
    if span.start_ns >= span.end_ns:
        raise UsageError(f"--since {since} is not before --until {until or 'now'}")
    return span


def parse_when(text: str, now_ns: int) -> int:
    """`5m` ago, `2026-11-15T20:00Z`, or seconds since the epoch."""
    try:
        return now_ns - Duration.parse(text).ns
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is not None:
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1e6) * 1000
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1e8 < seconds < 1e11:  # 5 is not five seconds after 1970: a unit was forgotten
        raise UsageError(f"{text!r} is no time", hint="write 5m, 2026-11-15T20:00Z or seconds since 1970")
    return round(seconds * NS)

"""What tells one process from another of the same id, and whose session it is in: /proc/PID/stat (proc_pid_stat(5))."""

from __future__ import annotations

from sonde.errors import ParseError


def parse_stat(text: bytes) -> tuple[int, int]:
    """Session and start time (clock ticks since boot) of /proc/PID/stat. The name before them may contain anything.

    4711 (python) S 4700 4711 4711 ...: after the name state, parent, process group, session, and as the 20th the start
    """
    try:
        fields = text[text.rindex(b")") + 2 :].split(None, 20)
        return int(fields[3]), int(fields[19])
    except (ValueError, IndexError):
        raise ParseError("/proc/PID/stat", text) from None

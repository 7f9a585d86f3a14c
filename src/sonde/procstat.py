"""One process told from another of the same id; its session, parent and state: /proc/PID/stat (proc_pid_stat(5))."""

from __future__ import annotations

from typing import NamedTuple

from sonde.errors import ParseError


class Kinship(NamedTuple):
    state: str  # R, S, D, Z, T (stopped), t (stopped by a tracer), X
    parent: int  # 0: none, or not visible from here


def parse_stat(text: bytes) -> tuple[int, int]:
    """Session and start time (clock ticks since boot) of /proc/PID/stat. The name before them may contain anything.

    4711 (python) S 4700 4711 4711 ...: after the name state, parent, process group, session, and as the 20th the start
    """
    try:
        fields = text[text.rindex(b")") + 2 :].split(None, 20)
        return int(fields[3]), int(fields[19])
    except (ValueError, IndexError):
        raise ParseError("/proc/PID/stat", text) from None


def parse_kinship(text: bytes) -> Kinship:
    """State and parent of the same text."""
    try:
        state, parent = text[text.rindex(b")") + 2 :].split(None, 2)[:2]
        return Kinship(state.decode("ascii"), int(parent))
    except ValueError:
        raise ParseError("/proc/PID/stat", text) from None

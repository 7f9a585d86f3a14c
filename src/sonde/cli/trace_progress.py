"""How far each rank of a trace has come: lines that are drawn over on a terminal's standard error.

    rank 0  n1   812  started    0.4 s left
    rank 1  n2  4711  delivered  starts in 1.8 s

With more than a screen of ranks, how many are in each state.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Sequence

from sonde.cli.trace_check import name_of
from sonde.cli.trace_follow import Change
from sonde.cli.trace_hosts import Message, Node
from sonde.clock import NS

_LINES = 16
_EVERY = 0.1  # seconds between two drawings
_ORDER = ("requested", "delivered", "started", "written", "refused", "failed", "timed-out", "cancelled", "lost")


class Live:
    """Used as a context; what it has drawn is gone when it ends. Elsewhere than on a terminal it tells changes."""

    def __init__(self, nodes: Sequence[Node], *, verbose: bool) -> None:
        self._nodes = nodes
        self._shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._verbose = verbose and not self._shown
        self._height = 0
        self._drawn_at = 0.0

    def show(self, changes: Sequence[Change]) -> None:
        if self._verbose:
            for change in changes:
                print(told(change), file=sys.stderr, flush=True)
        now = time.monotonic()
        if self._shown and (now - self._drawn_at >= _EVERY):
            self._drawn_at = now
            self._draw(lines_of(self._nodes, time.time_ns(), _width()))

    def _draw(self, lines: Sequence[str]) -> None:
        up = f"\x1b[{self._height}A" if self._height else ""
        text = "".join(f"\x1b[K{line}\n" for line in lines)
        print(f"{up}\r{text}\x1b[J", end="", file=sys.stderr, flush=True)
        self._height = len(lines)

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_: object) -> None:
        if self._height:
            self._draw(())


def _width() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80  # a terminal may not know
    except OSError:
        return 80


def told(change: Change) -> str:
    """A change as a line of a log."""
    node, target = change
    if target is None:
        return f"{node.name}: given up: {node.error}"
    reason = f" ({target['reason']})" if target["reason"] else ""
    return f"{name_of(target['rank'], target['pid'] or target['own_pid'], node.name)}: {target['state']}{reason}"


def lines_of(nodes: Sequence[Node], now_ns: int, width: int) -> list[str]:
    """A line per rank while there are few, else one of counts."""
    targets = [(node, target) for node in nodes for target in node.targets]
    if len(targets) > _LINES:
        counts = Counter(target["state"] for _, target in targets)
        return [", ".join(f"{counts[state]} {state}" for state in _ORDER if counts[state])[: width - 1]]
    targets.sort(key=lambda item: (item[1]["rank"] is None, item[1]["rank"] or 0, item[0].name))
    rows = [
        (
            "" if target["rank"] is None else f"rank {target['rank']}",
            node.name,
            str(target["pid"] or target["own_pid"]),
            target["state"],
            detail(node, target, now_ns),
        )
        for node, target in targets
    ]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
    return [
        "  ".join([*(cell.ljust(size) for cell, size in zip(row, widths, strict=False)), row[4]]).strip()[: width - 1]
        for row in rows
    ]


def detail(node: Node, target: Message, now_ns: int) -> str:
    """What a target waits for."""
    if node.error is not None:
        return f"no news: {node.error}"
    start = target["start_ns"]
    if target["state"] == "delivered" and start is not None and start - node.offset_ns > now_ns:
        return f"starts in {(start - node.offset_ns - now_ns) / NS:.1f} s"
    return target["reason"] or _left(node, target, now_ns)


def _left(node: Node, target: Message, now_ns: int) -> str:
    """How long a recording of a duration still takes. How long steps take, and a file to be written, nobody knows."""
    asked, start = node.asked_for, target["start_ns"]
    if target["state"] != "started" or start is None or asked.get("steps") or not asked.get("duration_ms"):
        return ""
    left = (start - node.offset_ns - now_ns) / NS + asked["duration_ms"] / 1000
    return f"{left:.1f} s left" if left > 0 else "writes its file"

"""How far long work has come: a bar on a terminal's standard error, nothing anywhere else."""

from __future__ import annotations

import os
import sys
import time

_WIDTH = 30
_EVERY = 0.1  # seconds between two drawings


class Progress:
    """Used as a context; the bar is gone when it ends."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._drawn_at = 0.0
        self._begun_at = time.monotonic()

    def show(self, share: float, detail: str = "") -> None:
        """`share` of the work is done, 0 to 1."""
        now = time.monotonic()
        if not self._shown or now - self._drawn_at < _EVERY:
            return
        self._drawn_at = now
        share = min(1.0, max(0.0, share))
        full = round(share * _WIDTH)
        left = (now - self._begun_at) * (1 - share) / share if share > 0.01 else 0.0
        remaining = f", {left:.0f} s left" if left >= 1 else ""
        bar = "█" * full + "░" * (_WIDTH - full)
        print(f"\r\x1b[K{self._title} {bar} {share:4.0%} {detail}{remaining}", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown and self._drawn_at:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

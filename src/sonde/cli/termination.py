"""SIGTERM heard like Ctrl-C: batch systems, timeout(1) and systemd send it, and what was begun is to be called back."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


class Terminated(KeyboardInterrupt):
    exit_code = 128 + signal.SIGTERM


@contextmanager
def terminable() -> Iterator[None]:
    """Raise Terminated in the block when SIGTERM comes. For the main thread only (signal.signal)."""
    before = signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated

"""The last frames of every source, in memory: what the live view and the RPC snapshot read."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import ClassVar

from sonde.config import NoKeys
from sonde.model import Frame


class Ring:
    """An inline sink. Writing takes no lock: appending to a deque and setting a dictionary's item are atomic in
    CPython; readers take copies.
    """

    Config: ClassVar[type] = NoKeys
    inline: ClassVar[bool] = True

    def __init__(self, frames: int = 2) -> None:
        self._frames = frames
        self._sources: dict[str, deque[Frame]] = {}

    def write(self, frames: Sequence[Frame]) -> None:
        sources = self._sources
        for frame in frames:
            kept = sources.get(frame.source)
            if kept is None:
                kept = sources[frame.source] = deque(maxlen=self._frames)
            kept.append(frame)

    def latest(self) -> list[Frame]:
        """The newest frame of every source, in the order the sources first wrote."""
        return [kept[-1] for kept in list(self._sources.values()) if kept]

    def history(self, source: str) -> list[Frame]:
        """All kept frames of a source, oldest first; empty when it never wrote."""
        # list(deque) can meet an append of the sampling thread and refuse to go on; deque.copy() runs in C, whole.
        kept = self._sources.get(source)
        return list(kept.copy()) if kept is not None else []

    def close(self) -> None:
        pass

"""The newest frame of every source, in memory: what the live view and the RPC snapshot read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sonde.config import NoKeys
from sonde.model import Frame


class Ring:
    """An inline sink. Writing takes no lock: setting a dictionary's item is atomic in CPython; readers take copies."""

    Config: ClassVar[type] = NoKeys
    inline: ClassVar[bool] = True

    def __init__(self) -> None:
        self._newest: dict[str, Frame] = {}

    def write(self, frames: Sequence[Frame]) -> None:
        newest = self._newest
        for frame in frames:
            newest[frame.source] = frame

    def latest(self) -> list[Frame]:
        """The newest frame of every source, in the order the sources first wrote."""
        return list(self._newest.values())

    def close(self) -> None:
        pass

"""Where the names and the numbers stand in a text that keeps its shape from tick to tick.

/proc/meminfo has the same fifty names in the same places for as long as the machine runs. So they are found once;
afterwards a tick splits the text, compares all names in one C call and picks all numbers in another. A dictionary of
everything costs three times as much (docs/adr/0003).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any


def picker(indexes: Sequence[int]) -> Callable[[Any], Any]:
    """An itemgetter that always gives a sequence, also for one index and for none."""
    if len(indexes) > 1:
        return itemgetter(*indexes)
    start = indexes[0] if indexes else 0
    only: Callable[[Any], Any] = itemgetter(slice(start, start + len(indexes)))
    return only


class Shape:
    """Token positions of a text: `names` must read the same for the `values` to mean the same."""

    __slots__ = ("_count", "_known", "_names", "values")

    def __init__(self, tokens: list[bytes], names: Sequence[int], values: Sequence[int]) -> None:
        self._count = len(tokens)
        self._names = picker(names)
        self._known = self._names(tokens)
        self.values = picker(values)

    def fits(self, tokens: list[bytes]) -> bool:
        return len(tokens) == self._count and self._names(tokens) == self._known

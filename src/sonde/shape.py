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


_BLANK_BUT_DIGITS = bytes(code if 0x30 <= code <= 0x39 else 0x20 for code in range(256))
_DIGITS_AND_BLANKS = b"0123456789 \t"


class Skeleton:
    """A text of words and whole numbers, known by its words: the text without its digits and blanks.

    Cheaper than `Shape` where most tokens are words: two passes in C over the text, and only numbers become objects.
    Digits within words (`DirectMap4k`) are numbers too, at known places, and must read the same.
    """

    __slots__ = ("_count", "_fixed", "_known", "_values", "_words")

    def __init__(self, text: bytes, values: Sequence[int]) -> None:
        """`values` are the places of the wanted numbers among all runs of digits in the text."""
        tokens = text.translate(_BLANK_BUT_DIGITS).split()
        wanted = set(values)
        self._words = text.translate(None, _DIGITS_AND_BLANKS)
        self._count = len(tokens)
        self._fixed = picker([place for place in range(len(tokens)) if place not in wanted])
        self._known = self._fixed(tokens)
        self._values = picker(values)

    def numbers(self, text: bytes) -> Sequence[bytes] | None:
        """The wanted numbers as text; None when the words are not the known ones."""
        if text.translate(None, _DIGITS_AND_BLANKS) != self._words:
            return None
        tokens = text.translate(_BLANK_BUT_DIGITS).split()
        if len(tokens) != self._count or self._fixed(tokens) != self._known:
            return None
        picked: Sequence[bytes] = self._values(tokens)
        return picked

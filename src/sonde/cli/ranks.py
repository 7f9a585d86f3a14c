"""Lists of ranks, as people write and read them: `0,3,8-11`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from itertools import groupby

_MOST = 1_000_000  # ranks in one list; beyond it is a typing error


def parse_ranks(text: str) -> tuple[int, ...]:
    """The type of an argument: each rank once, in ascending order."""
    chosen: set[int] = set()
    for item in text.split(","):
        low, dash, high = item.strip().partition("-")
        ends = (low, high if dash else low)
        if not all(end.isascii() and end.isdigit() and len(end) < 10 for end in ends):
            raise argparse.ArgumentTypeError(f"{item!r} is no rank: write 0, or 0,3, or 0-7")
        first, last = map(int, ends)
        if last < first:
            raise argparse.ArgumentTypeError(f"{item!r} ends before it begins")
        if len(chosen) + last - first >= _MOST:
            raise argparse.ArgumentTypeError(f"{item!r} are more than {_MOST} ranks")
        chosen.update(range(first, last + 1))
    return tuple(sorted(chosen))


def folded(ranks: Iterable[int]) -> str:
    """`0-3,7`."""
    # Numbers in a row keep a constant difference to their index.
    runs = groupby(enumerate(sorted(set(ranks))), key=lambda item: item[1] - item[0])
    numbers = [[rank for _, rank in run] for _, run in runs]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in numbers)

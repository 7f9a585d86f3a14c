"""What the terminal shows: colour only where it is wanted, columns that line up."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "grey": "90", "bold": "1"}


def coloured() -> bool:
    """A terminal that has not been asked for plain text (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str) -> str:
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if text and coloured() else text


def label_text(labels: Iterable[tuple[str, str]]) -> str:
    """`{cpu="0",mode="idle"}`, or nothing."""
    inside = ",".join([f'{name}="{value}"' for name, value in labels])
    return f"{{{inside}}}" if inside else ""


def table(rows: Sequence[Sequence[str]], *, header: Sequence[str] = (), right: Sequence[int] = ()) -> str:
    """Left-aligned columns two blanks apart; those numbered in `right` are right-aligned."""
    every = [list(header), *map(list, rows)] if header else [list(row) for row in rows]
    if not every:
        return ""
    widths = [max(len(row[column]) for row in every) for column in range(len(every[0]))]
    lines = []
    for row in every:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    if header:
        lines[0] = paint(lines[0], "bold")
    return "\n".join(lines)

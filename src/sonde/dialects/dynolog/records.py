"""Translated frames as dynolog's records: one object per sample, its keys sorted, its fractions as text.

    {"cpu_i":"71.342","cpu_s_ms":230,"rx_bytes.eth0":8021,"uptime":11488}

dynolog's kernel monitor has one record of uptime, CPU and network. They are separate frames here, read within the same
tick; a record is what was read together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from operator import is_not
from typing import Any, NamedTuple

from sonde.dialects.dynolog import names
from sonde.model import Frame, Layout
from sonde.shape import picker


class Record(NamedTuple):
    """One sample. `text` is its object as dynolog writes it."""

    time_ns: int
    keys: Sequence[str]  # sorted
    values: Sequence[int | float]
    text: str


class _Form:
    """What the layouts of a record decide: the order of its keys and the text between its values."""

    def __init__(self, layouts: Sequence[Layout]) -> None:
        self.layouts = layouts
        keys = [names.key(series) for layout in layouts for series in layout]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        self.keys = [keys[index] for index in order]
        self._pick: Callable[[Any], Any] = picker(order)
        self._begin = [f"{',' if place else ''}{json.dumps(key)}:" for place, key in enumerate(self.keys)]

    def fits(self, frames: Sequence[Frame]) -> bool:
        return len(frames) == len(self.layouts) and not any(
            map(is_not, [frame.layout for frame in frames], self.layouts)
        )

    def record(self, frames: Sequence[Frame]) -> Record:
        values = self._pick([value for frame in frames for value in frame.values])
        parts = [begin + text_of(value) for begin, value in zip(self._begin, values, strict=True)]
        return Record(frames[0].time_ns, self.keys, values, f"{{{''.join(parts)}}}")


class Recorder:
    """Makes the records of one sink from its translated frames."""

    def __init__(self) -> None:
        self._form = _Form(())

    def records(self, frames: Iterable[Frame]) -> list[Record]:
        # A frame that only says what is missing makes no record.
        return [self._record(group) for group in _together(frame for frame in frames if frame.layout)]

    def _record(self, frames: Sequence[Frame]) -> Record:
        if not self._form.fits(frames):
            self._form = _Form([frame.layout for frame in frames])
        return self._form.record(frames)


def text_of(value: float) -> str:
    """A whole number as it is, anything else as a string with three decimals."""
    return str(value) if isinstance(value, int) else f'"{value:.3f}"'


def _together(frames: Iterable[Frame]) -> list[list[Frame]]:
    """Frames by tick: the translator has given those of one tick the same time."""
    groups: list[list[Frame]] = []
    for frame in frames:
        if not groups or frame.time_ns != groups[-1][0].time_ns:
            groups.append([])
        groups[-1].append(frame)
    return groups

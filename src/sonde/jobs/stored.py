"""The series of an archive as arrays: integers exact, floats to the bit, histograms as their parts.

Blocks of one layout are put end to end, all their columns at once; a series is a row of the result, and copied only
when it was written under several layouts or while the clock was set back. One node's hour of 60 series at 1 Hz takes
2 MB and 0.03 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sonde.errors import StoreError
from sonde.jobs import decoding
from sonde.model import Histogram
from sonde.store.codec import Block
from sonde.store.form import Form, Series
from sonde.store.query import Points, Selector, flattened
from sonde.store.reader import ArchiveReader
from sonde.store.tail import Packed, open_block

ALWAYS = (-(2**63), 2**63 - 1)


class Stored(NamedTuple):
    """One series, in order of time."""

    series: Series
    period_ns: int
    times: NDArray[np.int64]
    values: NDArray[Any]  # int64, or float64 when any value is one
    order: NDArray[np.intp] | None = None  # the place of each in the order of recording, where that was another


def read(reader: ArchiveReader, selector: Selector, since_ns: int, until_ns: int) -> list[Stored]:
    """Every series that matches, by name. Damaged blocks are left out and counted by the reader."""
    found = _read(reader, selector, since_ns, until_ns)
    for suffix in ("_bucket", "_count", "_sum"):
        if not found and selector.metric.endswith(suffix):
            others = tuple(matcher for matcher in selector.matchers if matcher.label != "le")
            whole = Selector(selector.metric.removesuffix(suffix), others)
            parts = _read(reader, whole, since_ns, until_ns)
            found = [part for part in parts if selector.matches(part.series)]
    return found


def _read(reader: ArchiveReader, selector: Selector, since_ns: int, until_ns: int) -> list[Stored]:
    selection = reader.selection(selector, since_ns, until_ns)
    stretches = {form_id: _Stretch(form, columns) for form_id, (form, columns) in selection.wanted.items()}
    for number, row in enumerate(selection.rows):
        try:
            stretches[row[0]].add(number, Block(open_block(*row)))
        except (StoreError, ValueError, IndexError, KeyError):
            reader.damaged += 1
    for number, frame in enumerate(selection.tail, len(selection.rows)):
        stretches[frame.form].add_frame(number, frame)
    parts: dict[Series, list[_Part]] = {}
    for stretch in stretches.values():
        for part in stretch.parts(since_ns, until_ns):
            parts.setdefault(part.stored.series, []).append(part)
    return [_joined(parts[series]) for series in sorted(parts)]


class _Part(NamedTuple):
    """A series as far as one layout has it."""

    stored: Stored
    numbers: NDArray[np.int64]  # of the block or frame each value is from: the order of recording


class _Stretch:
    """What was written under one form, in the order of recording."""

    def __init__(self, form: Form, columns: Sequence[tuple[int, Series]]) -> None:
        self._form = form
        types = [form.types[form.order[column]] for column, _ in columns]
        self._integers = [item for item, letter in zip(columns, types, strict=True) if letter == "q"]
        self._floats = [item for item, letter in zip(columns, types, strict=True) if letter == "d"]
        self._mixed = [item for item, letter in zip(columns, types, strict=True) if letter == "m"]
        self._numbers: list[tuple[int, int]] = []  # and how many values it has
        self._times: list[NDArray[np.int64]] = []
        self._rows: list[NDArray[np.int64]] = []
        self._decimals: list[NDArray[np.float64]] = []
        self._objects: list[list[Any]] = [[] for _ in self._mixed]

    def add(self, number: int, block: Block) -> None:
        stored = block.physical()
        fixed = [stored.positions[column + 1] for column, _ in (*self._integers, *self._floats)]
        mixed = [block.column(column) for column, _ in self._mixed]
        values = decoding.integers(stored, [0, *fixed])
        split = 1 + len(self._integers)
        decimals = decoding.floats(values[split:], stored, fixed[split - 1 :])
        self._append(number, values[0], values[1:split], decimals, mixed)

    def add_frame(self, number: int, frame: Packed) -> None:
        values = self._form.unpack(frame.fixed, frame.rest)
        self._append(
            number,
            np.array([frame.time_ns], np.int64),
            np.array([[values[column]] for column, _ in self._integers], np.int64).reshape(-1, 1),
            np.array([[values[column]] for column, _ in self._floats], np.float64).reshape(-1, 1),
            [[values[column]] for column, _ in self._mixed],
        )

    def _append(
        self,
        number: int,
        times: NDArray[np.int64],
        rows: NDArray[np.int64],
        decimals: NDArray[np.float64],
        mixed: Sequence[Sequence[Any]],
    ) -> None:
        self._numbers.append((number, len(times)))
        self._times.append(times)
        self._rows.append(rows)
        self._decimals.append(decimals)
        for objects, more in zip(self._objects, mixed, strict=True):
            objects += more

    def parts(self, since_ns: int, until_ns: int) -> list[_Part]:
        if not self._times:
            return []
        times = np.concatenate(self._times)
        numbers = np.repeat(*np.array(self._numbers, np.int64).T)
        within = (times >= since_ns) & (times <= until_ns)
        inside = slice(None) if within.all() else within
        times, numbers = times[inside], numbers[inside]
        period_ns = self._form.period_ns
        found = []
        for items, matrices in ((self._integers, self._rows), (self._floats, self._decimals)):
            if items and len(times):
                values = np.concatenate(matrices, axis=1)
                values = values[:, inside]
                found += [
                    _Part(Stored(series, period_ns, times, row), numbers)
                    for (_, series), row in zip(items, values, strict=True)
                ]
        for (_, series), objects in zip(self._mixed, self._objects, strict=True):
            kept = objects if isinstance(inside, slice) else [objects[place] for place in np.nonzero(within)[0]]
            found += _mixed_parts(Points(series, period_ns, times.tolist(), kept), numbers)
        return found


def _mixed_parts(points: Points, numbers: NDArray[np.int64]) -> list[_Part]:
    """A column of values of no fixed size: numbers beyond 64 bits, or histograms as their parts."""
    whole = [isinstance(value, Histogram) for value in points.values]
    kept = numbers[np.array(whole, np.bool_)] if any(whole) else numbers
    return [
        _Part(Stored(part.series, part.period_ns, np.array(part.times, np.int64), _numeric(part.values)), kept)
        for part in flattened(points)
        if part.times
    ]


def _numeric(values: Sequence[Any]) -> NDArray[Any]:
    if all(isinstance(value, int) and -(2**63) <= value < 2**63 for value in values):
        return np.array(values, np.int64)
    return np.array([float(value) for value in values], np.float64)


def _joined(parts: Sequence[_Part]) -> Stored:
    if len(parts) == 1:
        return _ordered(parts[0].stored)
    numbers = np.concatenate([part.numbers for part in parts])
    recorded = np.argsort(numbers, kind="stable")
    last = max(parts, key=lambda part: int(part.numbers[-1])).stored
    times = np.concatenate([part.stored.times for part in parts])[recorded]
    values = np.concatenate([part.stored.values for part in parts])[recorded]
    return _ordered(Stored(last.series, last.period_ns, times, values))


def _ordered(stored: Stored) -> Stored:
    if np.all(stored.times[1:] >= stored.times[:-1]):
        return stored
    order = np.argsort(stored.times, kind="stable")
    return stored._replace(times=stored.times[order], values=stored.values[order], order=order)

"""The series of several accounts side by side: laid out once, picked at every tick."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sonde.collectors.account_metrics import Keys
from sonde.model import EMPTY_LAYOUT, Layout, Series, Value
from sonde.shape import picker


class Entry(Protocol):
    """Something that has an account: a job, a container."""

    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    @property
    def values(self) -> list[int | float]:
        """In the order of the keys."""
        ...


class Roster:
    """`layout` is replaced only when the series are other ones than before."""

    def __init__(self, table: Keys) -> None:
        self._table = table
        self._fixed: list[int | float] = []
        self._shape: object = None
        self._pick = picker(())
        self.layout = EMPTY_LAYOUT

    def arrange(self, fixed: Sequence[tuple[Series, int]], entries: Sequence[Entry]) -> None:
        """Lay out the series whose values are known now, then those of the accounts."""
        self._fixed = [value for _, value in fixed]
        series: list[Series] = [one for one, _ in fixed]
        order = list(range(len(series)))
        flat = [(number, key) for number, entry in enumerate(entries) for key in entry.keys]
        position = {place: at for at, place in enumerate(flat, start=len(series))}
        for key, (spec, extra) in self._table.items():
            for number, entry in enumerate(entries):
                if (number, key) in position:
                    series.append((spec, (*entry.labels, *extra)))
                    order.append(position[number, key])
        shape = (series, order)
        if shape != self._shape:
            self._shape = shape
            self.layout = Layout(series)
            self._pick = picker(order)

    def values(self, entries: Sequence[Entry]) -> Sequence[Value]:
        picked: Sequence[Value] = self._pick([*self._fixed, *(value for entry in entries for value in entry.values)])
        return picked

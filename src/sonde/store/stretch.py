"""The ticks of one form that are in the archive's tail and not yet in a block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sonde.clock import NS
from sonde.model import Value
from sonde.store.form import Form
from sonde.store.tail import Batch, Packed

BLOCK_TICKS = 60  # a shorter block costs more than it saves: its first values do not compress
_FAST_TICKS = 120  # for collectors faster than 1 s: 6 % smaller than 60, and still only 12 s at 10 Hz


class Written(NamedTuple):
    """A batch that is in the tail."""

    batch: Batch
    times: Sequence[int]
    data: bytes
    rest: Sequence[Sequence[Value]]  # of each frame; empty when nothing is of no fixed size


class Share(NamedTuple):
    """The part of one form in batches that were packed alike."""

    written: Sequence[Written]
    number: int  # of the frame in each of them
    start: int  # of its fixed values in the data
    end: int


class Stretch:
    """Refers to the batches it is part of, and copies its own values out of them when they are asked for.

    A copy of everything beside the batches, kept from the review to the commit, came to 0.3 MB once a minute: 0.1 MB
    more that stayed resident.
    """

    __slots__ = ("_own", "_shares", "count", "form", "target")

    def __init__(self, form: Form) -> None:
        self.form = form
        self.target = BLOCK_TICKS if form.period_ns >= NS else _FAST_TICKS
        self.count = 0
        self._own: list[Packed] = []  # the oldest, of batches that are gone
        self._shares: list[Share] = []

    def append(self, tick: Packed) -> None:
        """A tick that was in the tail before this writer began."""
        self._own.append(tick)
        self.count += 1

    def add(self, share: Share) -> None:
        self._shares.append(share)
        self.count += len(share.written)

    def ticks(self) -> list[Packed]:
        form_id = self.form.id
        ticks = self._own.copy()
        for written, number, start, end in self._shares:
            ticks += [
                Packed(form_id, times[number], data[start:end], rest[number] if rest else ())
                for _, times, data, rest in written
            ]
        return ticks

    def let_go(self) -> int:
        """Copy what is ours, so that the batches can be freed; its bytes."""
        self._own, self._shares = self.ticks(), []
        return sum([len(tick.fixed) for tick in self._own])

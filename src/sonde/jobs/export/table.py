"""A recording as one wide table: `host`, `time`, and a column per series; one node after the other.

    host  time                            node_load1  node_network_receive_bytes_total{device="eth0"}
    n1    2026-09-21T14:13:20.000184213Z  0.25        10000
    n1    2026-09-21T14:13:21.000153778Z  1.25

A row is a tick: collectors that are due together are read one after the other, so their times differ by some
microseconds, and the row has the first of them. A value that was not read is null. docs/adr/0029 has the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sonde.errors import Unavailable
from sonde.jobs.export.choice import Choice, Chosen, Gap, chosen, column_name
from sonde.jobs.recording import Recording
from sonde.jobs.stored import Stored
from sonde.store.form import Series

_WINDOW = 2  # a row spans half a period: the same series cannot come twice in it, unless a tick was late


class Field(NamedTuple):
    """A column behind host and time."""

    name: str
    series: Series
    integral: bool  # int64, else float64


class Cells(NamedTuple):
    values: NDArray[Any]  # NaN, or 0 in an integral one, where there is none
    missing: NDArray[np.bool_] | None  # None: all are there


class Rows(NamedTuple):
    """The part of one node."""

    host: str
    times: NDArray[np.int64]  # Unix nanoseconds, ascending
    cells: list[Cells]  # one for each field


class Table:
    """Reads the recording twice: for the columns there are, and node by node for the rows. Memory is one node's."""

    def __init__(
        self, recording: Recording, choice: Choice, tell: Callable[[float], None] = lambda share: None
    ) -> None:
        self.recording = recording
        self.choice = choice
        self.gaps: list[Gap] = []
        self.notes: list[tuple[str, str]] = []  # host and text
        self.values = 0
        self.damaged = 0
        self._tell = tell
        self._kept: Chosen | None = None  # of a recording of one node
        self.fields = self._survey()

    def _survey(self) -> list[Field]:
        nodes = self.recording.nodes
        self.notes += [(host, "this node of the job has left no recording") for host in self.recording.missing]
        integral: dict[Series, bool] = {}
        for number, node in enumerate(nodes):
            found = chosen(node, self.choice)
            self.gaps += found.gaps
            self.damaged += found.damaged
            self.notes += [(node.host, note) for note in found.notes]
            for one in found.series:
                whole = one.values.dtype == np.int64
                integral[one.series] = integral.get(one.series, True) and whole
                self.values += len(one.times)
            self._kept = found if len(nodes) == 1 else None
            self._tell((number + 1) / len(nodes) / 4)
        if not integral:
            raise Unavailable(
                f"{self.recording.path} has no values of that choice",
                hint="leave --select away, or see what there is: sonde query --list --archive DIR/NODE/archive.db",
            )
        return [Field(column_name(series, self.recording), series, integral[series]) for series in sorted(integral)]

    def chosen(self) -> Iterator[tuple[str, list[Stored]]]:
        """Each node's series with the times of their own: for formats of one row per value."""
        nodes = self.recording.nodes
        for number, node in enumerate(nodes):
            found = self._kept or chosen(node, self.choice)
            yield node.host, found.series
            self._tell(0.25 + 0.75 * (number + 1) / len(nodes))

    def rows(self) -> Iterator[Rows]:
        """Each node's rows."""
        for host, found in self.chosen():
            yield _pivoted(host, found, self.fields)


def _pivoted(host: str, found: Sequence[Stored], fields: Sequence[Field]) -> Rows:
    rows = ticks(found)
    by_series = {one.series: one for one in found}
    cells = [_cells(by_series.get(field.series), rows, integral=field.integral) for field in fields]
    return Rows(host, rows, cells)


def _cells(one: Stored | None, rows: NDArray[np.int64], *, integral: bool) -> Cells:
    blank = np.zeros(len(rows), np.int64) if integral else np.full(len(rows), np.nan)
    if one is None:
        return Cells(blank, np.ones(len(rows), np.bool_))
    places = np.searchsorted(rows, one.times, side="right") - 1
    blank[places] = one.values
    if len(places) == len(rows):
        return Cells(blank, None)
    missing = np.ones(len(rows), np.bool_)
    missing[places] = False
    return Cells(blank, missing)


def ticks(found: Sequence[Stored]) -> NDArray[np.int64]:
    """The begin of each row, such that no series has two values in one."""
    if not found:
        return np.empty(0, np.int64)
    courses = list({id(one.times): one.times for one in found}.values())  # series of one source share theirs
    times = np.unique(np.concatenate(courses))
    window = max(1, min(one.period_ns for one in found) // _WINDOW)
    forced = np.empty(0, np.int64)
    while True:
        rows = _begins(times, window, forced)
        twice = np.unique(np.concatenate([_second(rows, course) for course in courses]))
        # Of a row only the first that comes again begins a new one: what is read just after it belongs to that.
        first = np.unique(np.searchsorted(rows, twice, side="right"), return_index=True)[1]
        more = np.union1d(forced, twice[first])
        if len(more) == len(forced):
            return rows
        forced = more


def _begins(times: NDArray[np.int64], window: int, forced: NDArray[np.int64]) -> NDArray[np.int64]:
    ends = np.searchsorted(times, times + window).tolist()  # for each time, the first one that is too far from it
    stops = [*np.searchsorted(times, forced).tolist(), len(times)]
    begins = []
    place = stop = 0
    while place < len(times):
        begins.append(place)
        while stops[stop] <= place:
            stop += 1
        place = min(ends[place], stops[stop])
    return times[np.array(begins, np.intp)]


def _second(rows: NDArray[np.int64], course: NDArray[np.int64]) -> NDArray[np.int64]:
    """The times that fall into a row that has one of the same series already."""
    places = np.searchsorted(rows, course, side="right")
    second: NDArray[np.int64] = course[1:][places[1:] == places[:-1]]
    return second

"""Series of one node's archive as lists, with numpy's help where it is installed and without where it is not.

Metrics that every CPU has are folded as they are read: a node of 128 CPUs has 1,024 series of CPU time, of which a
report wants eight. Both ways give the same values; with numpy a node's hour of 60 series takes a quarter of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.store import query
from sonde.store.form import Series
from sonde.store.query import Points, Selector
from sonde.store.reader import ArchiveReader

if TYPE_CHECKING:
    from sonde.jobs.stored import Stored

ALWAYS = (-(2**63), 2**63 - 1)
# Added up over all labels but these. Series of other times than the first keep to themselves.
_FOLDED = {"node_cpu_seconds_total": ("mode",), "node_cpu_scaling_frequency_hertz": ()}


class Read(NamedTuple):
    points: list[Points]
    folded: dict[str, int]  # of each folded metric: how many series were added up, of the group that had most


def read(reader: ArchiveReader, selector: Selector, offset_ns: int, *, numpy: bool | None = None) -> Read:
    """In order of time, on the gatherer's clock: `offset_ns` is what the node's is ahead."""
    if find_spec("numpy") is not None if numpy is None else numpy:
        return _read_arrays(reader, selector, offset_ns)
    found = [query.in_order(points) for points in reader.read(selector, *ALWAYS)]
    if offset_ns:
        for points in found:
            points.times = [time - offset_ns for time in points.times]
    folded = _Folded()
    kept = [points for points in found if not folded.takes(points.series, points.times, points)]
    return Read(kept + [_added(key, group) for key, group in folded.groups.items()], folded.counts())


def _added(series: Series, group: Sequence[Points]) -> Points:
    values = list(map(sum, zip(*[points.values for points in group], strict=True)))
    return Points(series, group[0].period_ns, group[0].times, values)


def _read_arrays(reader: ArchiveReader, selector: Selector, offset_ns: int) -> Read:
    from sonde.jobs import stored

    lists = _Lists(offset_ns)
    folded = _Folded()
    kept = [
        Points(one.series, one.period_ns, lists.of(one.times), one.values.tolist())
        for one in stored.read(reader, selector, *ALWAYS)
        if not folded.takes(one.series, one.times.tobytes(), one)
    ]
    return Read(kept + [_added_arrays(key, group, lists) for key, group in folded.groups.items()], folded.counts())


def _added_arrays(series: Series, group: Sequence[Stored], lists: _Lists) -> Points:
    values: Any = sum(one.values for one in group)
    return Points(series, group[0].period_ns, lists.of(group[0].times), values.tolist())


class _Lists:
    """Times as lists. The series of a collector share theirs: the list is made once."""

    def __init__(self, offset_ns: int) -> None:
        self._offset_ns = offset_ns
        self._made: dict[int, tuple[Any, list[int]]] = {}  # by identity; the array is kept, so that it stays its own

    def of(self, times: Any) -> list[int]:
        made = self._made.get(id(times))
        if made is None:
            made = self._made[id(times)] = (times, (times - self._offset_ns).tolist())
        return made[1]


class _Folded:
    def __init__(self) -> None:
        self.groups: dict[Series, list[Any]] = {}
        self._times: dict[Series, object] = {}

    def takes(self, series: Series, times: object, one: Any) -> bool:
        """Whether the series is added to a group: it is of a folded metric and has the times of its first."""
        labels = _FOLDED.get(series.metric)
        if labels is None:
            return False
        key = series._replace(labels=tuple(pair for pair in series.labels if pair[0] in labels))
        if self._times.setdefault(key, times) != times:
            return False
        self.groups.setdefault(key, []).append(one)
        return True

    def counts(self) -> dict[str, int]:
        return _largest((key.metric, len(group)) for key, group in self.groups.items())


def _largest(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, count in pairs:
        found[name] = max(count, found.get(name, 0))
    return found

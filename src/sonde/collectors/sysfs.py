"""Numbers from the one-value files of /sys, and series found in the order of directories put together by metric.

    /sys/class/thermal/thermal_zone0/temp     48000\\n
    /sys/class/infiniband/mlx5_0/ports/1/hw_counters/np_cnp_sent     318223\\n

A file says that it has no value in several ways: it is not there, or reading it fails with ENODEV, EINVAL, ENODATA or
whatever its driver thinks fit. None of them is 0.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from sonde.errors import ParseError
from sonde.model import EMPTY_LAYOUT, Gap, Layout, Quality, Reading, Series, Value
from sonde.shape import picker

Scale = Callable[[int], Value]

_QUALITIES = {
    errno.EACCES: Quality.DENIED,
    errno.EPERM: Quality.DENIED,
    errno.EOPNOTSUPP: Quality.UNSUPPORTED,
}
_GONE = (errno.ENOENT, errno.ENODEV, errno.ENXIO)  # younger than this kernel, not of this driver, or unplugged just now


def thousands(number: int) -> Value:
    return number * 1000


def thousandths(number: int) -> Value:
    return number / 1000


def millionths(number: int) -> Value:
    return number / 1_000_000


def parse_number(source: str, text: bytes) -> int:
    """A decimal number, with a sign perhaps, and the newline behind it."""
    digits = text.strip()
    if not digits.removeprefix(b"-").isdigit() or len(digits) > 20:
        raise ParseError(source, text)
    return int(digits)


def gap_of(file: str, error: OSError, series: Series) -> Gap | None:
    """Why a file could not be read; None when there is nothing to be told because it is not there."""
    if error.errno in _GONE:
        return None
    return Gap(*series, _QUALITIES.get(error.errno or 0, Quality.BLANK), f"{file}: {error.strerror}")


class Findings:
    """What one tick has found, in the order of reading."""

    __slots__ = ("gaps", "series", "values")

    def __init__(self) -> None:
        self.series: list[Series] = []
        self.values: list[Value] = []
        self.gaps: list[Gap] = []

    def add(self, series: Series, value: Value) -> None:
        self.series.append(series)
        self.values.append(value)

    def take(self, file: str, answer: bytes | OSError, series: Series, scale: Scale | None = None) -> None:
        """Add the number in a file, or the reason why there is none."""
        if isinstance(answer, OSError):
            gap = gap_of(file, answer, series)
            if gap is not None:
                self.gaps.append(gap)
            return
        try:
            number = parse_number(file, answer)
        except ParseError:
            words = answer.decode("utf-8", "replace").strip()[:80]
            self.gaps.append(Gap(*series, Quality.BLANK, f"{file}: {words or 'empty'}"))
            return
        self.series.append(series)
        self.values.append(scale(number) if scale else number)

    def extend(self, others: Findings) -> None:
        self.series += others.series
        self.values += others.values
        self.gaps += others.gaps


class Arrangement:
    """The series of one metric side by side, whatever order they are read in.

    The layout stays the same object as long as the same series are found. Where a collector makes its series once and
    finds the same objects at every tick, that is one comparison of pointers per series.
    """

    __slots__ = ("_layout", "_pick", "_series")

    def __init__(self) -> None:
        self._series: list[Series] = []
        self._layout = EMPTY_LAYOUT
        self._pick = picker(())

    def reading(self, found: Findings) -> Reading:
        if found.series != self._series:
            first: dict[object, int] = {}
            for spec, _ in found.series:
                first.setdefault(spec, len(first))
            places = sorted(range(len(found.series)), key=lambda at: first[found.series[at][0]])
            self._layout = Layout(found.series[at] for at in places)
            self._pick = picker(places)
            self._series = found.series
        return Reading(self._layout, self._pick(found.values), (), found.gaps)

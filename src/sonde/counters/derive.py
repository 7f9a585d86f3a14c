"""What counts come to: scaled to the whole time, and put into the formulas of the processor.

A group that was on the counters for a part of the time only is scaled up: count × enabled / running. What was never on
them has no value. Both times and the count are differences over the same interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sonde.counters.catalogue import Catalogue
from sonde.counters.formula import Formula
from sonde.model import Quality


class Count(NamedTuple):
    """What one event has counted in an interval."""

    value: int | float
    enabled: float  # in whatever unit `running` has
    running: float

    @property
    def scaled(self) -> float | None:
        if not self.enabled:
            return float(self.value)  # nothing was to be counted: 0, or events of no measurable time
        return self.value * (self.enabled / self.running) if self.running > 0 else None

    @property
    def share(self) -> float:
        return min(1.0, self.running / self.enabled) if self.enabled else 1.0


class Result(NamedTuple):
    name: str
    unit: str
    value: float
    quality: Quality
    share: float  # of the time that was counted: the least of the events it needs
    help: str


def derive(catalogue: Catalogue, counts: Mapping[tuple[str, str], Count], seconds: float) -> list[Result]:
    """Every formula whose events have counts, by part and event name; what has no value is left out."""
    results = []
    for name, group, expression, unit, help in catalogue.formulas:
        formula = Formula(expression)
        found = needed(formula, group, counts)
        if found is None:
            continue
        used = {event: counts[key] for event, key in found.items()}
        values = {event: scaled for event, count in used.items() if (scaled := count.scaled) is not None}
        value = formula.value({**values, "seconds": seconds})
        if value is not None:
            share = min((count.share for count in used.values()), default=1.0)
            quality = Quality.OK if share >= 1 else Quality.MULTIPLEXED
            results.append(Result(name, unit, value, quality, share, help))
    return results


def needed(formula: Formula, group: str, keys: Iterable[tuple[str, str]]) -> dict[str, tuple[str, str]] | None:
    """Where the events of a formula are: in its own group (`topdown`, `topdown_2`), else in any; None when one is not.

    Of its own group first, so that a ratio is of the same moments.
    """
    places: dict[str, tuple[str, str]] = {}
    for part, event in keys:
        if event in formula.names and (event not in places or _belongs(part, group)):
            places[event] = (part, event)
    return places if places.keys() == formula.names - {"seconds"} else None


def _belongs(part: str, group: str) -> bool:
    return part == group or (part.rpartition("_")[0] == group and part.rpartition("_")[2].isdigit())

"""Rates and ratios of a recorded node's counters, from its series sonde_perf_*, by the formulas of its processor.

    sonde_perf_info{microarchitecture="skylake_sp"}              which formulas
    sonde_perf_events_total{event="cycles",group="core",…}       raw counts
    sonde_perf_enabled_seconds_total{group="core",…}             and the times to scale them by
    sonde_perf_running_seconds_total{group="core",…}

Each interval is scaled by its own times. An interval in which a group was never on the counters, one with a counter set
back and one longer than 2.5 periods have no value (NaN).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sonde.counters import catalogue
from sonde.counters.derive import Count, derive, needed
from sonde.counters.formula import Arithmetic, Formula
from sonde.jobs.columns import Column

PREFIX = "sonde_perf_"
_INFO, _EVENTS = f"{PREFIX}info", f"{PREFIX}events_total"
_ENABLED, _RUNNING = f"{PREFIX}enabled_seconds_total", f"{PREFIX}running_seconds_total"
_BRIDGED_PERIODS = 2.5
_NS = 1e9

Whom = tuple[tuple[str, str], ...]
Key = tuple[str, str]  # part and event


class Derived(NamedTuple):
    """One formula over time, for one scope; `shares` is what part of the time was counted."""

    name: str
    unit: str
    labels: Mapping[str, str]  # scope, job_id, scheduler, pid, cpu, mode
    times: NDArray[np.int64]  # the ends of the intervals
    values: NDArray[np.float64]
    shares: NDArray[np.float64]
    help: str


class Total(NamedTuple):
    """One formula over all the time that was recorded."""

    name: str
    unit: str
    labels: Mapping[str, str]
    value: float
    share: float
    help: str


class _Scope:
    """The series of one scope."""

    def __init__(self) -> None:
        self.events: dict[Key, Column] = {}
        self.enabled: dict[str, Column] = {}
        self.running: dict[str, Column] = {}

    def complete(self) -> list[Key]:
        return [key for key in self.events if key[0] in self.enabled and key[0] in self.running]


def derived(columns: Sequence[Column]) -> list[Derived]:
    """Every formula for every scope, interval by interval."""
    return list(_derived(columns))


def _derived(columns: Sequence[Column]) -> Iterator[Derived]:
    found = _catalogue(columns)
    for whom, scope in _scopes(columns).items():
        for entry in found.formulas:
            formula = Formula(entry.expression)
            places = needed(formula, entry.group, scope.complete())
            if places:
                times, values, shares = _series(formula, places, scope)
                if len(times):
                    yield Derived(entry.name, entry.unit, dict(whom), times, values, shares, entry.help)


def totals(columns: Sequence[Column]) -> list[Total]:
    """Every formula for every scope, over the whole of the recorded time."""
    found = _catalogue(columns)
    result: list[Total] = []
    for whom, scope in _scopes(columns).items():
        times = [column.times for column in scope.events.values() if len(column.times)]
        if not times:
            continue
        seconds = (max(t[-1] for t in times) - min(t[0] for t in times)) / _NS
        counts = {
            key: Count(_increase(scope.events[key]), _increase(scope.enabled[key[0]]), _increase(scope.running[key[0]]))
            for key in scope.complete()
        }
        result += [
            Total(one.name, one.unit, dict(whom), one.value, one.share, one.help)
            for one in derive(found, counts, float(seconds))
        ]
    return result


def _catalogue(columns: Sequence[Column]) -> catalogue.Catalogue:
    """The formulas of the processor that the node said it has; those of any when it is not known here."""
    name = next((column.labels.get("microarchitecture", "") for column in columns if column.name == _INFO), "")
    return catalogue.load(name if name in catalogue.names() else catalogue.GENERIC)


def _scopes(columns: Sequence[Column]) -> dict[Whom, _Scope]:
    scopes: dict[Whom, _Scope] = {}
    for column in columns:
        if column.name not in (_EVENTS, _ENABLED, _RUNNING):
            continue
        whom = tuple((name, value) for name, value in column.labels.items() if name not in ("event", "group"))
        scope = scopes.setdefault(whom, _Scope())
        part = column.labels.get("group", "")
        if column.name == _EVENTS:
            scope.events[part, column.labels.get("event", "")] = column
        else:
            (scope.enabled if column.name == _ENABLED else scope.running)[part] = column
    return scopes


def _series(
    formula: Formula, places: Mapping[str, Key], scope: _Scope
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Times, values and shares of a formula, at the times that all it needs have a value."""
    used = [scope.events[key] for key in places.values()]
    used += [times[part] for part, _ in places.values() for times in (scope.enabled, scope.running)]
    common = used[0].times
    for column in used[1:]:
        common = np.intersect1d(common, column.times)
    if len(common) < 2:
        return np.empty(0, np.int64), np.empty(0), np.empty(0)
    elapsed = np.diff(common)
    operands: dict[str, Any] = {"seconds": elapsed / _NS}
    shares = np.ones(len(elapsed))
    with np.errstate(all="ignore"):
        for event, key in places.items():
            enabled, running = _steps(scope.enabled[key[0]], common), _steps(scope.running[key[0]], common)
            factor = np.where(enabled > 0, np.where(running > 0, enabled / running, np.nan), 1.0)
            operands[event] = _steps(scope.events[key], common) * factor
            shares = np.fmin(shares, np.where(enabled > 0, running / enabled, 1.0))
        values = np.asarray(formula.compute(operands, _ARRAYS), np.float64) + np.zeros(len(elapsed))
    values[~np.isfinite(values) | (elapsed > _BRIDGED_PERIODS * np.median(elapsed))] = np.nan
    return common[1:], values, shares


def _steps(column: Column, times: NDArray[np.int64]) -> NDArray[np.float64]:
    steps: NDArray[np.float64] = np.diff(column.values[np.searchsorted(column.times, times)])
    return np.where(steps < 0, np.nan, steps)


def _increase(column: Column) -> float:
    """What was counted in all: each step up; what a counter that was set back had counted before stays counted."""
    steps = np.diff(column.values)
    return float(np.nansum(np.where(steps < 0, column.values[1:], steps))) if len(steps) else 0.0


_ARRAYS = Arithmetic(np.divide, np.minimum, np.maximum)

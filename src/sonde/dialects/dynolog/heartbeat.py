"""dynolog's heartbeat of the processor: instructions and cycles per second of an average CPU, in millions.

    sonde_perf_events_total{event="instructions",group="core",scope="system"} 9.1e12   ->  mips 2811.4
    sonde_perf_running_seconds_total{group="core",scope="system"} 3250.1               ->  mega_cycles_per_second 2402.7

Counts over the time they were counted in, so they need no scaling. Over the time since the sample before: dynolog takes
the time since it began, and so shows an ever slower average.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sonde.dialects.dynolog import names
from sonde.model import EMPTY_LAYOUT, Frame, Gap, Layout, MetricSpec, Quality, Series
from sonde.shape import picker

_EVENTS = "sonde_perf_events_total"
_RUNNING = "sonde_perf_running_seconds_total"
_SPECS: dict[str, MetricSpec] = {"instructions": names.MIPS, "cycles": names.MEGACYCLES}
_OWN = ("event", "group", "scope", "job_id", "scheduler", "pid", "cpu", "mode")
_MILLION = 1_000_000


class _Plan(NamedTuple):
    counts: list[Callable[[Any], Any]]  # by event, over all CPUs
    times: Callable[[Any], Any]
    layout: Layout
    missing: tuple[MetricSpec, ...]


class HeartbeatTranslation:
    def __init__(self) -> None:
        self._known: Layout | None = None
        self._plan = _Plan([], picker(()), EMPTY_LAYOUT, tuple(_SPECS.values()))
        self._before: tuple[list[int | float], float] | None = None

    def __call__(self, frame: Frame) -> Frame | None:
        if frame.layout is not self._known:
            self._known = frame.layout
            plan = _plan(frame.layout)
            if list(plan.layout) != list(self._plan.layout):
                self._before = None
            elif plan.layout:
                plan = plan._replace(layout=self._plan.layout)
            self._plan = plan
        before, self._before = self._before, self._now(frame)
        gaps = tuple(self._gaps(frame))
        counts, seconds = self._before
        passed = seconds - before[1] if before is not None else 0.0
        if before is None or passed <= 0 or any(new < old for new, old in zip(counts, before[0], strict=True)):
            return self._answer(frame, EMPTY_LAYOUT, [], gaps) if gaps else None
        rates = [(new - old) / _MILLION / passed for new, old in zip(counts, before[0], strict=True)]
        return self._answer(frame, self._plan.layout, rates, gaps)

    def _now(self, frame: Frame) -> tuple[list[int | float], float]:
        plan = self._plan
        return [sum(pick(frame.values)) for pick in plan.counts], float(sum(plan.times(frame.values)))

    def _gaps(self, frame: Frame) -> list[Gap]:
        """What is not counted here, in dynolog's names: unsupported, and not 0."""
        if not self._plan.missing:
            return []
        told = next((gap for gap in frame.gaps if gap.spec.name == _EVENTS and not gap.labels), None)
        quality = told.quality if told else Quality.UNSUPPORTED
        reason = told.reason if told else "not counted for all CPUs"
        return [Gap(spec, (), quality, reason) for spec in self._plan.missing]

    @staticmethod
    def _answer(frame: Frame, layout: Layout, values: list[float], gaps: tuple[Gap, ...]) -> Frame:
        return Frame(frame.source, frame.time_ns, frame.took_ns, frame.period_ns, layout, values, (), gaps)


def _plan(layout: Layout) -> _Plan:
    """Where the counts of all CPUs and their times are. Of the group `core`, whose events are counted together."""
    places: dict[str, list[int]] = {event: [] for event in _SPECS}
    times: list[int] = []
    for index, series in enumerate(layout):
        name = series[0].name
        if name not in (_EVENTS, _RUNNING) or _own(series, "scope") != "system" or _own(series, "group") != "core":
            continue
        if name == _RUNNING:
            times.append(index)
        elif _own(series, "event") in places:
            places[_own(series, "event")].append(index)
    found = {event: indexes for event, indexes in places.items() if indexes}
    first = next((layout[indexes[0]] for indexes in found.values()), None)
    more = names.constants(first, _OWN) if first else ()
    said = names.layout_of([(_SPECS[event], ()) for event in found], more)
    missing = tuple(spec for event, spec in _SPECS.items() if event not in found)
    return _Plan([picker(indexes) for indexes in found.values()], picker(times), said, missing)


def _own(series: Series, label: str) -> str:
    spec, labels = series
    return labels[spec.labels.index(label)]

"""Which metrics of a frame a sink wants, worked out once per layout."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import translate
from typing import Any, NamedTuple

from sonde.model import EMPTY_LAYOUT, Frame, Layout, MetricSpec
from sonde.shape import picker


class _Plan(NamedTuple):
    """What is wanted of a layout, and how its values are picked."""

    layout: Layout
    chosen: Layout
    pick: Callable[[Any], Any]


class Selection:
    """Shell patterns over metric names: in when an include matches (or there is none) and no exclude does."""

    def __init__(self, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> None:
        self._include = _any_of(include)
        self._exclude = _any_of(exclude)
        self._plans: dict[str, _Plan] = {}  # of the layout each source had last

    @property
    def everything(self) -> bool:
        return self._include is None and self._exclude is None

    def wants(self, spec: MetricSpec) -> bool:
        if self._include is not None and not self._include.match(spec.name):
            return False
        return self._exclude is None or not self._exclude.match(spec.name)

    def apply(self, frame: Frame) -> Frame | None:
        """The frame with what is wanted of it; None when nothing is (events always are)."""
        if self.everything:
            return frame
        source, time_ns, took_ns, period_ns, layout, values, events, gaps = frame
        plan = self._plans.get(source)
        if plan is None or plan.layout is not layout:
            plan = self._plans[source] = self._plan(layout)
        if plan.chosen is layout:
            return frame
        if not plan.chosen:
            return self._events_only(frame)
        if gaps:
            gaps = tuple(gap for gap in gaps if self.wants(gap.spec))
        return Frame(source, time_ns, took_ns, period_ns, plan.chosen, plan.pick(values), events, gaps)

    def _plan(self, layout: Layout) -> _Plan:
        wanted = [index for index, (spec, _) in enumerate(layout) if self.wants(spec)]
        chosen = layout if len(wanted) == len(layout) else Layout(layout[index] for index in wanted)
        return _Plan(layout, chosen, picker(wanted))

    @staticmethod
    def _events_only(frame: Frame) -> Frame | None:
        return frame._replace(layout=EMPTY_LAYOUT, values=(), gaps=()) if frame.events else None


def _any_of(patterns: Sequence[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(translate(pattern) for pattern in patterns)) if patterns else None

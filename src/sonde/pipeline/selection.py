"""Which metrics of a frame a sink wants, worked out once per layout."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import translate
from typing import Any
from weakref import WeakKeyDictionary

from sonde.model import Frame, Layout, MetricSpec
from sonde.shape import picker

Pick = Callable[[Any], Any]
_WHOLE: tuple[None, None] = (None, None)


class Selection:
    """Shell patterns over metric names: in when an include matches (or there is none) and no exclude does."""

    def __init__(self, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> None:
        self._include = _any_of(include)
        self._exclude = _any_of(exclude)
        self._plans: WeakKeyDictionary[Layout, tuple[Layout | None, Pick | None]] = WeakKeyDictionary()

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
        layout, pick = self._plans.get(frame.layout) or self._plan(frame.layout)
        if pick is None or layout is None:
            return frame if layout is not None else self._events_only(frame)
        gaps = tuple(gap for gap in frame.gaps if self.wants(gap.spec))
        return frame._replace(layout=layout, values=pick(frame.values), gaps=gaps)

    def _plan(self, layout: Layout) -> tuple[Layout | None, Pick | None]:
        wanted = [index for index, (spec, _) in enumerate(layout) if self.wants(spec)]
        plan: tuple[Layout | None, Pick | None]
        if len(wanted) == len(layout):
            plan = (layout, None)
        elif wanted:
            plan = (Layout(layout[index] for index in wanted), picker(wanted))
        else:
            plan = _WHOLE
        self._plans[layout] = plan
        return plan

    @staticmethod
    def _events_only(frame: Frame) -> Frame | None:
        return frame._replace(layout=Layout(()), values=(), gaps=()) if frame.events else None


def _any_of(patterns: Sequence[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(translate(pattern) for pattern in patterns)) if patterns else None

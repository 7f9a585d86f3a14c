"""Which metrics of a frame a sink wants and what it calls them, worked out once per layout."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import translate
from types import MappingProxyType
from typing import Any, NamedTuple

from sonde.config import SinkConfig
from sonde.errors import ConfigError
from sonde.model import EMPTY_LAYOUT, Frame, Layout, MetricSpec, Series
from sonde.shape import picker

log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:.]*")  # Prometheus' rule, and the dots of OpenTelemetry


class _Plan(NamedTuple):
    """What is wanted of a layout, and how its values are picked."""

    layout: Layout
    chosen: Layout
    pick: Callable[[Any], Any]


class Selection:
    """Shell patterns over metric names: in when an include matches (or there is none) and no exclude does.

    `rename` gives a metric the name the sink's readers know it by; the patterns see the name it has here. A name that
    another metric of the stream turns out to have is not given: readers could not tell the two apart.
    """

    def __init__(
        self,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        rename: Mapping[str, str] = MappingProxyType({}),
        *,
        key: str = "rename",
    ) -> None:
        """`key` is the dotted name of `rename` in the configuration, for the log."""
        self._include = _any_of(include)
        self._exclude = _any_of(exclude)
        self._rename = dict(_checked(rename))
        self._key = key
        self._seen: set[str] = set()  # names of what is wanted, before the renaming; kept while something is renamed
        self._specs: dict[MetricSpec, MetricSpec] = {}  # those that have got another name
        self._plans: dict[str, _Plan] = {}  # of the layout each source had last

    @property
    def everything(self) -> bool:
        """Is every frame wanted just as it is?"""
        return self._include is None and self._exclude is None and not self._rename

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
        if plan.chosen is layout and not self._rename:
            return frame
        if not plan.chosen:
            return self._events_only(frame)
        if gaps:
            gaps = tuple(gap._replace(spec=self._named(gap.spec)) for gap in gaps if self.wants(gap.spec))
        return Frame(source, time_ns, took_ns, period_ns, plan.chosen, plan.pick(values), events, gaps)

    def _plan(self, layout: Layout) -> _Plan:
        wanted = [index for index, (spec, _) in enumerate(layout) if self.wants(spec)]
        if self._rename:
            self._seen.update(layout[index][0].name for index in wanted)
            self._keep_apart()
        same = len(wanted) == len(layout) and not any(spec.name in self._rename for spec, _ in layout)
        chosen = layout if same else Layout(self._renamed(layout[index]) for index in wanted)
        return _Plan(layout, chosen, picker(wanted))

    def _keep_apart(self) -> None:
        """Give up renaming onto a name that another metric has and keeps; what is given up may be in the way too."""
        while clashes := [old for old, new in self._rename.items() if self._taken(old, new)]:
            for old in clashes:
                new = self._rename.pop(old)
                log.warning("%s.%s: there is another metric called %s, so %s keeps its name", self._key, old, new, old)
            self._plans.clear()  # of other sources: made before the other metric was seen

    def _taken(self, old: str, new: str) -> bool:
        return old != new and old in self._seen and new in self._seen and new not in self._rename

    def _renamed(self, series: Series) -> Series:
        spec, labels = series
        return self._named(spec), labels

    def _named(self, spec: MetricSpec) -> MetricSpec:
        name = self._rename.get(spec.name)
        if name is None:
            return spec
        if spec not in self._specs:
            self._specs[spec] = MetricSpec(name, spec.kind, spec.unit, spec.help, spec.labels)
        return self._specs[spec]

    @staticmethod
    def _events_only(frame: Frame) -> Frame | None:
        return frame._replace(layout=EMPTY_LAYOUT, values=(), gaps=()) if frame.events else None


class Sieve:
    """What of the frames of a stream a sink gets: its metrics, under its names, and not more often than it wants."""

    def __init__(self, selection: Selection, min_period_ns: int = 0) -> None:
        self._selection = selection
        self._min_period_ns = min_period_ns
        self._last: dict[str, int] = {}
        self.everything = selection.everything and not min_period_ns

    def pass_on(self, frames: Iterable[Frame]) -> list[Frame]:
        passed = []
        for frame in frames:
            if self._min_period_ns and not self._due(frame):
                continue
            chosen = self._selection.apply(frame)
            if chosen is not None:
                # Who reads this sees a slower source, and must not call it stale in between.
                slower = self._min_period_ns > chosen.period_ns
                passed.append(chosen._replace(period_ns=self._min_period_ns) if slower else chosen)
        return passed

    def _due(self, frame: Frame) -> bool:
        # A tenth of slack: two ticks of one pace are rarely exactly a period apart.
        last = self._last.get(frame.source)
        if last is not None and 0 <= frame.time_ns - last < self._min_period_ns - frame.period_ns // 10:
            return bool(frame.events)
        self._last[frame.source] = frame.time_ns
        return True


def sieve_for(name: str, common: SinkConfig) -> Sieve:
    """The sieve of a sink's configuration. Raises ConfigError naming the key."""
    try:
        selection = Selection(common.include, common.exclude, common.rename, key=f"sinks.{name}.rename")
        return Sieve(selection, common.min_period.ns)
    except ConfigError as error:
        raise ConfigError(f"sinks.{name}.{error}") from None


def _checked(rename: Mapping[str, str]) -> Mapping[str, str]:
    """Two metrics must not become one, nor one take a name that Prometheus and OpenTelemetry both refuse."""
    taken: dict[str, str] = {}
    for old, new in rename.items():
        if not _NAME.fullmatch(new):
            raise ConfigError(f"rename.{old}: {new!r} cannot be the name of a metric")
        if new in taken:
            raise ConfigError(f"rename: {taken[new]} and {old} cannot both be called {new}")
        taken[new] = old
    return rename


def _any_of(patterns: Sequence[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(translate(pattern) for pattern in patterns)) if patterns else None

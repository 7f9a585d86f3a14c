"""Our frames in dynolog's words: counters become increments and percent of the time since the frame before.

    node_cpu_seconds_total{cpu="0",mode="user"} 12.22        ->   cpu_u 27.638, cpu_u_ms 550
    node_network_receive_bytes_total{device="eth0"} 64846730 ->   rx_bytes{net="eth0"} 8021
    sonde_uptime_seconds 11488.61                            ->   uptime 11488

One frame in, at most one frame out, so that every sink can carry it (docs/adr/0018). What depends on the frame before
is left out of the first. The state belongs to one sink: its `min_period` decides what an increment is measured over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import sub
from typing import Any, NamedTuple

from sonde.dialects.dynolog import names
from sonde.dialects.dynolog.heartbeat import HeartbeatTranslation
from sonde.hostfs import HostFS
from sonde.model import EMPTY_LAYOUT, Frame, Gap, Layout, MetricSpec, Quality, Series
from sonde.shape import picker

log = logging.getLogger(__name__)

_CPU = "node_cpu_seconds_total"
_GUEST = "node_cpu_guest_seconds_total"
_UPTIME = "sonde_uptime_seconds"
_ALL_MODES = (*names.MODES, *(f"guest {mode}" for mode in names.GUEST_MODES))
_APART = ("perf",)
_IDLE = _ALL_MODES.index("idle")
_IOWAIT = _ALL_MODES.index("iowait")


class Translator:
    """Translates the frames of one sink, in the order they come."""

    def __init__(self, files: HostFS, prefixes: Sequence[str] = ()) -> None:
        self._translations: Mapping[str, Callable[[Frame], Frame | None]] = {
            "host": UptimeTranslation(),
            "cpu": CpuTranslation(files),
            "network": NetworkTranslation(prefixes),
            "perf": HeartbeatTranslation(),
        }

    def frames(self, frames: Iterable[Frame]) -> list[Frame]:
        """What dynolog has of the frames of one tick, as of the time of the first; of other sources, nothing.

        dynolog has one record of a tick, with one time: that is how `records` finds together what belongs together.
        Its counters are another monitor's, with a record of their own.
        """
        translated: list[Frame] = []
        apart: list[Frame] = []
        for frame in frames:
            translation = self._translations.get(frame.source)
            if translation is not None and (result := translation(frame)) is not None:
                if frame.source in _APART:
                    apart.append(result)
                else:
                    translated.append(result._replace(time_ns=translated[0].time_ns) if translated else result)
        return translated + apart


class UptimeTranslation:
    def __init__(self) -> None:
        self._known = EMPTY_LAYOUT
        self._at = -1
        self._layout = EMPTY_LAYOUT

    def __call__(self, frame: Frame) -> Frame | None:
        if frame.layout is not self._known:
            self._learn(frame.layout)
        if self._at < 0:
            return None
        uptime: Any = frame.values[self._at]
        return _answer(frame, self._layout, (int(uptime),))

    def _learn(self, layout: Layout) -> None:
        self._known = layout
        self._at = next((index for index, (spec, _) in enumerate(layout) if spec.name == _UPTIME), -1)
        if self._at >= 0:
            self._layout = names.layout_of([(names.UPTIME, ())], names.constants(layout[self._at], ()))


class CpuPlan(NamedTuple):
    """Where the times of each socket's CPUs stand in a layout."""

    cpus: frozenset[str]
    guests: bool  # are the times of guests there?
    pickers: Sequence[Sequence[Callable[[Any], Any]]]  # by socket, then by mode

    def sums(self, values: Sequence[Any]) -> list[list[float]]:
        return [[sum(pick(values)) for pick in modes] for modes in self.pickers]


class CpuTranslation:
    def __init__(self, files: HostFS) -> None:
        self._files = files
        self._layout: Layout | None = None
        self._plan = CpuPlan(frozenset(), False, ())
        self._values: Sequence[Any] = ()
        self._sums: list[list[float]] = []
        self._whole = EMPTY_LAYOUT  # what is said
        self._plain = EMPTY_LAYOUT  # the same without the sockets

    def __call__(self, frame: Frame) -> Frame | None:
        if frame.layout is self._layout:
            sums = self._plan.sums(frame.values)
            before, after = self._sums, sums
        else:
            before, after = self._learn(frame)
            sums = self._plan.sums(frame.values)
        self._values, self._sums = frame.values, sums
        return self._said(frame, before, after)

    def _learn(self, frame: Frame) -> tuple[list[list[float]], list[list[float]]]:
        """Find the CPUs. The times before and after of those that were there in the frame before.

        A CPU that has come back goes on counting where it stopped, or from 0: what of it is in between, nobody knows.
        """
        sockets = sockets_of(self._files, _cpus(frame.layout))
        plan = _plan(frame.layout, sockets)
        known = {cpu: socket for cpu, socket in sockets.items() if cpu in self._plan.cpus}
        before = _plan(self._layout or EMPTY_LAYOUT, known).sums(self._values)
        after = _plan(frame.layout, known).sums(frame.values)
        self._layout, self._plan = frame.layout, plan
        self._arrange(frame.layout, plan)
        return before, after

    def _arrange(self, layout: Layout, plan: CpuPlan) -> None:
        specs: list[MetricSpec] = [names.UTIL, *names.SHARES.values()]
        if plan.guests:
            specs += names.GUEST_SHARES.values()
        specs += names.TIMES.values()
        if plan.guests:
            specs += names.GUEST_TIMES.values()
        first = next((series for series in layout if series[0].name == _CPU), None)
        more = names.constants(first, ("cpu", "mode")) if first else ()
        several = range(len(plan.pickers)) if len(plan.pickers) > 1 else ()
        shares = [names.socket_share(mode, socket) for socket in several for mode in names.SHARES]
        self._plain = names.layout_of([(spec, ()) for spec in specs], more)
        self._whole = names.layout_of([(spec, ()) for spec in (*specs, *shares)], more)

    def _said(self, frame: Frame, before: list[list[float]], after: list[list[float]]) -> Frame | None:
        sockets = [_milliseconds(old, new) for old, new in zip(before, after, strict=True)]
        host = [sum(column) for column in zip(*sockets, strict=True)]
        total = sum(host[: len(names.MODES)])
        if not total:
            return None  # the first frame, times that were set back, or less than a tick of the kernel's clock
        values: list[int | float] = [100 * (1 - host[_IDLE] / total)]
        values += _shares(host, names.SHARES, total)
        guests = host[len(names.MODES) :] if self._plan.guests else []
        values += [100 * time / total for time in guests]
        values += [time for mode, time in zip(names.MODES, host, strict=False) if mode != "idle"]
        values += guests
        totals = [sum(times[: len(names.MODES)]) for times in sockets]
        if len(sockets) < 2 or len(sockets) < len(self._plan.pickers) or not all(totals):
            return _answer(frame, self._plain, values)
        for times, own in zip(sockets, totals, strict=True):
            values += _shares(times, names.SHARES, own)
        return _answer(frame, self._whole, values)


def _milliseconds(before: Sequence[float], after: Sequence[float]) -> list[int]:
    """What has passed in each mode."""
    passed = [round((new - old) * 1000) for old, new in zip(before, after, strict=True)]
    idle, iowait = passed[_IDLE], passed[_IOWAIT]
    if idle < 0 or iowait < 0:
        # The kernel moves time between the two when whoever waited wakes up elsewhere (proc_stat(5)): their sum holds.
        passed[_IDLE], passed[_IOWAIT] = (0, idle + iowait) if idle < 0 else (idle + iowait, 0)
    return [max(0, time) for time in passed]  # steal is set back by a migration: nothing has passed then


def _shares(times: Sequence[int], modes: Iterable[str], total: int) -> list[float]:
    return [100 * times[_ALL_MODES.index(mode)] / total for mode in modes]


def _cpus(layout: Layout) -> list[str]:
    return list(dict.fromkeys(_own(series, "cpu") for series in layout if series[0].name == _CPU))


def _plan(layout: Layout, sockets: Mapping[str, str]) -> CpuPlan:
    """The places of the times of these CPUs, by socket and mode."""
    order = sorted(set(sockets.values()), key=lambda text: (len(text), text))
    places: list[list[list[int]]] = [[[] for _ in _ALL_MODES] for _ in order]
    seen: set[str] = set()
    for index, series in enumerate(layout):
        if series[0].name not in (_CPU, _GUEST) or _own(series, "cpu") not in sockets:
            continue
        seen.add(series[0].name)
        prefix = "guest " if series[0].name == _GUEST else ""
        mode = _ALL_MODES.index(prefix + _own(series, "mode"))
        places[order.index(sockets[_own(series, "cpu")])][mode].append(index)
    pickers = [[picker(indexes) for indexes in modes] for modes in places]
    return CpuPlan(frozenset(sockets), _GUEST in seen, pickers)


def _own(series: Series, label: str) -> str:
    spec, labels = series
    return labels[spec.labels.index(label)]


def sockets_of(files: HostFS, cpus: Sequence[str]) -> dict[str, str]:
    """The socket of each CPU; one for all where the kernel does not tell (Documentation/admin-guide/cputopology.rst).

    Read once, when the CPUs are first seen or change: dynolog takes every host for one with a single socket.
    """
    sockets = {}
    for cpu in cpus:
        try:
            sockets[cpu] = files.text(f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id")
        except OSError:
            sockets[cpu] = "0"
    return sockets


class NetworkTranslation:
    def __init__(self, prefixes: Sequence[str] = ()) -> None:
        self._prefixes = tuple(prefixes)
        self._known: Layout | None = None
        self._pick = picker(())
        self._series: list[Series] = []
        self._more: tuple[tuple[str, str], ...] = ()
        self._layout = EMPTY_LAYOUT
        self._values: Sequence[Any] = ()

    def __call__(self, frame: Frame) -> Frame | None:
        if frame.layout is self._known:
            increments = list(map(sub, values := self._pick(frame.values), self._values))
        else:
            first = self._known is None
            before = dict(zip(self._series, self._values, strict=True))
            self._learn(frame.layout)
            values = self._pick(frame.values)
            # A device that has come since counts from here: what it carried before is of another time or place.
            increments = [now - before.get(series, now) for series, now in zip(self._series, values, strict=True)]
            if first:
                increments = []
        self._values = values
        if not increments:
            return None
        if min(increments) >= 0:
            return _answer(frame, self._layout, increments)
        return self._without_resets(frame, increments)

    def _learn(self, layout: Layout) -> None:
        self._known = layout
        found: dict[MetricSpec, list[tuple[Series, int]]] = {spec: [] for spec in names.TRAFFIC.values()}
        for index, (spec, labels) in enumerate(layout):
            traffic = names.TRAFFIC.get(spec.name)
            if traffic is not None and self._wanted(labels[spec.labels.index("device")]):
                found[traffic].append(((traffic, (labels[spec.labels.index("device")],)), index))
                self._more = names.constants((spec, labels), ("device",))
        flat = [one for ones in found.values() for one in ones]
        series = [one for one, _ in flat]
        if series != self._series or not self._layout:
            self._series = series
            self._layout = names.layout_of(series, self._more)
        self._pick = picker([index for _, index in flat])

    def _wanted(self, device: str) -> bool:
        return not self._prefixes or device.startswith(self._prefixes)

    def _without_resets(self, frame: Frame, increments: list[int]) -> Frame | None:
        """Leave out what has counted backwards: the device was made anew, or its driver has begun again."""
        kept = [index for index, increment in enumerate(increments) if increment >= 0]
        gaps = []
        for (spec, labels), increment in zip(self._layout, increments, strict=True):
            if increment < 0:
                log.info("%s went back by %d: left out this time", names.key((spec, labels)), -increment)
                gaps.append(Gap(spec, labels, Quality.BLANK, "the counter has begun again since the sample before"))
        layout = names.layout_of([self._series[index] for index in kept], self._more)
        return _answer(frame, layout, [increments[index] for index in kept], gaps)


def _answer(frame: Frame, layout: Layout, values: Sequence[int | float], gaps: Sequence[Gap] = ()) -> Frame:
    return Frame(frame.source, frame.time_ns, frame.took_ns, frame.period_ns, layout, values, (), tuple(gaps))

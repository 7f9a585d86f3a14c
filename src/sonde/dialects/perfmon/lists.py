"""perfmon's lists for one node: everything on the same moments, null where nothing was read.

perfmon appends to each list on its own, so one failed reading moves all later values of that list in time. Here a list
has a place for every moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sonde.dialects.perfmon.names import (
    CPU_PERCENT,
    CPU_PERCENT_SYS,
    CPU_TIME,
    ENTRIES,
    LACKING,
    MEMORY_PERCENT,
    RAPL_ZONES,
    RSS,
    perf_place,
)
from sonde.jobs.export.choice import Chosen
from sonde.jobs.export.table import ticks
from sonde.jobs.stored import Stored

_GAP = 2.5  # periods a rate still spans
_MICROJOULES = 1e6

Path = tuple[str, ...]


class Listed(NamedTuple):
    path: Path
    header: str
    values: NDArray[np.float64]  # NaN: nothing was read
    integral: bool = False


class Lists(NamedTuple):
    """What perfmon would have of a node."""

    times: NDArray[np.int64]
    cpu: list[Listed]
    perf: list[Listed]
    notes: list[str]


def lists_of(found: Chosen, job_id: str) -> Lists:
    """`job_id` is the recorded job's, or empty: then every account of a process tree is the job's."""
    return _Node(found, job_id).lists()


class _Node:
    def __init__(self, found: Chosen, job_id: str) -> None:
        self._times = ticks(found.series)
        self._gaps = found.gaps
        self._job_id = job_id
        self._by_metric: dict[str, list[Stored]] = {}
        for one in found.series:
            self._by_metric.setdefault(one.series.metric, []).append(one)
        self._period_ns = max((one.period_ns for one in found.series), default=0)
        self._notes = list(found.notes)

    def lists(self) -> Lists:
        cpu = [listed for entry in ENTRIES if (listed := self._entry(entry.path, entry.header, entry.metrics))]
        known = {listed.path: listed.values for listed in cpu}
        cpu += self._shares(known)
        cpu += self._rapl()
        for path, why in LACKING.items():
            self._notes.append(f"{'.'.join(path)} is left out: {why}")
        perf = self._perf()
        self._notes.append("nv_gpu_metrics is left out: no accelerator was recorded")
        return Lists(self._times, cpu, perf, self._notes)

    def _entry(self, path: Path, header: str, metrics: Sequence[str]) -> Listed | None:
        for metric in metrics:
            series = self._own(metric)
            if series:
                return Listed(path, header, self._sum(series), all(one.values.dtype == np.int64 for one in series))
        self._notes.append(f"{'.'.join(path)} is left out: {self._why(metrics)}")
        return None

    def _own(self, metric: str) -> list[Stored]:
        """The series of the job, without those of other jobs on the node."""
        series = self._by_metric.get(metric, [])
        if not self._job_id:
            return series
        return [one for one in series if dict(one.series.labels).get("job_id", self._job_id) == self._job_id]

    def _why(self, metrics: Sequence[str]) -> str:
        reasons = [f"{gap.metric} is {gap.quality}: {gap.reason}" for gap in self._gaps if gap.metric in metrics]
        return reasons[0] if reasons else f"no {metrics[0]} was recorded"

    def _on_rows(self, one: Stored) -> NDArray[np.float64]:
        values = np.full(len(self._times), np.nan)
        values[np.searchsorted(self._times, one.times, side="right") - 1] = one.values
        return values

    def _sum(self, series: Sequence[Stored]) -> NDArray[np.float64]:
        """Of all series that were there at a moment; one that lacks a value then makes the sum unknown."""
        total = np.zeros(len(self._times))
        anything = np.zeros(len(self._times), np.bool_)
        for one in series:
            first, last = np.searchsorted(self._times, one.times[[0, -1]], side="right")
            inside = slice(first - 1, last)
            total[inside] += self._on_rows(one)[inside]
            anything[inside] = True
        total[~anything] = np.nan
        return total

    def _rate(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        rate = np.full(len(values), np.nan)
        elapsed = np.diff(self._times) / 1e9
        known = elapsed <= _GAP * self._period_ns / 1e9
        rate[1:][known] = np.diff(values)[known] / elapsed[known]
        rate[rate < 0] = np.nan  # a process tree was replaced by another one
        return rate

    def _shares(self, known: dict[Path, NDArray[np.float64]]) -> Iterable[Listed]:
        if CPU_TIME.path in known:
            yield Listed(*CPU_PERCENT, 100 * self._rate(known[CPU_TIME.path]))
        modes = self._by_metric.get("node_cpu_seconds_total", [])
        if modes:
            idle = [one for one in modes if dict(one.series.labels).get("mode") in ("idle", "iowait")]
            with np.errstate(invalid="ignore", divide="ignore"):
                busy = 1 - self._rate(self._sum(idle)) / self._rate(self._sum(modes))
            yield Listed(*CPU_PERCENT_SYS, 100 * np.clip(busy, 0, 1))
        total = self._by_metric.get("node_memory_MemTotal_bytes", [])
        if total and RSS.path in known:
            yield Listed(*MEMORY_PERCENT, 100 * known[RSS.path] / float(total[0].values[-1]))

    def _rapl(self) -> Iterable[Listed]:
        found = 0
        for zone in RAPL_ZONES:
            by_index: dict[str, list[Stored]] = {}
            for one in self._by_metric.get(f"node_rapl_{zone}_joules_total", []):
                by_index.setdefault(dict(one.series.labels).get("index", "0"), []).append(one)
            for index, series in by_index.items():
                found += 1
                values = np.round(self._sum(series) * _MICROJOULES)
                yield Listed(("rapl_powercap", f"{zone}-{index}"), f"RAPL {zone} {index} [uJ]", values, integral=True)
        if not found:
            metrics = [f"node_rapl_{zone}_joules_total" for zone in RAPL_ZONES]
            self._notes.append(f"rapl_powercap is left out: {self._why(metrics)}")

    def _perf(self) -> list[Listed]:
        events = self._of_narrowest_scope(self._own("sonde_perf_events_total"))
        found: dict[Path, Listed] = {}
        for one in sorted(events, key=lambda one: one.series):
            labels = dict(one.series.labels)
            path = perf_place(labels.get("event", ""), labels.get("group", ""))
            if path not in found:  # an event that stands in several groups is counted in each: one is enough
                scaled = self._on_rows(one) * self._scale(labels)
                found[path] = Listed(path, path[-1], np.round(scaled), integral=True)
        if not found:
            self._notes.append(f"perf_metrics is left out: {self._why(['sonde_perf_events_total'])}")
        return list(found.values())

    def _of_narrowest_scope(self, events: Sequence[Stored]) -> list[Stored]:
        """Of the job or its processes, as perfmon counts; of the whole node when nothing else was counted."""
        narrow = [one for one in events if dict(one.series.labels).get("scope") != "system"]
        return narrow or list(events)

    def _scale(self, labels: dict[str, Any]) -> NDArray[np.float64]:
        """What a group's counts are multiplied with: it was on the counters part of the time."""
        whom = {name: value for name, value in labels.items() if name != "event"}
        sums = []
        for metric in ("sonde_perf_enabled_seconds_total", "sonde_perf_running_seconds_total"):
            alike = [one for one in self._by_metric.get(metric, []) if dict(one.series.labels) == whom]
            sums.append(self._sum(alike) if alike else np.ones(len(self._times)))
        with np.errstate(invalid="ignore", divide="ignore"):
            scale = sums[0] / sums[1]
        scale[~np.isfinite(scale)] = np.nan
        return scale

"""Processes by CPU time and memory, ranks, counters (sonde_perf_*) and accelerators (sonde_accelerator_*)."""

from __future__ import annotations

from collections.abc import Sequence

from sonde.jobs.figures.sheet import Counter, Process, Sheet
from sonde.jobs.tracks import increase, mean, most, total
from sonde.store.query import Points

NAMES = ("sonde_process_cpu_seconds_total", "sonde_process_memory_rss_bytes", "sonde_job_rank_info")
FAMILIES = ("sonde_perf_", "sonde_accelerator_")
_KEPT = 50  # processes of a node, by CPU time and by memory
_NOT_IDENTITY = {"job_id", "scheduler", "rank", "pid", "comm", "mode", "kind"}


def measure(sheet: Sheet) -> None:
    _processes(sheet)
    _counters(sheet)
    _accelerators(sheet)


def _processes(sheet: Sheet) -> None:
    found: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
    for points in sheet.readings.of("sonde_process_cpu_seconds_total"):
        # What it had used when it was first seen is its own too: a process that lives for two ticks has worked before.
        found.setdefault(_key(points), ([], []))[0].append(points.values[0] + (increase(points) or 0.0))
    for points in sheet.readings.of("sonde_process_memory_rss_bytes"):
        found.setdefault(_key(points), ([], []))[1].append(most(points) or 0.0)
    ranks = _ranks(sheet)
    processes = [
        Process(
            sheet.readings.about.host,
            pid,
            comm,
            ranks.get(pid, ""),
            sum(seconds) if seconds else None,
            max(memory, default=None),
        )
        for (pid, comm), (seconds, memory) in found.items()
    ]
    by_time = sorted(processes, key=lambda one: -(one.cpu_seconds or 0.0))
    by_memory = sorted(processes, key=lambda one: -(one.memory_peak or 0.0))
    of_ranks = [process for process in processes if process.rank]
    sheet.processes = list(dict.fromkeys([*by_time[:_KEPT], *by_memory[:_KEPT], *of_ranks]))


def _key(points: Points) -> tuple[str, str]:
    labels = dict(points.series.labels)
    return labels["pid"], labels["comm"]


def _ranks(sheet: Sheet) -> dict[str, str]:
    labels = [dict(points.series.labels) for points in sheet.readings.of("sonde_job_rank_info")]
    return {one["pid"]: one["rank"] for one in labels if one.get("rank")}


def _counters(sheet: Sheet) -> None:
    """Each event once per scope, scaled up to the whole time by the times of its group (collectors/perf.py).

    An event may be in several groups: the one that was counted longest has it best, and adding them would count twice.
    """
    best: dict[tuple[str, str], Counter] = {}
    for (event, group, scope), found in _by_group(sheet, "sonde_perf_events_total").items():
        enabled, running = (
            sum(increase(points) or 0.0 for points in _by_group(sheet, name).get(("", group, scope), []))
            for name in ("sonde_perf_enabled_seconds_total", "sonde_perf_running_seconds_total")
        )
        counted = [grown for points in found if (grown := increase(points)) is not None]
        if not counted or not running:
            continue
        share = running / enabled if enabled else None
        counter = Counter(event, scope, sum(counted) * enabled / running, share)
        known = best.get((event, scope))
        if known is None or (known.running or 0.0) < (share or 0.0):
            best[event, scope] = counter
    sheet.counters = [best[key] for key in sorted(best)]


def _by_group(sheet: Sheet, metric: str) -> dict[tuple[str, str, str], list[Points]]:
    found: dict[tuple[str, str, str], list[Points]] = {}
    for points in sheet.readings.of(metric):
        labels = dict(points.series.labels)
        key = (labels.get("event", ""), labels.get("group", ""), labels.get("scope", ""))
        found.setdefault(key, []).append(points)
    return found


def _accelerators(sheet: Sheet) -> None:
    """By the labels that tell one from another, whatever the vendor calls them."""
    names = [name for name in sheet.readings.names if name.startswith("sonde_accelerator_")]
    busy, memory, power, heat = (
        _by_device(sheet, [name for name in names if all(word in name for word in words)])
        for words in (("util", "ratio"), ("memory", "used", "bytes"), ("power", "watts"), ("temperature", "celsius"))
    )
    devices = sorted({*busy, *memory, *power, *heat})
    for device in devices:
        sheet.device(
            "accelerator",
            device,
            busy_share=mean(busy.get(device)),
            memory_peak=most(memory.get(device)),
            power=mean(power.get(device)),
            temperature_peak=most(heat.get(device)),
        )
    shares = [share for points in busy.values() if (share := mean(points)) is not None]
    sheet.put(
        accelerators=len(devices) if devices else None, accelerator_busy=sum(shares) / len(shares) if shares else None
    )
    if busy:
        summed = total(list(busy.values()))
        values = [value / len(busy) for value in summed.values]
        sheet.draw("accelerator_busy", Points(summed.series, summed.period_ns, summed.times, values))
    sheet.draw("accelerator_memory", total(list(memory.values())) if memory else None)


def _by_device(sheet: Sheet, names: Sequence[str]) -> dict[str, Points]:
    found: dict[str, Points] = {}
    for name in names:
        for points in sheet.readings.of(name):
            own = [value for label, value in points.series.labels if label not in _NOT_IDENTITY and value]
            found.setdefault(" ".join(own), points)
    return found

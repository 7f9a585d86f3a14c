"""CPU: what the job used of what it was given, what the node did, when nothing happened."""

from __future__ import annotations

from itertools import pairwise

from sonde.clock import NS
from sonde.jobs.figures.sheet import Sheet
from sonde.jobs.tracks import Readings, longest_gap_ns, mean, most, ratio, total
from sonde.store.query import Points

NAMES = (
    "node_cpu_seconds_total",
    "node_context_switches_total",
    "node_load1",
    "node_procs_running",
    "sonde_job_cpu_seconds_total",
    "sonde_job_cpu_throttled_seconds_total",
    "sonde_job_threads",
    "sonde_job_processes",
    "sonde_process_tree_cpu_seconds_total",
    "sonde_process_tree_threads",
    "sonde_process_tree_processes",
)
USED = ("sonde_job_cpu_seconds_total", "sonde_process_tree_cpu_seconds_total")
_MODES = {
    "host_user_share": ("user", "nice"),
    "host_system_share": ("system", "irq", "softirq"),
    "host_iowait_share": ("iowait",),
    "host_steal_share": ("steal",),
    "host_idle_share": ("idle", "iowait"),
}
_IDLE_CORES = 0.05
_HALF = 0.5


def measure(sheet: Sheet) -> None:
    readings = sheet.readings
    _job(sheet, readings)
    _host(sheet, readings)
    switches = readings.rate("node_context_switches_total")
    there = sheet.figures["cpu_there"]
    sheet.put(
        context_switches=mean(switches),
        context_switches_per_cpu=ratio(mean(switches), there),
        load_mean=mean(readings.total("node_load1")),
        runnable_mean=mean(readings.total("node_procs_running")),
        threads_peak=most(readings.total("sonde_job_threads", "sonde_process_tree_threads")),
        processes_peak=most(readings.total("sonde_job_processes", "sonde_process_tree_processes")),
    )
    sheet.draw("context_switches", switches)
    sheet.draw("load", readings.total("node_load1"))


def _job(sheet: Sheet, readings: Readings) -> None:
    used = readings.rate(*USED)
    asked = (readings.about.asked or {}).get("cpus")
    there = readings.folded.get("node_cpu_seconds_total")
    granted = asked or there
    seconds = readings.increase(*USED)
    throttled = readings.rate("sonde_job_cpu_throttled_seconds_total")
    sheet.put(
        cpu_there=there,
        cpu_asked=asked,
        cpu_granted=granted,
        cpu_used=mean(used),
        cpu_used_peak=most(used),
        cpu_used_share=ratio(mean(used), granted),
        cpu_seconds=seconds,
        cpu_system_part=ratio(
            next(filter(None, (readings.increase(name, mode="system") for name in USED)), 0.0), seconds
        ),
        cpu_throttled_share=ratio(mean(throttled), granted),
    )
    sheet.draw("cpu_used", used)
    if used is not None:
        _quiet(sheet, used)


def _quiet(sheet: Sheet, used: Points) -> None:
    """Stretches in which the job did nothing, and how long it took to begin."""
    longest, idle = idle_stretches(used)
    covered = (used.times[-1] - used.times[0]) / NS
    later = sorted(used.values)[len(used.values) // 2]
    begun = next((time for time, value in zip(used.times, used.values, strict=True) if value >= later * _HALF), None)
    startup = (begun - used.times[0]) / NS if begun is not None and later > _IDLE_CORES else None
    sheet.put(
        idle_longest=longest, idle_share=ratio(idle, covered), startup=startup, startup_share=ratio(startup, covered)
    )


def idle_stretches(used: Points) -> tuple[float, float]:
    """The longest and all the time in which less than a twentieth of a CPU was used, in seconds; gaps are neither."""
    longest = current = everything = 0.0
    limit = longest_gap_ns(used.period_ns)
    for (earlier, _), (later, value) in pairwise(zip(used.times, used.values, strict=True)):
        if value >= _IDLE_CORES or later - earlier > limit:
            current = 0.0
            continue
        current += (later - earlier) / NS
        everything += (later - earlier) / NS
        longest = max(longest, current)
    return longest, everything


def _host(sheet: Sheet, readings: Readings) -> None:
    spent = {
        mode: points
        for mode in {dict(points.series.labels).get("mode", "") for points in readings.of("node_cpu_seconds_total")}
        if (points := readings.rate("node_cpu_seconds_total", mode=mode)) is not None
    }
    if not spent:
        return
    every = total(list(spent.values()))
    whole = mean(every)
    for figure, modes in _MODES.items():
        parts = [spent[mode] for mode in modes if mode in spent]
        sheet.put(**{figure: ratio(mean(total(parts)), whole) if parts else None})
    _draw_shares(sheet, spent, every)


def _draw_shares(sheet: Sheet, spent: dict[str, Points], every: Points) -> None:
    busy = [points for mode, points in spent.items() if mode not in ("idle", "iowait", "steal")]
    sheet.draw("host_busy", _share(busy, every))
    for plot, mode in (("host_iowait", "iowait"), ("host_steal", "steal")):
        sheet.draw(plot, _share([spent[mode]], every) if mode in spent else None)


def _share(parts: list[Points], every: Points) -> Points | None:
    if not parts:
        return None
    part = total(parts)
    if part.times != every.times:
        return None
    pairs = [(time, a / b) for time, a, b in zip(part.times, part.values, every.values, strict=True) if b > 0]
    return Points(part.series, part.period_ns, [time for time, _ in pairs], [value for _, value in pairs])

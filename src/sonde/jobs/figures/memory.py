"""Memory: what the job had resident of what it was given, what was left on the node, swap, faults, OOM kills."""

from __future__ import annotations

from sonde.clock import NS
from sonde.jobs.figures.sheet import Sheet
from sonde.jobs.tracks import last, least, mean, most, ratio, since, total
from sonde.store.query import Points

NAMES = (
    "node_memory_MemTotal_bytes",
    "node_memory_MemAvailable_bytes",
    "node_vmstat_oom_kill",
    "node_vmstat_pgfault",
    "node_vmstat_pgmajfault",
    "node_vmstat_pswpin",
    "node_vmstat_pswpout",
    "sonde_job_memory_rss_bytes",
    "sonde_job_memory_swap_bytes",
    "sonde_job_memory_limit_bytes",
    "sonde_job_oom_kills_total",
    "sonde_job_page_faults_total",
    "sonde_job_major_page_faults_total",
    "sonde_process_tree_memory_rss_bytes",
    "sonde_process_tree_memory_swap_bytes",
)
_PAGE = 4096  # pswpin and pswpout count pages; 4 KiB wherever the kernel's is not larger
_RECENT_NS = 300 * NS
_FEWEST = 10  # values: fewer make no trend


def measure(sheet: Sheet) -> None:
    readings = sheet.readings
    used = readings.total("sonde_job_memory_rss_bytes", "sonde_process_tree_memory_rss_bytes")
    available = readings.total("node_memory_MemAvailable_bytes")
    there = last(readings.total("node_memory_MemTotal_bytes"))
    asked = (readings.about.asked or {}).get("memory_bytes")
    limit = last(readings.total("sonde_job_memory_limit_bytes"))
    granted = asked or (limit if limit and (not there or limit < there) else there)
    sheet.put(
        memory_there=there,
        memory_asked=asked,
        memory_granted=granted,
        memory_used=mean(used),
        memory_used_peak=most(used),
        memory_used_share=ratio(most(used), granted),
        memory_last=last(used),
        memory_available_least=least(available),
        memory_available_share=ratio(least(available), there),
        oom_kills=readings.increase("sonde_job_oom_kills_total"),
        host_oom_kills=readings.increase("node_vmstat_oom_kill"),
    )
    _growth(sheet, used, granted)
    _paging(sheet)
    sheet.draw("memory_used", used)
    sheet.draw("memory_available", available)


def _growth(sheet: Sheet, used: Points | None, granted: float | None) -> None:
    """The trend of the last five minutes, by least squares: what the job was about to do when its values end."""
    recent = since(used, used.times[-1] - _RECENT_NS) if used is not None else None
    slope = trend(recent) if recent is not None else None
    now = last(used)
    left = granted - now if granted is not None and now is not None else None
    sheet.put(memory_growth=slope, memory_full_in=left / slope if left is not None and slope and slope > 0 else None)


def trend(points: Points) -> float | None:
    """The slope per second of a line through the values."""
    count = len(points.times)
    if count < _FEWEST:
        return None
    seconds = [(time - points.times[0]) / NS for time in points.times]
    middle, height = sum(seconds) / count, sum(points.values) / count
    spread = sum((second - middle) ** 2 for second in seconds)
    together = sum((s - middle) * (v - height) for s, v in zip(seconds, points.values, strict=True))
    return together / spread if spread else None


def _paging(sheet: Sheet) -> None:
    readings = sheet.readings
    faults = readings.rate("sonde_job_page_faults_total", "node_vmstat_pgfault")
    major = readings.rate("sonde_job_major_page_faults_total", "node_vmstat_pgmajfault")
    swap = readings.total("sonde_job_memory_swap_bytes", "sonde_process_tree_memory_swap_bytes")
    moved = [made for name in ("pswpin", "pswpout") if (made := readings.rate(f"node_vmstat_{name}")) is not None]
    pages = mean(total(moved)) if moved else None
    sheet.put(
        page_faults=mean(faults),
        major_faults=mean(major),
        major_faults_peak=most(major),
        swap_peak=most(swap),
        swapping=None if pages is None else pages * _PAGE,
    )
    sheet.draw("page_faults", faults)
    if most(swap):
        sheet.draw("swap", swap)

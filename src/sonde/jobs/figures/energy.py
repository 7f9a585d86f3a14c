"""Energy (RAPL), frequency and heat of the CPUs. The collector has made up for the register's wrap-around already.

Where nothing measures energy it is estimated, and called an estimate: 12 W for each CPU kept busy and 0.3725 W for
each GB of memory of the node, the averages of Green Algorithms (Lannelongue, Grealey, Inouye 2021).
"""

from __future__ import annotations

from sonde.clock import NS
from sonde.jobs.figures.sheet import Sheet
from sonde.jobs.tracks import Readings, increase, mean, rate, ratio, total
from sonde.store.query import Points

# A package's counter has its cores and uncore in it, psys the packages as well: each joule is counted once.
_ZONES = ("node_rapl_package_joules_total", "node_rapl_dram_joules_total")
NAMES = (
    *_ZONES,
    "node_cpu_scaling_frequency_hertz",
    "node_cpu_frequency_max_hertz",
    "node_cpu_scaling_governor",
    "node_cpu_core_throttles_total",
    "node_cpu_package_throttles_total",
    "sonde_cpu_core_throttled_seconds_total",
)
_WATTS_PER_CPU = 12.0
_WATTS_PER_BYTE = 0.3725 / 1e9


def measure(sheet: Sheet) -> None:
    readings = sheet.readings
    _power(sheet, readings)
    _frequency(sheet, readings)
    events = [readings.increase(f"node_cpu_{place}_throttles_total") for place in ("core", "package")]
    known = [value for value in events if value is not None]
    slowed = [made for one in readings.of("sonde_cpu_core_throttled_seconds_total") if (made := rate(one)) is not None]
    sheet.put(
        throttle_events=sum(known) if known else None,
        throttled_share=max((mean(points) or 0.0 for points in slowed), default=None),
    )


def _power(sheet: Sheet, readings: Readings) -> None:
    zones = [points for name in _ZONES for points in readings.of(name)]
    used = [joules for points in zones if (joules := increase(points)) is not None]
    rates = [made for points in zones if (made := rate(points)) is not None]
    if used and rates:
        watts = total(rates)
        sheet.put(energy=sum(used), power=mean(watts))
        sheet.draw("power", watts)
        return
    seconds, span = sheet.figures["cpu_seconds"], readings.span()
    memory = sheet.figures["memory_there"]
    if seconds is not None and span is not None:
        watts_of_memory = _WATTS_PER_BYTE * (memory or 0.0)
        sheet.put(energy_estimated=seconds * _WATTS_PER_CPU + watts_of_memory * (span[1] - span[0]) / NS)


def _frequency(sheet: Sheet, readings: Readings) -> None:
    now = readings.of("node_cpu_scaling_frequency_hertz")
    highest = [points.values[-1] for points in readings.of("node_cpu_frequency_max_hertz")]
    governors = readings.of("node_cpu_scaling_governor", governor="powersave")
    if now:
        summed = total(now)
        cpus = readings.folded.get("node_cpu_scaling_frequency_hertz", len(now))
        average = Points(summed.series, summed.period_ns, summed.times, [value / cpus for value in summed.values])
        sheet.put(frequency_share=ratio(mean(average), sum(highest) / len(highest) if highest else None))
        sheet.draw("frequency", average)
    if governors:
        sheet.put(powersave=float(any(points.values[-1] for points in governors)))

"""Frequencies, their limits and thermal throttling of the CPUs, from /sys/devices/system/cpu/cpu*.

    cpufreq/scaling_cur_freq              2401000             kHz, as the driver last set or measured it
    cpufreq/scaling_{min,max}_freq        800000, 3800000     what the governor may choose from
    cpufreq/cpuinfo_{min,max}_freq        800000, 3800000     what the hardware can do
    cpufreq/cpuinfo_cur_freq              2400183             asked of the hardware, for root only
    cpufreq/scaling_governor              powersave           one of scaling_available_governors
    thermal_throttle/core_throttle_count  3                   per core; package_throttle_count per package
    thermal_throttle/core_throttle_total_time_ms  1204        since Linux 5.5

(Documentation/admin-guide/pm/cpufreq.rst; arch/x86/kernel/cpu/mce/therm_throt.c.) Names and labels are those of
node_exporter's `cpufreq` and `cpu`. The current frequency and the throttling are read at every tick, limits and
governor, which people set, every `limits_every`. Kernels 4.13 to 5.17 let a reader of scaling_cur_freq wait 10 ms per
CPU (arch_freq_get_on_cpu in arch/x86/kernel/cpu/aperfmperf.c), so this collector has a thread of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import ClassVar, NamedTuple

from sonde.clock import Clock, SystemClock
from sonde.collectors.sysfs import Arrangement, Findings, thousands, thousandths
from sonde.errors import Unavailable
from sonde.hostfs import HostFS
from sonde.model import Kind, Labels, MetricSpec, Reading, Series, Unit
from sonde.units import Duration

_DIRECTORY = "sys/devices/system/cpu"
_CPU = re.compile(r"cpu([0-9]+)")


def _hertz(name: str, help: str) -> MetricSpec:
    return MetricSpec(f"node_cpu_{name}_hertz", Kind.GAUGE, Unit.HERTZ, help, ("cpu",))


def _throttled(name: str, unit: Unit, help: str, *labels: str) -> MetricSpec:
    return MetricSpec(name, Kind.COUNTER, unit, help, labels)


MEASURED = _hertz("frequency", "Current frequency, asked of the hardware.")
CURRENT = _hertz("scaling_frequency", "Current frequency, as the driver has it.")
LIMITS = {
    "cpuinfo_min_freq": _hertz("frequency_min", "Lowest frequency of the hardware."),
    "cpuinfo_max_freq": _hertz("frequency_max", "Highest frequency of the hardware."),
    "scaling_min_freq": _hertz("scaling_frequency_min", "Lowest frequency the governor may choose."),
    "scaling_max_freq": _hertz("scaling_frequency_max", "Highest frequency the governor may choose."),
}
GOVERNOR = MetricSpec(
    "node_cpu_scaling_governor",
    Kind.GAUGE,
    Unit.NONE,
    "Value is 1 for the governor that is in force, 0 for the others there are.",
    ("cpu", "governor"),
)
CORE_COUNT = _throttled(
    "node_cpu_core_throttles_total", Unit.NONE, "How often this core was throttled.", "package", "core"
)
PACKAGE_COUNT = _throttled(
    "node_cpu_package_throttles_total", Unit.NONE, "How often this package was throttled.", "package"
)
CORE_TIME = _throttled(
    "sonde_cpu_core_throttled_seconds_total", Unit.SECONDS, "How long this core was throttled.", "package", "core"
)
PACKAGE_TIME = _throttled(
    "sonde_cpu_package_throttled_seconds_total", Unit.SECONDS, "How long this package was throttled.", "package"
)
CORE_FILES = {"core_throttle_count": CORE_COUNT, "core_throttle_total_time_ms": CORE_TIME}
PACKAGE_FILES = {"package_throttle_count": PACKAGE_COUNT, "package_throttle_total_time_ms": PACKAGE_TIME}
_ORDER = (MEASURED, *LIMITS.values(), CURRENT, GOVERNOR, CORE_COUNT, PACKAGE_COUNT, CORE_TIME, PACKAGE_TIME)
_SCALES = {Unit.HERTZ: thousands, Unit.SECONDS: thousandths}  # of files in kHz and ms


class CpufreqConfig(NamedTuple):
    measured: bool = False  # node_cpu_frequency_hertz too: asks the hardware, which wakes a CPU that sleeps; root only
    limits_every: Duration = Duration(60)  # between two readings of limits and governor; at 0s at every tick


class Place(NamedTuple):
    """A directory, and the files of it that are read at every tick."""

    directory: str
    files: dict[str, Series]


class CpufreqCollector:
    Config: ClassVar[type] = CpufreqConfig
    metrics: ClassVar[tuple[MetricSpec, ...]] = _ORDER
    blocks: ClassVar[bool] = True

    def __init__(self, host: HostFS, config: CpufreqConfig, clock: Clock | None = None) -> None:
        self._host = host
        self._clock = clock or SystemClock()
        self._every_ns = config.limits_every.ns
        self._current = {"scaling_cur_freq": CURRENT}
        if config.measured:
            self._current["cpuinfo_cur_freq"] = MEASURED
        self._scanned_ns = 0
        self._known_online = b""
        self._places: list[Place] = []
        self._limits = Findings()
        self._arrangement = Arrangement()
        self._online = host.record(f"{_DIRECTORY}/online")
        self._scan()
        if not self._places:
            self._online.close()
            raise Unavailable(
                f"no cpufreq and no thermal_throttle in /{_DIRECTORY}/cpu*: a virtual machine, or no driver is loaded"
            )

    def collect(self) -> Reading:
        online = self._online.read()
        due = self._clock.monotonic_ns() - self._scanned_ns >= self._every_ns
        if due or online != self._known_online:
            self._known_online = online
            self._scan()
        found = Findings()
        found.extend(self._limits)
        for directory, files in self._places:
            for file, answer in self._attributes(directory, files).items():
                series = files[file]
                found.take(file, answer, series, _SCALES.get(series[0].unit))
        return self._arrangement.reading(found)

    def _attributes(self, directory: str, files: Iterable[str]) -> dict[str, bytes | OSError]:
        try:
            return self._host.attributes(directory, files)
        except (FileNotFoundError, NotADirectoryError):
            return {}  # the CPU went off line, or has none of these

    def _scan(self) -> None:
        """Find the CPUs and what each has; read what people set."""
        self._scanned_ns = self._clock.monotonic_ns()
        self._places, self._limits = [], Findings()
        seen: set[Labels] = set()
        for cpu in self._cpus():
            self._scan_frequency(cpu)
            self._scan_throttling(cpu, seen)

    def _cpus(self) -> list[str]:
        matches = (_CPU.fullmatch(name) for name in self._host.names(_DIRECTORY))
        return sorted((match[1] for match in matches if match), key=int)

    def _scan_frequency(self, cpu: str) -> None:
        directory = f"{_DIRECTORY}/cpu{cpu}/cpufreq"
        found = self._attributes(directory, (*LIMITS, "scaling_governor", "scaling_available_governors"))
        if not found:
            return
        self._places.append(Place(directory, {file: (spec, (cpu,)) for file, spec in self._current.items()}))
        for file, spec in LIMITS.items():
            self._limits.take(file, found[file], (spec, (cpu,)), thousands)
        governor, available = _words(found["scaling_governor"]), _words(found["scaling_available_governors"])
        if governor:
            for name, state in (dict.fromkeys(available, 0) | {governor[0]: 1}).items():
                self._limits.add((GOVERNOR, (cpu, name)), state)

    def _scan_throttling(self, cpu: str, seen: set[Labels]) -> None:
        """Each core and package once: their CPUs all give the same numbers."""
        topology = self._attributes(f"{_DIRECTORY}/cpu{cpu}/topology", ("physical_package_id", "core_id"))
        package, core = (_words(answer) for answer in topology.values()) if topology else ([], [])
        directory = f"{_DIRECTORY}/cpu{cpu}/thermal_throttle"
        if not package or not core or not self._host.exists(directory):
            return
        files: dict[str, Series] = {}
        for labels, specs in (((package[0], core[0]), CORE_FILES), ((package[0],), PACKAGE_FILES)):
            if labels not in seen:
                seen.add(labels)
                files |= {file: (spec, labels) for file, spec in specs.items()}
        if files:
            self._places.append(Place(directory, files))

    def close(self) -> None:
        self._online.close()


def _words(answer: bytes | OSError) -> list[str]:
    return [] if isinstance(answer, OSError) else answer.decode("utf-8", "replace").split()

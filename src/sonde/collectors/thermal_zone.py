"""Temperatures the kernel regulates by, and the devices it cools with, from /sys/class/thermal.

    thermal_zone0/{type,temp}                   x86_pkg_temp, 48000      millidegrees Celsius
    cooling_device3/{type,cur_state,max_state}  Processor, 0, 10         0 is not cooling; -1 for idle intel_powerclamp

(Documentation/driver-api/thermal/sysfs-api.rst.) Names and labels are node_exporter's: `zone` and `name` are numbers.
A zone may ask firmware or an embedded controller for its temperature, so this collector has a thread of its own.
"""

from __future__ import annotations

import re
from typing import ClassVar

from sonde.collectors.sysfs import Arrangement, Findings, thousandths
from sonde.config import NoKeys
from sonde.errors import Unavailable
from sonde.hostfs import HostFS
from sonde.model import Kind, MetricSpec, Reading, Series, Unit

TEMPERATURE = MetricSpec(
    "node_thermal_zone_temp", Kind.GAUGE, Unit.CELSIUS, "Temperature of a thermal zone.", ("zone", "type")
)
STATE = MetricSpec(
    "node_cooling_device_cur_state",
    Kind.GAUGE,
    Unit.NONE,
    "How much the device cools at present, from 0 to its max_state.",
    ("name", "type"),
)
MOST = MetricSpec(
    "node_cooling_device_max_state", Kind.GAUGE, Unit.NONE, "The most this device can cool.", ("name", "type")
)

_DIRECTORY = "sys/class/thermal"
_ENTRY = re.compile(r"(thermal_zone|cooling_device)([0-9]+)")
_FILES: dict[str, dict[str, MetricSpec]] = {
    "thermal_zone": {"temp": TEMPERATURE},
    "cooling_device": {"cur_state": STATE, "max_state": MOST},
}


class ThermalZoneCollector:
    Config: ClassVar[type] = NoKeys
    metrics: ClassVar[tuple[MetricSpec, ...]] = (TEMPERATURE, STATE, MOST)
    blocks: ClassVar[bool] = True

    def __init__(self, host: HostFS, config: NoKeys) -> None:
        self._host = host
        self._names: list[str] = []
        self._entries: list[tuple[str, dict[str, Series]]] = []  # directories, and their files
        self._arrangement = Arrangement()
        try:
            self._scan(host.names(_DIRECTORY))
        except FileNotFoundError:
            raise Unavailable(f"no /{_DIRECTORY}: this kernel is built without CONFIG_THERMAL") from None
        if not self._entries:
            raise Unavailable(f"nothing in /{_DIRECTORY}: this machine has no thermal zones")

    def collect(self) -> Reading:
        names = self._host.names(_DIRECTORY)
        if names != self._names:
            self._scan(names)
        found = Findings()
        for directory, files in self._entries:
            try:
                answers = self._host.attributes(directory, files)
            except FileNotFoundError:
                continue  # gone since it was listed
            for file, series in files.items():
                found.take(file, answers[file], series, thousandths if series[0] is TEMPERATURE else None)
        return self._arrangement.reading(found)

    def _scan(self, names: list[str]) -> None:
        self._entries = []
        matches = [match for name in names if (match := _ENTRY.fullmatch(name))]
        for match in sorted(matches, key=lambda match: int(match[2])):
            directory = f"{_DIRECTORY}/{match[0]}"
            try:
                title = self._host.text(f"{directory}/type")
            except OSError:
                continue  # gone since it was listed
            files: dict[str, Series] = {file: (spec, (match[2], title)) for file, spec in _FILES[match[1]].items()}
            self._entries.append((directory, files))
        self._names = names

    def close(self) -> None:
        """Nothing is kept open."""

"""/sys/class/thermal."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from sonde.collectors.thermal_zone import ThermalZoneCollector
from sonde.config import NoKeys
from sonde.errors import Unavailable
from sonde.hostfs import HostFS
from sonde.model import Quality, Reading, Value

THERMAL = "sys/class/thermal"


class HostOfASilentZone(HostFS):
    """A host whose second zone has no value now."""

    __slots__ = ()

    def attributes(self, folder: str, names: Iterable[str]) -> dict[str, bytes | OSError]:
        if folder.endswith("thermal_zone1"):
            return {"temp": OSError(errno.ENODATA, os.strerror(errno.ENODATA))}
        return super().attributes(folder, names)


def by_series(reading: Reading) -> dict[tuple[str, ...], Value]:
    return {(s.name, *labels): value for (s, labels), value in zip(reading.layout, reading.values, strict=True)}


def test_zones_are_in_degrees_and_devices_in_steps(captured: Callable[[str], HostFS]) -> None:
    reading = ThermalZoneCollector(captured("metal"), NoKeys()).collect()

    assert by_series(reading) == {
        ("node_thermal_zone_temp", "0", "x86_pkg_temp"): 48.0,
        ("node_thermal_zone_temp", "1", "x86_pkg_temp"): 51.5,
        ("node_thermal_zone_temp", "2", "acpitz"): -3.25,
        ("node_cooling_device_cur_state", "0", "Processor"): 0,
        ("node_cooling_device_cur_state", "1", "Processor"): 3,
        ("node_cooling_device_cur_state", "2", "intel_powerclamp"): -1,
        ("node_cooling_device_max_state", "0", "Processor"): 10,
        ("node_cooling_device_max_state", "1", "Processor"): 10,
        ("node_cooling_device_max_state", "2", "intel_powerclamp"): 50,
    }


def test_a_zone_without_a_value_is_a_gap(captured: Callable[[str], HostFS]) -> None:
    reading = ThermalZoneCollector(HostOfASilentZone(captured("metal").root), NoKeys()).collect()

    assert ("node_thermal_zone_temp", "1", "x86_pkg_temp") not in by_series(reading)
    assert [(gap.labels, gap.quality, gap.reason) for gap in reading.gaps] == [
        (("1", "x86_pkg_temp"), Quality.BLANK, f"temp: {os.strerror(errno.ENODATA)}")
    ]


def test_a_zone_that_goes_and_comes_changes_the_layout(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("metal")
    collector = ThermalZoneCollector(host, NoKeys())
    link = Path(host.path(f"{THERMAL}/thermal_zone2"))
    target = os.readlink(link)
    link.unlink()

    without = by_series(collector.collect())
    link.symlink_to(target)
    again = by_series(collector.collect())

    assert ("node_thermal_zone_temp", "2", "acpitz") not in without
    assert again["node_thermal_zone_temp", "2", "acpitz"] == -3.25


def test_a_zone_that_goes_between_list_and_read_is_left_out(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("metal")
    collector = ThermalZoneCollector(host, NoKeys())
    os.rename(host.path("sys/devices/virtual/thermal/thermal_zone0"), host.path("away"))

    reading = collector.collect()

    assert ("node_thermal_zone_temp", "0", "x86_pkg_temp") not in by_series(reading)
    assert reading.gaps == []


def test_a_machine_without_zones_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / THERMAL).mkdir(parents=True)

    with pytest.raises(Unavailable, match="no thermal zones"):
        ThermalZoneCollector(HostFS(str(tmp_path)), NoKeys())

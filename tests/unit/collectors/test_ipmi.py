"""Sensors and event log of a BMC."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.fixtures.bmc import PretendedBmc
from tests.fixtures.sdr import compact, full

from sonde.collectors.ipmi import IpmiCollector, IpmiConfig
from sonde.errors import Denied, ReadError, Unavailable
from sonde.hostfs import HostFS
from sonde.model import Quality, Reading, Value

GOOD = 0xC0
RECORDS = [
    full(1, "Inlet Temp"),
    full(2, "12V", kind=2, unit=4, units1=0, exponents=0xF0),
    full(3, "Fan 1", kind=4, unit=18, units1=0, m=100),
    full(4, "PSU 1 Power", kind=8, unit=6, units1=0, m=4),
    full(5, "PSU 1 Current", kind=3, unit=5, units1=0, exponents=0xF0),
    full(6, "Fan 2", kind=4, unit=0, units1=0x01),
    full(7, "Airflow", kind=0x0B, unit=24, units1=0),
    full(8, "Exhaust", unit=2, units1=0),
    full(9, "DIMM", kind=0x0C, unit=3, units1=0, m=2),
    compact(10, "Chassis"),
]
RAW = {1: 0xEC, 2: 121, 3: 75, 4: 55, 5: 42, 6: 40, 7: 90, 8: 104, 9: 150}


@pytest.fixture
def bmc() -> PretendedBmc:
    bmc = PretendedBmc(RECORDS)
    bmc.readings = {(0, number): bytes([raw, GOOD, 0]) for number, raw in RAW.items()}
    bmc.log = (412, 7600, 0)
    return bmc


def built(bmc: PretendedBmc, **keys: bool) -> IpmiCollector:
    return IpmiCollector(HostFS(), IpmiConfig(**keys), bmc.ask)  # type: ignore[arg-type]


def by_series(reading: Reading) -> dict[tuple[str, ...], Value]:
    return {(s.name, *labels): value for (s, labels), value in zip(reading.layout, reading.values, strict=True)}


def test_each_unit_has_its_metric(bmc: PretendedBmc) -> None:
    values = by_series(built(bmc, thresholds=False).collect())

    assert values == {
        ("sonde_ipmi_temperature_celsius", "0", "Inlet Temp"): -20,
        ("sonde_ipmi_temperature_celsius", "7", "Exhaust"): 40,  # 104 °F
        ("sonde_ipmi_temperature_celsius", "8", "DIMM"): pytest.approx(26.85),  # 300 K
        ("sonde_ipmi_voltage_volts", "1", "12V"): 12.1,
        ("sonde_ipmi_fan_speed_rpm", "2", "Fan 1"): 7500,
        ("sonde_ipmi_power_watts", "3", "PSU 1 Power"): 220,
        ("sonde_ipmi_current_amperes", "4", "PSU 1 Current"): 4.2,
        ("sonde_ipmi_fan_speed_ratio", "5", "Fan 2"): 0.4,
        ("sonde_ipmi_sensor_value", "6", "Airflow", "other", "24"): 90,
        ("sonde_ipmi_sel_entries",): 412,
        ("sonde_ipmi_sel_free_bytes",): 7600,
        ("sonde_ipmi_sel_overflow",): 0,
    }


@pytest.mark.parametrize(("thresholds", "severity"), [(0x00, 0), (0x08, 1), (0x18, 2), (0x07, 2)])
def test_crossed_thresholds_are_a_state(bmc: PretendedBmc, thresholds: int, severity: int) -> None:
    bmc.readings[0, 3] = bytes([75, GOOD, thresholds])

    values = by_series(built(bmc).collect())

    assert values["sonde_ipmi_sensor_state", "2", "Fan 1", "fan"] == severity
    assert values["sonde_ipmi_sensor_state", "0", "Inlet Temp", "temperature"] == 0


def test_a_reading_that_is_not_available_is_a_gap_and_never_zero(bmc: PretendedBmc) -> None:
    bmc.readings[0, 3] = bytes([0, 0xE0, 0])

    reading = built(bmc).collect()

    assert not any("Fan 1" in key for key in by_series(reading))
    assert [(gap.spec.name, gap.labels, gap.quality) for gap in reading.gaps] == [
        ("sonde_ipmi_fan_speed_rpm", ("2", "Fan 1"), Quality.BLANK)
    ]


def test_a_sensor_that_went_is_a_gap_and_the_others_are_read(bmc: PretendedBmc) -> None:
    del bmc.readings[0, 4]

    reading = built(bmc).collect()

    assert ("sonde_ipmi_fan_speed_rpm", "2", "Fan 1") in by_series(reading)
    assert [gap.labels for gap in reading.gaps] == [("3", "PSU 1 Power")]
    assert "cbh" in reading.gaps[0].reason


def test_sensors_that_cannot_be_asked_or_understood_are_gaps(bmc: PretendedBmc) -> None:
    bmc.records = PretendedBmc([full(1, "ME", owner=0x2C), full(2, "Odd", linearization=0x70)]).records

    reading = built(bmc).collect()

    assert [(gap.labels[1], gap.quality) for gap in reading.gaps] == [
        ("ME", Quality.UNSUPPORTED),
        ("Odd", Quality.UNSUPPORTED),
    ]
    assert (0x04, 0x2D) not in bmc.asked


def test_records_are_read_once_and_again_when_they_change(bmc: PretendedBmc) -> None:
    collector = built(bmc)
    first = collector.collect()
    asked = bmc.asked.count((0x0A, 0x23))
    second = collector.collect()
    asked_again = bmc.asked.count((0x0A, 0x23))
    bmc.records = bmc.records[:1]
    bmc.added_at += 60

    third = collector.collect()

    assert asked == asked_again
    assert first.layout is second.layout
    assert {key[2] for key in by_series(third) if len(key) > 2} == {"Inlet Temp"}


def test_a_bmc_without_a_log_is_a_gap(bmc: PretendedBmc) -> None:
    bmc.log = None

    reading = built(bmc).collect()

    assert ("sonde_ipmi_temperature_celsius", "0", "Inlet Temp") in by_series(reading)
    assert [(gap.spec.name, gap.quality) for gap in reading.gaps] == [("sonde_ipmi_sel_entries", Quality.UNSUPPORTED)]


def test_a_machine_without_bmc_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="/dev/ipmi0") as caught:
        IpmiCollector(HostFS(str(tmp_path)), IpmiConfig())

    assert "modprobe" in caught.value.hint


def test_a_device_for_root_only_is_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:  # root, who runs many tests, may open anything
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", refuse)

    with pytest.raises(Denied, match="/dev/ipmi0"):
        IpmiCollector(HostFS(), IpmiConfig())


def test_a_driver_that_fails_is_a_read_error(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/ipmi0").touch()
    collector = IpmiCollector(HostFS(str(tmp_path)), IpmiConfig())

    with pytest.raises(ReadError, match="did not take"):
        collector.collect()
    collector.close()

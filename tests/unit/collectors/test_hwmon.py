"""/sys/class/hwmon."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.clock import ManualClock
from sonde.collectors.hwmon import HwmonCollector, HwmonConfig, clean, measure
from sonde.errors import ConfigError, Unavailable
from sonde.hostfs import HostFS
from sonde.model import Kind, Quality, Reading, Value
from sonde.units import Duration

CHIPS = "sys/class/hwmon"
CORE = "platform_coretemp_0"
SUPERIO = "platform_nct6775_656"
SUPPLY = "i2c_0_0_0058"
METER = "lnxsybus:00_acpi000d:00"


class HostOfABrokenFan(HostFS):
    """A host with a fan whose speed cannot be read."""

    __slots__ = ()

    def attributes(self, folder: str, names: Iterable[str]) -> dict[str, bytes | OSError]:
        found = super().attributes(folder, names)
        if "fan1_input" in found:
            found["fan1_input"] = OSError(errno.EIO, os.strerror(errno.EIO))
        return found


def by_series(reading: Reading) -> dict[tuple[str, ...], Value]:
    return {(s.name, *labels): value for (s, labels), value in zip(reading.layout, reading.values, strict=True)}


def values_of(host: HostFS, config: HwmonConfig | None = None) -> dict[tuple[str, ...], Value]:
    return by_series(HwmonCollector(host, config or HwmonConfig()).collect())


def write(host: HostFS, name: str, text: str) -> None:
    Path(host.path(f"{CHIPS}/{name}")).write_text(text)


@pytest.mark.parametrize(
    ("series", "value"),
    [
        (("node_hwmon_temp_celsius", CORE, "temp1"), 46.0),
        (("node_hwmon_temp_crit_celsius", CORE, "temp1"), 100.0),
        (("node_hwmon_temp_crit_alarm_celsius", "platform_coretemp_1", "temp2"), 0.001),  # as node_exporter has it
        (("node_hwmon_temp_celsius", "nvme_nvme0", "temp1"), 36.85),
        (("node_hwmon_temp_min_celsius", "nvme_nvme0", "temp1"), -273.15),
        (("node_hwmon_temp_type", SUPERIO, "temp1"), 4),
        (("node_hwmon_temp_offset_celsius", SUPERIO, "temp1"), -2.0),
        (("node_hwmon_fan_rpm", SUPERIO, "fan2"), 18240),
        (("node_hwmon_fan_min_rpm", SUPERIO, "fan2"), 600),
        (("node_hwmon_fan_pulses", SUPERIO, "fan2"), 2),
        (("node_hwmon_fan_alarm", SUPERIO, "fan2"), 0),
        (("node_hwmon_fan_beep_enabled", SUPERIO, "fan2"), 1),
        (("node_hwmon_in_volts", SUPERIO, "in1"), 1.009),
        (("node_hwmon_in_alarm", SUPERIO, "in1"), 1),
        (("node_hwmon_cpu_vid_volts", SUPERIO, "cpu0"), 1.05),
        (("node_hwmon_pwm", SUPERIO, "pwm1"), 128),
        (("node_hwmon_pwm_auto_point1_temp", SUPERIO, "pwm1"), 40000),
        (("node_hwmon_intrusion_alarm", SUPERIO, "intrusion0"), 1),
        (("node_hwmon_beep_enabled", SUPERIO, "beep_enable0"), 0),
        (("node_hwmon_update_interval_seconds", SUPERIO, "update_interval0"), 1.5),
        (("node_hwmon_voltage_regulator_version", SUPERIO, "vrm0"), 90),
        (("node_hwmon_curr_amps", SUPPLY, "curr1"), 18.25),
        (("node_hwmon_power_watt", SUPPLY, "power1"), 221.5),
        (("node_hwmon_energy_joule_total", SUPPLY, "energy1"), 9182736455.463728),
        (("node_hwmon_humidity", SUPPLY, "humidity1"), 0.452),
        (("node_hwmon_power_average_watt", METER, "power1"), 212.0),
        (("node_hwmon_power_average_interval_seconds", METER, "power1"), 1.0),
        (("node_hwmon_power_cap_watt", METER, "power1"), 450.0),
        (("node_hwmon_in_volts", "ucsi_source", "in0"), 5.0),  # a chip without a device
        (("node_hwmon_chip_names", SUPPLY, "pmbus_psu"), 1),
        (("node_hwmon_sensor_label", CORE, "temp2", "Core 0"), 1),
    ],
)
def test_a_file_is_a_metric_with_its_unit(
    captured: Callable[[str], HostFS], series: tuple[str, ...], value: float
) -> None:
    assert values_of(captured("metal"))[series] == value


def test_energy_is_a_counter_and_the_rest_are_gauges(captured: Callable[[str], HostFS]) -> None:
    layout = HwmonCollector(captured("metal"), HwmonConfig()).collect().layout

    assert {spec.name for spec, _ in layout if spec.kind is Kind.COUNTER} == {"node_hwmon_energy_joule_total"}


def test_words_are_no_values_and_no_gaps(captured: Callable[[str], HostFS]) -> None:
    reading = HwmonCollector(captured("metal"), HwmonConfig()).collect()

    assert not any("model" in spec.name or "accuracy" in spec.name for spec, _ in reading.layout)
    assert reading.gaps == []


def test_the_directory_of_power_management_is_no_sensor(captured: Callable[[str], HostFS]) -> None:
    assert not any("power0" in key for key in values_of(captured("metal")))


def test_an_nvme_disk_of_a_real_kernel_has_its_temperature(captured: Callable[[str], HostFS]) -> None:
    assert values_of(captured("qemu"))["node_hwmon_temp_celsius", "nvme_nvme0", "temp1"] == 49.85


def test_a_sensor_that_fails_is_a_gap_and_the_others_are_read(captured: Callable[[str], HostFS]) -> None:
    reading = HwmonCollector(HostOfABrokenFan(captured("metal").root), HwmonConfig()).collect()
    values = by_series(reading)

    assert ("node_hwmon_fan_rpm", SUPERIO, "fan1") not in values
    assert values["node_hwmon_fan_rpm", SUPERIO, "fan2"] == 18240
    assert [(gap.spec.name, gap.labels, gap.quality) for gap in reading.gaps] == [
        ("node_hwmon_fan_rpm", (SUPERIO, "fan1"), Quality.BLANK)
    ]


def test_readings_are_taken_at_every_tick_and_limits_now_and_then(scratch: Callable[[str], HostFS]) -> None:
    host, clock = scratch("metal"), ManualClock(monotonic_ns=10**12)
    collector = HwmonCollector(host, HwmonConfig(limits_every=Duration(60)), clock)
    first = collector.collect()
    write(host, "hwmon0/temp1_input", "91000\n")
    write(host, "hwmon1/temp1_crit_alarm", "1\n")
    write(host, "hwmon0/temp1_max", "70000\n")
    clock.advance(59)

    soon = collector.collect()
    clock.advance(1)
    later = collector.collect()

    assert by_series(soon)["node_hwmon_temp_celsius", CORE, "temp1"] == 91.0
    assert by_series(soon)["node_hwmon_temp_crit_alarm_celsius", "platform_coretemp_1", "temp1"] == 0.001
    assert by_series(soon)["node_hwmon_temp_max_celsius", CORE, "temp1"] == 84.0
    assert by_series(later)["node_hwmon_temp_max_celsius", CORE, "temp1"] == 70.0
    assert first.layout is soon.layout is later.layout


def test_a_chip_that_goes_and_comes_changes_the_layout(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("metal")
    collector = HwmonCollector(host, HwmonConfig())
    before = by_series(collector.collect())
    os.rename(host.path(f"{CHIPS}/hwmon4"), host.path("away"))

    without = by_series(collector.collect())
    os.rename(host.path("away"), host.path(f"{CHIPS}/hwmon4"))
    again = by_series(collector.collect())

    assert SUPERIO not in {key[1] for key in without}
    assert again == before


def test_a_chip_that_goes_between_list_and_read_is_left_out(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("metal")
    collector = HwmonCollector(host, HwmonConfig())
    collector.collect()
    os.rename(host.path("sys/devices/virtual/hwmon/hwmon6"), host.path("away"))

    reading = collector.collect()

    assert ("node_hwmon_in_volts", "ucsi_source", "in0") not in by_series(reading)
    assert reading.gaps == []


def test_an_excluded_chip_is_not_read(captured: Callable[[str], HostFS]) -> None:
    chips = {key[1] for key in values_of(captured("metal"), HwmonConfig(exclude="platform_.*|nvme_nvme0"))}

    assert chips == {METER, SUPPLY, "ucsi_source"}


def test_an_odd_pattern_is_refused(captured: Callable[[str], HostFS]) -> None:
    with pytest.raises(ConfigError, match=r"collectors\.hwmon\.exclude"):
        HwmonCollector(captured("metal"), HwmonConfig(exclude="("))


def test_two_chips_of_one_device_are_not_mixed_up(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("metal")
    os.symlink("hwmon6", host.path(f"{CHIPS}/hwmon7"))

    reading = HwmonCollector(host, HwmonConfig()).collect()

    assert by_series(reading)["node_hwmon_in_volts", "ucsi_source", "in0"] == 5.0
    assert [gap.reason for gap in reading.gaps] == ["hwmon7 and hwmon6 are both called ucsi_source"]


def test_a_chip_with_a_bare_file_and_an_input_has_both(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("metal")
    write(host, "hwmon6/pwm1", "77\n")
    write(host, "hwmon6/pwm1_input", "78\n")

    values = values_of(host)

    assert values["node_hwmon_pwm", "ucsi_source", "pwm1"] == 77
    assert values["node_hwmon_pwm_input", "ucsi_source", "pwm1"] == 78


def test_a_machine_without_chips_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / CHIPS).mkdir(parents=True)

    with pytest.raises(Unavailable, match="no driver"):
        HwmonCollector(HostFS(str(tmp_path)), HwmonConfig())


@pytest.mark.parametrize(
    ("text", "cleaned"), [("coretemp.0", "coretemp_0"), ("0000:01:00.0", "0000:01:00_0"), ("PMBus PSU\n", "pmbus_psu")]
)
def test_names_are_cleaned_as_node_exporter_does(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


@given(st.sampled_from(["temp", "in", "fan", "pwm", "power"]), st.text(max_size=20))
def test_any_element_has_a_metric_of_a_lawful_name(kind: str, element: str) -> None:
    name = measure(kind, element).spec.name

    assert name.startswith(f"node_hwmon_{kind}")
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_:")

"""Frequencies and throttling."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from sonde.clock import ManualClock
from sonde.collectors.cpufreq import CpufreqCollector, CpufreqConfig
from sonde.errors import Unavailable
from sonde.hostfs import HostFS
from sonde.model import Quality, Reading, Value
from sonde.units import Duration

CPUS = "sys/devices/system/cpu"


class HostForRootOnly(HostFS):
    """A host whose hardware this user may not ask."""

    __slots__ = ()

    def attributes(self, folder: str, names: Iterable[str]) -> dict[str, bytes | OSError]:
        found = super().attributes(folder, names)
        if "cpuinfo_cur_freq" in found:
            found["cpuinfo_cur_freq"] = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return found


def by_series(reading: Reading) -> dict[tuple[str, ...], Value]:
    return {(s.name, *labels): value for (s, labels), value in zip(reading.layout, reading.values, strict=True)}


def write(host: HostFS, name: str, text: str) -> None:
    Path(host.path(f"{CPUS}/{name}")).write_text(text)


def test_frequencies_are_in_hertz(captured: Callable[[str], HostFS]) -> None:
    collector = CpufreqCollector(captured("metal"), CpufreqConfig())
    values = by_series(collector.collect())
    collector.close()

    assert values["node_cpu_scaling_frequency_hertz", "1"] == 2401111000
    assert values["node_cpu_scaling_frequency_min_hertz", "1"] == 800010000
    assert values["node_cpu_scaling_frequency_max_hertz", "1"] == 3501000000
    assert values["node_cpu_frequency_min_hertz", "1"] == 800000000
    assert values["node_cpu_frequency_max_hertz", "1"] == 3800000000


def test_the_governor_in_force_is_one_and_the_others_are_zero(captured: Callable[[str], HostFS]) -> None:
    collector = CpufreqCollector(captured("metal"), CpufreqConfig())
    values = by_series(collector.collect())
    collector.close()

    assert {key[1:]: value for key, value in values.items() if key[0] == "node_cpu_scaling_governor"} == {
        ("0", "performance"): 1,
        ("0", "powersave"): 0,
        **{(cpu, governor): int(governor == "powersave") for cpu in "123" for governor in ("performance", "powersave")},
    }


def test_throttling_is_counted_once_per_core_and_package(captured: Callable[[str], HostFS]) -> None:
    collector = CpufreqCollector(captured("metal"), CpufreqConfig())
    values = by_series(collector.collect())
    collector.close()

    assert {key: value for key, value in values.items() if "thrott" in key[0]} == {
        ("node_cpu_core_throttles_total", "0", "0"): 5,
        ("node_cpu_core_throttles_total", "0", "1"): 6,
        ("node_cpu_core_throttles_total", "1", "4"): 7,
        ("node_cpu_core_throttles_total", "1", "5"): 8,
        ("node_cpu_package_throttles_total", "0"): 30,
        ("node_cpu_package_throttles_total", "1"): 31,
        ("sonde_cpu_core_throttled_seconds_total", "0", "0"): 1.204,
        ("sonde_cpu_core_throttled_seconds_total", "0", "1"): 1.205,
        ("sonde_cpu_core_throttled_seconds_total", "1", "4"): 1.206,
        ("sonde_cpu_core_throttled_seconds_total", "1", "5"): 1.207,
        ("sonde_cpu_package_throttled_seconds_total", "0"): 9.1,
        ("sonde_cpu_package_throttled_seconds_total", "1"): 9.101,
    }


def test_the_hardware_is_asked_only_when_wanted(captured: Callable[[str], HostFS]) -> None:
    given = []
    for measured in (False, True):
        collector = CpufreqCollector(captured("metal"), CpufreqConfig(measured=measured))
        given.append(by_series(collector.collect()).get(("node_cpu_frequency_hertz", "3")))
        collector.close()

    assert given == [None, 2403183000]


def test_hardware_that_may_not_be_asked_is_a_gap(captured: Callable[[str], HostFS]) -> None:
    collector = CpufreqCollector(HostForRootOnly(captured("metal").root), CpufreqConfig(measured=True))
    reading = collector.collect()
    collector.close()

    assert {(gap.spec.name, gap.labels, gap.quality) for gap in reading.gaps} == {
        ("node_cpu_frequency_hertz", (cpu,), Quality.DENIED) for cpu in "0123"
    }
    assert ("node_cpu_frequency_hertz", "0") not in by_series(reading)


def test_a_frequency_the_driver_does_not_know_is_a_gap(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("metal")
    collector = CpufreqCollector(host, CpufreqConfig(measured=True))
    write(host, "cpu1/cpufreq/cpuinfo_cur_freq", "<unknown>\n")

    reading = collector.collect()
    collector.close()

    assert [(gap.labels, gap.quality, gap.reason) for gap in reading.gaps] == [
        (("1",), Quality.BLANK, "cpuinfo_cur_freq: <unknown>")
    ]


def test_the_present_is_read_at_every_tick_and_limits_now_and_then(scratch: Callable[[str], HostFS]) -> None:
    host, clock = scratch("metal"), ManualClock()
    collector = CpufreqCollector(host, CpufreqConfig(limits_every=Duration(60)), clock)
    first = collector.collect()
    write(host, "cpu0/cpufreq/scaling_cur_freq", "1200000\n")
    write(host, "cpu0/cpufreq/scaling_max_freq", "2000000\n")
    write(host, "cpu0/thermal_throttle/core_throttle_count", "6\n")
    clock.advance(59)

    soon = collector.collect()
    clock.advance(1)
    later = collector.collect()
    collector.close()

    assert by_series(soon)["node_cpu_scaling_frequency_hertz", "0"] == 1200000000
    assert by_series(soon)["node_cpu_core_throttles_total", "0", "0"] == 6
    assert by_series(soon)["node_cpu_scaling_frequency_max_hertz", "0"] == 3500000000
    assert by_series(later)["node_cpu_scaling_frequency_max_hertz", "0"] == 2000000000
    assert first.layout is soon.layout is later.layout


def test_a_cpu_that_goes_off_line_is_left_out(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("metal")
    collector = CpufreqCollector(host, CpufreqConfig())
    collector.collect()
    os.unlink(host.path(f"{CPUS}/cpu3/cpufreq"))
    shutil.rmtree(host.path(f"{CPUS}/cpu3/topology"))
    write(host, "online", "0-2\n")

    reading = collector.collect()
    collector.close()

    assert ("node_cpu_scaling_frequency_hertz", "3") not in by_series(reading)
    assert ("node_cpu_core_throttles_total", "1", "5") not in by_series(reading)
    assert ("node_cpu_package_throttles_total", "1") in by_series(reading)
    assert reading.gaps == []


def test_a_cpu_that_goes_between_two_reads_is_left_out(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("metal")
    collector = CpufreqCollector(host, CpufreqConfig())
    os.unlink(host.path(f"{CPUS}/cpu3/cpufreq"))

    reading = collector.collect()
    collector.close()

    assert ("node_cpu_scaling_frequency_hertz", "3") not in by_series(reading)
    assert reading.gaps == []


def test_a_kernel_without_throttling_times_has_the_counts(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("metal")
    for path in Path(host.path(CPUS)).glob("cpu*/thermal_throttle/*_time_ms"):
        path.unlink()
    collector = CpufreqCollector(host, CpufreqConfig())
    reading = collector.collect()
    collector.close()

    assert ("node_cpu_core_throttles_total", "0", "0") in by_series(reading)
    assert not any("throttled_seconds" in key[0] for key in by_series(reading))
    assert reading.gaps == []


def test_a_machine_without_either_is_unavailable(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("metal")
    for path in Path(host.path(CPUS)).glob("cpu[0-9]*"):
        shutil.rmtree(path)

    with pytest.raises(Unavailable, match="no driver"):
        CpufreqCollector(host, CpufreqConfig())

"""Energy over a time: wraps of the counter, restarts of the recorder, and the estimate where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.jobs.energy import Energy, estimated, joules_between, read_tdp_watts, used

RANGE = 262_143_328_850


def test_readings_that_rise_are_subtracted() -> None:
    assert joules_between([5_000_000, 6_500_000, 9_000_000], RANGE) == 4.0


def test_each_wrap_adds_the_range() -> None:
    # 1 J before the end, 2 J after it; then once around but 1 J.
    readings = [RANGE - 1_000_000, 2_000_000, 1_000_000]

    assert joules_between(readings, RANGE) == pytest.approx(3.0 + (RANGE - 1_000_000) / 1e6)


@pytest.mark.parametrize("readings", [[], [7]])
def test_fewer_than_two_readings_have_used_nothing(readings: list[int]) -> None:
    assert joules_between(readings, RANGE) == 0


@pytest.mark.parametrize(("readings", "limit"), [([-1, 0], RANGE), ([0, RANGE + 1], RANGE), ([0], 0)])
def test_what_cannot_be_a_reading_is_refused(readings: list[int], limit: int) -> None:
    with pytest.raises(ParseError):
        joules_between(readings, limit)


@given(st.lists(st.integers(0, RANGE // 2), max_size=20), st.integers(0, RANGE - 1))
@settings(max_examples=200)
def test_whatever_was_used_comes_out_again(steps: list[int], first: int) -> None:
    readings, now = [first], first
    for step in steps:
        now = (now + step) % RANGE
        readings.append(now)

    assert joules_between(readings, RANGE) == pytest.approx(sum(steps) / 1e6)


def test_a_recorded_total_is_what_it_gained() -> None:
    assert used([0, 10**9, 3 * 10**9], [100.0, 150.0, 250.0]) == Energy(150.0, 3.0)


def test_what_was_used_while_no_recorder_ran_is_not_made_up() -> None:
    # The second recorder began again at what its register held: neither a gain nor a loss.
    assert used([0, 10**9, 60 * 10**9, 61 * 10**9], [900.0, 950.0, 20.0, 70.0]) == Energy(100.0, 2.0)


def test_one_value_is_no_energy() -> None:
    assert used([0], [3.0]) is None


def package(root: Path, zone: str, watts: float, name: str = "long_term") -> None:
    folder = root / "sys/class/powercap" / zone
    folder.mkdir(parents=True)
    (folder / "constraint_0_name").write_text(f"{name}\n")
    (folder / "constraint_0_max_power_uw").write_text(f"{int(watts * 1e6)}\n")


def test_the_tdp_is_that_of_all_packages(tmp_path: Path) -> None:
    package(tmp_path, "intel-rapl:0", 205)
    package(tmp_path, "intel-rapl:1", 205)
    package(tmp_path, "intel-rapl:0:0", 30)  # a zone of package 0
    package(tmp_path, "intel-rapl-mmio:0", 205)  # package 0 once more

    assert read_tdp_watts(HostFS(str(tmp_path))) == 410


@pytest.mark.parametrize(("watts", "name"), [(0, "long_term"), (205, "peak_power")])
def test_a_package_that_does_not_tell_its_tdp_leaves_it_unknown(tmp_path: Path, watts: float, name: str) -> None:
    package(tmp_path, "intel-rapl:0", 205)
    package(tmp_path, "intel-rapl:1", watts, name)

    assert read_tdp_watts(HostFS(str(tmp_path))) is None


def test_without_power_zones_there_is_no_tdp_and_no_estimate(tmp_path: Path) -> None:
    tdp = read_tdp_watts(HostFS(str(tmp_path)))

    assert tdp is None
    assert estimated(100, 50, 4, tdp) is None


def test_the_estimate_is_the_share_of_cpu_time_of_the_tdp_and_says_what_it_is() -> None:
    # 2 of 4 CPUs busy for 50 s at 200 W
    assert estimated(100, 50, 4, 200) == Energy(5000.0, 50, estimated=True)


def test_no_more_than_all_cpus_can_be_busy() -> None:
    assert estimated(1000, 50, 4, 200) == Energy(10_000.0, 50, estimated=True)

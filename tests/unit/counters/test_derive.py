"""Counts scaled to the whole time, and formulas over them."""

from __future__ import annotations

import pytest

from sonde.counters import catalogue
from sonde.counters.derive import Count, derive
from sonde.model import Quality

GENERIC = catalogue.load("generic")


def results(counts: dict[tuple[str, str], Count], seconds: float = 2.0) -> dict[str, tuple[float, Quality, float]]:
    return {one.name: (one.value, one.quality, one.share) for one in derive(GENERIC, counts, seconds)}


def test_what_was_counted_a_quarter_of_the_time_is_scaled_by_four() -> None:
    found = results({("core", "instructions"): Count(500, 8.0, 2.0), ("core", "cycles"): Count(400, 8.0, 2.0)})

    assert found["instructions_per_second"] == (1000.0, Quality.MULTIPLEXED, 0.25)
    assert found["ipc"] == (1.25, Quality.MULTIPLEXED, 0.25)


def test_what_was_counted_all_the_time_is_left_alone() -> None:
    found = results({("core", "instructions"): Count(500, 8.0, 8.0)})

    assert found == {"instructions_per_second": (250.0, Quality.OK, 1.0)}


def test_what_never_got_onto_a_counter_has_no_value() -> None:
    assert results({("core", "instructions"): Count(0, 8.0, 0.0), ("core", "cycles"): Count(0, 8.0, 0.0)}) == {}


def test_a_job_that_did_not_run_has_made_no_instructions() -> None:
    found = results({("core", "instructions"): Count(0, 0, 0), ("core", "cycles"): Count(0, 0, 0)})

    assert found == {"instructions_per_second": (0.0, Quality.OK, 1.0)}


def test_events_of_the_same_group_are_preferred_because_their_moments_are_the_same() -> None:
    counts = {
        ("core", "instructions"): Count(1000, 4.0, 4.0),
        ("branch", "instructions"): Count(300, 4.0, 1.0),
        ("branch_2", "branch_misses"): Count(6, 4.0, 1.0),
    }

    assert results(counts)["branch_misses_per_1000_instructions"][0] == pytest.approx(1000 * 24 / 1200)


def test_a_part_of_another_group_is_not_taken_for_the_group_s_own() -> None:
    counts = {
        ("cache_x", "instructions"): Count(100, 1, 1),
        ("cache", "instructions"): Count(200, 1, 1),
        ("cache", "cache_misses"): Count(4, 1, 1),
    }

    assert results(counts)["cache_misses_per_1000_instructions"][0] == pytest.approx(20)

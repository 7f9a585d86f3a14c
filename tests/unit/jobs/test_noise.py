"""How sure one can be of a mean, against tables and against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.runs import Noise, course

from sonde.jobs.noise import FEWEST, estimate, halves_differ, holm, quantile, shape_error, two_sided, welch


@pytest.mark.parametrize(
    ("chance", "freedom", "t"),
    [  # NIST/SEMATECH e-Handbook, table of critical values of Student's t
        (0.05, 1, 12.706),
        (0.05, 7, 2.365),
        (0.05, 10, 2.228),
        (0.01, 10, 3.169),
        (0.002, 63, 3.225),
        (0.05, math.inf, 1.960),
    ],
)
def test_students_t_is_as_in_the_tables(chance: float, freedom: float, t: float) -> None:
    assert quantile(chance, freedom) == pytest.approx(t, abs=0.001)
    assert two_sided(t, freedom) == pytest.approx(chance, rel=0.002)
    assert two_sided(-t, freedom) == two_sided(t, freedom)


def test_holm_keeps_each_finding_that_is_below_its_step() -> None:
    found = holm([0.01, 0.04, 0.03, 0.005], 0.05)

    assert found == [(True, pytest.approx(0.05 / 3)), (False, 0.025), (False, 0.025), (True, 0.0125)]
    assert holm([0.2, 0.01], 0.05) == [(False, 0.05), (True, 0.025)]
    assert holm([], 0.05) == []


def test_errors_add_up_with_the_freedom_of_the_largest() -> None:
    error, freedom = welch([(3.0, 7.0), (4.0, math.inf), (0.0, 5.0)])

    assert error == 5.0
    assert freedom == pytest.approx(7 * 625 / 81)
    assert welch([(1.0, math.inf)]) == (1.0, math.inf)


def test_of_independent_values_the_error_is_that_of_the_mean() -> None:
    chance = np.random.default_rng(1)
    found = [estimate(chance.normal(10, 1, 1024)) for _ in range(100)]

    errors = [one.error for one in found if one is not None]
    assert len(errors) == 100
    assert 1 / 32 <= float(np.mean(errors)) < 1.5 / 32  # never too small, and not by much too large


@pytest.mark.parametrize("memory", [5.0, 20.0])
def test_the_true_mean_lies_within_the_error_as_often_as_is_said(memory: float) -> None:
    chance = np.random.default_rng(2)
    noise = Noise(0.1, memory, outliers=0.0, checkpoint=10**9)
    inside = 0
    for _ in range(200):
        found = estimate(course(chance, 1800, noise)[30:])
        assert found is not None
        inside += abs(found.mean - 1) <= quantile(0.05, found.freedom) * found.error

    assert inside >= 186  # of 200: 95 %, less two standard deviations


def test_what_both_runs_have_in_common_is_no_noise() -> None:
    phases = np.repeat([0.1, 4.0, 1.0, 0.2], 300)
    chance = np.random.default_rng(3)
    one, other = (phases * chance.normal(1, 0.01, len(phases)) for _ in range(2))
    alone = estimate(one)
    together = shape_error(one, other)

    assert alone is not None
    assert together is not None
    assert alone.error / alone.mean > 0.2
    assert together[0] < 0.005


def test_a_series_that_is_too_short_or_empty_has_no_error() -> None:
    ones = np.ones(FEWEST)

    assert estimate(ones[1:]) is None
    assert estimate(np.full(100, np.nan)) is None
    assert estimate(ones) == (1.0, 0.0, 7)
    assert shape_error(ones, ones[1:]) is None
    assert shape_error(ones, np.zeros(FEWEST)) is None


def test_a_run_is_held_against_itself() -> None:
    chance = np.random.default_rng(4)
    steady = chance.normal(10, 1, 2000)
    drifting = steady + np.repeat([0, 5], 1000)

    assert halves_differ(steady) is None
    assert halves_differ(drifting) == pytest.approx(0.5, abs=0.05)
    assert halves_differ(np.ones(10)) is None

"""Comparisons: like runs differ in nothing, a slowdown is found, and what cannot be told is said to be so."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from tests.recordings import make_recording
from tests.runs import Noise, run

from sonde.jobs.compare import Change, Comparison, Verdict, compare
from sonde.jobs.measures import DURATION, MEASURES, Better, Measure, Measured, increase, measured
from sonde.model import Histogram

PAIRS = 200
NOTHING = (Verdict.SAME, Verdict.UNCLEAR)


def verdicts(
    pairs: int = PAIRS, *, seconds: int = 1800, noise: Noise | None = None, slowdown: float = 0.0, again: int = 0
) -> list[Verdict]:
    found = []
    for pair in range(pairs):
        chance = np.random.default_rng(pair)
        a, b = run(chance, seconds, noise), run(chance, seconds, noise, slowdown)
        more = [run(chance, seconds, noise) for _ in range(again)]
        found.append(compare(a, b, more).verdict)
    return found


def by_name(result: Comparison) -> dict[str, Change]:
    return {change.measure.name: change for change in result.changes}


@pytest.mark.parametrize(
    "noise",
    [
        pytest.param(Noise(), id="usual"),
        pytest.param(Noise(between=0.01), id="runs differ by what is assumed"),
        pytest.param(Noise(0.2, 20.0), id="noisy", marks=pytest.mark.long),
        pytest.param(Noise(0.1, 60.0), id="slow wandering", marks=pytest.mark.long),
    ],
)
def test_of_200_pairs_of_like_runs_at_most_one_in_twenty_is_said_to_differ(noise: Noise) -> None:
    found = verdicts(noise=noise)

    assert sum(verdict not in NOTHING for verdict in found) <= PAIRS * 0.05
    # Of noisy ones it may be said that nothing can be told.
    assert found.count(Verdict.SAME) >= PAIRS * (0.95 if noise.scatter < 0.1 else 0.8)


def test_a_slowdown_of_five_percent_is_found_in_nine_of_ten() -> None:
    found = verdicts(slowdown=0.05)

    assert found.count(Verdict.WORSE) >= PAIRS * 0.9


@pytest.mark.long
def test_runs_that_differ_more_than_assumed_are_told_by_further_runs() -> None:
    wild = Noise(between=0.03)

    assert sum(verdict not in NOTHING for verdict in verdicts(60, noise=wild)) > 12  # the assumption does not hold
    assert sum(verdict not in NOTHING for verdict in verdicts(100, noise=wild, again=4)) <= 9


def test_a_run_is_like_itself() -> None:
    one = run(np.random.default_rng(1))
    result = compare(one, one)

    assert result.verdict is Verdict.SAME
    assert {change.change for change in result.changes} == {0.0}


def own(better: Better, values: object, *, primary: bool = True) -> dict[str, Measured]:
    course = np.asarray(values, np.float64)
    measure = Measure("x", "", better, 0.0, ("x",), "own", primary)
    return {"x": Measured(measure, float(course.mean()), course)}


@pytest.mark.parametrize(
    ("better", "verdict"),
    [(Better.LESS, Verdict.WORSE), (Better.MORE, Verdict.BETTER), (Better.NEITHER, Verdict.CHANGED)],
)
def test_which_way_is_better_decides_what_a_rise_is(better: Better, verdict: Verdict) -> None:
    chance = np.random.default_rng(5)
    result = compare(own(better, chance.normal(10, 1, 1000)), own(better, chance.normal(11, 1, 1000)))

    (change,) = result.changes
    assert change.verdict is result.verdict is verdict
    assert change.low < 0.1 < change.high
    assert change.low > 0


def test_a_change_below_the_margin_does_not_count() -> None:
    chance = np.random.default_rng(6)
    a, b = own(Better.LESS, chance.normal(10, 0.1, 4000)), own(Better.LESS, chance.normal(10.15, 0.1, 4000))

    assert compare(a, b, run_noise=0.001).verdict is Verdict.SAME
    assert compare(a, b, run_noise=0.001, margin=0.01).verdict is Verdict.WORSE


def test_a_run_that_is_too_short_cannot_be_judged() -> None:
    result = compare(own(Better.LESS, np.ones(20)), own(Better.LESS, np.ones(20) * 2))

    assert result.verdict is Verdict.UNCLEAR
    assert result.changes[0].reason == "too short: 32 values of each run are needed"


def test_a_run_that_is_too_noisy_cannot_be_judged() -> None:
    chance = np.random.default_rng(7)
    result = compare(own(Better.LESS, chance.lognormal(0, 2, 64)), own(Better.LESS, chance.lognormal(0, 2, 64)))

    assert result.verdict is Verdict.UNCLEAR
    assert "too noisy" in result.changes[0].reason


def test_what_was_not_steady_is_noted() -> None:
    values = np.repeat([1.0, 2.0], 500) + np.random.default_rng(8).normal(0, 0.05, 1000)
    result = compare(own(Better.LESS, values), own(Better.LESS, values * 1.3))

    (change,) = result.changes
    assert change.verdict is Verdict.WORSE  # both have the same phases
    assert "A was not steady: +100% from its first half to its second" in change.reason


def test_what_is_negligible_in_both_is_left_out_and_what_appears_is_not() -> None:
    measure = Measure("wait", "ratio", Better.LESS, 0.02, ("x",), "share")
    quiet = {"wait": Measured(measure, 0.001, np.full(100, 0.001))}
    nearly = {"wait": Measured(measure, 0.004, np.full(100, 0.004))}
    waiting = {"wait": Measured(measure, 0.3, np.full(100, 0.3))}

    assert compare(quiet, nearly).changes == []
    assert by_name(compare(quiet, waiting))["wait"].verdict is Verdict.WORSE


def test_what_only_one_run_has_is_named() -> None:
    one = own(Better.LESS, np.ones(100))

    assert compare(one, {}).lacking == ["x"]


def test_worst_comes_first() -> None:
    chance = np.random.default_rng(9)
    a, b = run(chance), run(chance, slowdown=0.2)
    found = [change.verdict for change in compare(a, b).changes]
    order = [Verdict.WORSE, Verdict.BETTER, Verdict.CHANGED, Verdict.UNCLEAR, Verdict.SAME]

    assert found == sorted(found, key=order.index)
    assert (found[0], found[-1]) == (Verdict.WORSE, Verdict.SAME)


def test_the_smallest_change_that_would_show_is_half_of_the_interval() -> None:
    one = run(np.random.default_rng(1))
    found = by_name(compare(one, one))["memory peak"]

    assert found.low < 0 < found.high
    assert math.log1p(found.seen) == pytest.approx(math.log1p(found.high))


def test_a_recording_is_measured_as_its_counters_say(tmp_path: Path) -> None:
    job = '{job_id="7",scheduler="slurm"'
    recording = make_recording(
        tmp_path / "r",
        seconds=100,
        series={
            f'sonde_job_cpu_seconds_total{job},mode="user"}}': lambda t, host: 1.5 * t,
            f'sonde_job_cpu_seconds_total{job},mode="system"}}': lambda t, host: 0.5 * t,
            f"sonde_job_memory_rss_bytes{job}}}": lambda t, host: 2**30 * (3 if host == "n2" and t == 50 else 1),
            f"sonde_job_read_bytes_total{job}}}": lambda t, host: 10**9 if t > 10 else 0,
            "node_pressure_io_waiting_seconds_total": lambda t, host: 0.25 * t,
            "sonde_step_seconds": lambda t, host: Histogram((1.0,), (int(t) * 4, 0), 0.25 * 4 * int(t)),
            "app_tokens_total": lambda t, host: int(1000 * t),
        },
    )  # fmt: skip
    tokens = Measure("app_tokens_total", "", Better.MORE, 0.0, ("app_tokens_total",), "own", True)
    found = measured(recording, [tokens])

    assert {name: one.value for name, one in found.items()} == {
        "duration": 100.0,
        "step time": 0.25,
        "CPU time": pytest.approx(2 * 2.0 * 99),  # from the first value to the last
        "memory": pytest.approx(2 * 2**30 * 1.01),
        "memory peak": 3 * 2**30,
        "read": 2 * 10**9,
        "waiting for I/O": pytest.approx(0.25),
        "app_tokens_total": pytest.approx(2000.0),
    }


def test_a_counter_that_was_reset_has_counted_from_nothing_since(tmp_path: Path) -> None:
    from sonde.jobs.columns import columns

    recording = make_recording(
        tmp_path / "r", ["n1"], 10, series={"x_total": lambda t, host: int(100 + t) if t < 5 else int(t - 5)}
    )
    (column,) = columns(recording.nodes[0], "x_total")

    assert increase(column) == 4 + 0 + 4


def test_a_node_that_began_later_is_no_change(tmp_path: Path) -> None:
    job = '{job_id="7",scheduler="slurm",mode="user"}'
    recording = make_recording(
        tmp_path / "r",
        ["n1", "n2"],
        200,
        series={f"sonde_job_cpu_seconds_total{job}": lambda t, host: None if host == "n2" and t < 60 else float(t)},
    )
    cpu = measured(recording)["CPU time"]

    assert cpu.course is not None
    known = cpu.course[np.isfinite(cpu.course)]
    assert len(known) == 139
    assert known.min() == pytest.approx(2.0)


def shared(seconds: int, work: float, seed: int) -> dict[str, Measured]:
    """A job that has to share its CPUs with others: it takes longer, and uses as much of them."""
    chance = np.random.default_rng(seed)
    rates = np.repeat(chance.uniform(0.1, 1.0, seconds // 20), 20)
    rates *= work / rates.sum()
    cpu = next(measure for measure in MEASURES if measure.name == "CPU time")
    return {
        "duration": Measured(DURATION, float(seconds), rates, 1 / seconds),
        "CPU time": Measured(cpu, work, rates),
    }


def test_cpu_time_is_compared_by_the_work_where_the_cpus_were_shared() -> None:
    before, like, more = shared(340, 190, 1), shared(480, 192, 2), shared(590, 235, 3)

    assert by_name(compare(before, like))["CPU time"].verdict is Verdict.SAME
    assert by_name(compare(before, like))["duration"].verdict is Verdict.UNCLEAR
    found = by_name(compare(before, more))["CPU time"]
    assert found.verdict is Verdict.WORSE
    assert found.low < 235 / 190 - 1 < found.high


def test_a_rise_from_next_to_nothing_must_be_beyond_its_own_noise() -> None:
    measure = Measure("wait", "ratio", Better.LESS, 0.02, ("x",), "share")
    rare = np.where(np.random.default_rng(1).random(200) < 0.03, 0.9, 0.0)
    quiet = {"wait": Measured(measure, 0.0, np.zeros(200))}
    bursts = {"wait": Measured(measure, float(rare.mean()), rare)}

    assert rare.mean() > 0.022
    assert by_name(compare(quiet, bursts))["wait"].verdict is Verdict.UNCLEAR

"""What a recording's counters come to, from an archive that the real collector has filled by a script."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from sonde.jobs.columns import Column
from sonde.jobs.counters import derived, totals

S = 10**9


def column(name: str, values: list[float], seconds: list[float] | None = None, **labels: str) -> Column:
    times = np.array(seconds if seconds is not None else range(len(values)), np.float64) * S
    told = {"scope": "tree", **labels}
    return Column(f"sonde_perf_{name}", told, "counter", "", times.astype(np.int64), np.array(values, float))


def group(
    part: str,
    counts: Mapping[str, list[float]],
    enabled: list[float],
    running: list[float],
    seconds: list[float] | None = None,
) -> list[Column]:
    return [
        *(column("events_total", values, seconds, group=part, event=event) for event, values in counts.items()),
        column("enabled_seconds_total", enabled, seconds, group=part),
        column("running_seconds_total", running, seconds, group=part),
    ]


INFO = Column("sonde_perf_info", {"microarchitecture": "skylake_sp"}, "info", "", np.array([0]), np.array([1.0]))


def test_each_interval_is_scaled_by_its_own_times() -> None:
    # On the counters all of the first second, a quarter of the second.
    columns = group("core", {"instructions": [0, 100, 200], "cycles": [0, 50, 100]}, [0, 1, 2], [0, 1, 1.25])

    found = {one.name: one for one in derived([INFO, *columns])}

    assert found["instructions_per_second"].values.tolist() == [100, 400]
    assert found["instructions_per_second"].shares.tolist() == [1, 0.25]
    assert found["ipc"].values.tolist() == [2, 2]
    assert found["ipc"].times.tolist() == [S, 2 * S]
    assert found["ipc"].labels == {"scope": "tree"}


def test_formulas_are_those_of_the_processor_that_was_recorded() -> None:
    columns = group("l3", {"l2_lines_in_all": [0, 70], "l2_trans_l2_wb": [0, 30]}, [0, 2], [0, 2], [0, 2])

    assert {one.name: one.values.tolist() for one in derived([INFO, *columns])} == {"l3_bandwidth": [3200.0]}
    assert derived(columns) == []  # of a processor that is not told, only what all have


def test_an_interval_without_counting_and_one_with_a_reset_have_no_value() -> None:
    counts: dict[str, list[float]] = {"instructions": [0, 0, 100, 30, 80]}
    columns = group("core", counts, [0, 1, 2, 3, 4], [0, 0, 1, 2, 3])

    [found] = derived([INFO, *columns])

    assert [None if math.isnan(one) else one for one in found.values] == [None, 100, None, 50]


def test_a_time_without_readings_has_no_value() -> None:
    columns = group("core", {"instructions": [0, 1, 2, 3, 4]}, [0, 1, 2, 9, 10], [0, 1, 2, 9, 10], [0, 1, 2, 9, 10])

    [found] = derived([INFO, *columns])

    assert [None if math.isnan(one) else one for one in found.values] == [1, 1, None, 1]


def test_series_that_begin_later_are_taken_from_where_all_are() -> None:
    columns = [
        column("events_total", [10, 30], [1, 2], group="core", event="instructions"),
        column("enabled_seconds_total", [0, 1, 2], group="core"),
        column("running_seconds_total", [0, 1, 2], group="core"),
    ]

    [found] = derived([INFO, *columns])

    assert (found.times.tolist(), found.values.tolist()) == ([2 * S], [20])


def test_totals_are_over_the_whole_time() -> None:
    columns = group("core", {"instructions": [0, 100, 200], "cycles": [0, 50, 100]}, [0, 2, 4], [0, 1, 2])

    found = {one.name: one for one in totals([INFO, *columns])}

    assert (found["ipc"].value, found["ipc"].share) == (2.0, 0.5)
    assert found["instructions_per_second"].value == pytest.approx(200.0)  # 400 scaled, in 2 s


def test_scopes_are_kept_apart() -> None:
    one = group("core", {"instructions": [0, 100]}, [0, 1], [0, 1])
    other = [c._replace(labels={**c.labels, "scope": "system"}) for c in one]

    assert sorted(found.labels["scope"] for found in totals([INFO, *one, *other])) == ["system", "tree"]


def test_a_microarchitecture_of_a_later_version_has_what_all_have(tmp_path: Path) -> None:
    later = INFO._replace(labels={"microarchitecture": "../../etc/passwd"})
    columns = group("core", {"instructions": [0, 100]}, [0, 1], [0, 1])

    assert [one.name for one in totals([later, *columns])] == ["instructions_per_second"]

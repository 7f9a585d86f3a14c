from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from tests.recordings import BEGUN_NS, make_recording

from sonde.clock import NS
from sonde.errors import UsageError
from sonde.jobs.columns import Column, columns, grid_for, rate, resampled
from sonde.jobs.recording import open_recording
from sonde.model import Histogram, Value
from sonde.store.query import Selector

BYTES = 'node_network_receive_bytes_total{device="eth0"}'


def column_of(times: list[float], values: list[float], period_ns: int = NS) -> Column:
    nanoseconds = np.array([BEGUN_NS + round(time * NS) for time in times], np.int64)
    return Column("x_total", {}, "counter", "bytes", nanoseconds, np.array(values, np.float64), period_ns)


def test_every_value_is_the_one_that_was_recorded(tmp_path: Path) -> None:
    node = make_recording(tmp_path / "r", seconds=150).nodes[0]

    found = columns(node)

    with node.archive() as reader:
        points = reader.read(Selector("*"), 0, 2**63 - 1)
    assert [(one.name, tuple(one.labels.items())) for one in found] == [
        (one.series.metric, one.series.labels) for one in points
    ]
    assert [one.times.tolist() for one in found] == [one.times for one in points]
    assert [one.values.tolist() for one in found] == [one.values for one in points]
    assert {one.kind for one in found} == {"counter", "gauge"}
    assert found[0].times.dtype == np.int64
    assert found[0].values.dtype == np.float64


def test_a_selector_is_that_of_query(tmp_path: Path) -> None:
    node = make_recording(tmp_path / "r").nodes[0]

    assert [one.labels["mode"] for one in columns(node, 'sonde_job_cpu_seconds_total{mode!="user"}')] == ["system"]
    assert {one.name for one in columns(node, "node_*")} == {
        "node_load1",
        "node_memory_MemAvailable_bytes",
        "node_network_receive_bytes_total",
    }
    assert columns(node, "no_such_metric") == []
    with pytest.raises(UsageError):
        columns(node, "{")


def test_a_range_has_both_of_its_ends(tmp_path: Path) -> None:
    node = make_recording(tmp_path / "r").nodes[0]

    (load,) = columns(node, "node_load1", since_ns=BEGUN_NS + 5 * NS, until_ns=BEGUN_NS + 8 * NS)

    assert ((load.times - BEGUN_NS) // NS).tolist() == [5, 6, 7, 8]


def test_a_node_whose_clock_is_ahead_is_put_on_the_clock_of_the_gatherer(tmp_path: Path) -> None:
    ahead = {"clock": {"offset_ns": 3 * NS, "bound_ns": 1000}}
    recording = make_recording(tmp_path / "r", nodes={"n2": {"begun_ns": BEGUN_NS + 3 * NS, **ahead}})

    n1, n2 = (columns(node, "node_load1")[0] for node in recording.nodes)
    (few,) = columns(recording.nodes[1], "node_load1", since_ns=BEGUN_NS, until_ns=BEGUN_NS + NS)

    assert n1.times.tolist() == n2.times.tolist()
    assert few.values.tolist() == [0.25, 1.25]
    assert grid_for(recording, NS).tolist() == n1.times.tolist()


def test_a_series_that_came_and_went_is_one_column_without_its_gap(tmp_path: Path) -> None:
    def sometimes(t: float, host: str) -> Value | None:
        return None if 20 <= t < 40 else int(t)

    node = make_recording(tmp_path / "r", series={"node_a": sometimes, "node_a_total": lambda t, host: 7}).nodes[0]

    first, second = columns(node)

    assert first.values.tolist() == [*range(20), *range(40, 60)]
    assert len(second.values) == 60


def test_a_histogram_is_its_parts(tmp_path: Path) -> None:
    def waits(t: float, host: str) -> Value:
        return Histogram((0.1, 1.0), (int(t), 2, 1), t / 2)

    node = make_recording(tmp_path / "r", series={"sonde_wait_seconds": waits}).nodes[0]

    found = {(one.name, one.labels.get("le", "")): one for one in columns(node)}

    assert found["sonde_wait_seconds_bucket", "0.1"].values[:3].tolist() == [0, 1, 2]
    assert found["sonde_wait_seconds_bucket", "+Inf"].values[:3].tolist() == [3, 4, 5]
    assert found["sonde_wait_seconds_sum", ""].values[:3].tolist() == [0, 0.5, 1]
    assert [one.name for one in columns(node, "sonde_wait_seconds_count")] == ["sonde_wait_seconds_count"]


def test_a_node_that_was_killed_before_its_first_second_has_no_columns(tmp_path: Path) -> None:
    make_recording(tmp_path / "r")
    os.unlink(tmp_path / "r" / "n1" / "archive.db")
    recording = open_recording(str(tmp_path / "r"))

    assert columns(recording.nodes[0]) == []
    assert len(grid_for(recording, NS)) == 60


def test_the_newest_values_are_read_before_they_are_in_blocks(tmp_path: Path) -> None:
    from tests.recordings import spec_of

    from sonde.config import ArchiveConfig
    from sonde.model import Frame, Layout
    from sonde.store.archive import Archive

    recording = make_recording(tmp_path / "r", hosts=("n1",))
    os.unlink(recording.nodes[0].archive_path)
    layout = Layout([(spec_of("node_load1"), ()), (spec_of("node_forks_total"), ())])
    archive = Archive(recording.nodes[0].archive_path, ArchiveConfig(), host="n1", boot_id="b")
    archive.write([Frame("load", BEGUN_NS, 0, NS, layout, (0.5, 3))])

    found = columns(recording.nodes[0])

    archive.close()
    assert [(one.name, one.values.tolist()) for one in found] == [("node_forks_total", [3.0]), ("node_load1", [0.5])]


def test_a_rate_is_per_second_and_the_first_value_has_none() -> None:
    result = rate(column_of([0, 1, 2, 4], [10, 20, 25, 45]))

    assert np.array_equal(result.values, [np.nan, 10, 5, 10], equal_nan=True)
    assert (result.kind, result.unit) == ("gauge", "bytes/s")


def test_a_counter_that_was_reset_has_counted_from_zero_since() -> None:
    assert rate(column_of([0, 1, 2], [100, 3, 5])).values.tolist()[1:] == [3, 2]


def test_a_gap_longer_than_two_and_a_half_periods_has_no_rate() -> None:
    result = rate(column_of([0, 1, 4, 5], [0, 1, 100, 101]))

    assert np.array_equal(result.values, [np.nan, 1, np.nan, 1], equal_nan=True)


def test_a_clock_that_was_set_back_makes_no_false_reset(tmp_path: Path) -> None:
    recorded = column_of([0, 1, 2, 1.5, 2.5, 3.5], [0, 10, 20, 30, 40, 50])
    order = np.argsort(recorded.times, kind="stable")
    column = recorded._replace(times=recorded.times[order], values=recorded.values[order], order=order)

    result = rate(column)

    assert np.array_equal(result.values, [np.nan, 10, np.nan, 10, 10, 10], equal_nan=True)


def test_steps_of_a_grid_hold_what_falls_into_them_and_nothing_else() -> None:
    grid = BEGUN_NS + np.arange(0, 8, 2, dtype=np.int64) * NS
    column = column_of([0, 1, 2.5, 6, 6.5, 8], [1, 3, 5, 7, np.nan, 9])

    def on_grid(how: str) -> list[float | None]:
        values = resampled(column, grid, how)  # type: ignore[arg-type]
        return [None if np.isnan(value) else value for value in values]

    assert on_grid("mean") == [2, 5, None, 7]
    assert on_grid("sum") == [4, 5, None, 7]
    assert on_grid("last") == [3, 5, None, 7]
    assert on_grid("max") == [3, 5, None, 7]


def test_nothing_is_on_a_grid_of_another_time() -> None:
    grid = BEGUN_NS + np.arange(100, 103, dtype=np.int64) * NS

    assert np.isnan(resampled(column_of([0, 1], [1, 2]), grid, "mean")).all()
    assert len(resampled(column_of([0], [1]), grid[:0], "mean")) == 0


def test_nodes_that_start_apart_are_aligned_by_time(tmp_path: Path) -> None:
    recording = make_recording(tmp_path / "r", seconds=10, nodes={"n2": {"begun_ns": BEGUN_NS + 5 * NS}})

    grid = grid_for(recording, NS)
    n1, n2 = (resampled(columns(node, BYTES)[0], grid, "last") for node in recording.nodes)

    assert len(grid) == 15
    assert np.isnan(n2[:5]).all()
    assert np.isnan(n1[10:]).all()
    assert n2[5] == n1[0] == 10_000


def test_a_damaged_block_is_left_out(tmp_path: Path) -> None:
    import sqlite3

    node = make_recording(tmp_path / "r", seconds=200).nodes[0]
    with sqlite3.connect(node.archive_path) as connection:
        first = connection.execute("SELECT min(id) FROM block").fetchone()[0]
        connection.execute("UPDATE block SET data = x'00' || data WHERE id = ?", (first,))
    connection.close()

    assert sum(len(one.values) < 200 for one in columns(node)) >= 1
    assert all(len(one.values) >= 100 for one in columns(node))

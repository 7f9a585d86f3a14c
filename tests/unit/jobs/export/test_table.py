from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.recordings import BEGUN_NS, make_recording

from sonde.clock import NS
from sonde.errors import Unavailable, UsageError
from sonde.jobs.export.choice import choice_of, chosen
from sonde.jobs.export.table import Table, ticks
from sonde.jobs.stored import Stored
from sonde.model import Value
from sonde.store.form import Series

MS = 1_000_000


def stored(name: str, times_ms: list[int], period_ms: int = 1000) -> Stored:
    times = np.array(times_ms, np.int64) * MS
    return Stored(Series(name, "gauge", "", ()), period_ms * MS, times, np.arange(len(times_ms)))


def test_a_row_is_a_tick_although_its_collectors_are_read_one_after_the_other() -> None:
    rows = ticks([stored("a", [0, 1000, 2000]), stored("b", [3, 1002, 2001]), stored("c", [7, 1008, 2009])])

    assert (rows // MS).tolist() == [0, 1000, 2000]


def test_a_slow_collector_has_no_rows_of_its_own() -> None:
    rows = ticks([stored("a", [0, 1000, 2000, 3000]), stored("b", [2, 2002], period_ms=2000)])

    assert (rows // MS).tolist() == [0, 1000, 2000, 3000]


def test_a_late_tick_and_the_next_one_are_two_rows() -> None:
    late = stored("a", [0, 1900, 2000])

    rows = ticks([late, stored("b", [1, 1901, 2001])])

    assert (rows // MS).tolist() == [0, 1900, 2000]


def test_no_value_is_lost_whatever_the_times_are() -> None:
    generator = np.random.default_rng(7)
    found = [
        stored(str(n), np.unique(generator.integers(0, 20_000, 40)).tolist(), int(generator.integers(10, 3000)))
        for n in range(6)
    ]

    rows = ticks(found)

    for one in found:
        places = np.searchsorted(rows, one.times, side="right")
        assert len(np.unique(places)) == len(one.times)
        assert places.min() > 0
    assert (np.diff(rows) > 0).all()


def test_nothing_has_no_rows() -> None:
    assert len(ticks([])) == 0


def test_values_that_were_not_read_are_missing_and_not_zero(tmp_path: Path) -> None:
    def sometimes(t: float, host: str) -> Value | None:
        return None if host == "n2" or 2 <= t < 4 else int(t)

    recording = make_recording(
        tmp_path / "r", seconds=6, series={"node_a": sometimes, "node_b": lambda t, host: t + 0.5}
    )

    table = Table(recording, choice_of([]))
    first, second = table.rows()

    assert [field.name for field in table.fields] == ["node_a", "node_b"]
    assert [field.integral for field in table.fields] == [True, False]
    assert first.cells[0].missing is not None
    assert first.cells[0].missing.tolist() == [False, False, True, True, False, False]
    assert first.cells[1].missing is None
    assert second.cells[0].missing is not None
    assert second.cells[0].missing.all()


def test_a_missing_node_a_gap_and_a_note_are_told(tmp_path: Path) -> None:
    recording = make_recording(
        tmp_path / "r",
        seconds=3,
        gaps={"node_rapl_package_joules_total": ("denied", "root only")},
        job={"id": "4711", "scheduler": "slurm", "nodes": ["n1", "n2", "n3"]},
        nodes={"n1": {"notes": ("no perf events",)}, "n2": {"ended_ns": None, "ended_by": ""}},
    )

    table = Table(recording, choice_of([]))

    assert ("n3", "this node of the job has left no recording") in table.notes
    assert ("n1", "no perf events") in table.notes
    assert any(host == "n2" and "interrupted" in text for host, text in table.notes)
    assert [(gap.host, gap.metric, gap.quality, gap.reason) for gap in table.gaps] == [
        ("n1", "node_rapl_package_joules_total", "denied", "root only"),
        ("n2", "node_rapl_package_joules_total", "denied", "root only"),
    ]


def test_the_recorded_jobs_own_labels_are_not_in_its_columns_and_another_jobs_are(tmp_path: Path) -> None:
    series = {
        'sonde_job_threads{job_id="4711",scheduler="slurm"}': lambda t, host: 1,
        'sonde_job_threads{job_id="12",scheduler="slurm"}': lambda t, host: 2,
    }
    recording = make_recording(tmp_path / "r", seconds=2, series=series)

    table = Table(recording, choice_of([]))

    assert {field.name for field in table.fields} == {
        "sonde_job_threads",
        'sonde_job_threads{job_id="12",scheduler="slurm"}',
    }


def test_resampled_gauges_are_means_and_counters_the_last_values(tmp_path: Path) -> None:
    series = {"node_a": lambda t, host: int(t), "node_b_total": lambda t, host: int(t) * 10}
    node = make_recording(tmp_path / "r", hosts=("n1",), seconds=6, series=series, begun_ns=BEGUN_NS + NS).nodes[0]

    gauge, counter = chosen(node, choice_of([], 2 * NS)).series

    assert ((gauge.times - BEGUN_NS) // NS).tolist() == [0, 2, 4, 6]
    assert gauge.values.tolist() == [0, 1.5, 3.5, 5]
    assert counter.values.tolist() == [0, 20, 40, 50]
    assert counter.values.dtype == np.int64


def test_a_rate_is_named_as_one_and_does_not_bridge_a_gap(tmp_path: Path) -> None:
    def read(t: float, host: str) -> Value | None:
        return None if 3 <= t < 8 else int(t) * 10

    series = {"node_sent_bytes_total": read, "node_sent_bytes_total_there": lambda t, host: 1}
    node = make_recording(tmp_path / "r", hosts=("n1",), seconds=10, series=series).nodes[0]

    first, second = chosen(node, choice_of(["node_sent_bytes*"], rate=True)).series

    assert first.series.metric == "node_sent_bytes_per_second"
    assert (first.series.kind, first.series.unit) == ("gauge", "bytes/s")
    assert ((first.times - BEGUN_NS) // NS).tolist() == [1, 2, 9]
    assert first.values.tolist() == [10, 10, 10]
    assert second.values.dtype == np.int64


def test_a_choice_of_nothing_says_what_to_do(tmp_path: Path) -> None:
    recording = make_recording(tmp_path / "r", seconds=2)

    with pytest.raises(Unavailable, match="no values of that choice"):
        Table(recording, choice_of(["nothing_like_it"]))
    with pytest.raises(UsageError):
        choice_of(["{"])

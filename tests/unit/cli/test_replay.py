from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from sonde.cli.main import main
from sonde.clock import NS, iso
from sonde.config import ArchiveConfig
from sonde.model import Event, Frame, Kind, Layout, MetricSpec, Unit
from sonde.store.archive import Archive
from sonde.store.reader import ArchiveReader

LOAD = MetricSpec("node_load1", Kind.GAUGE, Unit.NONE, "Load.")
CPU = MetricSpec("node_cpu_seconds_total", Kind.COUNTER, Unit.SECONDS, "CPU.", ("cpu",))
LAYOUT = Layout([(LOAD, ()), (CPU, ("0",)), (CPU, ("1",))])


@pytest.fixture
def archive(tmp_path: Path) -> str:
    """Ninety seconds that ended just now, of node1."""
    path = str(tmp_path / "archive.db")
    writer = Archive(path, ArchiveConfig(), host="node1", boot_id="boot")
    begin = time.time_ns() // NS * NS - 90 * NS
    for n in range(90):
        writer.write([Frame("cpu", begin + n * NS, 1, NS, LAYOUT, [0.5, n, 2 * n])])
    writer.close()
    return path


def sonde(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["replay", *words])
    out, err = capsys.readouterr()
    assert out == ""
    return code, err


def test_history_as_lines_with_their_own_times(
    archive: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history.jsonl"
    code, err = sonde(capsys, archive, "--to", "jsonl", "--set", f"path={path}", "--json")

    lines = [json.loads(line) for line in path.read_text().splitlines()]
    with ArchiveReader(archive) as reader:
        span = reader.span()
    assert span is not None
    assert code == 0
    assert (json.loads(err)["delivered"], json.loads(err)["rejected"]) == (90, 0)
    assert [line["time"] for line in (lines[0], lines[-1])] == [iso(span.start_ns), iso(span.end_ns)]
    assert lines[7]["host"] == "node1"
    assert lines[7]["values"] == {
        "node_load1": 0.5,
        'node_cpu_seconds_total{cpu="0"}': 7,
        'node_cpu_seconds_total{cpu="1"}': 14,
    }


def test_a_copy_of_some_metrics_of_some_time(archive: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = str(tmp_path / "copy.db")
    words = ("--since", "60s", "--set", 'include=["node_cpu_*"]', "--set", f"path={copy}")
    code, err = sonde(capsys, archive, "--to", "archive", *words)

    with ArchiveReader(copy) as reader:
        assert {series.metric for series in reader.series()} == {"node_cpu_seconds_total"}
        assert reader.summary().ticks in range(58, 61)
        assert reader.host() == "node1"
    assert code == 0
    assert "frames delivered" in err


def test_a_copy_keeps_what_is_older_than_an_archive_would(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, copy = str(tmp_path / "old.db"), str(tmp_path / "copy.db")
    always = ArchiveConfig(max_age=type(ArchiveConfig().max_age)(10**9))
    writer = Archive(old, always, host="node1", boot_id="boot")
    for n in range(70):
        writer.write([Frame("cpu", (1_500_000_000 + n) * NS, 1, NS, LAYOUT, [0.5, n, n])])
    writer.close()

    code, _ = sonde(capsys, old, "--to", "archive", "--set", f"path={copy}")

    with ArchiveReader(copy) as reader:
        assert reader.summary().ticks == 70
    assert code == 0


def test_a_filter_that_lets_no_metric_pass_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "archive.db")
    writer = Archive(path, ArchiveConfig(), host="node1", boot_id="boot")
    now = time.time_ns()
    writer.write([Frame("cpu", now, 1, NS, LAYOUT, [0.5, 1, 2], [Event(now, "process.exit", {})])])
    writer.close()
    to = ("--to", "jsonl", "--set", f"path={tmp_path}/history.jsonl")
    code, err = sonde(capsys, path, *to, "--set", 'include=["node_memory_*"]')
    partly, _ = sonde(capsys, path, *to, "--set", 'include=["node_memory_*", "node_load1"]')

    assert code == 3
    assert "include and exclude let no metric of that time pass" in err
    assert partly == 0


def test_an_archive_that_is_not_there_is_told_without_options_of_other_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, err = sonde(capsys, "/nowhere.db", "--to", "jsonl")

    assert code == 3
    assert "no archive at /nowhere.db" in err
    assert "--archive" not in err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--to", "jsonll"], 2, "there are archive, "),
        (["--to", "prometheus"], 2, "no place for the past"),
        (["--to", "jsonl", "--set", "path"], 2, "not KEY=VALUE"),
        (["--to", "jsonl", "--set", "pth=x"], 2, "did you mean sinks.jsonl.path?"),
        (["--to", "jsonl", "--set", "keep=many"], 2, "must be a whole number"),
        (["--to", "jsonl", "--set", 'rename={"node_load1"="?"}'], 2, "sinks.jsonl.rename"),
        (["--to", "jsonl", "--set", "path=/nowhere/x"], 3, "cannot write to /nowhere/x"),
        (["--to", "archive"], 2, "to which file?"),
        (["--to", "jsonl", "--until", "1h"], 3, "nothing of that time"),
        (["--to", "jsonl", "--since", "soon"], 2, "'soon' is no time"),
    ],
)
def test_what_is_wrong_is_said(
    archive: str, capsys: pytest.CaptureFixture[str], words: list[str], code: int, message: str
) -> None:
    got, err = sonde(capsys, archive, *words)

    assert got == code
    assert message in err


def test_an_archive_is_not_replayed_into_itself(archive: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, err = sonde(capsys, archive, "--to", "archive", "--set", f"path={archive}")

    assert code == 2
    assert "is the archive that is read" in err


def test_a_sink_that_stays_away_ends_with_counts_and_where_to_go_on(
    archive: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Every write to /dev/full fails: no space left on device.
    words = ("--to", "jsonl", "--set", "path=/dev/full", "--patience", "10ms")
    code, err = sonde(capsys, archive, *words)

    assert code == 4
    assert "0 frames delivered" in err
    assert "gave up after 0.01 s: /dev/full: No space left on device" in err
    assert "tries failed" in err


def test_nothing_to_replay_is_not_available(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = str(tmp_path / "empty.db")
    Archive(empty, ArchiveConfig(), host="node1", boot_id="boot").close()

    assert sonde(capsys, empty, "--to", "jsonl")[0] == 3
    assert sonde(capsys, str(tmp_path / "none.db"), "--to", "jsonl")[0] == 3

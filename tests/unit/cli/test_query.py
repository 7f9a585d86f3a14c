from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from sonde.cli.main import main
from sonde.cli.moments import parse_when
from sonde.cli.points import spark
from sonde.clock import NS
from sonde.config import ArchiveConfig
from sonde.errors import UsageError
from sonde.model import Frame, Histogram, Kind, Layout, MetricSpec, Unit, Value
from sonde.store.archive import Archive
from sonde.store.form import Series
from sonde.store.query import Points

LOAD = MetricSpec("node_load1", Kind.GAUGE, Unit.NONE, "Load.")
CPU = MetricSpec("node_cpu_seconds_total", Kind.COUNTER, Unit.SECONDS, "CPU.", ("cpu", "mode"))
WAIT = MetricSpec("sonde_wait_seconds", Kind.HISTOGRAM, Unit.SECONDS, "Wait.")
SERIES = [(LOAD, ()), *((CPU, (cpu, mode)) for cpu in ("0", "1") for mode in ("idle", "user")), (WAIT, ())]
LAYOUT = Layout(SERIES)


@pytest.fixture
def archive(tmp_path: Path) -> str:
    """Ninety seconds that ended just now: load 1.5, two CPUs half idle."""
    path = str(tmp_path / "archive.db")
    writer = Archive(path, ArchiveConfig(), host="node1", boot_id="boot")
    begin = time.time_ns() - 90 * NS
    for n in range(90):
        values: list[Value] = [
            1.5,
            10 + 0.5 * n,
            20 + 0.5 * n,
            30 + 0.5 * n,
            40 + 0.5 * n,
            Histogram((1.0,), (n, 1), n / 2),
        ]
        writer.write([Frame("cpu", begin + n * NS, 1, NS, LAYOUT, values)])
    writer.close()
    return path


def sonde(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["query", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_table_of_one_series(archive: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = sonde(capsys, "node_load1", "--archive", archive, "--since", "20s")

    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "node_load1"
    assert lines[1].split() == ["time", "value"]
    assert 15 <= len(lines) - 2 <= 20
    assert lines[-1].endswith("Z    1.5")


def test_rates_summed_by_a_label(archive: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("node_cpu_seconds_total", "--rate", "--sum-by", "mode", "--step", "10s", "--json", "--archive", archive)
    code, out, _ = sonde(capsys, *words)

    series = json.loads(out)["series"]
    assert code == 0
    assert [item["labels"] for item in series] == [{"mode": "idle"}, {"mode": "user"}]
    assert series[0]["unit"] == "seconds/s"
    assert all(value == pytest.approx(1.0) for _, value in series[0]["points"])


def test_a_selection_by_labels_as_csv(archive: str, capsys: pytest.CaptureFixture[str]) -> None:
    selection = 'node_cpu_seconds_total{cpu="1",mode!="idle"}'
    code, out, _ = sonde(capsys, selection, "--csv", "--archive", archive)

    head, *rows = out.splitlines()
    assert code == 0
    assert head == 'time,"node_cpu_seconds_total{cpu=""1"",mode=""user""}"'
    assert rows[0].endswith("Z,40.0")
    assert rows[-1].endswith("Z,84.5")
    assert len(rows) == 90


def test_many_series_get_a_line_each(archive: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = sonde(capsys, "*", "--archive", archive)

    assert code == 0
    assert out.splitlines()[0].split() == ["series", "last", "min", "mean", "max", "unit"]
    assert 'node_cpu_seconds_total{cpu="0",mode="user"}  64.5   20  42.25  64.5  seconds' in out
    assert 'sonde_wait_seconds_bucket{le="+Inf"}' in out


def test_a_sparkline_per_series(archive: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = sonde(capsys, "node_cpu_seconds_total", "--spark", "--archive", archive)

    assert code == 0
    assert len(out.splitlines()) == 4
    assert "▁" in out
    assert "█  10 to 54.5, last 54.5" in out


def test_the_list_of_what_there_is(archive: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = sonde(capsys, "--list", "--archive", archive)
    _, as_json, _ = sonde(capsys, "--list", "node_load*", "--json", "--archive", archive)

    assert code == 0
    assert "node_cpu_seconds_total  counter    seconds       4  cpu,mode" in out
    assert [row["metric"] for row in json.loads(as_json)] == ["node_load1"]


@pytest.mark.parametrize(
    ("words", "code", "message", "hint"),
    [
        (["node_laod1"], 3, "no metric node_laod1", "did you mean node_load1?"),
        (["node_cpu_seconds_total{cpu='7'}"], 2, "not a label matcher", 'label="value"'),
        (['node_cpu_seconds_total{cpu="7"}'], 3, "has these labels", 'cpu="0",mode="idle"'),
        (["node_load1", "--since", "2h", "--until", "1h"], 3, "no values from", "archive.db covers"),
        (["node_load1", "--rate"], 2, "is a gauge", ""),
        (["node_load1", "--since", "soon"], 2, "'soon' is no time", "5m"),
        (["node_load1", "--since", "1m", "--until", "2m"], 2, "is not before", ""),
        (["node_load1", "--step", "0s"], 2, "--step", ""),
        (["node_load1", "--step", "ten"], 2, "--step", ""),
        (["node_load1", "--agg", "max"], 2, "--agg is of the values in a step", "--step 1m --agg max"),
        (["cpu"], 3, "no metric cpu", "did you mean node_cpu_seconds_total?"),
        (["nothing_like_it"], 3, "no metric nothing_like_it", "--list"),
        ([], 2, "which metric", "--list"),
    ],
)
def test_what_is_wrong_is_said(
    archive: str, capsys: pytest.CaptureFixture[str], words: list[str], code: int, message: str, hint: str
) -> None:
    got, out, err = sonde(capsys, *words, "--archive", archive)

    assert (got, out) == (code, "")
    assert message in err
    assert hint in err


def test_a_missing_archive_is_not_available(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = sonde(capsys, "node_load1", "--archive", str(tmp_path / "none.db"))

    assert code == 3
    assert "no archive at" in err


def test_damaged_blocks_are_told_and_the_rest_is_shown(archive: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = Path(archive).read_bytes()
    place = data.index(b"B1", 4096 * 3)
    Path(archive).write_bytes(data[: place + 30] + b"XX" + data[place + 32 :])
    code, out, err = sonde(capsys, "node_load1", "--archive", archive)

    assert code in (1, 3)
    assert "1 damaged rows were skipped" in err or not out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5m", 10**18 - 300 * NS),
        ("2026-11-15T20:00Z", 1794772800 * NS),
        ("2026-11-15T20:00", 1794772800 * NS),
        ("2026-11-15 21:00+01:00", 1794772800 * NS),
        ("1794772800.5", 1794772800 * NS + NS // 2),
    ],
)
def test_times_are_durations_iso_or_seconds(text: str, expected: int) -> None:
    assert parse_when(text, 10**18) == expected


@pytest.mark.parametrize("text", ["", "x", "inf", "nan", "2026-13-01"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_when(text, 10**18)


def test_a_sparkline_has_blanks_where_nothing_was_recorded() -> None:
    points = Points(Series("m", "gauge", "", ()), 1, [0, 1, 8, 9], [0.0, 1.0, 1.0, 0.0])

    assert spark(points, 10) == "▁█      █▁"


def test_sums_of_series_that_begin_at_different_times_stand_beside_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "jobs.db")
    writer = Archive(path, ArchiveConfig(), host="node1", boot_id="boot")
    begin = time.time_ns() - 60 * NS
    both, one = Layout([(CPU, ("0", "a")), (CPU, ("0", "b"))]), Layout([(CPU, ("0", "a"))])
    for n in range(60):
        layout, values = (one, [1.0 * n]) if n < 40 else (both, [1.0 * n, 2.0 * n])
        writer.write([Frame("job", begin + n * NS, 1, NS, layout, values)])
    writer.close()
    words = ("node_cpu_seconds_total", "--rate", "--sum-by", "mode", "--since", "50s", "--step", "5s")

    code, out, err = sonde(capsys, *words, "--archive", path)

    assert (code, err) == (0, "")
    assert '{mode="a"}' in out
    assert len(out.splitlines()) > 8


def test_a_label_nobody_has_is_refused_with_those_there_are(archive: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = sonde(capsys, "node_cpu_seconds_total", "--sum-by", "modee", "--archive", archive)

    assert code == 2
    assert "no series has a label 'modee'" in err
    assert "cpu, mode" in err


def test_a_number_without_a_unit_is_no_time(archive: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = sonde(capsys, "node_load1", "--since", "5", "--archive", archive)

    assert code == 2
    assert "'5' is no time" in err


def test_a_directory_is_not_an_archive(archive: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = sonde(capsys, "node_load1", "--archive", str(Path(archive).parent))

    assert code == 3
    assert "is a directory" in err
    assert f"name the file in it: {archive}" in err


def test_sums_have_a_step_of_their_own(archive: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("node_cpu_seconds_total", "--sum-by", "cpu", "--agg", "max", "--json", "--archive", archive)
    code, out, _ = sonde(capsys, *words)

    assert code == 0
    assert [item["labels"] for item in json.loads(out)["series"]] == [{"cpu": "0"}, {"cpu": "1"}]

from __future__ import annotations

import json
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.recordings import make_recording

from sonde.cli.main import main


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_recording(tmp_path / "r", seconds=5)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_recording_becomes_a_file_named_after_the_job(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "r", "--to", "parquet"]) == 0

    told = capsys.readouterr()
    assert told.out == "4711.parquet: 2 nodes, 6 series, 60 values\n"
    assert told.err == ""
    assert len(pd.read_parquet(place / "4711.parquet")) == 10


def test_the_summary_as_an_object(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "out").mkdir()

    assert main(["export", "r", "--to", "csv", "--output", "out", "--select", "node_load1", "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert told["paths"] == ["out/4711.csv", "out/4711.csv.about.json"]
    assert (told["nodes"], told["series"], told["values"], told["notes"]) == (2, 1, 10, [])
    about = json.loads((place / "out" / "4711.csv.about.json").read_text())
    assert [column["name"] for column in about["columns"]] == ["node_load1"]


def test_text_goes_to_standard_output_and_what_is_told_does_not(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "r", "--to", "csv", "--output", "-", "--resample", "5s", "--rate"]) == 0

    told = capsys.readouterr()
    assert told.out.startswith("host,time,node_load1,")
    assert "sonde_job_cpu_seconds_per_second" in told.out
    assert len(told.out.splitlines()) == 3
    assert "2 nodes" in told.err


def test_a_file_that_is_there_is_kept_unless_told_otherwise(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "4711.sqlite").write_bytes(b"")

    assert main(["export", "r", "--to", "sqlite"]) == 2
    assert "--append adds to it, --overwrite replaces it" in capsys.readouterr().err
    assert main(["export", "r", "--to", "sqlite", "--append"]) == 0
    assert main(["export", "r", "--to", "sqlite", "--overwrite"]) == 0

    connection = sqlite3.connect(place / "4711.sqlite")
    assert connection.execute("SELECT count(*) FROM sample").fetchone() == (60,)
    connection.close()
    assert sorted(os.listdir(place)) == ["4711.sqlite", "r"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "csv", "--append"], "holds one recording"),
        (["--to", "csv", "--url", "http://x"], "belong to --to prometheus"),
        (["--to", "prometheus", "--set", "job=x"], "--set is for --url"),
        (["--to", "prometheus", "--url", "http://x/w", "--rate"], "as it was recorded"),
        (["--to", "prometheus", "--url", "http://x/w", "--select", 'a{b="c"}'], "whole metrics"),
        (["--to", "csv", "--frames", "csv"], "belongs to --to perfmon"),
        (["--to", "perfmon", "--frames", "xml"], "no format is called 'xml'"),
        (["--to", "perfmon", "--rate"], "perfmon has"),
        (["--to", "parquet", "--output", "-"], "is not text"),
        (["--to", "csv", "--select", "{"], "is not a metric"),
    ],
)
def test_what_makes_no_sense_is_refused(
    place: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["export", "r", *words]) == 2

    assert message in capsys.readouterr().err
    assert os.listdir(place) == ["r"]


def test_what_is_no_recording_is_said_to_be_none(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(place), "--to", "csv"]) == 2

    assert "is not a recording" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("form", "package"), [("parquet", "pyarrow"), ("hdf5", "pandas"), ("xlsx", "xlsxwriter"), ("csv", "numpy")]
)
def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, form: str, package: str
) -> None:
    for name in list(sys.modules):
        if name.startswith("sonde.jobs.") and name != "sonde.jobs.recording":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)

    assert main(["export", "r", "--to", form]) == 3

    told = capsys.readouterr().err
    assert f"needs {package}, which is not installed" in told
    assert "pip install 'sonde[export]'" in told


def test_a_missing_node_is_named_and_not_fatal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_recording(tmp_path / "r", seconds=2, job={"id": "7", "scheduler": "pbs", "nodes": ["n1", "n2", "n3"]})

    assert main(["export", str(tmp_path / "r"), "--to", "json", "--output", str(tmp_path / "x.json")]) == 0

    assert "n3: this node of the job has left no recording" in capsys.readouterr().err


def test_damage_is_told_and_the_exit_code_says_that_something_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = make_recording(tmp_path / "r", seconds=130)
    connection = sqlite3.connect(recording.nodes[0].archive_path)
    with connection:
        connection.execute("UPDATE block SET data = x'00' WHERE id = (SELECT min(id) FROM block)")
    connection.close()

    assert main(["export", str(tmp_path / "r"), "--to", "csv", "--output", str(tmp_path / "x.csv")]) == 1

    assert "1 damaged rows were left out" in capsys.readouterr().err


def test_a_full_disk_leaves_no_half_of_a_file(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "r", "--to", "csv", "--output", "/dev/full/x.csv"]) == 1
    assert main(["export", "r", "--to", "parquet", "--output", "none/such/x.parquet"]) == 1

    assert "none/such/x.parquet" in capsys.readouterr().err
    assert os.listdir(place) == ["r"]


def test_the_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["export", "--help"])

    told = capsys.readouterr().out
    assert ended.value.code == 0
    assert "sonde export ./sonde-4711 --to parquet" in told


def test_perfmons_files(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "r", "--to", "perfmon", "--frames", "csv,hdf5", "--json"]) == 0

    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert told["families"] == ["cpu_metrics"]
    assert "4711-perfmon/metrics/cpu_metrics.json" in told["paths"]
    assert pd.read_csv("4711-perfmon/cpu_metrics.csv")["Host"].tolist() == ["n1"] * 5 + ["n2"] * 5
    assert main(["export", "r", "--to", "perfmon"]) == 2

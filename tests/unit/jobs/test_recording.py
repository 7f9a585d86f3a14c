"""Recordings on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sonde.errors import ParseError, ReadError, UsageError
from sonde.jobs.recording import About, Recording, open_recording, parse_about, write_about


def node(path: Path, host: str, **more: object) -> None:
    (path / host).mkdir(parents=True)
    write_about(str(path / host), About(host, begun_ns=10, period_ns=10**9, **more))  # type: ignore[arg-type]


def hosts(recording: Recording) -> list[str]:
    return [one.host for one in recording.nodes]


def test_the_nodes_of_a_recording_come_in_the_order_people_count(tmp_path: Path) -> None:
    for host in ("n10", "n2", "n1"):
        node(tmp_path, host)
    (tmp_path / "plots").mkdir()
    (tmp_path / "report.html").write_text("")

    assert hosts(open_recording(str(tmp_path))) == ["n1", "n2", "n10"]


def test_the_directory_of_one_node_is_a_recording_of_one(tmp_path: Path) -> None:
    node(tmp_path, "n1", command=("python", "train.py"), exit_code=3, ended_ns=20)
    recording = open_recording(str(tmp_path / "n1"))

    about = recording.nodes[0].about
    assert (about.command, about.exit_code, about.ended_ns) == (("python", "train.py"), 3, 20)
    assert recording.nodes[0].context() is None


def test_hosts_that_left_nothing_are_named(tmp_path: Path) -> None:
    node(tmp_path, "n1.cluster", job={"scheduler": "slurm", "id": "77", "nodes": ["n1", "n2", "n3"]})
    recording = open_recording(str(tmp_path))

    assert recording.missing == ["n2", "n3"]
    assert recording.name == "77"


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a recording"):
        open_recording(str(tmp_path))
    with pytest.raises(UsageError, match="No such file"):
        open_recording(str(tmp_path / "none"))


def test_a_damaged_node_is_named(tmp_path: Path) -> None:
    node(tmp_path, "n1")
    path = tmp_path / "n1" / "recording.json"
    path.write_text(path.read_text()[:-20])
    with pytest.raises(ParseError, match=r"n1/recording\.json"):
        open_recording(str(tmp_path))


def test_fields_of_a_later_version_are_passed_over_and_a_later_format_is_refused(tmp_path: Path) -> None:
    record = {"host": "n1", "begun_ns": 1, "period_ns": 2, "colour": "green"}

    assert parse_about(record, "x").host == "n1"
    with pytest.raises(ReadError, match="is of format 9"):
        parse_about({**record, "format": 9}, "x")
    for wrong in ({}, {"host": 5, "begun_ns": 1, "period_ns": 2}, {"host": "n1", "begun_ns": "x", "period_ns": 2}):
        with pytest.raises(ParseError):
            parse_about(wrong, "x")


def test_it_is_written_whole(tmp_path: Path) -> None:
    node(tmp_path, "n1", notes=("no root: no energy",))

    assert json.loads((tmp_path / "n1" / "recording.json").read_text())["notes"] == ["no root: no energy"]
    assert [path.name for path in (tmp_path / "n1").iterdir()] == ["recording.json"]

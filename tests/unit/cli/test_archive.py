from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from sonde.cli import archive as command
from sonde.clock import NS
from sonde.config import ArchiveConfig
from sonde.model import Frame, Kind, Layout, MetricSpec, Unit
from sonde.store.archive import Archive

LAYOUT = Layout([(MetricSpec("node_load1", Kind.GAUGE, Unit.NONE, "Load."), ())])


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "archive.db")
    writer = Archive(path, ArchiveConfig(), host="node1", boot_id="boot")
    for n in range(10):
        writer.write([Frame("load", 1_900_000_000 * NS + n * NS, 1, NS, LAYOUT, [0.5 * n])])
    writer.close()
    return path


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


def test_info_tells_what_is_there(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("info", "--archive", path) == 0
    out = capsys.readouterr().out
    assert "covers   2030-03-17T17:46:40.000Z to 2030-03-17T17:46:49.000Z" in out
    assert "1 of 10 ticks" in out

    assert run("info", "--json", "--archive", path) == 0
    assert json.loads(capsys.readouterr().out)["ticks"] == 10


def test_check_finds_nothing_in_a_whole_file(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", "--archive", path) == 0
    assert "is whole" in capsys.readouterr().out


def test_check_names_the_damaged_block(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = Path(path).read_bytes()
    # The row's blob begins with the mark; free space of other pages may hold the mark of a deleted row, too.
    place = data.rindex(b"B1")
    Path(path).write_bytes(data[: place + 8] + bytes([data[place + 8] ^ 1]) + data[place + 9 :])

    assert run("check", "--archive", path) == 1
    assert "block 1: a row whose checksum is wrong" in capsys.readouterr().out

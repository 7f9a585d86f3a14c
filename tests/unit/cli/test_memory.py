"""`sonde memory`, on real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from sonde.cli.main import main


def test_a_process_is_read_with_the_time_of_the_reading(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", str(os.getpid()), "--json"]) == 0

    (row,) = json.loads(capsys.readouterr().out)
    assert row["pid"] == os.getpid()
    assert 1e6 < row["uss_bytes"] <= row["pss_bytes"]
    assert row["time"].endswith("Z")


def test_a_tree_has_the_children_and_a_sum(capsys: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert main(["memory", "--tree", str(os.getpid())]) == 0
        child.communicate()

    text = capsys.readouterr().out
    assert str(child.pid) in text
    assert "2 processes" in text


def test_a_process_that_is_not_there_is_said_and_ends_with_three(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", "4194305"]) == 3

    captured = capsys.readouterr()
    assert "no such process" in captured.out
    assert "none of these processes could be read" in captured.err

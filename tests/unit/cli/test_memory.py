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
    # A tree of its own: this process has the children of other tests too.
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()  # the child runs
        assert main(["memory", "--tree", str(parent.pid)]) == 0
        parent.communicate()

    text = capsys.readouterr().out
    assert str(parent.pid) in text
    assert "2 processes" in text


def test_a_process_that_is_not_there_is_said_and_ends_with_three(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", "4194305"]) == 3

    captured = capsys.readouterr()
    assert "no such process" in captured.out
    assert "none of these processes could be read" in captured.err

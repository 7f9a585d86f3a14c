"""`sonde compat`: the frame that dialects put their launchers into."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sonde.cli import compat
from sonde.cli.main import main
from sonde.errors import SondeError


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(compat.LAUNCHERS, "sonde-too", ("sonde.cli.main", "sonde itself"))
    return "sonde-too"


def test_a_launcher_runs_its_module(tmp_path: Path, launcher: str) -> None:
    (path,) = compat.link(str(tmp_path / "bin"), [launcher], force=False)

    ended = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=20)

    assert ended.returncode == 0
    assert "sonde COMMAND" in ended.stdout


def test_a_launcher_is_written_again_but_a_foreign_file_is_left_alone(tmp_path: Path, launcher: str) -> None:
    compat.link(str(tmp_path), [launcher], force=False)
    compat.link(str(tmp_path), [launcher], force=False)
    (tmp_path / launcher).write_text("#!/bin/sh\necho mine\n")

    with pytest.raises(SondeError, match="not ours"):
        compat.link(str(tmp_path), [launcher], force=False)

    assert "mine" in (tmp_path / launcher).read_text()
    compat.link(str(tmp_path), [launcher], force=True)
    assert "mine" not in (tmp_path / launcher).read_text()


def test_an_unknown_launcher_is_refused_with_those_there_are(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["compat", "link", str(tmp_path), "nothing"]) == 3
    assert "nothing: no such launcher" in capsys.readouterr().err

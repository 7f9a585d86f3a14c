"""The file by which a script ends a recording."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sonde.jobs.stopfile import StopFile, places


def test_finished_ends_it(tmp_path: Path) -> None:
    path = tmp_path / ".ipc-77"
    path.write_text("INPROGRESS\n")
    stop = StopFile([str(path)])
    before = stop.asked()
    path.write_text("FINISHED\n")

    assert (before, stop.asked()) == (False, True)


@pytest.mark.parametrize("said", ["", "INPROGRESS", "INPROGRESS\n", " \n"])
def test_a_file_that_is_empty_or_in_progress_does_not(tmp_path: Path, said: str) -> None:
    stop = StopFile([str(tmp_path / ".ipc-77")])
    (tmp_path / ".ipc-77").write_text(said)

    assert not stop.asked()


def test_no_file_is_no_news(tmp_path: Path) -> None:
    """perfmon dies of it."""
    assert not StopFile([str(tmp_path / "none"), str(tmp_path / "no/where")]).asked()


def test_a_file_that_cannot_be_read_is_no_news(tmp_path: Path) -> None:
    stop = StopFile([str(tmp_path / "file")])
    (tmp_path / "file").mkdir()

    assert not stop.asked()


def test_what_a_recording_before_has_left_does_not_end_this_one(tmp_path: Path) -> None:
    path = tmp_path / ".ipc-77"
    path.write_text("FINISHED\n")
    stop = StopFile([str(path)])
    before = stop.asked()
    path.write_text("FINISHED\n")
    os.utime(path, ns=(1, 1))  # written a second time

    assert (before, stop.asked()) == (False, True)


def test_it_is_looked_for_where_the_script_runs_and_where_the_recording_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = places(str(tmp_path / "out/sonde-77"), ["76_4", "77", ""])

    folders = [tmp_path, tmp_path / "out", tmp_path / "out/sonde-77"]
    assert found == [str(folder / name) for folder in folders for name in (".ipc-76_4", ".ipc-77")]

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sonde.errors import SondeError, UsageError
from sonde.jobs.export.destination import extended, refuse_existing, replaced


def test_a_file_is_there_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "x"

    with replaced(str(path)) as part:
        Path(part).write_text("new")
        there = path.exists()

    assert (there, path.read_text()) == (False, "new")
    assert os.listdir(tmp_path) == ["x"]


def test_what_fails_half_way_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")

    with pytest.raises(TypeError), extended(str(path)) as part, open(part, "w", encoding="utf-8") as file:
        file.writelines(["half", 1])  # type: ignore[list-item]

    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x"]


def test_an_extended_file_keeps_its_beginning_its_mode_and_the_link_that_leads_to_it(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old ")
    path.chmod(0o664)
    (tmp_path / "link").symlink_to(path)

    with extended(str(tmp_path / "link")) as part, open(part, "a", encoding="utf-8") as file:
        file.write("new")

    assert path.read_text() == "old new"
    assert path.stat().st_mode & 0o777 == 0o664
    assert (tmp_path / "link").is_symlink()


def test_a_place_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SondeError, match="none/x: No such file or directory"):
        with replaced(str(tmp_path / "none" / "x")) as part:
            Path(part).write_text("new")


def test_an_existing_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "x").touch()

    with pytest.raises(UsageError) as refused:
        refuse_existing(str(tmp_path / "x"), appends=True)
    refuse_existing(str(tmp_path / "y"), appends=True)

    assert refused.value.hint == "--append adds to it, --overwrite replaces it"

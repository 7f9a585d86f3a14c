"""The directories of private daemons: whose they are, who holds them, and when they are removed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sonde.daemon import runs


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime directory with a short name: that of a socket has 106 characters."""
    with tempfile.TemporaryDirectory(prefix="xdg") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


def held(runtime: Path) -> list[str]:
    """What is found in this directory; another program of this user may have private daemons elsewhere."""
    return [address for address in runs.living() if str(runtime) in address]


def test_a_directory_is_the_users_alone_and_found_while_it_is_held(runtime: Path) -> None:
    run = runs.create(812)
    before = held(runtime)
    Path(run.directory, "rpc.sock").touch()
    during = held(runtime)
    os.close(run.lock)
    after = held(runtime)

    assert run.directory == f"{runtime}/sonde/run/812"
    assert os.stat(f"{runtime}/sonde").st_mode & 0o777 == 0o700
    assert (before, during, after) == ([], [f"unix:{runtime}/sonde/run/812/rpc.sock"], [])
    assert not os.path.exists(run.directory)


def test_a_second_of_the_same_pid_gets_a_name_of_its_own(runtime: Path) -> None:
    one, other = runs.create(7), runs.create(7)
    names = [os.path.basename(run.directory) for run in (one, other)]
    for run in (one, other):
        os.close(run.lock)
    again = runs.create(7)
    os.close(again.lock)

    assert names == ["7", "7.1"]
    assert os.path.basename(again.directory) == "7"  # what the dead one left has made room


def test_files_of_a_dead_daemon_go_with_its_directory(runtime: Path) -> None:
    run = runs.create(7)
    Path(run.directory, "sub").mkdir()
    Path(run.directory, "sub/file").write_text("x")
    os.close(run.lock)

    assert runs.remove_if_dead(run.directory)
    assert not os.path.exists(run.directory)


@pytest.mark.parametrize("kind", ["link", "writable", "file"])
def test_a_place_that_others_could_have_made_is_not_taken(runtime: Path, kind: str) -> None:
    place = runtime / "sonde"
    if kind == "link":
        (runtime / "elsewhere").mkdir()
        place.symlink_to(runtime / "elsewhere")
    elif kind == "file":
        place.touch()
    else:
        place.mkdir()
        place.chmod(0o777)

    assert runs.own_place() != str(place)


def test_a_place_whose_sockets_would_have_too_long_names_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 60)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))

    assert not runs.own_place().startswith(str(tmp_path))


def test_places_are_the_users_own(tmp_path: Path) -> None:
    told = {"XDG_RUNTIME_DIR": str(tmp_path)}
    me = os.stat(tmp_path).st_uid
    stranger = me + 54321

    assert runs.places(uid=me, environ=told)[0] == f"{tmp_path}/sonde"
    # as after su: the variable still leads into the directory of the one before
    assert runs.places(uid=stranger, environ=told) == [f"/run/user/{stranger}/sonde", f"/tmp/sonde-{stranger}"]
    assert "/run/sonde-private" in runs.places(uid=0, environ={})
    assert runs.places(uid=1000, environ={"XDG_RUNTIME_DIR": "relative"})[0] == "/run/user/1000/sonde"

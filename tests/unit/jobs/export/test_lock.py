from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sonde.errors import Denied, TimedOut
from sonde.jobs.export.lock import locked

HOLD = """
import os, sys, time
from sonde.jobs.export.lock import locked
os.chdir(sys.argv[2])
with locked(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def unsupported(descriptor: int, operation: int) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


def held_elsewhere(target: str, directory: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, target, str(directory)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_process_in_another_directory_is_waited_for_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link.h5").symlink_to("all.h5")
    holder = held_elsewhere(str(tmp_path / "all.h5"), tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)

    with holder:
        with pytest.raises(TimedOut, match=f"process {holder.pid} on ") as caught, locked("link.h5", patience=0.3):
            pass
        holder.kill()

    assert caught.value.exit_code == 4


def test_a_killed_process_lets_go_at_once(tmp_path: Path) -> None:
    target = str(tmp_path / "all.h5")
    with held_elsewhere(target, tmp_path) as holder:
        holder.send_signal(signal.SIGKILL)
    assert os.path.exists(f"{target}.lock")

    with locked(target, patience=5):
        pass

    assert os.listdir(tmp_path) == []


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    with pytest.raises(KeyError), locked(str(tmp_path / "x")):
        dict[str, int]()[str(os.listdir(tmp_path))]

    assert os.listdir(tmp_path) == []


def test_where_there_are_no_locks_a_mark_is_one(tmp_path: Path) -> None:
    target = str(tmp_path / "x")

    with locked(target, flock=unsupported):
        with pytest.raises(TimedOut, match=f"process {os.getpid()}"), locked(target, flock=unsupported, patience=0.2):
            pass

    assert os.listdir(tmp_path) == []


def test_a_stale_mark_is_nobodys_and_one_that_is_touched_is_not(tmp_path: Path) -> None:
    target = str(tmp_path / "x")
    mark = tmp_path / "x.lock.held"
    mark.write_text("n9 77 2026-01-01T00:00:00Z\n")
    os.utime(mark, (time.time() - 100, time.time() - 100))

    with locked(target, flock=unsupported, patience=1):
        held = mark.read_text()
    with locked(target, flock=unsupported, expiry=0.4):
        with pytest.raises(TimedOut), locked(target, flock=unsupported, expiry=0.4, patience=1.0):
            pass

    assert held.split()[1] == str(os.getpid())
    assert os.listdir(tmp_path) == []


def test_a_directory_without_rights_is_said_to_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)  # root may do everything

    with pytest.raises(Denied, match="Permission denied"), locked(str(tmp_path / "x")):
        pass

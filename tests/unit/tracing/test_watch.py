"""Files of traces, seen as they appear."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sonde.hostfs import HostFS
from sonde.tracing.watch import NOTHING, Seen, Wanted, Watch, look

if TYPE_CHECKING:
    from tests.conftest import RunningLoop


ONE = ("session", 812)


def wanted(path: Path, *, uid: int | None = None, pid: int | None = None, twin: str = "self") -> Wanted:
    return Wanted(ONE, pid or os.getpid(), os.getuid() if uid is None else uid, str(path), twin)


@pytest.fixture
def seen() -> list[Seen]:
    return []


def until(true: Callable[[], object], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_file_is_seen_when_it_is_begun_and_when_it_has_its_name(
    tmp_path: Path, loop: RunningLoop, seen: list[Seen]
) -> None:
    watch = Watch(loop, HostFS(), lambda key, what: seen.append(what))
    file = tmp_path / "t_812.json"
    loop.call(lambda: watch.add(wanted(file)))
    part = tmp_path / "t_812.json.tmp"
    part.touch()
    until(lambda: seen)
    part.write_text("[]")
    part.rename(file)
    until(lambda: len(seen) > 1)
    loop.call(lambda: watch.remove(ONE))

    assert seen[0].begun_ns is not None
    assert seen[0].written_ns is None
    assert (seen[1].written_ns, seen[1].size) == (file.stat().st_mtime_ns, 2)
    until(lambda: not any(thread.name == "trace-files" for thread in threading.enumerate()))


def test_what_was_removed_is_not_told_of(tmp_path: Path, loop: RunningLoop, seen: list[Seen]) -> None:
    watch = Watch(loop, HostFS(), lambda key, what: seen.append(what))
    loop.call(lambda: watch.add(wanted(tmp_path / "a.json")))
    loop.call(lambda: watch.remove(ONE))
    (tmp_path / "a.json").touch()
    time.sleep(0.2)

    assert seen == []


def test_a_link_or_a_file_of_somebody_else_is_not_its_trace(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "link.json").symlink_to(tmp_path / "real")

    assert look(HostFS(), wanted(tmp_path / "link.json")) == NOTHING
    assert look(HostFS(), wanted(tmp_path / "real", uid=os.getuid() + 1)) == NOTHING
    assert look(HostFS(), wanted(tmp_path / "real")).size == 1


def test_the_filesystem_of_a_container_goes_with_its_process(tmp_path: Path) -> None:
    assert look(HostFS(), wanted(tmp_path / "a.json", pid=2**22 - 1, twin="")) == Seen(gone=True)

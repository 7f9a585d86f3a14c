"""Statistics of a Lustre client."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.collectors.lustre import LustreCollector, parse_stats
from sonde.config import NoKeys
from sonde.errors import Denied, ParseError, Unavailable
from sonde.hostfs import HostFile, HostFS
from sonde.model import Reading, Value

STATS = "sys/kernel/debug/lustre/llite/work-ffff9a1b2c3d4e00/stats"


def table(reading: Reading) -> dict[tuple[str, ...], Value]:
    """By name and labels, without the superblock's address."""
    return {
        (
            spec.name.removeprefix("sonde_lustre_client_"),
            *(label for label in labels if not label.startswith("ffff")),
        ): v
        for (spec, labels), v in zip(reading.layout, reading.values, strict=True)
    }


def collected(host: HostFS) -> dict[tuple[str, ...], Value]:
    collector = LustreCollector(host, NoKeys())
    found = table(collector.collect())
    collector.close()
    return found


def test_what_applications_did_with_a_filesystem(captured: Callable[[str], HostFS]) -> None:
    found = collected(captured("storage"))

    assert (found["read_bytes_total", "work"], found["written_bytes_total", "work"]) == (145121869, 468230469)
    assert found["operations_total", "work", "getattr"] == 3112
    assert (found["operations_total", "work", "read"], found["operations_total", "work", "write"]) == (25673, 13641)
    assert found["operation_seconds_total", "work", "open"] == 0.05127
    assert ("operation_seconds_total", "work", "ioctl") not in found  # it is not timed


def test_what_was_asked_of_each_target(captured: Callable[[str], HostFS]) -> None:
    found = collected(captured("storage"))

    assert found["target_read_bytes_total", "work", "work-OST0000"] == 94371840
    assert found["target_written_bytes_total", "work", "work-OST0000"] == 461373440
    assert found["target_requests_total", "work", "work-OST0000", "write"] == 1100
    assert found["target_requests_total", "work", "work-MDT0000", "mds_close"] == 143
    assert found["target_wait_seconds_total", "work", "work-MDT0000"] == 0.128
    assert ("target_read_bytes_total", "work", "work-OST0001") not in found  # nothing was read from it: no zero


def test_an_older_client_has_them_in_proc_and_without_times(captured: Callable[[str], HostFS]) -> None:
    found = collected(captured("storage_old"))

    assert found["read_bytes_total", "scratch"] == 145121869
    assert (found["operations_total", "scratch", "read"], found["operations_total", "scratch", "open"]) == (25673, 144)
    assert not [key for key in found if "seconds" in key[0]]


def test_the_first_call_of_an_operation_brings_its_series(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("storage")
    path = Path(host.path(STATS))
    collector = LustreCollector(host, NoKeys())
    first = collector.collect()
    path.write_text(path.read_text().replace("25673", "25680"))
    second = collector.collect()
    path.write_text(path.read_text() + "rename                    1 samples [usecs] 5 5 5 25\n")
    third = collector.collect()
    collector.close()

    assert second.layout is first.layout
    assert table(second)["operations_total", "work", "read"] == 25680
    assert table(third).keys() - table(second).keys() == {
        ("operations_total", "work", "rename"),
        ("operation_seconds_total", "work", "rename"),
    }


def test_a_mount_that_comes_is_found_and_one_that_goes_is_dropped(
    scratch: Callable[[str], HostFS], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = scratch("storage")
    collector = LustreCollector(host, NoKeys())
    collector.collect()
    folder = Path(host.path(STATS)).parent
    shutil.copytree(folder, folder.with_name("home-ffff9a1b2c3d5f00"))
    later = [table(collector.collect()) for _ in range(10)][-1]
    file = collector._files[STATS].file
    monkeypatch.setattr(type(file), "read", _gone(STATS, type(file).read))
    after = table(collector.collect())
    collector.close()

    assert ("read_bytes_total", "home") in later
    assert ("read_bytes_total", "work") not in after
    assert ("read_bytes_total", "home") in after


def _gone(path: str, real: Callable[[HostFile], bytes]) -> Callable[[HostFile], bytes]:
    def read(file: HostFile) -> bytes:
        if file.path == path:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        return real(file)

    return read


class ForRootOnly(HostFS):
    __slots__ = ()

    def names(self, name: str) -> list[str]:
        if "debug" in name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        return super().names(name)


def test_an_ordinary_user_is_denied(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("storage")
    os.makedirs(host.path("sys/fs/lustre/llite"))

    with pytest.raises(Denied, match="only root"):
        LustreCollector(ForRootOnly(host.root), NoKeys())


def test_without_debugfs_the_next_step_is_to_mount_it(tmp_path: Path) -> None:
    (tmp_path / "sys/fs/lustre/llite").mkdir(parents=True)

    with pytest.raises(Unavailable, match="debugfs") as caught:
        LustreCollector(HostFS(str(tmp_path)), NoKeys())

    assert "mount -t debugfs" in caught.value.hint


LINES = (
    b"read_bytes 1 samples [bytes] 1 2 3 4",
    b"open 4 samples [usecs] 1 2 3",
    b"x",
    b"snapshot_time 1.5 secs.nsecs",
)


@given(st.binary(max_size=80) | st.lists(st.sampled_from(LINES), max_size=5).map(b"\n".join))
def test_any_text_is_numbers_at_places_or_a_parse_error(text: bytes) -> None:
    try:
        places, words = parse_stats(text, "llite")
    except ParseError:
        return

    tokens = text.split()
    assert all(tokens[place.token].isdigit() for place in places)
    assert max(words, default=-1) < len(tokens) or not tokens

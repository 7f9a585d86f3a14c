from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.publicly import open_to_all
from tests.unit.store.conftest import BEGIN_NS, NewArchive, Ticks

from sonde.clock import NS
from sonde.errors import StoreError, Unavailable
from sonde.store.query import Selector, Span, parse_selector
from sonde.store.reader import ArchiveReader


def test_a_range_is_cut_to_the_tick(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    archive = new_archive()
    for frame in ticks(150):
        archive.write([frame])

    with ArchiveReader(path) as reader:
        (points,) = reader.read(Selector("node_load1"), BEGIN_NS + 50 * NS, BEGIN_NS + 140 * NS)
        assert points.times == [BEGIN_NS + n * NS for n in range(50, 141)]
        assert reader.read(Selector("node_load1"), 0, BEGIN_NS - 1) == []
        assert reader.span() == Span(BEGIN_NS, BEGIN_NS + 149 * NS)


def test_series_are_found_by_name_and_labels(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    new_archive().write(ticks(1))

    with ArchiveReader(path) as reader:
        assert [series.metric for series in reader.series()] == ["node_bytes_total", "node_bytes_total", "node_load1"]
        (found,) = reader.series(parse_selector('node_*{device="eth1"}'))
        assert found.labels == (("device", "eth1"),)
        assert (found.kind, found.unit) == ("counter", "bytes")


def test_an_archive_without_values_covers_nothing(path: str, new_archive: NewArchive) -> None:
    new_archive()

    with ArchiveReader(path) as reader:
        assert reader.span() is None
        assert reader.series() == []


def test_a_missing_archive_is_unavailable(path: str) -> None:
    with pytest.raises(Unavailable, match="no archive at"):
        ArchiveReader(path)


def test_an_empty_file_is_unavailable(path: str) -> None:
    Path(path).touch()

    with pytest.raises(Unavailable, match="is empty"):
        ArchiveReader(path)


def test_a_text_file_is_no_archive(path: str) -> None:
    Path(path).write_text("hello, world\n" * 1000)

    with pytest.raises(StoreError):
        ArchiveReader(path)


def test_a_file_name_with_special_characters_is_found(
    tmp_path: Path, path: str, new_archive: NewArchive, ticks: Ticks
) -> None:
    archive = new_archive()
    archive.write(ticks(3))
    archive.close()
    odd = str(tmp_path / "a?b#c%20d.db")
    os.rename(path, odd)

    with ArchiveReader(odd) as reader:
        assert reader.summary().ticks == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
@pytest.mark.parametrize("state", ["closed", "killed", "being written"])
def test_a_user_who_may_only_read_can_read(
    tmp_path: Path, path: str, new_archive: NewArchive, ticks: Ticks, state: str
) -> None:
    archive = new_archive()
    for frame in ticks(70):
        archive.write([frame])
    if state == "closed":
        archive.close()
    elif state == "killed":
        for end in ("", "-wal"):
            shutil.copy(path + end, path + end + ".kept")
        archive.close()
        for end in ("", "-wal"):
            os.rename(path + end + ".kept", path + end)
    open_to_all(tmp_path)
    child = os.fork()
    if child == 0:
        code = 9
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            with ArchiveReader(path) as reader:
                (points,) = reader.read(Selector("node_load1"), 0, 2**62)
                code = 0 if len(points.times) == 70 or reader.notes else 1
        finally:
            os._exit(code)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

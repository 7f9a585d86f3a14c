"""Damage: cut files, flipped bytes, garbage pages. Opening repairs, or refuses with StoreError, and tells."""

from __future__ import annotations

import glob
import json
import os
import random
import shutil
from pathlib import Path

import pytest
from tests.unit.store.conftest import BEGIN_NS, NODE, NewArchive, Ticks, node_values

from sonde.clock import NS
from sonde.errors import SondeError, StoreError
from sonde.model import Event, Kind, Layout, MetricSpec, Unit
from sonde.store.query import Selector
from sonde.store.reader import ArchiveReader

TICKS = 700
NOISE = MetricSpec("noise", Kind.GAUGE, Unit.NONE, "Noise.", ("n",))


@pytest.fixture
def whole(path: str, new_archive: NewArchive, ticks: Ticks) -> bytes:
    """The bytes of an archive of ten blocks, several pages each, that was closed in order."""
    noise = random.Random(1)
    layout = Layout([*NODE, *((NOISE, (str(n),)) for n in range(30))])
    archive = new_archive()
    for n in range(TICKS):
        values = [*node_values(n), *(noise.getrandbits(60) for _ in range(30))]
        events = [Event(BEGIN_NS, "a.b", {})] if n == 3 else ()
        archive.write(ticks(1, first=n, layout=layout, values=lambda _, values=values: values, events=events))
    archive.close()
    return Path(path).read_bytes()


def loads(path: str) -> tuple[list[int], int]:
    """Ticks that can be read, each verified, and the number of rows that were skipped."""
    with ArchiveReader(path) as reader:
        found = reader.read(Selector("node_load1"), 0, 2**62)
        damaged = reader.damaged
    times = found[0].times if found else []
    ticks = [(time - BEGIN_NS) // NS for time in times]
    if found:
        assert found[0].values == [node_values(tick)[0] for tick in ticks]
    return ticks, damaged


def test_a_garbage_header_costs_nothing(path: str, whole: bytes, new_archive: NewArchive) -> None:
    Path(path).write_bytes(b"\xff" * 100 + whole[100:])
    archive = new_archive()

    assert archive.salvage is not None
    assert archive.salvage.blocks == 11
    assert Path(archive.salvage.aside).exists()
    assert sorted(loads(path)[0]) == list(range(TICKS))


def test_what_was_lost_is_told_in_the_log_and_in_the_archive(
    path: str, whole: bytes, new_archive: NewArchive, caplog: pytest.LogCaptureFixture
) -> None:
    Path(path).write_bytes(whole[: len(whole) * 2 // 3 // 4096 * 4096])
    new_archive()

    kept = loads(path)[0]
    assert 0 < len(kept) < TICKS
    assert "was damaged" in caplog.text
    assert f"{path}.damaged-" in caplog.text
    with ArchiveReader(path) as reader:
        (event,) = [row for row in reader.events(0, 2**62) if row.name == "archive.damaged"]
        assert json.loads(event.attrs)["blocks"] > 0


def test_an_archive_cut_at_any_length_opens(path: str, whole: bytes, new_archive: NewArchive, ticks: Ticks) -> None:
    rand = random.Random(11)
    for length in [0, 1, 99, 100, 4095, 4096, 4097, *(rand.randrange(len(whole)) for _ in range(12))]:
        for name in glob.glob(path + "*"):
            os.unlink(name)
        Path(path).write_bytes(whole[:length])
        archive = new_archive()
        archive.write(ticks(1, first=TICKS))
        archive.close()

        kept, damaged = loads(path)
        assert TICKS in kept
        assert damaged == 0
        assert length == 0 or archive.salvage is not None


def test_flipped_bytes_never_crash_and_never_go_unnoticed(
    path: str, whole: bytes, new_archive: NewArchive, ticks: Ticks
) -> None:
    rand = random.Random(12)
    for _ in range(60):
        for name in glob.glob(path + "*"):
            os.unlink(name)
        data = bytearray(whole)
        for _ in range(rand.choice((1, 3, 30))):
            data[rand.randrange(len(data))] ^= rand.randrange(1, 256)
        Path(path).write_bytes(data)
        try:
            archive = new_archive()
            archive.write(ticks(1, first=TICKS))
            archive.close()
        except StoreError:
            continue  # the format number or the program's mark was hit: refused, not touched
        kept, damaged = loads(path)

        assert TICKS in kept
        assert len(set(kept)) == TICKS + 1 or damaged or archive.salvage is not None


def test_garbage_pages_leave_the_others_readable(path: str, whole: bytes, new_archive: NewArchive) -> None:
    rand = random.Random(13)
    for _ in range(15):
        for name in glob.glob(path + "*"):
            os.unlink(name)
        data = bytearray(whole)
        page = rand.randrange(1, len(whole) // 4096)
        data[page * 4096 : (page + 1) * 4096] = rand.randbytes(4096)
        Path(path).write_bytes(data)
        archive = new_archive()
        archive.abandon()

        kept, damaged = loads(path)
        assert len(kept) >= TICKS // 3 or archive.salvage is not None
        assert len(kept) == TICKS or damaged or archive.salvage is not None


def test_readers_of_a_damaged_file_skip_and_count_or_refuse(path: str, whole: bytes) -> None:
    rand = random.Random(14)
    for _ in range(40):
        data = bytearray(whole)
        for _ in range(rand.choice((1, 20))):
            data[rand.randrange(len(data))] ^= rand.randrange(1, 256)
        Path(path).write_bytes(data if rand.random() < 0.7 else data[: rand.randrange(len(data))])
        try:
            with ArchiveReader(path) as reader:
                reader.series()
                reader.span()
                reader.events(0, 2**62)
                reader.gaps(0, 2**62)
                reader.summary()
                kept = reader.read(Selector("node_load1"), 0, 2**62)
                faults = reader.check()
        except SondeError:
            continue
        complete = bool(kept) and len(kept[0].times) == TICKS
        assert complete or faults


def test_damage_in_the_log_is_survived(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    archive = new_archive()
    for frame in ticks(100):
        archive.write([frame])
    shutil.copy(path, path + ".copy")
    shutil.copy(path + "-wal", path + ".copy-wal")
    archive.abandon()
    os.rename(path + ".copy", path)
    log = bytearray(Path(path + ".copy-wal").read_bytes())
    os.unlink(path + ".copy-wal")
    log[len(log) // 2] ^= 0xFF
    Path(path + "-wal").write_bytes(log)
    new_archive().write(ticks(1, first=100))

    assert 100 in loads(path)[0]


def test_frames_that_are_in_blocks_are_not_saved_twice(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    archive = new_archive()
    for frame in ticks(150):
        archive.write([frame])
    archive.close()  # the tail's pages are free now, and still hold the frames
    data = bytearray(Path(path).read_bytes())
    data[:100] = bytes(100)
    Path(path).write_bytes(data)
    new_archive()

    assert sorted(loads(path)[0]) == list(range(150))


def test_only_the_newest_damaged_files_are_kept(path: str, whole: bytes, new_archive: NewArchive) -> None:
    for _ in range(4):
        Path(path).write_bytes(whole[:9000])
        new_archive().abandon()
        for name in glob.glob(path + "-*"):
            os.unlink(name)

    assert len(glob.glob(path + ".damaged-*")) == 2

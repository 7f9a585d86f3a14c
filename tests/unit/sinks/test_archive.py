from __future__ import annotations

import os
import random
import resource
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sonde.clock import NS
from sonde.config import ArchiveConfig
from sonde.errors import SinkError
from sonde.model import Frame, Kind, Layout, MetricSpec, Unit
from sonde.sinks.archive import ArchiveSink
from sonde.store.query import Selector
from sonde.store.reader import ArchiveReader
from sonde.units import Size

SPEC = MetricSpec("m", Kind.GAUGE, Unit.NONE, "M.", ("n",))
LAYOUT = Layout([(SPEC, (str(n),)) for n in range(40)])
BEGIN_NS = 1_900_000_000 * NS


def noise(seed: int) -> list[int]:
    return [value for (value,) in struct.iter_unpack("<q", random.Random(seed).randbytes(8 * len(LAYOUT)))]


def frames(first: int, count: int = 1) -> list[Frame]:
    return [Frame("s", BEGIN_NS + n * NS, 1, NS, LAYOUT, noise(n)) for n in range(first, first + count)]


def new_sink(path: Path, max_size: int = 10**8) -> ArchiveSink:
    return ArchiveSink(str(path), ArchiveConfig(max_size=Size(max_size)), host="node1", boot_id="boot")


def ticks_in(path: Path) -> list[int]:
    with ArchiveReader(str(path)) as reader:
        found = reader.read(Selector("m"), 0, 2**62)
        assert reader.damaged == 0
    return [(time - BEGIN_NS) // NS for time in found[0].times]


def until_refused(sink: ArchiveSink, first: int, last: int) -> int:
    """Write ticks one by one; the first that is refused, or the last."""
    for n in range(first, last):
        try:
            sink.write(frames(n))
        except SinkError:
            return n
    return last


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """Writing beyond this size fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_nothing_is_opened_before_the_first_write(tmp_path: Path) -> None:
    sink = new_sink(tmp_path / "a.db")
    sink.close()

    assert list(tmp_path.iterdir()) == []


def test_the_thread_that_closes_need_not_be_the_one_that_writes(tmp_path: Path) -> None:
    sink = new_sink(tmp_path / "sub" / "a.db")
    thread = threading.Thread(target=sink.write, args=(frames(0, 3),))
    thread.start()
    thread.join()
    sink.close()

    assert ticks_in(tmp_path / "sub" / "a.db") == [0, 1, 2]


def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    sink = new_sink(path)
    for n in range(100):
        sink.write(frames(n))

    size = max(os.path.getsize(path), os.path.getsize(f"{path}-wal"))
    written = 100
    with files_limited_to(size + 20_000):
        written = until_refused(sink, written, 2000)
        with pytest.raises(SinkError, match="free in") as caught:
            sink.write(frames(written))
        assert caught.value.retry
        assert ticks_in(path) == list(range(written))
    for n in range(written, written + 150):
        sink.write(frames(n))
    sink.close()

    assert ticks_in(path) == list(range(written + 150))


def test_a_disk_that_is_full_from_the_start_works_when_it_has_space(tmp_path: Path) -> None:
    sink = new_sink(tmp_path / "a.db")
    with files_limited_to(6000):
        with pytest.raises(SinkError) as caught:
            sink.write(frames(0))
        assert caught.value.retry
    sink.write(frames(0))
    sink.close()

    assert ticks_in(tmp_path / "a.db") == [0]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    sink = new_sink(tmp_path / "file" / "a.db")

    with pytest.raises(SinkError, match="cannot be written"):
        sink.write(frames(0))
    sink.close()


def test_damage_found_while_writing_is_repaired(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    sink = new_sink(path, max_size=1_200_000)
    for n in range(5000):
        sink.write(frames(n))
    with open(path, "r+b") as file:  # under the writer's hands: it meets the pages when it prunes
        for page in range(1, os.path.getsize(path) // 4096, 25):
            file.seek(page * 4096)
            file.write(os.urandom(4096))
    stopped = until_refused(sink, 5000, 9000)
    for n in range(stopped, stopped + 200):
        sink.write(frames(n))
    sink.close()

    kept = ticks_in(path)
    assert stopped < 9000
    assert list(tmp_path.glob("a.db.damaged-*"))
    assert set(range(stopped, stopped + 200)) <= set(kept)
    assert len(kept) > 500


def test_memory_does_not_grow(tmp_path: Path) -> None:
    sink = new_sink(tmp_path / "a.db")
    for n in range(500):
        sink.write(frames(n))
    before = resident()
    for n in range(500, 4000):
        sink.write(frames(n))
    sink.close()

    assert resident() - before < 2 * 2**20


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_a_file_that_somebody_removed_is_begun_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "state" / "archive.db"
    sink = new_sink(path)
    for n in range(5):
        sink.write(frames(n))
    for file in path.parent.iterdir():
        file.unlink()
    path.parent.rmdir()

    for n in range(5, 25):
        sink.write(frames(n))
    sink.close()

    assert "removed or replaced" in caplog.text
    assert ticks_in(path)[-10:] == list(range(15, 25))

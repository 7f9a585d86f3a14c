"""Frames out of an archive are the frames that went in."""

from __future__ import annotations

import random
import sqlite3
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.unit.store.conftest import BEGIN_NS, BYTES, LOAD, NODE, NewArchive, Ticks

from sonde.clock import NS
from sonde.config import ArchiveConfig
from sonde.model import Event, Frame, Gap, Histogram, Kind, Layout, MetricSpec, Quality, Unit, Value
from sonde.store.archive import Archive
from sonde.store.history import frames
from sonde.store.reader import ArchiveReader

ALWAYS = (0, 2**62)
MIXED = MetricSpec("sonde_mixed", Kind.GAUGE, Unit.RATIO, "Mixed.", ("a", "b"))
WAIT = MetricSpec("sonde_wait_seconds", Kind.HISTOGRAM, Unit.SECONDS, "Waits.")


def plain(frame: Frame) -> tuple[object, ...]:
    """A frame with everything the archive keeps of it."""
    series = [(spec.name, spec.kind, spec.unit, spec.labels, labels) for spec, labels in frame.layout]
    gaps = [(gap.spec.name, gap.labels, gap.quality, gap.reason) for gap in frame.gaps]
    return frame.source, frame.time_ns, frame.period_ns, series, list(frame.values), list(frame.events), gaps


def in_order(given: Sequence[Frame]) -> list[tuple[object, ...]]:
    return [plain(frame) for frame in sorted(given, key=lambda frame: frame.time_ns)]


def replayed(path: str, since_ns: int = ALWAYS[0], until_ns: int = ALWAYS[1]) -> list[tuple[object, ...]]:
    with ArchiveReader(path) as reader:
        found = [plain(frame) for frame in frames(reader, since_ns, until_ns)]
        assert reader.damaged == 0
    return found


def test_blocks_and_tail_of_several_sources_come_in_order_of_time(
    path: str, new_archive: NewArchive, ticks: Ticks
) -> None:
    slow = [frame._replace(time_ns=frame.time_ns + NS // 4) for frame in ticks(40, source="slow", period_ns=7 * NS)]
    given = sorted([*ticks(250), *slow], key=lambda frame: frame.time_ns)
    archive = new_archive()
    for frame in given:
        archive.write([frame])

    found = replayed(path)  # while it is open: some are in blocks, some in the tail

    assert found == in_order(given)


def test_values_of_all_types_keep_their_place(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    layout = Layout([(MIXED, ("x", "1")), (MIXED, ("y", "2")), (WAIT, ()), (LOAD, ()), (BYTES, ("eth0",))])

    def values(n: int) -> list[Value]:
        return [n, 0.5 * n, Histogram((0.1, 1.0), (n, 2, 3), 4.5), 2**70 if n % 9 == 0 else n, float(n)]

    given = ticks(150, layout=layout, values=values)
    archive = new_archive()
    for frame in given:
        archive.write([frame])
    archive.close()

    assert replayed(path) == in_order(given)


def test_a_range_has_both_its_ends(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    given = ticks(200)
    archive = new_archive()
    for frame in given:
        archive.write([frame])
    archive.close()

    assert replayed(path, BEGIN_NS + 50 * NS, BEGIN_NS + 120 * NS) == in_order(given[50:121])


def test_events_and_gaps_come_back(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    many = [Event(BEGIN_NS + 5 * NS, "oom.kill", {"pid": n}) for n in range(2500)]  # all at one time
    away = Gap(BYTES, ("eth9",), Quality.DENIED, "no permission")
    given = ticks(100)
    given[5] = given[5]._replace(events=many)
    given[20:40] = [frame._replace(gaps=(away,)) for frame in given[20:40]]
    archive = new_archive()
    for frame in given:
        archive.write([frame])
    archive.close()

    with ArchiveReader(path) as reader:
        found = list(frames(reader, *ALWAYS))
        happened = [event for frame in found for event in frame.events]
        readings = [frame for frame in found if frame.layout]

    assert happened == many
    assert [n for n, frame in enumerate(readings) if frame.gaps] == list(range(20, 40))
    (gap,) = readings[20].gaps
    assert (gap.spec.name, gap.spec.labels, gap.labels) == ("node_bytes_total", ("device",), ("eth9",))
    assert (gap.quality, gap.reason) == (Quality.DENIED, "no permission")
    assert readings[20].gaps is readings[39].gaps  # sinks compare by identity


def test_layouts_keep_their_identity_from_block_to_block(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    archive = new_archive()
    for frame in ticks(300):
        archive.write([frame])
    archive.close()

    with ArchiveReader(path) as reader:
        layouts = {id(frame.layout) for frame in frames(reader, *ALWAYS)}

    assert len(layouts) == 1


def test_a_clock_that_was_set_back_leaves_frames_in_order_of_their_times(
    path: str, new_archive: NewArchive, ticks: Ticks
) -> None:
    given = ticks(100)
    back = [frame._replace(time_ns=frame.time_ns - 30 * NS + 1) for frame in ticks(100, first=100)]
    archive = new_archive()
    for frame in [*given, *back]:
        archive.write([frame])
    archive.close()

    found = replayed(path)

    assert [frame[1] for frame in found] == sorted(frame.time_ns for frame in [*given, *back])


def test_a_damaged_block_is_left_out_and_counted(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    archive = new_archive()
    for frame in ticks(200):
        archive.write([frame])
    archive.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE block SET data = substr(data, 1, 20) WHERE id = 1")
    connection.close()

    with ArchiveReader(path) as reader:
        found = list(frames(reader, *ALWAYS))
        damaged = reader.damaged

    assert damaged == 1
    assert 60 <= len(found) < 200


def test_blocks_that_the_daemon_prunes_meanwhile_are_left_out(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    archive = new_archive()
    for frame in ticks(400):
        archive.write([frame])
    archive.close()

    with ArchiveReader(path) as reader:
        stream = frames(reader, *ALWAYS)
        first = next(stream)
        with sqlite3.connect(path) as connection:
            connection.execute("DELETE FROM block WHERE id > 2")
        connection.close()
        rest = list(stream)

    assert first.time_ns == BEGIN_NS
    assert 100 < len(rest) < 399


@pytest.mark.parametrize("ticks_count", [2_000, 10_000])
def test_memory_does_not_grow_with_the_archive(tmp_path: Path, ticks_count: int) -> None:
    path = str(tmp_path / "long.db")
    archive = Archive(path, ArchiveConfig(), host="node1", boot_id="boot")
    noise = random.Random(7)
    begin = 1_900_000_000 * NS  # in the future: nothing is pruned by age
    for n in range(ticks_count):
        archive.write([Frame("node", begin + n * NS, 1, NS, NODE, [noise.random(), noise.getrandbits(60), n])])
    archive.close()

    with ArchiveReader(path) as reader:
        tracemalloc.start()
        count = sum(1 for _ in frames(reader, *ALWAYS))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert count == ticks_count
    assert peak < 600_000  # bytes

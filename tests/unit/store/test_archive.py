from __future__ import annotations

import os
import random
import sqlite3
from pathlib import Path

import pytest
from tests.unit.store.conftest import BEGIN_NS, BYTES, NODE, NewArchive, Ticks, node_values

from sonde.clock import NS, ManualClock
from sonde.config import ArchiveConfig
from sonde.errors import StoreError
from sonde.model import Event, Frame, Gap, Histogram, Kind, Layout, MetricSpec, Quality, Unit, Value
from sonde.store import archive as archive_module
from sonde.store.query import Points, Selector, parse_selector, rate
from sonde.store.reader import ArchiveReader
from sonde.units import Duration, Size

FOREVER = 2**62


def read(path: str, selector: str = "*") -> dict[str, Points]:
    with ArchiveReader(path) as reader:
        points = reader.read(parse_selector(selector), 0, FOREVER)
        assert reader.damaged == 0
    return {item.series.metric + "".join(value for _, value in item.series.labels): item for item in points}


def rows(path: str, sql: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def test_every_value_comes_back_from_blocks_and_tail(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    archive = new_archive()
    for frame in ticks(200):
        archive.write([frame])

    found = read(path)
    assert len(rows(path, "SELECT 1 FROM block")) >= 2
    assert rows(path, "SELECT 1 FROM tail")
    assert found["node_load1"].times == [BEGIN_NS + n * NS for n in range(200)]
    assert found["node_load1"].values == [node_values(n)[0] for n in range(200)]
    assert found["node_bytes_totaleth0"].values == [1000 * n for n in range(200)]
    assert all(type(value) is int for value in found["node_bytes_totaleth1"].values)


def test_blocks_have_at_least_sixty_ticks(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    archive = new_archive()
    slow = ticks(20, source="slow", period_ns=10 * NS)
    for n, frame in enumerate(ticks(200)):
        archive.write([frame, slow[n // 10]] if n % 10 == 0 else [frame])

    assert {
        count for (count,) in rows(path, "SELECT count FROM block") if isinstance(count, int) and count < 60
    } == set()
    # What the slow one has is carried along as one row, not with the batches it came in.
    assert len(rows(path, "SELECT 1 FROM tail")) <= 66
    found = read(path)
    assert len(found["node_load1"].times) == 220


def test_fast_batches_share_a_commit_and_slow_ones_do_not(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    archive = new_archive()
    for frame in ticks(12, period_ns=NS // 10):
        archive.write([frame])
    assert len(read(path)["node_load1"].times) == 8

    for frame in ticks(1, first=13, source="other"):
        archive.write([frame])
    assert len(read(path)["node_load1"].times) == 13


def test_closing_keeps_what_was_held_and_leaves_only_blocks(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    archive = new_archive()
    for frame in ticks(13, period_ns=NS // 10):
        archive.write([frame])
    archive.close()

    assert len(read(path)["node_load1"].times) == 13
    assert rows(path, "SELECT 1 FROM tail") == []
    assert not os.path.exists(path + "-wal")


def test_the_tail_of_a_killed_writer_is_found_by_the_next(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    archive = new_archive()
    for frame in ticks(10):
        archive.write([frame])
    archive.abandon()

    new_archive().write(ticks(1, first=10))

    assert len(read(path)["node_load1"].times) == 11
    assert [count for (count,) in rows(path, "SELECT count FROM block")] == [10]
    assert [boot for (boot,) in rows(path, "SELECT boot FROM block")] == [1]


def test_blocks_keep_the_monotonic_offset_of_their_boot(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    archive = new_archive()
    archive.write(ticks(3))
    archive.close()

    assert rows(path, "SELECT boot_id, host FROM boot") == [("boot", "node1")]
    assert rows(path, "SELECT offset_ns FROM block") == [(BEGIN_NS + 3600 * NS - 5 * NS,)]


def test_a_value_that_changes_its_type_keeps_both(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    mixed: list[Value] = [1, 2.5, 2**64 + 1, 3, -(2**80), 4.0]
    archive = new_archive()
    for n, value in enumerate(mixed):
        archive.write(ticks(1, first=n, values=lambda _, value=value: [0.5, value, 7]))
    archive.close()

    values = read(path)["node_bytes_totaleth0"].values
    assert values == mixed
    assert list(map(type, values)) == list(map(type, mixed))


def test_histograms_are_kept(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    layout = Layout([(MetricSpec("sonde_wait_seconds", Kind.HISTOGRAM, Unit.SECONDS, "Wait."), ())])
    expected = [Histogram((0.1, 1.0), (n, 2 * n, 1), n / 4) for n in range(130)]
    archive = new_archive()
    for n in range(130):
        archive.write(ticks(1, first=n, layout=layout, values=lambda n: [expected[n]]))

    assert read(path)["sonde_wait_seconds"].values == expected


def test_a_topology_that_changes_and_changes_back_loses_nothing(
    path: str, new_archive: NewArchive, ticks: Ticks
) -> None:
    more = Layout([*NODE, (BYTES, ("eth2",))])
    archive = new_archive()
    for n in range(150):
        if n % 50 < 25:
            archive.write(ticks(1, first=n))
        else:
            archive.write(ticks(1, first=n, layout=more, values=lambda n: [*node_values(n), n]))

    found = read(path)
    assert sorted(found["node_load1"].times) == [BEGIN_NS + n * NS for n in range(150)]
    assert sorted(found["node_bytes_totaleth2"].values) == [n for n in range(150) if n % 50 >= 25]


def test_a_layout_that_changes_at_every_tick_stays_bounded(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    archive = new_archive()
    for n in range(300):
        layout = Layout([(BYTES, (f"veth{n}",))])
        archive.write(ticks(1, first=n, layout=layout, values=lambda n: [n]))

    assert len(archive._stretches) <= archive_module._RETIRED + archive_module._REVIEW + 1
    assert len(read(path)) == 300


def test_a_clock_set_back_loses_nothing_and_makes_no_false_rate(
    path: str, new_archive: NewArchive, ticks: Ticks
) -> None:
    archive = new_archive()
    for n in range(150):
        (frame,) = ticks(1, first=n)
        jumped = frame.time_ns - 1800 * NS if 70 <= n < 100 else frame.time_ns
        archive.write([frame._replace(time_ns=jumped)])

    points = read(path)["node_bytes_totaleth0"]
    assert sorted(points.values) == [1000 * n for n in range(150)]
    rates = rate(points, max_gap_ns=5 * NS)
    assert set(rates.values) == {1000.0}
    assert rates.times == sorted(rates.times)
    assert len(rates.times) == 147  # all neighbours but the two jumps


def test_events_are_kept(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    event = Event(BEGIN_NS + 5, "oom.kill", {"pid": 7, "comm": "train", "score": 0.5, "ok": None})
    archive = new_archive()
    archive.write(ticks(1, events=[event], period_ns=NS // 10))
    archive.write([Frame("bare", BEGIN_NS, 1, NS, Layout(()), (), (event,))])

    with ArchiveReader(path) as reader:
        found = reader.events(BEGIN_NS, BEGIN_NS + NS)
        assert [(row.source, row.name) for row in found] == [("node", "oom.kill"), ("bare", "oom.kill")]
        assert '"comm": "train"' in found[0].attrs


def test_gaps_are_written_when_they_change(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    denied = Gap(BYTES, ("eth9",), Quality.DENIED, "no permission")
    archive = new_archive()
    archive.write(ticks(1))
    for n in (1, 2, 3):
        archive.write(ticks(1, first=n, gaps=(denied._replace(time_ns=n),)))
    archive.write(ticks(1, first=4))
    archive.write(ticks(1, first=5, gaps=(denied,)))

    with ArchiveReader(path) as reader:
        first, second = reader.gaps(0, FOREVER)
        assert (first.from_ns, first.to_ns) == (BEGIN_NS + NS, BEGIN_NS + 4 * NS)
        assert (second.from_ns, second.to_ns) == (BEGIN_NS + 5 * NS, None)
        assert (first.metric, first.labels, first.quality) == ("node_bytes_total", '["eth9"]', "denied")


def test_an_open_gap_ends_with_the_next_writer(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    archive = new_archive()
    archive.write(ticks(1, gaps=(Gap(BYTES, (), Quality.STALE, "old"),)))
    archive.abandon()
    new_archive()

    with ArchiveReader(path) as reader:
        assert reader.gaps(0, FOREVER)[0].to_ns is not None


def test_one_archive_has_one_writer(path: str, new_archive: NewArchive) -> None:
    new_archive()

    with pytest.raises(StoreError, match=f"being written by process {os.getpid()}"):
        new_archive()


def test_a_newer_format_is_refused_by_number(path: str, new_archive: NewArchive) -> None:
    new_archive().close()
    rows(path, "PRAGMA user_version = 9")

    with pytest.raises(StoreError, match="has format 9, this sonde knows 1"):
        new_archive()
    with pytest.raises(StoreError, match="has format 9, this sonde knows 1"):
        ArchiveReader(path)
    assert rows(path, "PRAGMA user_version") == [(9,)]


def test_the_database_of_another_program_is_left_alone(path: str, new_archive: NewArchive) -> None:
    rows(path, "CREATE TABLE precious (x)")
    before = Path(path).read_bytes()

    with pytest.raises(StoreError, match="another program"):
        new_archive()
    assert Path(path).read_bytes() == before


def test_an_archive_too_small_to_work_is_refused(new_archive: NewArchive) -> None:
    with pytest.raises(StoreError, match="too small"):
        new_archive(ArchiveConfig(max_size=Size(1000)))


def test_rollback_mode_needs_no_shared_memory(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    archive = new_archive(ArchiveConfig(journal="rollback"))
    for frame in ticks(100):
        archive.write([frame])

    assert len(read(path)["node_load1"].times) == 100
    assert not os.path.exists(path + "-shm")
    assert rows(path, "PRAGMA journal_mode") != [("wal",)]


def noisy(random_: random.Random, layout: Layout) -> list[Value]:
    return [random_.getrandbits(60) for _ in layout]


def test_the_file_stays_within_its_size(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    limit = 2_000_000
    noise = random.Random(5)
    layout = Layout([(BYTES, (f"eth{n}",)) for n in range(100)])
    archive = new_archive(ArchiveConfig(max_size=Size(limit)))
    largest = 0
    for n in range(4000):
        archive.write(ticks(1, first=n, layout=layout, values=lambda _: noisy(noise, layout)))
        if n % 7 == 0:
            largest = max(largest, sum(os.path.getsize(path + end) for end in ("", "-wal")))

    kept = read(path, 'node_bytes_total{device="eth0"}')["node_bytes_totaleth0"]
    assert largest <= limit * 1.05
    assert kept.times[-1] == BEGIN_NS + 3999 * NS
    assert len(kept.times) > 1000


def test_a_lowered_limit_shrinks_the_file(path: str, new_archive: NewArchive, ticks: Ticks) -> None:
    noise = random.Random(5)
    layout = Layout([(BYTES, (f"eth{n}",)) for n in range(100)])
    archive = new_archive()
    for n in range(6000):
        archive.write(ticks(1, first=n, layout=layout, values=lambda _: noisy(noise, layout)))
    archive.close()
    assert os.path.getsize(path) > 4_000_000

    archive = new_archive(ArchiveConfig(max_size=Size(1_500_000)))
    for n in range(6000, 6400):
        archive.write(ticks(1, first=n, layout=layout, values=lambda _: noisy(noise, layout)))
    archive.close()
    assert os.path.getsize(path) < 1_600_000


def test_what_is_older_than_it_may_be_is_deleted(
    path: str, new_archive: NewArchive, ticks: Ticks, clock: ManualClock
) -> None:
    archive = new_archive(ArchiveConfig(max_age=Duration(7200)))
    old = Layout([(BYTES, ("old",))])
    archive.write(ticks(1, source="old", layout=old, values=lambda n: [n], events=[Event(BEGIN_NS, "x.y", {})]))
    for frame in ticks(70):
        archive.write([frame])
    archive.close()
    clock.advance(2 * 86400)
    archive = new_archive(ArchiveConfig(max_age=Duration(7200)))
    for frame in ticks(140, first=2 * 86400 + 3600):
        archive.write([frame])

    found = read(path)
    assert min(found["node_load1"].times) == BEGIN_NS + (2 * 86400 + 3600) * NS
    assert "node_bytes_totalold" not in found
    assert rows(path, "SELECT count(*) FROM event") == [(0,)]
    with ArchiveReader(path) as reader:
        assert reader.series(Selector("node_bytes_total")) != []
        assert all(series.labels != (("device", "old"),) for series in reader.series())

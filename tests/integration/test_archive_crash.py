"""A writer at 10 Hz in a process of its own is killed at random moments; readers read beside it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sonde.clock import NS
from sonde.config import ArchiveConfig
from sonde.errors import Unavailable
from sonde.store.archive import Archive
from sonde.store.query import Selector
from sonde.store.reader import ArchiveReader

KILLS = 12

# Says "n time_ns" before it writes tick n; the number goes on where the runs before it stopped.
WRITER = """
import sys, time
from sonde.config import ArchiveConfig
from sonde.model import Frame, Kind, Layout, MetricSpec, Unit
from sonde.sinks.archive import ArchiveSink

path, first, period = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
tick = MetricSpec("tick_total", Kind.COUNTER, Unit.NONE, "x")
level = MetricSpec("level", Kind.GAUGE, Unit.NONE, "x", ("n",))
layout = Layout([(tick, ()), *((level, (str(n),)) for n in range(100))])
sink = ArchiveSink(path, ArchiveConfig(), host="node1", boot_id="boot")
due = time.monotonic()
for n in range(first, first + 100_000):
    due += period
    time.sleep(max(0, due - time.monotonic()))
    now = time.time_ns()
    print(n, now, flush=True)
    sink.write([Frame("s", now, 1, int(period * 1e9), layout, [n, *(n % 7 + k / 4 for k in range(100))])])
"""


def start(path: Path, first: int, period: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), str(first), str(period)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def stop(writer: subprocess.Popen[str]) -> list[tuple[int, int]]:
    """Kill it and return what it said: number and time of every tick."""
    writer.send_signal(signal.SIGKILL)
    said, _ = writer.communicate(timeout=30)
    lines = [line.split() for line in said.splitlines() if line.count(" ") == 1]
    return [(int(number), int(time_ns)) for number, time_ns in lines]


def ticks_in(path: Path) -> list[int]:
    with ArchiveReader(str(path)) as reader:
        found = reader.read(Selector("tick_total"), 0, 2**62)
        assert reader.damaged == 0
        assert reader.check() == []
    return found[0].values if found else []


@pytest.mark.parametrize(("period", "shortest", "longest"), [(0.1, 0.8, 2.6), (0.001, 0.4, 1.0)])
def test_a_killed_writer_loses_at_most_the_last_second(
    tmp_path: Path, period: float, shortest: float, longest: float
) -> None:
    # At 10 Hz, as collectors run; and at 1 kHz, where a block is made every 0.12 s and a kill meets one in the making.
    path = tmp_path / "archive.db"
    rand = random.Random(20)
    count = 0
    for _ in range(KILLS):
        writer = start(path, count, period)
        time.sleep(rand.uniform(shortest, longest))
        said = stop(writer)
        count += len(said)
        kept = ticks_in(path)

        assert kept == sorted(set(kept))
        # The process says the time before it writes: 0.1 s for a tick that was said and not yet written.
        lost = [said[-1][1] - time_ns for number, time_ns in said if number not in set(kept)]
        assert max(lost, default=0) <= 1.1 * NS
    archive = Archive(str(path), ArchiveConfig(), host="node1", boot_id="boot")
    archive.close()

    assert archive.salvage is None
    assert ticks_in(path) == kept


def test_readers_see_the_tail_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "archive.db"
    writer = start(path, 0, 0.02)
    try:
        until = time.monotonic() + 30
        seen: list[int] = []
        while len(seen) < 250 and time.monotonic() < until:
            try:
                seen = read_beside(path, seen)
            except Unavailable:  # not there yet, or a file whose tables are just being made
                assert seen == []
            time.sleep(0.05)
    finally:
        stop(writer)

    assert len(seen) >= 250


def read_beside(path: Path, before: list[int]) -> list[int]:
    """What is there now: never less than before, without holes, not older than a second."""
    with ArchiveReader(str(path)) as reader:
        found = reader.read(Selector("tick_total"), 0, 2**62)
        assert reader.damaged == 0
    if not found:
        return before
    assert found[0].values == list(range(len(found[0].values)))
    assert len(found[0].values) >= len(before)
    return found[0].values

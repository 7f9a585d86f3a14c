"""Frames of a small node, and archives to put them into."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from sonde.clock import NS, ManualClock
from sonde.config import ArchiveConfig
from sonde.model import Event, Frame, Gap, Kind, Layout, MetricSpec, Unit, Value
from sonde.store.archive import Archive

BEGIN_NS = 1_800_000_000 * NS

LOAD = MetricSpec("node_load1", Kind.GAUGE, Unit.NONE, "Load.")
BYTES = MetricSpec("node_bytes_total", Kind.COUNTER, Unit.BYTES, "Bytes.", ("device",))
NODE = Layout([(LOAD, ()), (BYTES, ("eth0",)), (BYTES, ("eth1",))])

Ticks = Callable[..., list[Frame]]
NewArchive = Callable[..., Archive]


def node_values(tick: int) -> list[Value]:
    return [round(0.01 * (tick % 700), 2), 1000 * tick, 7]


@pytest.fixture
def ticks() -> Ticks:
    """Frames number `first` to `first + count` of a node, one per period."""

    def make(
        count: int,
        *,
        first: int = 0,
        source: str = "node",
        period_ns: int = NS,
        layout: Layout = NODE,
        values: Callable[[int], Sequence[Value]] = node_values,
        events: Sequence[Event] = (),
        gaps: Sequence[Gap] = (),
    ) -> list[Frame]:
        return [
            Frame(source, BEGIN_NS + n * period_ns, 1, period_ns, layout, values(n), events, gaps)
            for n in range(first, first + count)
        ]

    return make


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "archive.db")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(monotonic_ns=5 * NS, time_ns=BEGIN_NS + 3600 * NS)


@pytest.fixture
def new_archive(path: str, clock: ManualClock) -> Iterator[NewArchive]:
    """Opens the archive; what a test leaves open is let go as a killed process would."""
    opened: list[Archive] = []

    def open_archive(config: ArchiveConfig | None = None) -> Archive:
        archive = Archive(path, config or ArchiveConfig(), host="node1", boot_id="boot", clock=clock)
        opened.append(archive)
        return archive

    yield open_archive
    for archive in opened:
        archive.abandon()

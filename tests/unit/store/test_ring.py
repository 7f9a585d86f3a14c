from __future__ import annotations

from tests.unit.store.conftest import Ticks

from sonde.store.ring import Ring


def test_the_newest_frame_of_every_source_is_kept(ticks: Ticks) -> None:
    ring = Ring()
    ring.write([*ticks(5, source="cpu"), *ticks(3, source="load")])

    assert [frame.source for frame in ring.latest()] == ["cpu", "load"]
    assert ring.latest()[0] == ticks(1, first=4, source="cpu")[0]

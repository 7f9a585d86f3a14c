from __future__ import annotations

from pathlib import Path

import pytest
from tests.healthy import recording

from sonde.jobs.reading import read
from sonde.store.query import Selector


@pytest.mark.parametrize("offset_ns", [0, 5_000_000])
def test_both_ways_of_reading_give_the_same(offset_ns: int, tmp_path: Path) -> None:
    node = recording(tmp_path / "r").nodes[0]

    with node.archive() as reader:
        plain = read(reader, Selector("*"), offset_ns, numpy=False)
        quick = read(reader, Selector("*"), offset_ns, numpy=True)

    assert plain.folded == quick.folded == {"node_cpu_seconds_total": 4, "node_cpu_scaling_frequency_hertz": 4}
    for one, other in zip(plain.points, quick.points, strict=True):
        assert (one.series, one.times, one.period_ns) == (other.series, other.times, other.period_ns)
        assert one.values == pytest.approx(other.values, rel=1e-12)


def test_the_cpus_of_a_node_are_added_up_by_mode(tmp_path: Path) -> None:
    node = recording(tmp_path / "r").nodes[0]

    with node.archive() as reader:
        found = read(reader, Selector("node_cpu_seconds_total"), 0)

    modes = {dict(points.series.labels)["mode"]: points.values for points in found.points}
    assert sorted(modes) == ["idle", "iowait", "steal", "system", "user"]
    assert modes["user"][1] - modes["user"][0] == pytest.approx(4 * 0.85 * 5)

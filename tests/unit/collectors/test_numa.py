"""/sys/devices/system/node."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.collectors.numa import NumaCollector, NumaConfig, parse_meminfo, parse_numastat
from sonde.errors import ParseError, Unavailable
from sonde.hostfs import HostFile, HostFS
from sonde.model import Kind, Reading, Unit, Value

NODES = "sys/devices/system/node"
MEMINFO = b"""Node 0 MemTotal:        4022852 kB
Node 0 Active(anon):       1544 kB
Node 0 HugePages_Total:     3
"""
NUMASTAT = b"numa_hit 1718548\nnuma_miss 0\n"


def by_series(reading: Reading) -> dict[tuple[str, ...], Value]:
    return {(s.name, *labels): value for (s, labels), value in zip(reading.layout, reading.values, strict=True)}


def nodes(reading: Reading) -> set[str]:
    return {labels[0] for _, labels in reading.layout}


class Leaving(HostFile):
    """A file of a node that has gone: sysfs then answers ENODEV."""

    def read(self) -> bytes:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))


class HostOfALeavingNode(HostFS):
    """A host whose second node goes between the two reads of a tick."""

    __slots__ = ()

    def record(self, name: str) -> HostFile:
        file = super().record(name)
        if name != f"{NODES}/node1/numastat":
            return file
        file.close()
        shutil.rmtree(self.path(f"{NODES}/node1"))
        return Leaving(name, -1, iterated=False)


def test_memory_is_in_bytes_per_node(captured: Callable[[str], HostFS]) -> None:
    values = by_series(NumaCollector(captured("big"), NumaConfig(single_node=True)).collect())

    assert values["node_memory_numa_MemTotal", "0"] == 792274944 * 1024
    assert values["node_memory_numa_MemTotal", "1"] == 792498564 * 1024
    assert values["node_memory_numa_Active_anon", "1"] == int(4194304 * 0.47) * 1024
    assert len(values) == 84


def test_huge_pages_are_a_number(captured: Callable[[str], HostFS]) -> None:
    reading = NumaCollector(captured("big"), NumaConfig(single_node=True)).collect()

    units = {spec.name: spec.unit for spec, _ in reading.layout}

    assert by_series(reading)["node_memory_numa_HugePages_Total", "1"] == 512
    assert units["node_memory_numa_HugePages_Total"] is Unit.NONE
    assert units["node_memory_numa_MemTotal"] is Unit.BYTES


def test_allocations_are_counters(captured: Callable[[str], HostFS]) -> None:
    reading = NumaCollector(captured("big"), NumaConfig(single_node=True)).collect()

    counters = {spec.name for spec, _ in reading.layout if spec.kind is Kind.COUNTER}

    assert by_series(reading)["node_memory_numa_numa_miss_total", "1"] == 120394
    assert counters == {
        f"node_memory_numa_{name}_total"
        for name in ("numa_hit", "numa_miss", "numa_foreign", "interleave_hit", "local_node", "other_node")
    }


def test_every_line_of_both_hosts_is_declared(captured: Callable[[str], HostFS]) -> None:
    layouts = [NumaCollector(captured(name), NumaConfig(single_node=True)).collect().layout for name in ("vm", "big")]

    assert {spec for layout in layouts for spec, _ in layout} <= set(NumaCollector.metrics)
    assert [len(layout) for layout in layouts] == [42, 84]


def test_a_node_that_goes_offline_and_comes_back_changes_the_layout(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("big")
    collector = NumaCollector(host, NumaConfig(single_node=True))
    before = collector.collect()
    os.rename(host.path(f"{NODES}/node1"), host.path("away"))
    Path(host.path(f"{NODES}/online")).write_text("0\n")

    one = collector.collect()
    os.rename(host.path("away"), host.path(f"{NODES}/node1"))
    Path(host.path(f"{NODES}/online")).write_text("0-1\n")
    both = collector.collect()

    assert nodes(one) == {"0"}
    assert by_series(both) == by_series(before)
    assert collector.collect().layout is both.layout


def test_a_node_that_goes_between_two_reads_is_left_out(scratch: Callable[[str], HostFS]) -> None:
    collector = NumaCollector(HostOfALeavingNode(scratch("big").root), NumaConfig(single_node=True))

    assert nodes(collector.collect()) == {"0"}


def test_ten_nodes_are_in_the_order_of_their_numbers(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("big")
    shutil.copytree(host.path(f"{NODES}/node1"), host.path(f"{NODES}/node10"))

    reading = NumaCollector(host, NumaConfig(single_node=True)).collect()

    assert [labels[0] for spec, labels in reading.layout if spec.name.endswith("MemFree")] == ["0", "1", "10"]


def test_a_counter_that_steps_back_is_passed_on(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("big")
    collector = NumaCollector(host, NumaConfig(single_node=True))
    before = collector.collect()
    path = Path(host.path(f"{NODES}/node1/numastat"))
    path.write_text(path.read_text().replace("numa_miss 120394", "numa_miss 4"))

    after = collector.collect()

    assert after.layout is before.layout
    assert by_series(after)["node_memory_numa_numa_miss_total", "1"] == 4


def test_a_kernel_without_numa_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="CONFIG_NUMA"):
        NumaCollector(HostFS(str(tmp_path)), NumaConfig(single_node=True))


@pytest.mark.parametrize("text", [b"MemTotal: 5 kB\n", b"Node 0 MemTotal: 5 MB\n", MEMINFO + MEMINFO])
def test_odd_meminfo_is_a_parse_error(text: bytes) -> None:
    with pytest.raises(ParseError):
        parse_meminfo(text, "0")


@pytest.mark.parametrize("text", [b"numa_hit\n", b"numa_hit x\n", b"numa-hit 5\n", NUMASTAT + NUMASTAT])
def test_odd_numastat_is_a_parse_error(text: bytes) -> None:
    with pytest.raises(ParseError):
        parse_numastat(text, "0")


def mutated(text: bytes) -> st.SearchStrategy[bytes]:
    odd = st.binary(max_size=8) | st.sampled_from([b"-1", b"nan", b"9" * 5000, b"\n", b" ", b"kB", b"Node 1"])
    place = st.integers(0, len(text))
    return st.binary(max_size=100) | st.builds(
        lambda at, length, new: text[:at] + new + text[at + length :], place, st.integers(0, 30), odd
    )


@settings(max_examples=150, deadline=None)
@given(meminfo=mutated(MEMINFO), numastat=mutated(NUMASTAT) | st.just(NUMASTAT))
def test_any_text_gives_values_or_a_parse_error(
    tmp_path_factory: pytest.TempPathFactory, meminfo: bytes, numastat: bytes
) -> None:
    node = tmp_path_factory.getbasetemp() / "numa" / NODES / "node0"
    node.mkdir(parents=True, exist_ok=True)
    (node.parent / "online").write_text("0\n")
    (node / "meminfo").write_bytes(MEMINFO)
    (node / "numastat").write_bytes(NUMASTAT)
    collector = NumaCollector(HostFS(str(tmp_path_factory.getbasetemp() / "numa")), NumaConfig(single_node=True))
    reading = collector.collect()
    (node / "meminfo").write_bytes(meminfo)
    (node / "numastat").write_bytes(numastat)

    try:
        reading = collector.collect()
    except ParseError:
        pass

    assert len(reading.values) == len(reading.layout)


def test_a_single_node_is_left_to_the_memory_collector(captured: Callable[[str], HostFS]) -> None:
    with pytest.raises(Unavailable, match="one memory node"):
        NumaCollector(captured("vm"), NumaConfig())

    assert NumaCollector(captured("big"), NumaConfig()).collect().values

"""/proc/meminfo."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.collectors.memory import MemoryCollector, parse_fields
from sonde.config import NoKeys
from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.model import Kind, Reading, Unit, Value

MEMINFO = b"""MemTotal:       24682416 kB
MemFree:        24455856 kB
Active(anon):       1508 kB
HugePages_Total:       3
Hugepagesize:       2048 kB
"""


def by_name(reading: Reading) -> dict[str, Value]:
    return {spec.name: value for (spec, _), value in zip(reading.layout, reading.values, strict=True)}


def rewrite(host: HostFS, old: str, new: str) -> None:
    path = Path(host.path("proc/meminfo"))
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_kilobytes_become_bytes(captured: Callable[[str], HostFS]) -> None:
    reading = MemoryCollector(captured("vm"), NoKeys()).collect()

    values = by_name(reading)

    assert values["node_memory_MemTotal_bytes"] == 24682416 * 1024
    assert values["node_memory_VmallocTotal_bytes"] == 34359738367 * 1024
    assert len(values) == 54
    assert all(type(value) is int for value in values.values())


def test_swap_is_among_them(captured: Callable[[str], HostFS]) -> None:
    values = by_name(MemoryCollector(captured("big"), NoKeys()).collect())

    assert values["node_memory_SwapTotal_bytes"] == values["node_memory_SwapFree_bytes"] == 8388604 * 1024


def test_a_kind_in_parentheses_is_joined_by_an_underscore(captured: Callable[[str], HostFS]) -> None:
    values = by_name(MemoryCollector(captured("vm"), NoKeys()).collect())

    assert values["node_memory_Active_anon_bytes"] == 1508 * 1024


def test_a_line_without_unit_is_a_plain_number(captured: Callable[[str], HostFS]) -> None:
    reading = MemoryCollector(captured("big"), NoKeys()).collect()

    specs = {spec.name: spec for spec, _ in reading.layout}

    assert by_name(reading)["node_memory_HugePages_Total"] == 1024
    assert specs["node_memory_HugePages_Total"].unit is Unit.NONE
    assert specs["node_memory_Hugepagesize_bytes"].unit is Unit.BYTES
    assert {spec.kind for spec in specs.values()} == {Kind.GAUGE}


def test_every_line_of_both_hosts_is_declared(captured: Callable[[str], HostFS]) -> None:
    layouts = [MemoryCollector(captured(name), NoKeys()).collect().layout for name in ("vm", "big")]

    assert {spec for layout in layouts for spec, _ in layout} <= set(MemoryCollector.metrics)


def test_a_line_a_new_kernel_adds_becomes_a_metric(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    collector = MemoryCollector(host, NoKeys())
    before = collector.collect()
    rewrite(host, "SwapTotal:", "GPUActive:            12 kB\nSwapTotal:")

    after = collector.collect()

    assert by_name(after) == {**by_name(before), "node_memory_GPUActive_bytes": 12 * 1024}
    assert after.layout is collector.collect().layout


def test_numbers_change_under_the_same_layout(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    collector = MemoryCollector(host, NoKeys())
    before = collector.collect()
    rewrite(host, "MemFree:        24455856", "MemFree:               7")

    after = collector.collect()

    assert after.layout is before.layout
    assert by_name(after)["node_memory_MemFree_bytes"] == 7 * 1024


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"MemTotal: 5 MB\n",
        b"MemTotal 5 kB\n",
        b"MemTotal: five kB\n",
        b"MemTotal: 5 kB\nMemTotal: 6 kB\n",
        b"Active(anon): 1 kB\nActive_anon: 1 kB\n",
        b"Mem-Total: 5 kB\n",
    ],
)
def test_odd_text_is_a_parse_error(text: bytes) -> None:
    with pytest.raises(ParseError):
        parse_fields(text)


def mutated(text: bytes) -> st.SearchStrategy[bytes]:
    odd = st.binary(max_size=8) | st.sampled_from([b"-1", b"nan", b"9" * 5000, b"\n", b" ", b"kB", b"(", b":"])
    place = st.integers(0, len(text))
    return st.binary(max_size=100) | st.builds(
        lambda at, length, new: text[:at] + new + text[at + length :], place, st.integers(0, 30), odd
    )


@settings(max_examples=200, deadline=None)
@given(text=mutated(MEMINFO))
def test_any_text_gives_values_or_a_parse_error(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    root = tmp_path_factory.getbasetemp() / "memory"
    (root / "proc").mkdir(parents=True, exist_ok=True)
    (root / "proc/meminfo").write_bytes(MEMINFO)
    collector = MemoryCollector(HostFS(str(root)), NoKeys())
    reading = collector.collect()
    (root / "proc/meminfo").write_bytes(text)

    try:
        reading = collector.collect()
    except ParseError:
        pass

    assert len(reading.values) == len(reading.layout)

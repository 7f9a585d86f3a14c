"""/proc/vmstat."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.collectors.vmstat import VmstatCollector, VmstatConfig, parse_names
from sonde.errors import ConfigError, ParseError
from sonde.hostfs import HostFS
from sonde.model import Kind, Reading, Value

VMSTAT = b"nr_free_pages 6113964\npgpgin 1174881\npgfault 1690397\npgmajfault 871\noom_kill 0\n"
DEFAULT = {"oom_kill", "pgfault", "pgmajfault", "pgpgin", "pgpgout", "pswpin", "pswpout"}


def by_name(reading: Reading) -> dict[str, Value]:
    return {spec.name: value for (spec, _), value in zip(reading.layout, reading.values, strict=True)}


def test_the_default_fields_are_paging_swapping_faults_and_kills(captured: Callable[[str], HostFS]) -> None:
    reading = VmstatCollector(captured("vm"), VmstatConfig()).collect()

    assert by_name(reading).keys() == {f"node_vmstat_{field}" for field in DEFAULT}
    assert {spec.kind for spec, _ in reading.layout} == {Kind.UNTYPED}
    assert {spec for spec, _ in reading.layout} == set(VmstatCollector.metrics)


def test_numbers_are_as_the_kernel_has_them(captured: Callable[[str], HostFS]) -> None:
    values = by_name(VmstatCollector(captured("big"), VmstatConfig()).collect())

    assert values["node_vmstat_pgfault"] == 90110334812
    assert values["node_vmstat_oom_kill"] == 3


def test_other_fields_can_be_asked_for(captured: Callable[[str], HostFS]) -> None:
    host = captured("vm")

    values = by_name(VmstatCollector(host, VmstatConfig(fields="nr_free_pages|numa_.*")).collect())

    assert "node_vmstat_numa_hit" in values
    assert values["node_vmstat_nr_free_pages"] == int(host.text("proc/vmstat").split()[1])


def test_a_field_is_matched_whole(captured: Callable[[str], HostFS]) -> None:
    values = by_name(VmstatCollector(captured("vm"), VmstatConfig(fields="pgfault")).collect())

    assert values.keys() == {"node_vmstat_pgfault"}


def test_a_pattern_may_match_nothing(captured: Callable[[str], HostFS]) -> None:
    reading = VmstatCollector(captured("vm"), VmstatConfig(fields="none")).collect()

    assert (len(reading.layout), list(reading.values)) == (0, [])


def test_a_bad_pattern_is_a_configuration_error(captured: Callable[[str], HostFS]) -> None:
    with pytest.raises(ConfigError, match=r"collectors\.vmstat\.fields"):
        VmstatCollector(captured("vm"), VmstatConfig(fields="("))


def test_a_counter_that_steps_back_is_passed_on(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    collector = VmstatCollector(host, VmstatConfig())
    before = collector.collect()
    path = Path(host.path("proc/vmstat"))
    path.write_text("".join(f"{line.split()[0]} 1\n" for line in path.read_text().splitlines()))

    after = collector.collect()

    assert after.layout is before.layout
    assert set(after.values) == {1}


def test_a_line_put_in_between_moves_the_others(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    collector = VmstatCollector(host, VmstatConfig())
    before = collector.collect()
    path = Path(host.path("proc/vmstat"))
    path.write_text("pgpg_new 77\n" + path.read_text())

    after = collector.collect()

    assert by_name(after) == {**by_name(before), "node_vmstat_pgpg_new": 77}


@pytest.mark.parametrize("text", [b"", b"pgfault\n", b"pgfault 1 2\n", b"pg-fault 1\n", b"a 1\na 2\n"])
def test_odd_text_is_a_parse_error(text: bytes) -> None:
    with pytest.raises(ParseError):
        parse_names(text)


def mutated(text: bytes) -> st.SearchStrategy[bytes]:
    odd = st.binary(max_size=8) | st.sampled_from([b"-1", b"nan", b"9" * 5000, b"\n", b" ", b"\x0b"])
    place = st.integers(0, len(text))
    return st.binary(max_size=100) | st.builds(
        lambda at, length, new: text[:at] + new + text[at + length :], place, st.integers(0, 30), odd
    )


@settings(max_examples=200, deadline=None)
@given(text=mutated(VMSTAT))
def test_any_text_gives_values_or_a_parse_error(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    root = tmp_path_factory.getbasetemp() / "vmstat"
    (root / "proc").mkdir(parents=True, exist_ok=True)
    (root / "proc/vmstat").write_bytes(VMSTAT)
    collector = VmstatCollector(HostFS(str(root)), VmstatConfig())
    reading = collector.collect()
    (root / "proc/vmstat").write_bytes(text)

    try:
        reading = collector.collect()
    except ParseError:
        pass

    assert len(reading.values) == len(reading.layout)

"""/proc/net/softnet_stat."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.collectors.softnet import DROPPED, PROCESSED, SQUEEZED, SoftnetCollector, parse_softnet
from sonde.config import NoKeys
from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.model import MetricSpec


def row(*numbers: int, cpu: int) -> bytes:
    columns = [*numbers, *[0] * (12 - len(numbers)), cpu, 0, 0]
    return b" ".join(b"%08x" % number for number in columns) + b"\n"


TWO = row(0x25, 1, 2, cpu=0) + row(0x6BF, 3, 4, cpu=1)


def test_the_numbers_are_hexadecimal() -> None:
    assert parse_softnet(TWO) == ((0, 1), (0x25, 0x6BF, 1, 3, 2, 4))


def test_the_cpu_is_the_kernels_number_not_the_rows() -> None:
    cpus, _ = parse_softnet(row(1, cpu=0) + row(2, cpu=2))

    assert cpus == (0, 2)


def test_rows_are_numbered_where_the_kernel_does_not_tell_the_cpu() -> None:
    old = b" ".join([b"0000000a"] * 11) + b"\n"

    assert parse_softnet(old + old) == ((0, 1), (10,) * 6)


def test_a_cpu_that_goes_off_line_leaves_the_layout(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    path = Path(host.path("proc/net/softnet_stat"))
    path.write_bytes(TWO)
    collector = SoftnetCollector(host, NoKeys())
    before = collector.collect()
    same = collector.collect()
    path.write_bytes(row(0x6C0, 3, 4, cpu=1))
    after = collector.collect()
    collector.close()

    assert same.layout is before.layout
    assert len(before.layout) == 6
    assert list(after.layout) == [(PROCESSED, ("1",)), (DROPPED, ("1",)), (SQUEEZED, ("1",))]
    assert list(after.values) == [0x6C0, 3, 4]


@pytest.mark.parametrize(
    "text",
    [b"", b"\n", b"00000001\n", TWO[:-1], TWO[:-10] + b"\n", TWO.replace(b"6bf", b"xyz"), row(1, cpu=0) * 2, b"\xff\n"],
)
def test_odd_text_is_a_parse_error(text: bytes) -> None:
    with pytest.raises(ParseError):
        parse_softnet(text)


@given(st.integers(0, len(TWO)), st.integers(0, len(TWO)), st.binary(max_size=12))
@settings(max_examples=300)
def test_mutated_text_is_read_or_refused(start: int, end: int, junk: bytes) -> None:
    try:
        cpus, counts = parse_softnet(TWO[:start] + junk + TWO[end:])
    except ParseError:
        return

    assert len(counts) == 3 * len(cpus)


def test_every_metric_is_a_counter() -> None:
    specs: tuple[MetricSpec, ...] = SoftnetCollector.metrics

    assert {spec.kind.value for spec in specs} == {"counter"}

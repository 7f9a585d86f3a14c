"""/proc/net/sockstat and /proc/net/sockstat6."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.collectors.sockets import SocketsCollector, parse_places
from sonde.config import NoKeys
from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.model import Quality, Value

FOUR = b"""sockets: used 229
TCP: inuse 4 orphan 1 tw 2 alloc 17 mem 3
UDP: inuse 5 mem 6
UDPLITE: inuse 0
RAW: inuse 7
FRAG: inuse 8 memory 9
"""


def read(host: HostFS) -> dict[str, Value]:
    collector = SocketsCollector(host, NoKeys())
    layout, values, _, _ = collector.collect()
    collector.close()
    return {spec.name: value for (spec, _), value in zip(layout, values, strict=True)}


def test_each_protocol_and_key_is_a_metric(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    Path(host.path("proc/net/sockstat")).write_bytes(FOUR)
    found = read(host)

    assert found["node_sockstat_sockets_used"] == 229
    assert found["node_sockstat_TCP_alloc"] == 17
    assert found["node_sockstat_FRAG_memory"] == 9
    assert "node_sockstat_TCP6_inuse" in found


def test_memory_is_given_in_pages_and_in_bytes(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    Path(host.path("proc/net/sockstat")).write_bytes(FOUR)
    found = read(host)
    page = os.sysconf("SC_PAGE_SIZE")

    assert (found["node_sockstat_TCP_mem"], found["node_sockstat_TCP_mem_bytes"]) == (3, 3 * page)
    assert (found["node_sockstat_UDP_mem"], found["node_sockstat_UDP_mem_bytes"]) == (6, 6 * page)


def test_without_ipv6_its_sockets_are_gaps(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    Path(host.path("proc/net/sockstat6")).unlink()
    collector = SocketsCollector(host, NoKeys())
    reading = collector.collect()
    collector.close()

    assert not any("6" in spec.name for spec, _ in reading.layout)
    assert {gap.spec.name for gap in reading.gaps} == {
        f"node_sockstat_{protocol}6_inuse" for protocol in ("TCP", "UDP", "UDPLITE", "RAW", "FRAG")
    } | {"node_sockstat_FRAG6_memory"}
    assert {gap.quality for gap in reading.gaps} == {Quality.UNSUPPORTED}


def test_a_protocol_of_a_later_kernel_is_passed_over(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    Path(host.path("proc/net/sockstat")).write_bytes(FOUR + b"QUIC: inuse 3 mem 4\n")
    found = read(host)

    assert found["node_sockstat_TCP_inuse"] == 4
    assert not any("QUIC" in name for name in found)


@pytest.mark.parametrize("text", [b"", b"used 1", b"TCP:", b"TCP: inuse", b"TCP: inuse 1 inuse 2"])
def test_odd_text_is_a_parse_error(text: bytes) -> None:
    with pytest.raises(ParseError):
        parse_places(text.split())


def test_a_number_that_is_none_is_a_parse_error(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    Path(host.path("proc/net/sockstat")).write_bytes(FOUR.replace(b"229", b"many"))
    collector = SocketsCollector(host, NoKeys())

    with pytest.raises(ParseError):
        collector.collect()
    collector.close()


@given(st.integers(0, len(FOUR)), st.integers(0, len(FOUR)), st.binary(max_size=12))
@settings(max_examples=300)
def test_mutated_text_is_read_or_refused(start: int, end: int, junk: bytes) -> None:
    tokens = (FOUR[:start] + junk + FOUR[end:]).split()
    try:
        places = parse_places(tokens)
    except ParseError:
        return

    assert len(set(places.values())) == len(places)
    assert max(places.values()) < len(tokens)

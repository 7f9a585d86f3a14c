"""The NFS client's calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.collectors.nfs import NfsCollector, learn
from sonde.config import NoKeys
from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.model import Value

NAME = "proc/net/rpc/nfs"


def values(collector: NfsCollector) -> dict[tuple[str, ...], Value]:
    reading = collector.collect()
    return {
        (spec.name.removeprefix("node_nfs_"), *labels): value
        for (spec, labels), value in zip(reading.layout, reading.values, strict=True)
    }


def collected(host: HostFS) -> dict[tuple[str, ...], Value]:
    collector = NfsCollector(host, NoKeys())
    found = values(collector)
    collector.close()
    return found


def test_packets_calls_and_procedures(captured: Callable[[str], HostFS]) -> None:
    found = collected(captured("storage"))

    assert (found["packets_total", "udp"], found["packets_total", "tcp"], found["connections_total",]) == (71, 69, 45)
    assert (found["rpcs_total",], found["rpc_retransmissions_total",]) == (1218785755, 374636)
    assert found["rpc_authentication_refreshes_total",] == 1218815394
    assert (found["requests_total", "2", "Null"], found["requests_total", "2", "FsStat"]) == (11, 28)
    assert found["requests_total", "3", "Commit"] == 1061909262 + 21
    assert (found["requests_total", "4", "Null"], found["requests_total", "4", "Clone"]) == (100, 158)


def test_what_an_older_kernel_does_not_count_is_absent(captured: Callable[[str], HostFS]) -> None:
    found = collected(captured("storage_old"))

    assert ("requests_total", "2", "Null") not in found
    assert ("requests_total", "4", "LayoutReturn") in found
    assert ("requests_total", "4", "Clone") not in found


def test_counters_rise_and_the_layout_stays(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("storage")
    collector = NfsCollector(host, NoKeys())
    first = collector.collect().layout
    path = Path(host.path(NAME))
    path.write_text(path.read_text().replace("rpc 1218785755", "rpc 1218785799"))
    found = values(collector)
    second = collector.collect().layout
    collector.close()

    assert found["rpcs_total",] == 1218785799
    assert second is first


TEXT = b"net 1 2 3 4\nrpc 5 6 7\nproc3 2 8 9\nproc4 3 1 2 3\n"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"net 1 2 3\n",
        b"rpc 1 2 3 4 5\n",
        b"proc3 3 1 2\n",
        b"proc4\n",
        b"rpc 1 2 3\nrpc 1 2 3\n",
        b"net 1 2 3 4\n\n",
    ],
)
def test_odd_text_is_a_parse_error(text: bytes) -> None:
    with pytest.raises(ParseError):
        learn(text)


@given(st.binary(max_size=60) | st.integers(0, len(TEXT)).flatmap(lambda at: st.just(TEXT[:at] + b"9x" + TEXT[at:])))
def test_any_text_is_learnt_or_a_parse_error(text: bytes) -> None:
    try:
        shape, layout = learn(text)
    except ParseError:
        return

    assert len(shape.values(text.split())) == len(layout) > 0

"""/proc/net/snmp, /proc/net/netstat, /proc/net/snmp6 and /proc/net/udp."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sonde.collectors.tcp import TcpCollector, TcpConfig, parse_names, parse_udp_queues
from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.model import Kind, Quality, Reading, Value

UDP = b"""  sl local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode ref pointer drops
  387: 0100007F:0143 00000000:0000 07 00000010:00000200 00:00000000 00000000     0        0 12345 2 0000000000000000 0
  400: 00000000:0044 00000000:0000 07 00000001:00001000 00:00000000 00000000     0        0 12346 2 0000000000000000 3
"""


def named(reading: Reading) -> dict[str, Value]:
    return {spec.name: value for (spec, _), value in zip(reading.layout, reading.values, strict=True)}


def read(host: HostFS, config: TcpConfig | None = None) -> Reading:
    collector = TcpCollector(host, config or TcpConfig())
    try:
        return collector.collect()
    finally:
        collector.close()


def rewrite(host: HostFS, name: str, old: str, new: str) -> None:
    path = Path(host.path(name))
    path.write_text(path.read_text().replace(old, new))


def test_the_fields_of_the_three_files_are_found(captured: Callable[[str], HostFS]) -> None:
    host = captured("vm")
    reading = read(host)
    found = named(reading)
    names, numbers = [line.split() for line in host.text("proc/net/snmp").splitlines() if line.startswith("Tcp:")]
    octets = next(line for line in host.text("proc/net/snmp6").splitlines() if line.startswith("Ip6InOctets"))

    assert len(found) == 40
    assert reading.gaps == ()
    assert found["node_netstat_Tcp_RetransSegs"] == int(numbers[names.index("RetransSegs")])
    assert found["node_netstat_Ip6_InOctets"] == int(octets.split()[1])
    assert {spec.kind for spec, _ in reading.layout} == {Kind.UNTYPED}


def test_a_kept_collector_sees_new_numbers_under_the_same_layout(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    Path(host.path("proc/net/snmp")).write_text("Tcp: CurrEstab InSegs\nTcp: 4 100\n")
    collector = TcpCollector(host, TcpConfig())
    before = collector.collect()
    rewrite(host, "proc/net/snmp", "4 100", "3 250")
    after = collector.collect()
    collector.close()

    assert after.layout is before.layout
    assert named(after)["node_netstat_Tcp_InSegs"] == 250
    assert named(after)["node_netstat_Tcp_CurrEstab"] == 3


def test_a_message_type_met_for_the_first_time_moves_no_number(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    collector = TcpCollector(host, TcpConfig())
    before = collector.collect()
    rewrite(host, "proc/net/snmp6", "Icmp6InMsgs", "Icmp6InType128 \t9\nIcmp6InMsgs")
    rewrite(host, "proc/net/snmp", "Tcp: Rto", "IcmpMsg: InType0 InType8\nIcmpMsg: 1 2\nTcp: Rto")
    after = collector.collect()
    collector.close()

    assert named(after) == named(before)


def test_without_ipv6_its_fields_are_gaps(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    Path(host.path("proc/net/snmp6")).unlink()
    reading = read(host)

    assert len(reading.layout) == 28
    assert {gap.quality for gap in reading.gaps} == {Quality.UNSUPPORTED}
    assert len(reading.gaps) == 12


def test_a_field_this_kernel_does_not_have_is_a_gap(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    rewrite(host, "proc/net/netstat", " TCPSynRetrans ", " TCPSomethingElse ")
    reading = read(host)

    assert "node_netstat_TcpExt_TCPSynRetrans" not in named(reading)
    assert [gap.spec.name for gap in reading.gaps] == ["node_netstat_TcpExt_TCPSynRetrans"]


def test_the_queues_of_udp_are_summed_when_asked_for(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    Path(host.path("proc/net/udp")).write_bytes(UDP)
    plain = read(host)
    full = read(host, TcpConfig(udp_queues=True))
    queues = {
        labels: value
        for (spec, labels), value in zip(full.layout, full.values, strict=True)
        if spec.name == "node_udp_queues"
    }

    assert "node_udp_queues" not in named(plain)
    assert queues[("tx", "v4")] == 0x11
    assert queues[("rx", "v4")] == 0x1200


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Tcp: A B\n",
        "Tcp: A B\nTcp: 1\n",
        "Tcp: A B\nUdp: 1 2\n",
        "Tcp: InSegs\nTcp: many\n",
        "Tcp: InSegs\nTcp: 1\nTcp: InSegs\nTcp: 1\n",
    ],
)
def test_odd_text_is_a_parse_error(scratch: Callable[[str], HostFS], text: str) -> None:
    host = scratch("vm")
    Path(host.path("proc/net/snmp")).write_text(text)

    with pytest.raises(ParseError):
        read(host)


def test_a_line_of_numbers_that_shrinks_is_a_parse_error(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    Path(host.path("proc/net/snmp")).write_text("Tcp: CurrEstab InSegs\nTcp: 4 100\n")
    collector = TcpCollector(host, TcpConfig())
    collector.collect()
    Path(host.path("proc/net/snmp")).write_text("Tcp: CurrEstab InSegs\nTcp: 4\n")

    with pytest.raises(ParseError):
        collector.collect()
    collector.close()


@given(st.binary(max_size=60), st.binary(max_size=60))
@settings(max_examples=200)
def test_any_lines_are_read_or_refused(names: bytes, numbers: bytes) -> None:
    try:
        _, fields = parse_names("/proc/net/snmp", names, numbers)
    except ParseError:
        return

    assert len(fields) + 1 == len(numbers.split())


@given(st.integers(0, len(UDP)), st.integers(0, len(UDP)), st.binary(max_size=12))
@settings(max_examples=200)
def test_mutated_queues_are_read_or_refused(start: int, end: int, junk: bytes) -> None:
    try:
        sent, received = parse_udp_queues(UDP[:start] + junk + UDP[end:])
    except ParseError:
        return

    assert isinstance(sent, int)
    assert isinstance(received, int)


@given(
    name=st.sampled_from(["snmp", "netstat", "snmp6"]),
    start=st.integers(0, 4200),
    length=st.integers(0, 300),
    junk=st.binary(max_size=12),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_mutated_files_are_read_or_refused(
    scratch: Callable[[str], HostFS], tmp_path: Path, name: str, start: int, length: int, junk: bytes
) -> None:
    host = HostFS(str(tmp_path / "vm")) if (tmp_path / "vm").exists() else scratch("vm")
    path = Path(host.path(f"proc/net/{name}"))
    text = path.read_bytes()
    path.write_bytes(text[:start] + junk + text[start + length :])
    try:
        reading = read(host)
    except ParseError:
        return
    finally:
        path.write_bytes(text)

    assert len(reading.values) == len(reading.layout)

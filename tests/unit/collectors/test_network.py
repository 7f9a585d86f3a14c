"""/proc/net/dev and /sys/class/net."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.clock import ManualClock
from sonde.collectors.network import (
    COLUMNS,
    SPEED,
    NetworkCollector,
    NetworkConfig,
    parse_attribute,
    parse_devices,
    shown,
)
from sonde.errors import ConfigError, ParseError
from sonde.hostfs import HostFS
from sonde.model import Quality, Reading, Value
from sonde.units import Duration

DEV = (Path(__file__).parents[2] / "fixtures/hosts/vm/proc/net/dev").read_bytes()


def named(reading: Reading) -> dict[tuple[str, str], Value]:
    """By the metric's name and the device's."""
    return {(spec.name, labels[0]): value for (spec, labels), value in zip(reading.layout, reading.values, strict=True)}


def read(host: HostFS, config: NetworkConfig | None = None) -> Reading:
    collector = NetworkCollector(host, config or NetworkConfig())
    try:
        return collector.collect()
    finally:
        collector.close()


def row(name: str, first: int = 0) -> str:
    return f"{name:>6}: " + " ".join(str(first + column) for column in range(16)) + "\n"


def test_the_columns_have_their_names(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    header = "\n".join(DEV.decode().splitlines()[:2]) + "\n"
    Path(host.path("proc/net/dev")).write_text(header + row("eth9", first=100))
    found = named(read(host))

    assert [found[spec.name, "eth9"] for spec in COLUMNS] == list(range(100, 116))
    assert found["node_network_receive_bytes_total", "eth9"] == 100
    assert found["node_network_receive_multicast_total", "eth9"] == 107
    assert found["node_network_transmit_bytes_total", "eth9"] == 108
    assert found["node_network_transmit_carrier_total", "eth9"] == 114


def test_traffic_leaves_the_loopback_out_and_state_does_not(captured: Callable[[str], HostFS]) -> None:
    found = named(read(captured("vm")))

    assert ("node_network_receive_bytes_total", "eth0") in found
    assert ("node_network_receive_bytes_total", "lo") not in found
    assert found["node_network_mtu_bytes", "lo"] == 65536


def test_devices_can_be_excluded_by_a_pattern_that_matches_whole(captured: Callable[[str], HostFS]) -> None:
    found = named(read(captured("vm"), NetworkConfig(exclude="ifb.|et", class_exclude="ifb.*|lo")))
    traffic = {device for name, device in found if name == "node_network_receive_bytes_total"}
    state = {device for name, device in found if name == "node_network_up"}

    assert traffic == {"lo", "eth0"}
    assert state == {"eth0"}


def test_the_state_of_a_device_is_read_from_sysfs(captured: Callable[[str], HostFS]) -> None:
    reading = read(captured("vm"))
    found = named(reading)
    (info,) = [labels for spec, labels in reading.layout if spec.name == "node_network_info" and labels[0] == "eth0"]

    assert found["node_network_up", "eth0"] == 1
    assert found["node_network_up", "lo"] == 0
    assert found["node_network_flags", "eth0"] == 0x1003
    assert found["node_network_carrier_changes_total", "eth0"] == 2
    assert found["node_network_receive_nohandler_total", "eth0"] == 0
    assert info == ("eth0", "02:fc:00:00:00:01", "ff:ff:ff:ff:ff:ff", "unknown", "up", "")


def test_speed_is_in_bytes(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    Path(host.path("sys/class/net/eth0/speed")).write_text("100000\n")  # 100 Gbit/s

    assert named(read(host))["node_network_speed_bytes", "eth0"] == 12_500_000_000


def test_an_unknown_speed_is_a_gap(captured: Callable[[str], HostFS]) -> None:
    reading = read(captured("vm"))  # its virtio card says -1

    assert ("node_network_speed_bytes", "eth0") not in named(reading)
    assert [(gap.labels, gap.quality) for gap in reading.gaps if gap.spec is SPEED] == [(("eth0",), Quality.BLANK)]


def test_an_attribute_the_kernel_refuses_is_a_gap(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    speed = Path(host.path("sys/class/net/eth0/speed"))
    speed.unlink()
    speed.symlink_to("/sys/class/net/lo/speed")  # EINVAL on every Linux: a loopback has no speed
    reading = read(host)

    assert ("node_network_speed_bytes", "eth0") not in named(reading)
    (gap,) = [gap for gap in reading.gaps if gap.spec is SPEED]
    assert (gap.labels, gap.quality, gap.reason) == (("eth0",), Quality.BLANK, "speed: Invalid argument")


def test_the_carrier_of_an_interface_that_is_down_is_a_gap(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    carrier = Path(host.path("sys/class/net/eth0/carrier"))
    carrier.unlink()
    carrier.symlink_to("/sys/class/net/lo/speed")  # EINVAL, as of an interface that is down
    reading = read(host)

    (gap,) = [gap for gap in reading.gaps if gap.spec.name == "node_network_carrier"]
    assert (gap.labels, gap.quality, gap.reason) == (("eth0",), Quality.BLANK, "the interface is down")


def test_an_attribute_with_odd_text_is_a_gap(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    Path(host.path("sys/class/net/eth0/mtu")).write_text("big\n")
    reading = read(host)

    assert ("node_network_mtu_bytes", "eth0") not in named(reading)
    assert "node_network_mtu_bytes" in {gap.spec.name for gap in reading.gaps}


def test_an_attribute_the_kernel_does_not_have_is_left_out(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    Path(host.path("sys/class/net/eth0/carrier_up_count")).unlink()
    found = named(read(host))

    assert ("node_network_carrier_up_changes_total", "eth0") not in found
    assert ("node_network_carrier_up_changes_total", "lo") in found


def test_an_interface_that_vanishes_between_list_and_read_is_skipped(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    shutil.rmtree(Path(host.path("sys/class/net/eth0")).resolve())  # the link in the list stays and leads nowhere
    found = named(read(host))

    assert ("node_network_up", "eth0") not in found
    assert ("node_network_up", "ifb0") in found
    assert ("node_network_receive_bytes_total", "eth0") in found


def test_an_interface_whose_files_are_gone_already_is_skipped(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    for path in Path(host.path("sys/class/net/eth0")).glob("*"):
        if path.is_file():
            path.unlink()

    assert ("node_network_up", "eth0") not in named(read(host))


def test_a_file_among_the_devices_is_no_device(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    Path(host.path("sys/class/net/bonding_masters")).write_text("\n")

    assert ("node_network_up", "bonding_masters") not in named(read(host))


def test_a_host_without_sysfs_gives_its_traffic_and_says_what_is_missing(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    shutil.rmtree(host.path("sys/class/net"))
    reading = read(host)

    assert {spec for spec, _ in reading.layout} == set(COLUMNS)
    assert [gap.reason for gap in reading.gaps] == ["nothing in /sys/class/net"]


def test_a_device_that_comes_is_seen_at_once_and_one_that_goes_leaves(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    path = Path(host.path("proc/net/dev"))
    collector = NetworkCollector(host, NetworkConfig())
    collector.collect()
    shutil.copytree(host.path("sys/class/net/eth0"), host.path("sys/class/net/eth1"))
    path.write_bytes(DEV + row("eth1", first=7).encode())
    more = named(collector.collect())
    shutil.rmtree(host.path("sys/class/net/eth1"))
    path.write_bytes(DEV)
    fewer = named(collector.collect())
    collector.close()

    assert more["node_network_receive_bytes_total", "eth1"] == 7
    assert more["node_network_up", "eth1"] == 1
    assert not any(device == "eth1" for _, device in fewer)


def test_state_is_read_again_after_a_while_and_kept_between(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    clock = ManualClock()
    collector = NetworkCollector(host, NetworkConfig(state_every=Duration(10)), clock)
    first = collector.collect()
    Path(host.path("sys/class/net/eth0/mtu")).write_text("9000\n")
    mtus = []
    for _ in range(2):
        mtus.append(named(collector.collect())["node_network_mtu_bytes", "eth0"])
        clock.advance(10)
    mtus.append(named(collector.collect())["node_network_mtu_bytes", "eth0"])
    last = collector.collect()
    collector.close()

    assert named(first)["node_network_mtu_bytes", "eth0"] == 1400
    assert mtus == [1400, 9000, 9000]
    assert last.layout is first.layout


def test_the_devices_take_turns(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    clock = ManualClock()
    collector = NetworkCollector(host, NetworkConfig(state_every=Duration(4)), clock)
    collector.collect()
    for device in ("eth0", "ifb0", "ifb1", "lo"):
        Path(host.path(f"sys/class/net/{device}/mtu")).write_text("9000\n")
    counts = []
    for _ in range(4):
        clock.advance(1)
        found = named(collector.collect())
        counts.append(sum(value == 9000 for (name, _), value in found.items() if name == "node_network_mtu_bytes"))
    collector.close()

    assert counts == [1, 2, 3, 4]


def test_a_link_that_goes_down_changes_the_labels(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    collector = NetworkCollector(host, NetworkConfig(state_every=Duration(0)))
    before = collector.collect()
    Path(host.path("sys/class/net/eth0/operstate")).write_text("down\n")
    after = collector.collect()
    collector.close()
    states = [labels[4] for spec, labels in after.layout if spec.name == "node_network_info" and labels[0] == "eth0"]

    assert after.layout is not before.layout
    assert states == ["down"]
    assert named(after)["node_network_up", "eth0"] == 0


def test_counters_move_under_the_same_layout(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    collector = NetworkCollector(host, NetworkConfig())
    before = collector.collect()
    Path(host.path("proc/net/dev")).write_bytes(DEV.replace(b"64846730", b"64846731"))
    after = collector.collect()
    collector.close()

    assert after.layout is before.layout
    assert after.gaps is before.gaps
    assert named(after)["node_network_receive_bytes_total", "eth0"] == 64846731


def test_a_table_of_many_pages_is_read_to_its_end(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    Path(host.path("proc/net/dev")).write_bytes(DEV + "".join(row(f"veth{n}", n) for n in range(500)).encode())
    found = named(read(host))

    assert found["node_network_receive_bytes_total", "veth499"] == 499


def test_a_name_that_is_not_text_becomes_a_label(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    Path(host.path("proc/net/dev")).write_bytes(DEV + row("X").encode().replace(b"X", b"w\xfflan"))

    assert ("node_network_receive_bytes_total", "w\\xfflan") in named(read(host))


@pytest.mark.parametrize("config", [NetworkConfig(exclude="("), NetworkConfig(class_exclude="[")])
def test_a_bad_configuration_names_its_key(captured: Callable[[str], HostFS], config: NetworkConfig) -> None:
    with pytest.raises(ConfigError, match=r"collectors\.network\.(exclude|class_exclude) "):
        NetworkCollector(captured("vm"), config)


@pytest.mark.parametrize(
    "text", [b"", DEV[20:], DEV + b"eth1:", DEV + DEV.splitlines()[-1], DEV.replace(b"eth0:", b"eth0")]
)
def test_odd_text_is_a_parse_error(text: bytes) -> None:
    with pytest.raises(ParseError):
        parse_devices(text.split())


def test_a_number_that_is_none_is_a_parse_error(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    Path(host.path("proc/net/dev")).write_bytes(DEV.replace(b"64846730", b"many"))

    with pytest.raises(ParseError):
        read(host)


@given(st.integers(0, len(DEV)), st.integers(0, len(DEV)), st.binary(max_size=12))
@settings(max_examples=300)
def test_mutated_text_is_read_or_refused(start: int, end: int, junk: bytes) -> None:
    try:
        names = parse_devices((DEV[:start] + junk + DEV[end:]).split())
    except ParseError:
        return

    assert len(set(names)) == len(names)
    assert all(shown(name).encode() for name in names)


@given(st.binary(max_size=12))
@settings(max_examples=200)
def test_an_attribute_is_a_number_or_refused(text: bytes) -> None:
    try:
        value = parse_attribute("mtu", text)
    except ParseError:
        return

    assert isinstance(value, int)

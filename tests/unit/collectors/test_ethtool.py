"""Statistics of network drivers, from recorded tables and from the devices of this machine."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.native.drivers import Drivers, recorded

from sonde.collectors.ethtool import EthtoolCollector, EthtoolConfig, check_namespace, metric_name
from sonde.errors import ConfigError, Unavailable
from sonde.hostfs import HostFS
from sonde.model import Quality, Reading, Value
from sonde.native.ethtool import Ethtool

EVERYTHING = EthtoolConfig(include=".*", exclude="")


def collector(drivers: Drivers, config: EthtoolConfig | None = None) -> EthtoolCollector:
    return EthtoolCollector(HostFS(), config or EthtoolConfig(), Ethtool(drivers.call), drivers.listed)


def table(reading: Reading) -> dict[tuple[str, ...], Value]:
    return {(spec.name, *labels): value for (spec, labels), value in zip(reading.layout, reading.values, strict=True)}


def test_pause_frames_and_discards_of_a_recorded_card_have_their_values() -> None:
    card = recorded("mlx5")
    found = table(collector(Drivers({"eth0": card})).collect())

    for priority in range(8):
        assert found[f"node_ethtool_transmitted_prio{priority}_pause", "eth0"] == card[f"tx_prio{priority}_pause"]
        assert found[f"node_ethtool_received_prio{priority}_discards", "eth0"] == card[f"rx_prio{priority}_discards"]
    for name in ("tx_pause_ctrl_phy", "tx_pause_storm_warning_events", "tx_pause_storm_error_events"):
        assert found[name.replace("tx_", "node_ethtool_transmitted_"), "eth0"] == card[name]
    assert found["node_ethtool_received_packets_total", "eth0"] == 2**63 + 12345
    assert found["node_ethtool_received_bytes_phy", "eth0"] == card["rx_bytes_phy"]


def test_queues_and_what_nobody_asked_for_are_left_out_by_default() -> None:
    names = {key[0] for key in table(collector(Drivers({"eth0": recorded("mlx5")})).collect())}

    assert not {name for name in names if "xdp" in name or "tx0" in name or "module_unplug" in name}
    assert 40 < len(names) < 80


@pytest.mark.parametrize(
    "name", ["rx_queue_3_drops", "queue_0_rx_drops", "rx-0.dropped", "tx12_dropped", "[4]: rx_discards", "q1_tx_errors"]
)
def test_statistics_per_queue_are_left_out_by_default(name: str) -> None:
    drivers = Drivers({"eth0": {name: 1, "rx_errors": 2}})

    assert len(collector(drivers).collect().layout) == 2  # the driver, and the errors
    assert len(collector(drivers, EVERYTHING).collect().layout) == 3


def test_several_devices_are_laid_out_by_metric() -> None:
    drivers = Drivers(
        {"eth0": {"rx_errors": 1, "tx_errors": 2}, "eth1": {"tx_errors": 3, "rx_errors": 4}, "eth2": None}
    )
    found = table(collector(drivers).collect())

    assert [found["node_ethtool_received_errors_total", name] for name in ("eth0", "eth1")] == [1, 4]
    assert [found["node_ethtool_transmitted_errors_total", name] for name in ("eth0", "eth1")] == [2, 3]


def test_names_that_come_out_the_same_are_left_out() -> None:
    drivers = Drivers({"eth0": {"a b": 1, "a_b": 2, "a-b": 3, "c": 4}})
    found = table(collector(drivers, EVERYTHING).collect())

    assert {key[0] for key in found} == {"node_ethtool_info", "node_ethtool_c"}


def test_what_the_driver_says_of_itself_and_of_pausing() -> None:
    found = table(collector(Drivers({"eth0": {}}, pause=(1, 0, 1))).collect())

    assert found["node_ethtool_info", "0000:3b:00.0", "eth0", "mlx5_core", "", "22.36.1010", "6.1.0"] == 1
    assert found["sonde_ethtool_pause_enabled", "eth0", "receive"] == 0
    assert found["sonde_ethtool_pause_enabled", "eth0", "transmit"] == 1
    assert found["sonde_ethtool_pause_autonegotiated", "eth0"] == 1


def test_the_layout_stays_until_the_statistics_change() -> None:
    drivers = Drivers({"eth0": {"rx_errors": 1}})
    ethtool = collector(drivers)
    first = ethtool.collect()
    drivers.statistics["eth0"] = {"rx_errors": 5}
    second = ethtool.collect()
    drivers.statistics["eth0"] = {"rx_dropped": 7, "rx_errors": 8}  # a firmware that knows more
    third = ethtool.collect()

    assert second.layout is first.layout
    assert table(second)["node_ethtool_received_errors_total", "eth0"] == 5
    assert table(third)["node_ethtool_received_dropped_total", "eth0"] == 7
    assert table(third)["node_ethtool_received_errors_total", "eth0"] == 8


def test_a_device_that_vanishes_is_skipped() -> None:
    drivers = Drivers({"eth0": {"rx_errors": 1}, "eth1": {"rx_errors": 2}})
    ethtool = EthtoolCollector(HostFS(), EthtoolConfig(), Ethtool(drivers.call), lambda: [(1, "eth0"), (2, "eth1")])
    ethtool.collect()
    del drivers.statistics["eth0"]
    reading = ethtool.collect()

    assert {key[1] for key in table(reading) if key[0] != "node_ethtool_info"} == {"eth1"}


def test_a_driver_without_statistics_is_a_gap_and_no_zero() -> None:
    reading = collector(Drivers({"tun0": None})).collect()

    assert {spec.name for spec, _ in reading.layout} == {"node_ethtool_info"}
    assert [(gap.quality, gap.reason) for gap in reading.gaps] == [
        (Quality.UNSUPPORTED, "the driver has no statistics: tun0")
    ]


def test_what_is_denied_is_said_to_be() -> None:
    drivers = Drivers({"eth0": {"rx_errors": 1}})
    drivers.error = errno.EPERM
    reading = collector(drivers).collect()

    assert len(reading.layout) == 0
    assert Quality.DENIED in {gap.quality for gap in reading.gaps}


@pytest.mark.parametrize(
    ("statistic", "name"),
    [
        ("rx_bytes", "received_bytes_total"),
        ("tx_dropped", "transmitted_dropped"),
        ("port.rx_dropped", "port_received_dropped"),
        ("tx_prio0_pause", "transmitted_prio0_pause"),
        ("rx_xdp_tx", "received_xdp_transmitted"),
        ("[0]: rx_ucast_packets", "0_received_ucast_packets"),
        ("txq_stop", "txq_stop"),
        ("RxErrors", "rxerrors"),
    ],
)
def test_names_are_those_of_node_exporter(statistic: str, name: str) -> None:
    assert metric_name(statistic) == f"node_ethtool_{name}"


@given(st.text(max_size=32))
def test_any_statistic_has_a_name_prometheus_takes(statistic: str) -> None:
    name = metric_name(statistic)

    assert name.isascii()
    assert name.replace("_", "a").isalnum()


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"collectors\.ethtool\.include"):
        collector(Drivers({}), EthtoolConfig(include="("))


@pytest.fixture
def other_root(tmp_path: Path) -> HostFS:
    (tmp_path / "proc/1/ns").mkdir(parents=True)
    return HostFS(str(tmp_path))


def test_a_daemon_in_another_network_namespace_would_ask_the_wrong_devices(other_root: HostFS) -> None:
    os.symlink("net:[1]", other_root.path("proc/1/ns/net"))

    with pytest.raises(Unavailable, match="network namespace"):
        EthtoolCollector(other_root, EthtoolConfig())


def test_a_daemon_in_the_hosts_network_namespace_may_ask(other_root: HostFS) -> None:
    os.symlink(os.readlink("/proc/self/ns/net"), other_root.path("proc/1/ns/net"))

    check_namespace(other_root)

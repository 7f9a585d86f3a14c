"""/sys/class/infiniband."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.collectors.infiniband import InfinibandCollector, parse_rate, parse_state
from sonde.config import NoKeys
from sonde.errors import ParseError, Unavailable
from sonde.hostfs import HostFS
from sonde.model import Quality, Reading, Value

DEVICES = "sys/class/infiniband"
HARDWARE = "sonde_rdma_hw_counter_total"


class HostOfAHiddenCounter(HostFS):
    """A host whose firmware does not give one counter."""

    __slots__ = ()

    def attributes(self, folder: str, names: Iterable[str]) -> dict[str, bytes | OSError]:
        found = super().attributes(folder, names)
        if "port_xmit_wait" in found:
            found["port_xmit_wait"] = OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return found


def by_series(reading: Reading) -> dict[tuple[str, ...], Value]:
    return {(s.name, *labels): value for (s, labels), value in zip(reading.layout, reading.values, strict=True)}


def set_counter(host: HostFS, name: str, text: str) -> None:
    Path(host.path(f"{DEVICES}/mlx5_0/ports/1/{name}")).write_text(text)


def test_a_port_has_its_state_its_rate_and_its_counters(captured: Callable[[str], HostFS]) -> None:
    values = by_series(InfinibandCollector(captured("metal"), NoKeys()).collect())

    assert values["node_infiniband_info", "mlx5_0", "MT_0000000838", "28.39.1002", "MT4129"] == 1
    assert values["node_infiniband_state_id", "mlx5_0", "1"] == 4
    assert values["node_infiniband_state_id", "mlx5_1", "1"] == 1
    assert values["node_infiniband_physical_state_id", "mlx5_1", "1"] == 3
    assert values["node_infiniband_rate_bytes_per_second", "mlx5_0", "1"] == 50_000_000_000
    assert values["node_infiniband_rate_bytes_per_second", "mlx5_1", "1"] == 312_500_000
    assert values["node_infiniband_port_packets_transmitted_total", "mlx5_1", "1"] == 2016
    assert values["sonde_rdma_port_info", "mlx5_1", "1", "Ethernet"] == 1


def test_data_is_counted_in_words_of_four_bytes(captured: Callable[[str], HostFS]) -> None:
    values = by_series(InfinibandCollector(captured("metal"), NoKeys()).collect())

    assert values["node_infiniband_port_data_transmitted_bytes_total", "mlx5_0", "1"] == 4 * 9123456789
    assert values["node_infiniband_port_data_received_bytes_total", "mlx5_0", "1"] == 4 * 1008
    assert values["node_infiniband_legacy_data_received_bytes_total", "mlx5_0", "1"] == 4 * 17
    assert values["node_infiniband_legacy_packets_transmitted_total", "mlx5_0", "1"] == 18


def test_counters_of_the_driver_have_the_names_of_their_files(captured: Callable[[str], HostFS]) -> None:
    values = by_series(InfinibandCollector(captured("metal"), NoKeys()).collect())
    names = {key[3] for key in values if key[0] == HARDWARE}

    assert names >= {"np_cnp_sent", "rp_cnp_handled", "np_ecn_marked_roce_packets", "out_of_sequence"}
    assert names >= {"rx_atomic_requests", "rx_read_requests", "rx_write_requests"}
    assert values[HARDWARE, "mlx5_1", "1", "np_cnp_sent"] == 2 * 318000 + 4
    assert "lifespan" not in names  # a setting among them


def test_soft_roce_has_counters_of_the_driver_only(captured: Callable[[str], HostFS]) -> None:
    reading = InfinibandCollector(captured("qemu"), NoKeys()).collect()
    values = by_series(reading)

    assert values[HARDWARE, "rxe0", "1", "sent_pkts"] == 800
    assert values["node_infiniband_state_id", "rxe0", "1"] == 4
    assert not any("packets" in key[0] for key in values)
    assert reading.gaps == []


def test_a_counter_that_goes_backwards_is_passed_on(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("metal")
    collector = InfinibandCollector(host, NoKeys())
    before = collector.collect()
    set_counter(host, "hw_counters/np_cnp_sent", "3\n")
    set_counter(host, "counters/port_xmit_data", "0\n")

    after = collector.collect()

    assert by_series(after)[HARDWARE, "mlx5_0", "1", "np_cnp_sent"] == 3
    assert by_series(after)["node_infiniband_port_data_transmitted_bytes_total", "mlx5_0", "1"] == 0
    assert after.layout is before.layout


def test_a_counter_the_firmware_does_not_give_is_a_gap_and_never_zero(captured: Callable[[str], HostFS]) -> None:
    reading = InfinibandCollector(HostOfAHiddenCounter(captured("metal").root), NoKeys()).collect()
    name = "node_infiniband_port_transmit_wait_total"

    assert not any(key[0] == name for key in by_series(reading))
    assert [(gap.spec.name, gap.labels, gap.quality) for gap in reading.gaps] == [
        (name, (device, "1"), Quality.BLANK) for device in ("mlx5_0", "mlx5_1")
    ]


def test_words_in_place_of_a_counter_are_a_gap(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("metal")
    set_counter(host, "counters/symbol_error", "N/A (no PMA)\n")

    reading = InfinibandCollector(host, NoKeys()).collect()

    assert [gap.reason for gap in reading.gaps] == ["symbol_error: N/A (no PMA)"]


def test_an_odd_state_is_a_gap(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("metal")
    set_counter(host, "state", "ACTIVE\n")

    reading = InfinibandCollector(host, NoKeys()).collect()

    assert [(gap.spec.name, gap.labels) for gap in reading.gaps] == [("node_infiniband_state_id", ("mlx5_0", "1"))]


def test_a_device_that_goes_and_comes_changes_the_layout(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("metal")
    collector = InfinibandCollector(host, NoKeys())
    both = by_series(collector.collect())
    os.rename(host.path(f"{DEVICES}/mlx5_1"), host.path("away"))

    one = collector.collect()
    os.rename(host.path("away"), host.path(f"{DEVICES}/mlx5_1"))
    again = collector.collect()

    assert {labels[0] for _, labels in one.layout} == {"mlx5_0"}
    assert one.gaps == []
    assert by_series(again) == both


def test_a_device_that_goes_between_list_and_read_is_left_out(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("metal")
    collector = InfinibandCollector(host, NoKeys())
    collector.collect()
    os.rename(_behind(host), host.path("away"))

    reading = collector.collect()

    assert not any(key[0] == HARDWARE and key[1] == "mlx5_1" for key in by_series(reading))
    assert reading.gaps == []


def _behind(host: HostFS) -> str:
    return os.path.realpath(host.path(f"{DEVICES}/mlx5_1"))


def test_a_machine_without_devices_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / DEVICES).mkdir(parents=True)

    with pytest.raises(Unavailable, match="no RDMA device"):
        InfinibandCollector(HostFS(str(tmp_path)), NoKeys())


@pytest.mark.parametrize(
    ("text", "rate"),
    [(b"100 Gb/sec (4X EDR)\n", 12_500_000_000), (b"2.5 Gb/sec (1X SDR)\n", 312_500_000), (b"0 Gb/sec\n", 0)],
)
def test_a_rate_is_in_bytes_per_second(text: bytes, rate: int) -> None:
    assert parse_rate(text) == rate


@given(st.binary(max_size=30) | st.from_regex(rb"[0-9.]{0,12} ?(Gb/sec|: ACTIVE).{0,3}\n?", fullmatch=True))
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    for parse in (parse_rate, parse_state):
        try:
            assert parse(text) >= 0
        except ParseError:
            pass

"""The structures of SIOCETHTOOL, filled in as the kernel does."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.native.drivers import Drivers

from sonde.native.ethtool import Driver, Ethtool, Pause, decode_names, decode_values

STATISTICS = {"rx_packets": 1, "tx_prio3_pause": 2**64 - 1, "port.rx_dropped": 7}


def test_names_and_values_stand_in_the_same_order() -> None:
    ethtool = Ethtool(Drivers({"eth0": STATISTICS}).call)

    names = ethtool.names("eth0")
    values = ethtool.values("eth0", len(names))

    assert dict(zip(names, values or (), strict=True)) == STATISTICS


def test_the_driver_and_its_pause_settings() -> None:
    drivers = Drivers({"eth0": {}}, pause=(1, 0, 1))
    ethtool = Ethtool(drivers.call)

    assert ethtool.driver("eth0") == Driver("mlx5_core", "6.1.0", "22.36.1010", "0000:3b:00.0", "")
    assert ethtool.pause("eth0") == Pause(1, 0, 1)
    assert ethtool.names("eth0") == []


def test_statistics_that_appear_between_two_calls_find_room_and_are_noticed() -> None:
    drivers = Drivers({"eth0": STATISTICS})
    ethtool = Ethtool(drivers.call)
    count = len(ethtool.names("eth0"))
    drivers.statistics["eth0"] = {f"rx{queue}_drops": queue for queue in range(5000)}

    assert ethtool.values("eth0", count) is None
    assert ethtool.values("eth0", 5000) == list(range(5000))


def test_a_card_with_more_statistics_than_ever_seen_is_read_whole() -> None:
    ethtool = Ethtool(Drivers({"eth0": {f"s{number}": number for number in range(20_000)}}).call)

    assert ethtool.values("eth0", len(ethtool.names("eth0"))) == list(range(20_000))


def test_errors_are_the_kernels() -> None:
    with pytest.raises(OSError, match="No such device") as caught:
        Ethtool(Drivers({}).call).driver("eth9")

    assert caught.value.errno == errno.ENODEV


def test_after_close_it_is_an_error_to_ask() -> None:
    ethtool = Ethtool()
    ethtool.close()

    with pytest.raises(OSError, match="Bad file descriptor"):
        ethtool.driver("lo")


@settings(max_examples=50)
@given(st.lists(st.binary(min_size=32, max_size=32), max_size=20), st.integers(0, 30))
def test_any_table_gives_as_many_names_and_values_as_it_says(fields: list[bytes], count: int) -> None:
    table = struct.pack("=III", 0x1B, 1, len(fields)) + b"".join(fields)
    numbers = struct.pack("=II", 0x1D, len(fields)) + bytes(8 * 30)

    assert len(decode_names(table)) == len(fields)
    assert (decode_values(memoryview(numbers), count) is None) == (count != len(fields))

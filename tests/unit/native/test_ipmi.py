"""Questions to a BMC, answered by one that is written in Python from the tables of IPMI 2.0."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from tests.fixtures.bmc import PretendedBmc
from tests.fixtures.sdr import compact, full

from sonde.errors import ReadError
from sonde.native.ipmi import Bmc, Refused, log_usage, records, repository_stamp, sensor_state
from sonde.native.sdr import parse_sensor

RECORDS = [full(1, "Inlet Temp"), compact(2, "Chassis"), full(3, "A name of 16 ch.")]


def test_all_records_are_read_whole() -> None:
    bmc = PretendedBmc(RECORDS)

    assert list(records(bmc.ask)) == bmc.records


@pytest.mark.parametrize("most", [5, 8, 16, 31])
def test_a_bmc_that_cannot_give_many_bytes_is_asked_for_fewer(most: int) -> None:
    bmc = PretendedBmc(RECORDS, most=most)

    assert list(records(bmc.ask)) == bmc.records


def test_a_lost_reservation_is_made_again() -> None:
    bmc = PretendedBmc(RECORDS)
    bmc.lose_reservation_after = 4

    assert list(records(bmc.ask)) == bmc.records
    assert bmc.reservations == 2


def test_reservations_that_are_always_lost_end_in_an_error() -> None:
    bmc = PretendedBmc(RECORDS)
    bmc.lose_reservation_after = 1
    bmc.lose_again = True

    with pytest.raises(Refused, match="c5h"):
        list(records(bmc.ask))


def test_a_repository_that_goes_in_circles_ends() -> None:
    bmc = PretendedBmc(RECORDS)
    bmc.last = 0

    assert list(records(bmc.ask)) == bmc.records


def test_an_empty_repository_is_refused_by_the_bmc() -> None:
    with pytest.raises(Refused, match="no such"):
        list(records(PretendedBmc([]).ask))


def test_the_stamp_changes_with_the_records() -> None:
    bmc = PretendedBmc(RECORDS)
    before = repository_stamp(bmc.ask)
    unchanged = repository_stamp(bmc.ask)
    bmc.added_at += 1

    assert before == unchanged
    assert repository_stamp(bmc.ask) != before


def test_a_reading_is_asked_of_the_sensor_by_its_number_and_lun() -> None:
    bmc = PretendedBmc([full(7, "Fan", lun=1)])
    bmc.readings[1, 7] = b"\x4b\xc0\x00"

    assert sensor_state(bmc.ask, parse_sensor(bmc.records[0])).raw == 0x4B


def test_a_sensor_the_bmc_does_not_have_is_refused() -> None:
    with pytest.raises(Refused, match="cbh") as caught:
        sensor_state(PretendedBmc([]).ask, parse_sensor(RECORDS[0]))

    assert caught.value.code == 0xCB


def test_the_log_is_counted() -> None:
    bmc = PretendedBmc([])
    bmc.log = (412, 7600, 0x80)

    assert log_usage(bmc.ask) == (412, 7600, True)


@pytest.mark.parametrize("ask", [repository_stamp, log_usage])
def test_an_answer_that_is_too_short_is_a_read_error(ask: object) -> None:
    with pytest.raises(ReadError, match="too little"):
        ask(lambda *_: b"\x51\x00")  # type: ignore[operator]


def test_a_record_that_ends_early_is_a_read_error() -> None:
    bmc = PretendedBmc(RECORDS)
    bmc.cut_at = 20

    with pytest.raises(ReadError, match="before its end"):
        list(records(bmc.ask))


def test_what_is_no_ipmi_device_is_a_read_error(tmp_path: Path) -> None:
    (tmp_path / "ipmi0").touch()
    bmc = Bmc(str(tmp_path / "ipmi0"))

    with pytest.raises(ReadError, match="did not take the command"):
        bmc.ask(0x0A, 0x20)
    bmc.close()
    bmc.close()


def test_the_structures_are_as_long_as_the_kernels() -> None:
    """sizeof(struct ipmi_req) is 40 and of ipmi_recv 48 on 64 bits: the ioctl numbers contain them."""
    from sonde.native import ipmi

    if struct.calcsize("P") != 8 or os.uname().machine not in ("x86_64", "aarch64"):
        pytest.skip("numbers of 64-bit machines")

    assert (ipmi._SEND, ipmi._RECEIVE_TRUNCATED) == (0x8028690D, 0xC030690B)

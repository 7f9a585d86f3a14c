"""/proc/pressure."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.collectors.pressure import PressureCollector, parse_waiting, parse_waiting_and_stalled
from sonde.config import NoKeys
from sonde.errors import ParseError, Unavailable
from sonde.hostfs import HostFile, HostFS
from sonde.model import Kind, Reading, Value

IO = b"some avg10=0.00 avg60=0.04 avg300=0.17 total=2859903\nfull avg10=0.00 avg60=0.03 avg300=0.16 total=2730696\n"


class SwitchedOff(HostFile):
    def read(self) -> bytes:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


class HostWithoutPsi(HostFS):
    """A kernel booted with psi=0 that still shows the files."""

    def record(self, name: str) -> HostFile:
        return SwitchedOff(name, os.open(self.path(name), os.O_RDONLY), iterated=False)


def by_name(reading: Reading) -> dict[str, Value]:
    return {spec.name: value for (spec, _), value in zip(reading.layout, reading.values, strict=True)}


def test_totals_are_in_seconds(captured: Callable[[str], HostFS]) -> None:
    reading = PressureCollector(captured("vm"), NoKeys()).collect()

    assert by_name(reading) == {
        "node_pressure_cpu_waiting_seconds_total": 4.316026,
        "node_pressure_io_waiting_seconds_total": 2.859903,
        "node_pressure_io_stalled_seconds_total": 2.730696,
        "node_pressure_memory_waiting_seconds_total": 0.0,
        "node_pressure_memory_stalled_seconds_total": 0.0,
    }
    assert {spec.kind for spec, _ in reading.layout} == {Kind.COUNTER}


def test_large_totals_keep_their_microseconds(captured: Callable[[str], HostFS]) -> None:
    values = by_name(PressureCollector(captured("big"), NoKeys()).collect())

    assert values["node_pressure_cpu_waiting_seconds_total"] == 81233.410022


def test_cpu_without_a_full_line_is_read(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")  # before Linux 5.13
    Path(host.path("proc/pressure/cpu")).write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n")

    values = by_name(PressureCollector(host, NoKeys()).collect())

    assert values["node_pressure_cpu_waiting_seconds_total"] == 1.0


def test_io_without_a_full_line_is_not_taken_for_zero() -> None:
    with pytest.raises(ParseError):
        parse_waiting_and_stalled(IO[: IO.find(b"full")])


def test_a_kernel_without_pressure_accounting_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="does not account pressure") as raised:
        PressureCollector(HostFS(str(tmp_path)), NoKeys())

    assert "CONFIG_PSI" in raised.value.hint


def test_pressure_accounting_switched_off_is_unavailable(captured: Callable[[str], HostFS]) -> None:
    with pytest.raises(Unavailable, match="switched off") as raised:
        PressureCollector(HostWithoutPsi(captured("vm").root), NoKeys())

    assert "psi=1" in raised.value.hint


def test_a_counter_that_steps_back_is_passed_on(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    collector = PressureCollector(host, NoKeys())
    collector.collect()
    Path(host.path("proc/pressure/io")).write_bytes(IO.replace(b"2859903", b"5"))

    assert by_name(collector.collect())["node_pressure_io_waiting_seconds_total"] == 5e-06


@pytest.mark.parametrize(
    "text", [b"", b"some", b"full avg10=0 avg60=0 avg300=0 total=5\n", IO.replace(b"total", b"sum"), IO[:-9] + b"x"]
)
def test_odd_text_is_a_parse_error(text: bytes) -> None:
    with pytest.raises(ParseError):
        parse_waiting_and_stalled(text)


def mutated(text: bytes) -> st.SearchStrategy[bytes]:
    odd = st.binary(max_size=8) | st.sampled_from([b"-1", b"nan", b"9" * 400, b"9" * 5000, b"\n", b" ", b"total="])
    place = st.integers(0, len(text))
    return st.binary(max_size=100) | st.builds(
        lambda at, length, new: text[:at] + new + text[at + length :], place, st.integers(0, 30), odd
    )


@given(text=mutated(IO))
def test_any_text_gives_values_or_a_parse_error(text: bytes) -> None:
    try:
        waiting, stalled = parse_waiting_and_stalled(text)
    except ParseError:
        return

    assert waiting == parse_waiting(text)
    assert isinstance(stalled, float)

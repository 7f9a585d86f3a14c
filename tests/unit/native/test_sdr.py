"""Sensor data records, computed by hand from the tables of IPMI 2.0 chapter 43."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fixtures.sdr import compact, full

from sonde.errors import ParseError
from sonde.native.sdr import Sensor, parse_header, parse_name, parse_sensor, parse_state, signed, value_of

# Record 13 (0Dh), 51 (33h) bytes behind the header: owner 20h, LUN 0, sensor 30h; processor 1; type 1, thresholds;
# two's complement, degrees C; linear, M 1, B 0; "CPU Temp" in Latin-1.
CPU_TEMP = bytes.fromhex(
    "0d00 51 01 33 20 00 30 03 01 7f 68 01 01 800a 807a 3838 80 01 00 00 01 00 00 00 00 00"
    " 00 00 00 00 7f 80 64 5f 5a 00 00 05 02 02 00 00 00 c8 435055 20 54656d70"
)


def sensor(**fields: int) -> Sensor:
    return parse_sensor(full(0x30, "x", **fields))


def test_a_record_is_taken_apart() -> None:
    found = parse_sensor(CPU_TEMP)

    assert (found.record, found.owner, found.lun, found.number) == (13, 0x20, 0, 0x30)
    assert (found.type, found.threshold, found.format, found.unit) == (1, True, 2, 1)
    assert (found.m, found.b, found.b_exponent, found.r_exponent) == (1, 0, 0, 0)
    assert (found.percent, found.rate, found.modifier, found.linearization) == (False, 0, 0, 0)
    assert found.name == "CPU Temp"


@pytest.mark.parametrize(("raw", "value"), [(0x2F, 47), (0x7F, 127), (0x80, -128), (0xEC, -20), (0xFF, -1)])
def test_twos_complement(raw: int, value: float) -> None:
    assert value_of(parse_sensor(CPU_TEMP), raw) == value


@pytest.mark.parametrize(("raw", "value"), [(0x2F, 47), (0x7F, 127), (0x80, -127), (0xEC, -19), (0xFF, 0)])
def test_ones_complement(raw: int, value: float) -> None:
    assert value_of(sensor(units1=0x40), raw) == value


@pytest.mark.parametrize(
    ("fields", "raw", "value"),
    [
        # 59 mV per step: M 59, R -3. 204 · 59 · 10^-3
        ({"m": 59, "exponents": 0xD0}, 204, 12.036),
        ({"m": 1, "exponents": 0xF0}, 121, 12.1),
        ({"m": 100}, 75, 7500),
        # (2·210 + 5·10^1) · 10^0: B exponent 1
        ({"m": 2, "b": 5, "exponents": 0x01}, 210, 470),
        # negative M and B of ten bits: (-3·10 - 200) · 10^-1
        ({"m": -3, "b": -200, "exponents": 0xF0}, 10, -23.0),
        ({"m": 511}, 255, 130305),
        ({"m": -512}, 1, -512),
        # the widest exponents: (1·1 + 1·10^-8) · 10^-8, and (1·1 + 1·10^7) · 10^7
        ({"b": 1, "exponents": 0x88}, 1, 1.00000001e-8),
        ({"b": 1, "exponents": 0x77}, 1, 1.0000001e14),
    ],
)
def test_factors_and_exponents(fields: dict[str, int], raw: int, value: float) -> None:
    assert value_of(sensor(units1=0, **fields), raw) == value


@pytest.mark.parametrize(
    ("code", "value"),
    [
        (0, 16.0),
        (1, math.log(16)),
        (2, math.log10(16)),
        (3, 4.0),
        (4, math.exp(16)),
        (5, 1e16),
        (6, 65536.0),
        (7, 0.0625),
        (8, 256.0),
        (9, 4096.0),
        (10, 4.0),
        (11, 16 ** (1 / 3)),
    ],
)
def test_the_twelve_functions(code: int, value: float) -> None:
    assert value_of(sensor(units1=0, linearization=code), 16) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize("code", [1, 2, 3, 7])
def test_a_reading_outside_of_the_function_is_a_parse_error(code: int) -> None:
    with pytest.raises(ParseError, match="outside"):
        value_of(sensor(units1=0, linearization=code), 0)


def test_a_value_too_large_for_a_number_is_a_parse_error() -> None:
    with pytest.raises(ParseError, match="outside"):
        value_of(sensor(units1=0, linearization=4, m=500), 255)


@pytest.mark.parametrize("fields", [{"linearization": 12}, {"linearization": 0x70}, {"units1": 0xC0}])
def test_a_record_without_formula_says_so(fields: dict[str, int]) -> None:
    found = sensor(**fields)

    assert not found.has_formula
    with pytest.raises(ParseError, match="no formula"):
        value_of(found, 1)


def test_units_are_taken_apart() -> None:
    # 21h: unsigned, rate 4 (per minute), no modifier, per cent
    found = sensor(units1=0x21, unit=18, owner=0x2C, lun=3)

    assert (found.format, found.rate, found.modifier, found.percent) == (0, 4, 0, True)
    assert (found.unit, found.owner, found.lun) == (18, 0x2C, 3)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"\xc5Fan 1", "Fan 1"),
        (b"\xc4\xb0C\0\0", "°C"),
        (b"\x43\x12\xa3\xb4", "12 3-4"),
        # IPMI in six bits: I 29h, P 30h, M 2Dh, I 29h, least significant bits first
        (b"\x83\x29\xdc\xa6", "IPMI"),
        (b"\x03abc", "abc"),
        (b"\xc0", ""),
        (b"\xdfcut", "cut"),
    ],
)
def test_names_of_four_kinds(data: bytes, name: str) -> None:
    assert parse_name(data) == name


@pytest.mark.parametrize(
    ("data", "raw", "available", "thresholds", "severity"),
    [
        (b"\x2f\xc0\xc0", 0x2F, True, 0, 0),
        (b"\x2f\xc0", 0x2F, True, 0, 0),  # no thresholds given
        (b"\x00\xe0\x00", 0, False, 0, 0),  # reading unavailable
        (b"\x00\x80\x00", 0, False, 0, 0),  # not scanned
        (b"\x5b\x40\xc8", 0x5B, True, 0x08, 1),  # above upper non-critical
        (b"\x60\x40\xd8", 0x60, True, 0x18, 2),  # above upper critical too
        (b"\x01\x40\x01", 1, True, 0x01, 1),  # below lower non-critical
        (b"\x01\x40\x07", 1, True, 0x07, 2),  # below lower non-recoverable
    ],
)
def test_an_answer_is_taken_apart(data: bytes, raw: int, available: bool, thresholds: int, severity: int) -> None:
    state = parse_state(data)

    assert (state.raw, state.available, state.thresholds, state.severity) == (raw, available, thresholds, severity)


@pytest.mark.parametrize("data", [b"", CPU_TEMP[:4], CPU_TEMP[:30], CPU_TEMP[:-1], compact(1, "x" * 16)])
def test_what_is_no_full_record_is_refused(data: bytes) -> None:
    with pytest.raises(ParseError):
        parse_sensor(data)


@given(st.integers(1, 16), st.data())
def test_signed_is_the_inverse_of_masking(bits: int, data: st.DataObject) -> None:
    value = data.draw(st.integers(-(1 << bits - 1), (1 << bits - 1) - 1))

    assert signed(value & (1 << bits) - 1, bits) == value


@given(
    m=st.integers(-512, 511),
    b=st.integers(-512, 511),
    r_exponent=st.integers(-8, 7),
    b_exponent=st.integers(-8, 7),
    raw=st.integers(0, 255),
)
def test_the_linear_formula_is_exact(m: int, b: int, r_exponent: int, b_exponent: int, raw: int) -> None:
    exponents = (r_exponent & 0xF) << 4 | b_exponent & 0xF
    exact = (m * raw + b * Fraction(10) ** b_exponent) * Fraction(10) ** r_exponent

    assert value_of(sensor(units1=0, m=m, b=b, exponents=exponents), raw) == float(exact)


@given(st.binary(max_size=80) | st.binary(max_size=80).map(lambda tail: CPU_TEMP[:20] + tail), st.integers(0, 255))
def test_any_bytes_are_decoded_or_refused(data: bytes, raw: int) -> None:
    for parse in (parse_header, parse_state, lambda data: value_of(parse_sensor(data), raw)):
        try:
            parse(data)
        except ParseError:
            pass

"""Sensor data records of a baseboard management controller, decoded (IPMI 2.0, chapter 43). No input, no output.

    0d 00 51 01 37  20 00 30  03 01 7f 68 01 01 …  80 01 00 00  01 00 00 00 00 00 …  c8 'CPU Temp'
    id 13, v1.5, full sensor record, 55 bytes follow; owner 20h (the BMC), LUN 0, sensor 30h; temperature, thresholds;
    two's complement, degrees C; linear, M 1, B 0, exponents 0; name of 8 bytes in Latin-1

A raw reading x means L((M·x + B·10^Bexp)·10^Rexp) in the record's unit, L being one of twelve functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from sonde.errors import ParseError

FULL = 0x01  # record type of a sensor that gives numbers
BMC = 0x20  # owner: the controller that is asked
_SOURCE = "sensor data record"
_HEADER = 5
_NAME_AT = 47  # of the byte that says how the name is written and how long it is
_NO_NUMBER = 3  # analogue data format: the sensor has states only
_SIX_BITS = 6

_FORMATS: tuple[Callable[[int], int], ...] = (
    lambda raw: raw,
    lambda raw: raw - 0xFF if raw & 0x80 else raw,  # one's complement: 0xFF is -0
    lambda raw: raw - 0x100 if raw & 0x80 else raw,
)
_FUNCTIONS: tuple[Callable[[float], float], ...] = (
    float,
    math.log,
    math.log10,
    math.log2,
    math.exp,
    lambda x: 10.0**x,
    lambda x: 2.0**x,
    lambda x: 1.0 / x,
    lambda x: x * x,
    lambda x: x * x * x,
    math.sqrt,
    lambda x: math.copysign(abs(x) ** (1 / 3), x),
)


class Sensor(NamedTuple):
    """What a full sensor record says of a sensor."""

    record: int
    owner: int
    lun: int
    number: int
    type: int  # 1 temperature, 2 voltage, 3 current, 4 fan, …
    threshold: bool  # reading type 1: states are crossed thresholds
    format: int  # 0 unsigned, 1 one's complement, 2 two's complement, 3 gives no number
    percent: bool
    rate: int  # 0 none, 4 per minute, …
    modifier: int  # 0 none: the unit is a single one
    unit: int  # 1 °C, 4 V, 5 A, 6 W, 18 RPM, …
    linearization: int
    m: int
    b: int
    b_exponent: int
    r_exponent: int
    name: str

    @property
    def has_formula(self) -> bool:
        """Codes beyond the functions mean a table in the controller, or the vendor's secret."""
        return self.format != _NO_NUMBER and self.linearization < len(_FUNCTIONS)


class State(NamedTuple):
    """An answer to Get Sensor Reading."""

    raw: int
    available: bool
    thresholds: int  # crossed ones: 1 lower non-critical, 2 lower critical, 4 lower non-recoverable, 8, 16, 32 upper

    @property
    def severity(self) -> int:
        """0 nominal, 1 beyond a non-critical threshold, 2 beyond a critical or non-recoverable one."""
        if self.thresholds & 0b110110:
            return 2
        return 1 if self.thresholds & 0b001001 else 0


def parse_header(data: bytes) -> tuple[int, int, int]:
    """Id, type and length of what follows."""
    if len(data) < _HEADER:
        raise ParseError(_SOURCE, data.hex(" "))
    return data[0] | data[1] << 8, data[3], data[4]


def parse_sensor(data: bytes) -> Sensor:
    """A full sensor record, header included."""
    record, kind, length = parse_header(data)
    if kind != FULL or len(data) <= _NAME_AT or len(data) < _HEADER + length:
        raise ParseError(_SOURCE, data.hex(" "))
    return Sensor(
        record=record,
        owner=data[5],
        lun=data[6] & 0b11,
        number=data[7],
        type=data[12],
        threshold=data[13] == 1,
        format=data[20] >> 6,
        percent=bool(data[20] & 1),
        rate=data[20] >> 3 & 0b111,
        modifier=data[20] >> 1 & 0b11,
        unit=data[21],
        linearization=data[23] & 0x7F,
        m=signed(data[24] | (data[25] & 0xC0) << 2, 10),
        b=signed(data[26] | (data[27] & 0xC0) << 2, 10),
        b_exponent=signed(data[29] & 0xF, 4),
        r_exponent=signed(data[29] >> 4, 4),
        name=parse_name(data[_NAME_AT:]),
    )


def parse_state(data: bytes) -> State:
    """The answer to Get Sensor Reading, behind its completion code."""
    if len(data) < 2:
        raise ParseError("sensor reading", data.hex(" "))
    # Bit 5: the reading is not available; bit 6 clear: the sensor is not scanned. Either way the byte means nothing.
    available = not data[1] & 0x20 and bool(data[1] & 0x40)
    return State(data[0], available, data[2] & 0x3F if len(data) > 2 else 0)


def parse_name(data: bytes) -> str:
    """An id string: a byte of type and length, then the text (43.15)."""
    kind, length = data[0] >> 6, data[0] & 0x1F
    text = data[1 : 1 + length]
    if kind == 0b01:
        return "".join("0123456789 -.:,_"[nibble] for byte in text for nibble in (byte >> 4, byte & 0xF)).strip()
    if kind == 0b10:
        bits = int.from_bytes(text, "little")
        count = len(text) * 8 // _SIX_BITS
        return "".join(chr(0x20 + (bits >> _SIX_BITS * at & 0x3F)) for at in range(count)).strip()
    if kind == 0b11:
        return text.decode("latin-1").rstrip("\0 ")
    return text.decode("utf-8", "replace").rstrip("\0 ")


def signed(value: int, bits: int) -> int:
    """Two's complement of so many bits."""
    return value - (1 << bits) if value >> (bits - 1) else value


def value_of(sensor: Sensor, raw: int) -> float:
    """A raw reading in the sensor's unit. ParseError when the record has no formula, or none for this reading."""
    if not sensor.has_formula:
        raise ParseError(_SOURCE, f"{sensor.name}: no formula for its readings")
    x = _FORMATS[sensor.format](raw)
    # Both terms as whole numbers of the smaller power of ten, so that 121·0.1 is 12.1 and not 12.100000000000001.
    m_exponent, b_exponent = sensor.r_exponent, sensor.r_exponent + sensor.b_exponent
    least = min(m_exponent, b_exponent)
    whole = sensor.m * x * 10 ** (m_exponent - least) + sensor.b * 10 ** (b_exponent - least)
    linear = float(whole * 10**least) if least >= 0 else whole / 10**-least
    try:
        value = _FUNCTIONS[sensor.linearization](linear)
    except (ValueError, ZeroDivisionError, OverflowError):
        raise ParseError(_SOURCE, f"{sensor.name}: {linear} is outside of its function") from None
    if not math.isfinite(value):
        raise ParseError(_SOURCE, f"{sensor.name}: {linear} is outside of its function")
    return value

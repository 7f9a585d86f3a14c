"""What an OTLP receiver answers: partial success, or a status with a message.

200  0a 0e 08 03 12 0a …      ExportMetricsServiceResponse: partial_success {rejected_data_points: 3, error_message}
400  08 03 12 …               google.rpc.Status: code, message
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sonde.errors import ParseError
from sonde.sinks.protobuf import FIXED64, LENGTH, VARINT

_SHOWN = 300  # characters of a server's message
_FIXED32 = 5  # a wire type
_SIZES = {FIXED64: 8, _FIXED32: 4}


class PartialSuccess(NamedTuple):
    rejected: int
    message: str


def partial_success(body: bytes) -> PartialSuccess:
    """What a receiver that took the request says about it; nothing in most cases. Raises ParseError."""
    rejected, said = 0, ""
    for number, value in parse_fields(body):
        if number == 1 and isinstance(value, bytes):
            for inner, part in parse_fields(value):
                if inner == 1 and isinstance(part, int):
                    rejected = part
                elif inner == 2 and isinstance(part, bytes):
                    said = _readable(part)
    return PartialSuccess(rejected if rejected < 2**63 else 0, said)


def status_message(body: bytes, content_type: str) -> str:
    """The message of an error reply, for a log: of a Status, or the beginning of any other text."""
    if content_type.partition(";")[0].strip() == "application/x-protobuf":
        try:
            said = [value for number, value in parse_fields(body) if number == 2 and isinstance(value, bytes)]
        except ParseError:
            said = []
        return _readable(said[-1]) if said else ""
    return _readable(body)


def _readable(text: bytes) -> str:
    decoded = text[: 4 * _SHOWN].decode("utf-8", "replace")
    return " ".join("".join([c if c.isprintable() else " " for c in decoded]).split())[:_SHOWN]


def parse_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message: numbers of varints and fixed ones, bytes of all else. Raises ParseError."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        number, wire_type = tag >> 3, tag & 7
        if not number:
            raise ParseError("an OTLP reply", data[:80])
        if wire_type == VARINT:
            value, place = _varint(data, place)
            yield number, value
            continue
        if wire_type == LENGTH:
            size, place = _varint(data, place)
        else:
            size = _SIZES.get(wire_type, -1)
        if size < 0 or place + size > len(data):
            raise ParseError("an OTLP reply", data[:80])
        part = data[place : place + size]
        place += size
        yield number, part if wire_type == LENGTH else int.from_bytes(part, "little")


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    for byte in data[place : place + 10]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value & (2**64 - 1), place + shift // 7
    raise ParseError("an OTLP reply", data[:80])

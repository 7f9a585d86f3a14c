"""The bytes of a protobuf message, after protobuf.dev/programming-guides/encoding.

    message(1, text(1, "job") + text(2, "sonde"))  →  0a 0c 0a 03 6a 6f 62 12 05 73 6f 6e 64 65

Only what the sinks write: by hand, because the protobuf package costs 6.8 MB and 33 ms to import (docs/adr/0016).
"""

from __future__ import annotations

import struct

VARINT, FIXED64, LENGTH = 0, 1, 2  # wire types

_DOUBLE = struct.Struct("<d")


def varint(number: int) -> bytes:
    """Seven bits per byte, the lowest first, the top bit set on all but the last. For numbers that are not negative."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, wire_type: int) -> bytes:
    """What stands before a value: the field's number and how the value is written."""
    return varint(number << 3 | wire_type)


def message(number: int, body: bytes) -> bytes:
    """A message within a message; also a field of bytes."""
    return field(number, LENGTH) + varint(len(body)) + body


def text(number: int, content: str) -> bytes:
    """A string. What is not valid Unicode (a path's stray bytes) becomes question marks: receivers refuse it."""
    return message(number, content.encode("utf-8", "replace"))


def double(number: int, value: float) -> bytes:
    return field(number, FIXED64) + _DOUBLE.pack(value)

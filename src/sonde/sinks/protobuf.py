"""The few pieces of protobuf's wire format that metrics need (protobuf.dev/programming-guides/encoding).

    12 07 74 65 73 74 69 6e 67      field 2, wire type 2 (length and bytes): "testing"
    21 00 00 00 00 00 00 f0 3f      field 4, wire type 1 (64 bits): 1.0

By hand, because the protobuf package costs the daemon 9 MB and an object per value; docs/adr/0017 has the numbers.
"""

from __future__ import annotations

from struct import pack

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types
_64_BITS = 2**64 - 1


def varint(n: int) -> bytes:
    """Seven bits a byte, the lowest first; a negative number as its 64 bits."""
    n &= _64_BITS
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def field(number: int, wire_type: int) -> bytes:
    """What stands before a value."""
    return varint(number << 3 | wire_type)


def message(number: int, body: bytes) -> bytes:
    return field(number, BYTES) + varint(len(body)) + body


def text(number: int, s: str) -> bytes:
    """A string; what is no UTF-8 (a file name may hold anything) is replaced, because readers refuse it."""
    return message(number, s.encode("utf-8", "replace"))


def double(number: int, x: float) -> bytes:
    return field(number, FIXED64) + pack("<d", x)

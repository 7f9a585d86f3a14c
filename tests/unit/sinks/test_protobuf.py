"""Protobuf's bytes."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sinks import receiver

from sonde.sinks.protobuf import VARINT, double, field, message, text, varint


def test_the_examples_of_the_encoding_guide() -> None:
    assert varint(150) == b"\x96\x01"
    assert field(1, VARINT) + varint(150) == b"\x08\x96\x01"
    assert text(2, "testing") == b"\x12\x07testing"
    assert message(3, b"\x08\x96\x01") == b"\x1a\x03\x08\x96\x01"
    assert double(1, 1.0) == b"\x09" + struct.pack("<d", 1.0)


@given(st.integers(0, 2**64 - 1))
def test_a_varint_is_read_back(number: int) -> None:
    encoded = varint(number)

    assert receiver.varint(encoded + b"\xff", 0) == (number, len(encoded))


def test_a_path_with_stray_bytes_becomes_valid_text() -> None:
    assert text(1, b"/a\xff".decode("utf-8", "surrogateescape")) == b"\x0a\x03/a?"

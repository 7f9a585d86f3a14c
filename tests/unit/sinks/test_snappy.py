"""Snappy's blocks: cramjam's, and our own when it is not installed."""

from __future__ import annotations

import sys

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sinks.receiver import decompress

from sonde.sinks.snappy import compressor, literal


@given(st.binary(max_size=300))
def test_a_literal_is_read_back_by_cramjam(data: bytes) -> None:
    assert bytes(cramjam.snappy.decompress_raw(literal(data))) == data
    assert decompress(literal(data)) == data


@pytest.mark.parametrize("size", [0, 1, 60, 61, 256, 65_536, 65_537, 3_000_000])
def test_a_literal_of_every_length_is_read_back(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)

    assert bytes(cramjam.snappy.decompress_raw(literal(data[:size]))) == data[:size]


def test_with_cramjam_a_block_is_compressed() -> None:
    data = b"node_cpu_seconds_total" * 1000

    compressed = compressor()(data)

    assert len(compressed) < len(data) / 10
    assert decompress(compressed) == data


def test_without_cramjam_a_block_is_a_literal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)  # as the import finds it where it is not installed

    assert compressor()(b"hello") == b"\x05\x10hello"

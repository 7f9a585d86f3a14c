from __future__ import annotations

import struct
from array import array
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.errors import StoreError
from sonde.jobs import decoding
from sonde.store.codec import Block, encode

T = TypeVar("T")
INTEGERS = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(-300, 300)
DECIMALS = st.integers(-(10**6), 10**6).map(lambda number: number / 100)
FLOATS = st.floats(allow_nan=False)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[int], list[list[int]], list[list[float]]]:
    rows = draw(st.integers(1, 9))

    def column(values: st.SearchStrategy[T]) -> st.SearchStrategy[list[T]]:
        return st.lists(values, min_size=rows, max_size=rows)

    integers = draw(st.lists(st.one_of(column(INTEGERS), column(SMALL)), max_size=5))
    floats = draw(st.lists(st.one_of(column(DECIMALS), column(FLOATS)), max_size=5))
    return draw(column(INTEGERS)), integers, floats


@settings(max_examples=150, deadline=None)
@given(tables(), st.data())
def test_any_columns_of_a_block_come_back_to_the_bit(
    table: tuple[list[int], list[list[int]], list[list[float]]], data: st.DataObject
) -> None:
    times, integers, floats = table
    bits = [array("q", struct.pack(f"{len(column)}d", *column)) for column in floats]
    block = Block(encode(array("q", times), [array("q", column) for column in integers], bits)).physical()
    wanted = sorted(data.draw(st.sets(st.integers(0, max(0, len(integers) - 1))))) if integers else []

    exact = decoding.integers(block, [0, *[block.positions[1 + n] for n in wanted]])
    places = [block.positions[1 + len(integers) + n] for n in range(len(floats))]
    read = decoding.floats(decoding.integers(block, places), block, places)

    assert exact.tolist() == [times, *[integers[n] for n in wanted]]
    assert [row.tobytes() for row in read] == [np.array(column).tobytes() for column in floats]


def test_a_block_that_is_cut_off_is_an_error_and_not_a_wrong_value() -> None:
    block = Block(encode(array("q", range(60)), [array("q", [n * n for n in range(60)])])).physical()

    with pytest.raises(ValueError, match="buffer"):
        decoding.integers(block._replace(data=block.data[:-30]), [0, 1])
    with pytest.raises(StoreError):
        Block(b"nonsense")

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.errors import StoreError
from sonde.model import Histogram, Value
from sonde.store.codec import Block, encode

INT64 = st.integers(-(2**63), 2**63 - 1)
NEAR = st.integers(-300, 300)
ANY_FLOAT = st.floats(allow_nan=False, allow_infinity=True, allow_subnormal=True)
DECIMAL = st.integers(-(10**7), 10**7).map(lambda n: n / 100)


def bits(values: Sequence[float]) -> array[int]:
    out = array("q")
    out.frombytes(array("d", values).tobytes())
    return out


def same_floats(one: Sequence[float], other: Sequence[float]) -> bool:
    return [struct.pack("d", value) for value in one] == [struct.pack("d", value) for value in other]


@given(st.lists(INT64 | NEAR, min_size=1, max_size=80))
@settings(max_examples=150, deadline=None)
def test_integers_of_64_bits_come_back(values: list[int]) -> None:
    block = Block(encode(array("q", values), [array("q", values), array("q", values[::-1])]))

    assert block.times == values
    assert block.column(0) == values
    assert block.column(1) == values[::-1]


@given(st.lists(ANY_FLOAT, min_size=1, max_size=80) | st.lists(DECIMAL, min_size=1, max_size=80))
@settings(max_examples=200, deadline=None)
def test_floats_come_back_to_the_bit(values: list[float]) -> None:
    block = Block(encode(array("q", range(len(values))), floats=[bits(values)]))

    assert same_floats(block.column(0), values)
    assert all(type(value) is float for value in block.column(0))


@pytest.mark.parametrize(
    "values",
    [
        [0.0, -0.0, 0.0],
        [math.inf, 1.0, -math.inf],
        [1e308, -1e308, 5e-324],
        [2.0**53, 2.0**53 + 2, 1.0],
        [1e15 + 0.5, 0.25, 1e-9],
        [0.1, 0.12, 0.123, 0.123456789],
        [123456.789012] * 5,
        [0.1 + 0.2, 0.3, 1 / 3],
    ],
)
def test_floats_at_the_edges_come_back_to_the_bit(values: list[float]) -> None:
    block = Block(encode(array("q", range(len(values))), floats=[bits(values)]))

    assert same_floats(block.column(0), values)


def test_nan_does_not_travel_but_would_survive() -> None:
    block = Block(encode(array("q", [1, 2]), floats=[bits([math.nan, 1.5])]))

    assert math.isnan(block.column(0)[0])
    assert block.column(0)[1] == 1.5


HISTOGRAM = st.builds(
    lambda counts, total: Histogram((0.1, 1.0), counts, total),
    st.tuples(st.integers(0, 2**62), st.integers(0, 9), st.integers(0, 2**70) | st.integers(0, 9)),
    ANY_FLOAT,
)
MIXED = st.integers() | ANY_FLOAT | HISTOGRAM


@given(st.lists(MIXED, min_size=1, max_size=30) | st.lists(HISTOGRAM, min_size=1, max_size=30))
@settings(max_examples=150, deadline=None)
def test_a_column_of_anything_comes_back_with_its_types(values: list[Value]) -> None:
    count = len(values)
    block = Block(encode(array("q", range(count)), [array("q", [3] * count)], [bits([0.5] * count)], [values, values]))

    assert block.column(2) == values
    assert block.column(3) == values
    assert [type(value) for value in block.column(2)] == [type(value) for value in values]
    assert len(block) == 4


def test_histograms_of_changing_bounds_come_back() -> None:
    values: list[Value] = [Histogram((1.0,), (1, 2), 3.0), Histogram((1.0, 2.0), (1, 2, 3), 4.5)]

    assert Block(encode(array("q", [1, 2]), mixed=[values])).column(0) == values


def test_columns_that_do_not_change_cost_next_to_nothing() -> None:
    columns = [array("q", [10**12 + n] * 60) for n in range(100)]

    assert len(encode(array("q", range(0, 60 * 10**9, 10**9)), columns)) < 600


def test_decimals_are_stored_as_integers() -> None:
    values = [round(20 + (n * 37 % 100) / 100, 2) for n in range(120)]

    assert len(encode(array("q", range(120)), floats=[bits(values)])) < 200


@given(st.binary(max_size=300))
@settings(max_examples=150, deadline=None)
def test_bytes_that_are_no_block_are_refused(data: bytes) -> None:
    with pytest.raises(StoreError):
        Block(data)

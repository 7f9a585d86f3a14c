from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.errors import StoreError
from sonde.model import Histogram, Kind, Layout, MetricSpec, Unit, Value
from sonde.store.form import Form, describe, ids, restored, stored, types_of
from sonde.store.tail import Batch, open_block, open_tail, packed_again, seal_block, seal_tail

VALUE = (
    st.integers()
    | st.floats(allow_nan=False)
    | st.just(Histogram((0.5, 1.0), (1, 2, 3), 4.5))
    | st.integers(-(2**63), 2**63 - 1)
)


def form_of(values: list[Value], source: str = "s") -> Form:
    layout = Layout((MetricSpec(f"m{n}", Kind.GAUGE, Unit.NONE, ""), ()) for n in range(len(values)))
    text = describe(source, 10**9, layout, types_of(values))
    return Form(text, next(iter(ids(text))))


@given(st.lists(st.lists(VALUE, min_size=1, max_size=12), min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
def test_frames_come_back_from_the_tail_with_their_types(rows: list[list[Value]]) -> None:
    forms = [form_of(values, f"s{n}") for n, values in enumerate(rows)]
    times = [10**18 - n for n in range(len(rows))]
    row = seal_tail([Batch(forms).pack(times, rows), Batch(forms[:1]).pack(times[:1], rows[:1])])

    frames = open_tail(row)
    again = open_tail(seal_tail([packed_again(frames)]))

    assert again == frames
    assert [frame.time_ns for frame in frames] == [*times, times[0]]
    for frame, form, values in zip(frames, [*forms, forms[0]], [*rows, rows[0]], strict=True):
        expected = [values[place] for place in form.order]
        got = form.unpack(frame.fixed, frame.rest)
        assert got == expected
        assert list(map(type, got)) == list(map(type, expected))


@pytest.mark.parametrize("changed", [[1, 2], [1.0, 2.0], [2**63, 2.0], [Histogram((), (1,), 0.0), 2.0], [1]])
def test_values_of_other_types_are_refused(changed: list[Value]) -> None:
    batch = Batch([form_of([1, 2.0])])

    with pytest.raises((TypeError, struct.error)):
        batch.pack([5], [changed])


def test_types_only_ever_widen() -> None:
    form = form_of([1, 2.0, 2**70])

    assert form.types == "qdm"
    assert form.widened([1.5, 2.0, 3]) == "mdm"
    assert form.widened([1, 2, 3]) == "qmm"


def test_a_form_has_the_same_id_whenever_it_is_described() -> None:
    one, other = form_of([1, 2.0]), form_of([1, 2.0])

    assert one.id == other.id
    assert restored(one.id, stored(one.text)).series() == one.series()
    assert form_of([1, 2]).id != one.id


@given(st.binary(max_size=200), st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_damaged_rows_are_refused_whatever_they_hold(noise: bytes, place: int) -> None:
    form = form_of([1, 2.5])
    row = bytearray(seal_tail([Batch([form]).pack([7], [[1, 2.5]])]))
    row[place % len(row)] ^= 1 + place % 255
    block = bytearray(seal_block(1, 2, 3, b"something"))
    block[place % len(block)] ^= 1 + place % 255

    with pytest.raises(StoreError):
        open_tail(bytes(row))
    with pytest.raises(StoreError):
        open_block(1, 2, 3, bytes(block))
    with pytest.raises(StoreError):
        open_tail(noise)
    with pytest.raises(StoreError):
        restored(form.id, noise)


def test_a_block_belongs_to_its_row() -> None:
    blob = seal_block(1, 2, 3, b"something")

    assert open_block(1, 2, 3, blob) == b"something"
    with pytest.raises(StoreError):
        open_block(1, 2, 4, blob)

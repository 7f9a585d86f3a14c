"""The ticks of one form: part of the batches they were written in, then copies of their own."""

from __future__ import annotations

from sonde.model import Histogram, Kind, Layout, MetricSpec, Unit, Value
from sonde.store.form import Form, describe, ids, types_of
from sonde.store.stretch import BLOCK_TICKS, Share, Stretch, Written
from sonde.store.tail import Batch, Packed, open_tail, seal_tail

WAITS = Histogram((0.5,), (1, 2), 3.0)


def form_of(values: list[Value], source: str, period_ns: int = 10**9) -> Form:
    layout = Layout((MetricSpec(f"m{n}", Kind.GAUGE, Unit.NONE, ""), ()) for n in range(len(values)))
    text = describe(source, period_ns, layout, types_of(values))
    return Form(text, next(iter(ids(text))))


def written(batch: Batch, times: list[int], values: list[list[Value]]) -> Written:
    rest = [form.rest(row) for form, row in zip(batch.forms, values, strict=True)] if batch.mixed else ()
    return Written(batch, times, batch.pack(times, values), rest)


def two_sources(mixed: Value) -> tuple[list[Written], Stretch]:
    """Three batches of two sources, and the stretch of the second one."""
    first, second = form_of([1, 2.0], "a"), form_of([3, mixed], "b")
    batch = Batch([first, second])
    batches = [written(batch, [10 * n, 10 * n + 1], [[n, 0.5 * n], [100 + n, mixed]]) for n in range(3)]
    stretch = Stretch(second)
    stretch.add(Share(batches, 1, *batch.parts[1][1:]))
    return batches, stretch


def in_the_tail(batches: list[Written], form: Form) -> list[Packed]:
    frames = [frame for one in batches for frame in open_tail(seal_tail([one.data]))]
    return [frame._replace(rest=tuple(frame.rest)) for frame in frames if frame.form == form.id]


def test_the_ticks_are_those_that_were_written() -> None:
    batches, stretch = two_sources(4.5)

    ticks = stretch.ticks()

    assert stretch.count == 3
    assert ticks == in_the_tail(batches, stretch.form)
    assert [stretch.form.unpack(tick.fixed, tick.rest) for tick in ticks] == [[100, 4.5], [101, 4.5], [102, 4.5]]


def test_values_of_no_fixed_size_come_along() -> None:
    batches, stretch = two_sources(WAITS)

    ticks = [tick._replace(rest=tuple(tick.rest)) for tick in stretch.ticks()]

    assert ticks == in_the_tail(batches, stretch.form)
    assert [tick.rest for tick in ticks] == [(WAITS,)] * 3


def test_what_lets_go_of_the_batches_keeps_its_ticks_and_takes_more() -> None:
    batches, stretch = two_sources(4.5)
    before = stretch.ticks()

    size = stretch.let_go()
    stretch.add(Share(batches[:1], 1, *batches[0].batch.parts[1][1:]))
    batches.clear()

    assert size == 3 * 16
    assert stretch.count == 4
    assert stretch.ticks() == [*before, before[0]]


def test_what_was_in_the_tail_comes_first() -> None:
    batches, stretch = two_sources(4.5)
    older = Stretch(stretch.form)
    for tick in in_the_tail(batches, stretch.form):
        older.append(tick)

    older.add(Share(batches, 1, *batches[0].batch.parts[1][1:]))

    assert older.ticks() == 2 * stretch.ticks()


def test_fast_collectors_make_longer_blocks() -> None:
    slow, fast = (Stretch(form_of([1], "a", period_ns)) for period_ns in (10**9, 10**8))

    assert (slow.target, fast.target) == (BLOCK_TICKS, 2 * BLOCK_TICKS)

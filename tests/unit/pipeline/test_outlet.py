"""One sink, one bounded queue."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import ClassVar

import pytest

from sonde.clock import NS
from sonde.config import NoKeys
from sonde.errors import SinkError
from sonde.model import Event, Frame, Kind, Layout, MetricSpec, Unit
from sonde.pipeline import outlet as outlet_module
from sonde.pipeline.outlet import Outlet
from sonde.pipeline.selection import Selection, Sieve

ONE = MetricSpec("node_one_total", Kind.COUNTER, Unit.NONE, "One.")
TWO = MetricSpec("node_two", Kind.GAUGE, Unit.NONE, "Two.", ("device",))
LAYOUT = Layout([(ONE, ()), (TWO, ("a",)), (TWO, ("b",))])


def frame(number: int, *, source: str = "test", events: Sequence[Event] = ()) -> Frame:
    return Frame(source, number * NS, 0, NS, LAYOUT, (number, 1.5, 2.5), events)


class Recording:
    """Keeps what it is given; fails, hangs or has a bug as the test says."""

    Config: ClassVar[type] = NoKeys
    inline: ClassVar[bool] = False

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.failures: list[Exception] = []
        self.gate = threading.Event()
        self.gate.set()
        self.closed = False

    def write(self, frames: Sequence[Frame]) -> None:
        self.gate.wait(10)
        if self.failures:
            raise self.failures.pop(0)
        self.frames += frames

    def close(self) -> None:
        self.closed = True


class Inline(Recording):
    inline: ClassVar[bool] = True


def eventually(true: Callable[[], bool], seconds: float = 5.0) -> bool:
    until = time.monotonic() + seconds
    while not true() and time.monotonic() < until:
        time.sleep(0.005)
    return true()


def test_frames_arrive_in_order_and_a_stop_flushes_them() -> None:
    sink = Recording()
    outlet = Outlet("test", sink)
    outlet.start()
    for number in range(100):
        outlet.offer([frame(number)])

    assert outlet.stop(2)
    assert [item.values[0] for item in sink.frames] == list(range(100))
    assert (outlet.delivered, outlet.dropped, sink.closed) == (100, 0, True)


def test_a_full_queue_drops_the_oldest_and_counts_it() -> None:
    sink = Recording()
    sink.gate.clear()
    outlet = Outlet("test", sink, limit=10)
    outlet.start()
    outlet.offer([frame(0)])
    assert eventually(lambda: outlet.depth == 0)  # the sink hangs with it
    for number in range(1, 31):
        outlet.offer([frame(number)])
    assert (outlet.depth, outlet.dropped) == (10, 20)

    sink.gate.set()

    assert outlet.stop(2)
    assert [item.values[0] for item in sink.frames] == [0, *range(21, 31)]


def test_a_sink_that_hangs_blocks_neither_the_sampler_nor_the_stop(caplog: pytest.LogCaptureFixture) -> None:
    sink = Recording()
    sink.gate.clear()
    outlet = Outlet("test", sink)
    outlet.start()
    begun = time.monotonic()
    for number in range(100):
        outlet.offer([frame(number)])

    assert not outlet.stop(0.2)
    assert time.monotonic() - begun < 1.5
    assert "hangs" in caplog.text
    sink.gate.set()


def test_a_delivery_that_may_be_tried_again_is_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet_module, "_FIRST_BACKOFF", 0.01)
    sink = Recording()
    sink.failures = [SinkError("down", retry=True), SinkError("down", retry=True)]
    outlet = Outlet("test", sink)
    outlet.start()
    outlet.offer([frame(1), frame(2)])

    assert eventually(lambda: outlet.delivered == 2)
    assert (outlet.failures, outlet.error, outlet.dropped) == (2, "", 0)
    assert [item.values[0] for item in sink.frames] == [1, 2]
    outlet.stop(1)


def test_what_a_sink_refuses_for_good_is_counted_and_not_sent_again() -> None:
    sink = Recording()
    sink.failures = [SinkError("too old", retry=False)]
    outlet = Outlet("test", sink)
    outlet.start()
    outlet.offer([frame(1)])
    assert eventually(lambda: outlet.rejected == 1)
    outlet.offer([frame(2)])

    assert outlet.stop(1)
    assert [item.values[0] for item in sink.frames] == [2]


def test_a_batch_that_was_taken_in_part_is_not_sent_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet_module, "_FIRST_BACKOFF", 0.01)
    sink = Recording()
    sink.failures = [SinkError("down", retry=True, delivered=3, refused=1)]
    outlet = Outlet("test", sink)
    outlet.offer([frame(number) for number in range(10)])
    outlet.start()

    assert eventually(lambda: len(sink.frames) == 6)
    assert [item.values[0] for item in sink.frames] == [4, 5, 6, 7, 8, 9]
    assert outlet.stop(1)
    assert (outlet.delivered, outlet.rejected, outlet.dropped) == (9, 1, 0)


def test_a_batch_that_was_refused_in_part_counts_what_was_taken() -> None:
    sink = Recording()
    sink.failures = [SinkError("out of order", retry=False, delivered=7)]
    outlet = Outlet("test", sink)
    outlet.offer([frame(number) for number in range(10)])
    outlet.start()

    assert eventually(lambda: outlet.rejected == 3)
    assert outlet.stop(1)
    assert (outlet.delivered, outlet.depth, sink.frames) == (7, 0, [])


def test_a_server_that_names_a_time_is_left_alone_for_that_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet_module, "_FIRST_BACKOFF", 0.01)
    sink = Recording()
    sink.failures = [SinkError("busy", retry=True, retry_after=0.4), SinkError("busy", retry=True)]
    outlet = Outlet("test", sink)
    outlet.offer([frame(1)])
    outlet.start()
    assert eventually(lambda: outlet.failures == 1)
    begun = time.monotonic()

    assert eventually(lambda: outlet.delivered == 1)
    assert 0.35 < time.monotonic() - begun < 2
    assert outlet.stop(1)


def test_waits_grow_to_four_seconds_and_differ_by_chance() -> None:
    outlet = Outlet("test", Recording())
    waits = {outlet._wait(4.0) for _ in range(200)}

    assert outlet._wait(0.0) == 0.0
    assert 3.0 <= min(waits) < 3.3
    assert 3.7 < max(waits) <= outlet_module._LAST_BACKOFF == 4.0


def test_large_frames_are_bounded_by_their_memory_and_the_newest_stays() -> None:
    sink = Recording()
    layout = Layout((TWO, (str(index),)) for index in range(1000))  # about 40 kB per frame
    outlet = Outlet("test", sink, memory=100_000)
    for second in range(10):
        outlet.offer([Frame("test", second * NS, 0, NS, layout, [second] * 1000)])
    assert (outlet.depth, outlet.dropped) == (2, 8)

    sink.failures = [SinkError("down", retry=True)]
    outlet._put_back(outlet._deliver(outlet._take()))
    assert (outlet.depth, outlet.dropped) == (2, 8)
    outlet.offer([Frame("test", 10 * NS, 0, NS, layout, [10] * 1000)])
    outlet.start()

    assert outlet.stop(2)
    assert [item.values[0] for item in sink.frames] == [9, 10]


def test_a_frame_larger_than_the_memory_is_kept_alone() -> None:
    sink = Recording()
    outlet = Outlet("test", sink, memory=1)
    for number in range(3):
        outlet.offer([frame(number)])
    outlet.start()

    assert outlet.stop(2)
    assert [item.values[0] for item in sink.frames] == [2]
    assert outlet.dropped == 2


def test_a_bug_in_a_sink_costs_its_batch_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    sink = Recording()
    sink.failures = [KeyError("oops")]
    outlet = Outlet("test", sink)
    outlet.start()
    outlet.offer([frame(1)])
    assert eventually(lambda: outlet.rejected == 1)
    outlet.offer([frame(2)])

    assert outlet.stop(1)
    assert outlet.delivered == 1
    assert "Traceback" in caplog.text


def test_a_sink_that_stays_down_does_not_delay_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Recording()
    sink.failures = [SinkError("down", retry=True)] * 1000
    outlet = Outlet("test", sink)
    outlet.start()
    outlet.offer([frame(1)])
    assert eventually(lambda: outlet.failures > 0)
    begun = time.monotonic()

    assert outlet.stop(2)
    assert time.monotonic() - begun < 1


def test_an_inline_sink_is_called_at_once_and_has_no_thread() -> None:
    sink = Inline()
    outlet = Outlet("test", sink)
    before = threading.active_count()
    outlet.start()
    outlet.offer([frame(1)])

    assert threading.active_count() == before
    assert len(sink.frames) == 1
    assert outlet.stop(1)


def test_a_filter_keeps_the_wanted_metrics_and_their_values_together() -> None:
    sink = Inline()
    outlet = Outlet("test", sink, sieve=Sieve(Selection(include=["node_t*"], exclude=["*_total"])))
    outlet.offer([frame(1), frame(2)])

    assert [list(item.values) for item in sink.frames] == [[1.5, 2.5], [1.5, 2.5]]
    assert [labels for _, labels in sink.frames[0].layout] == [("a",), ("b",)]
    assert sink.frames[0].layout is sink.frames[1].layout


def test_a_frame_of_which_nothing_is_wanted_is_not_sent_but_its_events_are() -> None:
    sink = Inline()
    outlet = Outlet("test", sink, sieve=Sieve(Selection(include=["other_*"])))
    outlet.offer([frame(1), frame(2, events=[Event(2 * NS, "oom.kill", {"pid": 1})])])

    assert [(len(item.layout), len(item.events)) for item in sink.frames] == [(0, 1)]


def test_a_minimum_period_thins_each_source_by_itself() -> None:
    sink = Inline()
    outlet = Outlet("test", sink, sieve=Sieve(Selection(), 5 * NS))
    for second in range(20):
        outlet.offer([frame(second), frame(second, source="other")])

    assert [item.values[0] for item in sink.frames if item.source == "test"] == [0, 5, 10, 15]
    assert [item.values[0] for item in sink.frames if item.source == "other"] == [0, 5, 10, 15]


def test_a_clock_set_back_does_not_silence_a_thinned_source() -> None:
    sink = Inline()
    outlet = Outlet("test", sink, sieve=Sieve(Selection(), 5 * NS))
    for second in (100, 40, 41, 45):
        outlet.offer([frame(second)])

    assert [item.values[0] for item in sink.frames] == [100, 40, 45]


def test_a_queue_of_no_length_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Outlet("test", Recording(), limit=0)


def increments() -> Callable[[Sequence[Frame]], Sequence[Frame]]:
    """A translation with a memory, as a dialect's that turns counters into increments."""
    last = [0]

    def translate(frames: Sequence[Frame]) -> Sequence[Frame]:
        translated = []
        for each in frames:
            number = int(each.values[0])  # type: ignore[arg-type]
            translated.append(each._replace(layout=Layout([(ONE, ())]), values=(number - last[0],)))
            last[0] = number
        return translated

    return translate


def test_a_frame_is_translated_once_however_often_its_delivery_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet_module, "_FIRST_BACKOFF", 0.01)
    sink = Recording()
    sink.failures = [SinkError("down", retry=True) for _ in range(3)]
    outlet = Outlet("test", sink, translate=increments())
    outlet.start()
    for number in (5, 7, 12):
        outlet.offer([frame(number)])

    assert eventually(lambda: len(sink.frames) == 3)
    outlet.stop(1)
    assert [each.values[0] for each in sink.frames] == [5, 2, 5]


def test_a_slower_pace_makes_larger_increments() -> None:
    sink = Inline()
    outlet = Outlet("test", sink, sieve=Sieve(Selection(), 2 * NS), translate=increments())
    for number in range(1, 6):
        outlet.offer([frame(number)])

    assert [each.values[0] for each in sink.frames] == [1, 2, 2]


def test_a_bug_in_a_translation_is_counted_and_stops_nothing() -> None:
    def broken(frames: Sequence[Frame]) -> Sequence[Frame]:
        raise ZeroDivisionError

    sink = Inline()
    outlet = Outlet("test", sink, translate=broken)
    outlet.offer([frame(1), frame(2)])

    assert sink.frames == []
    assert (outlet.rejected, outlet.failures) == (2, 1)
    assert "ZeroDivisionError" in outlet.error

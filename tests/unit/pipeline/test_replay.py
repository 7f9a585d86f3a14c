from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from sonde.clock import NS, ManualClock
from sonde.config import NoKeys, SinkConfig
from sonde.errors import SinkError, TimedOut
from sonde.model import EMPTY_LAYOUT, Event, Frame, Kind, Layout, MetricSpec, Unit
from sonde.pipeline.replay import Counts, Pace, Replay
from sonde.pipeline.selection import sieve_for
from sonde.units import Duration

LOAD = MetricSpec("node_load1", Kind.GAUGE, Unit.NONE, "Load.")
CPU = MetricSpec("node_cpu_seconds_total", Kind.COUNTER, Unit.SECONDS, "CPU.")
LAYOUT = Layout([(LOAD, ()), (CPU, ())])


def frames(count: int, period_ns: int = NS) -> list[Frame]:
    return [Frame("node", n * period_ns, 0, period_ns, LAYOUT, (0.5, n)) for n in range(count)]


class Keeps:
    """A sink that keeps what it gets, and fails as it is told to."""

    Config: ClassVar[type] = NoKeys
    inline: ClassVar[bool] = False

    def __init__(self, *failures: SinkError | None) -> None:
        self.batches: list[list[Frame]] = []
        self._failures = list(failures)

    def write(self, frames: Sequence[Frame]) -> None:
        failure = self._failures.pop(0) if self._failures else None
        if failure is not None:
            raise failure
        self.batches.append(list(frames))

    def close(self) -> None:
        pass


class Time(ManualClock):
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    def now(self) -> float:
        return self.monotonic_ns() / NS

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(seconds)


def replay(
    sink: Keeps, given: list[Frame], config: SinkConfig | None = None, *, speed: float = 0.0, time: Time | None = None
) -> Counts:
    time = time or Time()
    running = Replay(sink, sieve_for("test", config or SinkConfig()), Pace(speed, time.now, time.sleep), patience=10.0)
    return list(running.run(given))[-1]


def test_everything_is_delivered_in_batches_as_fast_as_it_goes() -> None:
    sink, time = Keeps(), Time()
    given = frames(1200)

    counts = replay(sink, given, time=time)

    assert [frame for batch in sink.batches for frame in batch] == given
    assert [len(batch) for batch in sink.batches] == [500, 500, 200]
    assert (counts.frames, counts.delivered, counts.rejected) == (1200, 1200, 0)
    assert counts.reached_ns == 1199 * NS
    assert time.slept == []


def test_a_speed_paces_the_history() -> None:
    sink, time = Keeps(), Time()

    replay(sink, frames(21), speed=10.0, time=time)

    assert sum(time.slept) == pytest.approx(2.0)
    assert [len(batch) for batch in sink.batches] == [1] * 21


def test_the_filters_of_the_section_apply() -> None:
    sink = Keeps()
    config = SinkConfig(exclude=("node_cpu_*",), rename={"node_load1": "load"}, min_period=Duration(5))

    counts = replay(sink, frames(20), config)

    (batch,) = sink.batches
    assert [frame.time_ns // NS for frame in batch] == [0, 5, 10, 15]
    assert [spec.name for spec, _ in batch[0].layout] == ["load"]
    assert batch[0].period_ns == 5 * NS
    assert counts.frames == 4


def test_events_pass_whatever_the_period() -> None:
    sink = Keeps()
    happened = Frame("node", NS + 1, 0, 0, EMPTY_LAYOUT, (), (Event(NS + 1, "oom.kill", {}),))

    replay(sink, [frames(1)[0], happened], SinkConfig(min_period=Duration(60)))

    assert sink.batches[0][1].events == happened.events


def test_a_sink_that_comes_back_misses_nothing() -> None:
    away = SinkError("connection refused", retry=True)
    sink, time = Keeps(away, away, away), Time()

    counts = replay(sink, frames(3), time=time)

    assert time.slept == [0.5, 1.0, 2.0]
    assert (counts.delivered, counts.retries) == (3, 3)


def test_a_sink_that_stays_away_ends_it_and_the_counts_stand() -> None:
    sink = Keeps(None, *[SinkError("refused", retry=True, hint="start it")] * 50)
    time = Time()
    running = Replay(sink, sieve_for("test", SinkConfig()), Pace(0.0, time.now, time.sleep), patience=10.0)

    with pytest.raises(TimedOut, match="gave up after 10 s: refused"):
        list(running.run(frames(700)))

    assert running.counts.delivered == 500
    assert running.counts.reached_ns == 499 * NS
    assert sum(time.slept) == pytest.approx(10.0)


def test_what_is_refused_for_good_is_counted_and_the_rest_goes_on() -> None:
    sink = Keeps(SinkError("too old", retry=False))

    counts = replay(sink, frames(700))

    assert (counts.delivered, counts.rejected, counts.reason) == (200, 500, "too old")

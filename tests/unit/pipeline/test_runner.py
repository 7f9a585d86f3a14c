"""One collector, one pace."""

from __future__ import annotations

from typing import ClassVar

import pytest

from sonde.clock import NS, ManualClock
from sonde.config import NoKeys
from sonde.errors import ReadError
from sonde.model import Kind, Layout, MetricSpec, Reading, Unit
from sonde.pipeline.runner import Runner

METRIC = MetricSpec("sonde_test_total", Kind.COUNTER, Unit.NONE, "A count.")
LAYOUT = Layout([(METRIC, ())])


class Counting:
    """Counts its own collections; raises what it is told to, takes as long as it is told to."""

    Config: ClassVar[type] = NoKeys
    metrics: ClassVar[tuple[MetricSpec, ...]] = (METRIC,)
    blocks: ClassVar[bool] = False

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.count = 0
        self.takes = 0.0
        self.error: Exception | None = None

    def collect(self) -> Reading:
        self.clock.advance(self.takes)
        if self.error:
            raise self.error
        self.count += 1
        return Reading(LAYOUT, (self.count,))

    def close(self) -> None:
        pass


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(monotonic_ns=1_234_567_890)


def runner_of(clock: ManualClock, period: float = 10.0) -> tuple[Runner, Counting]:
    collector = Counting(clock)
    return Runner("test", collector, round(period * NS), clock), collector


def test_the_first_tick_is_due_at_once_and_the_next_on_a_multiple_of_the_period(clock: ManualClock) -> None:
    runner, _ = runner_of(clock)
    assert runner.due_ns == clock.monotonic_ns()

    runner.tick()

    assert runner.due_ns == 10 * NS


def test_a_frame_says_when_it_began_and_how_long_it_took(clock: ManualClock) -> None:
    runner, collector = runner_of(clock)
    collector.takes = 0.25
    begun = clock.time_ns()

    frame = runner.tick()

    assert frame is not None
    assert (frame.time_ns, frame.took_ns, frame.source, frame.period_ns) == (begun, NS // 4, "test", 10 * NS)


def test_deadlines_do_not_drift_by_the_work_done(clock: ManualClock) -> None:
    runner, collector = runner_of(clock, period=1.0)
    runner.tick()
    collector.takes = 0.3
    for second in range(2, 7):
        clock.advance((runner.due_ns - clock.monotonic_ns()) / NS)
        assert clock.monotonic_ns() == second * NS
        runner.tick()

    assert runner.skipped == 0


def test_a_late_tick_is_skipped_and_counted_never_made_up(clock: ManualClock) -> None:
    runner, collector = runner_of(clock, period=1.0)
    runner.tick()
    clock.advance(5.5)  # 4 deadlines went by besides the one that is run now

    runner.tick()

    assert collector.count == 2
    assert runner.skipped == 4
    assert runner.due_ns > clock.monotonic_ns()


def test_a_failing_collector_is_counted_and_recovers(clock: ManualClock) -> None:
    runner, collector = runner_of(clock)
    collector.error = ReadError("the device is gone")

    assert runner.tick() is None
    assert (runner.failures, runner.error) == (1, "the device is gone")

    collector.error = None
    assert runner.tick() is not None
    assert runner.error == ""


def test_a_bug_in_a_collector_is_a_failure_with_its_name(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    runner, collector = runner_of(clock)
    collector.error = ZeroDivisionError("oops")

    assert runner.tick() is None

    assert runner.failures == 1
    assert "ZeroDivisionError" in runner.error
    assert "Traceback" in caplog.text


def test_health_is_logged_when_it_changes_not_at_every_tick(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    runner, collector = runner_of(clock)
    collector.error = OSError("I/O error")
    for _ in range(5):
        runner.tick()

    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1


def test_a_collector_without_success_is_stale_after_two_periods(clock: ManualClock) -> None:
    runner, collector = runner_of(clock, period=1.0)
    runner.tick()
    collector.error = ReadError("hung")
    clock.advance(1.9)
    assert not runner.is_stale(clock.monotonic_ns())

    clock.advance(0.2)

    assert runner.is_stale(clock.monotonic_ns())


def test_a_wall_clock_that_jumps_does_not_disturb_the_pace(clock: ManualClock) -> None:
    runner, _ = runner_of(clock, period=1.0)
    runner.tick()
    clock.jump(-3600)
    clock.advance((runner.due_ns - clock.monotonic_ns()) / NS)

    frame = runner.tick()

    assert frame is not None
    assert frame.time_ns == clock.time_ns()
    assert runner.skipped == 0


def test_a_period_must_be_positive(clock: ManualClock) -> None:
    with pytest.raises(ValueError, match="positive"):
        Runner("test", Counting(clock), 0, clock)

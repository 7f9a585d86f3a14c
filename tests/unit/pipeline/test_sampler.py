"""A sampling thread, on the real clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import ClassVar

import pytest

from sonde.clock import NS, SystemClock
from sonde.config import NoKeys
from sonde.model import Frame, Kind, Layout, MetricSpec, Reading, Unit
from sonde.pipeline.runner import Runner
from sonde.pipeline.sampler import Sampler

METRIC = MetricSpec("sonde_test", Kind.GAUGE, Unit.NONE, "A test.")
LAYOUT = Layout([(METRIC, ())])


class Plain:
    Config: ClassVar[type] = NoKeys
    metrics: ClassVar[tuple[MetricSpec, ...]] = (METRIC,)
    blocks: ClassVar[bool] = False

    def __init__(self) -> None:
        self.closed = False

    def collect(self) -> Reading:
        return Reading(LAYOUT, (1,))

    def close(self) -> None:
        self.closed = True


class Hanging(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def collect(self) -> Reading:
        self.gate.wait(20)
        return super().collect()


def test_runners_of_one_pace_are_one_wake_up_and_one_batch() -> None:
    batches: list[Sequence[Frame]] = []
    clock = SystemClock()
    runners = [Runner(name, Plain(), NS // 20, clock) for name in ("a", "b", "c")]
    sampler = Sampler("test", runners, batches.append, clock)
    sampler.start()
    time.sleep(0.6)

    assert sampler.stop(1)
    assert sampler.wakeups <= 14
    # The first tick of each is due when it is made; after that all fall on the same multiples.
    assert all([frame.source for frame in batch] == ["a", "b", "c"] for batch in batches[1:])
    assert len(batches) >= 6
    assert all(runner.collector.closed for runner in runners)  # type: ignore[attr-defined]


def test_periods_down_to_ten_milliseconds_are_kept() -> None:
    batches: list[Sequence[Frame]] = []
    clock = SystemClock()
    runner = Runner("fast", Plain(), NS // 100, clock)
    sampler = Sampler("test", [runner], batches.append, clock)
    sampler.start()
    time.sleep(1.0)
    sampler.stop(1)

    assert len(batches) + runner.skipped >= 95
    assert len(batches) >= 50


def test_a_hung_collector_blocks_only_itself_and_is_left_behind_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    clock = SystemClock()
    hanging = Hanging()
    stuck = Runner("stuck", hanging, NS // 50, clock)
    good = Runner("good", Plain(), NS // 50, clock)
    batches: list[Sequence[Frame]] = []
    samplers = [Sampler("stuck", [stuck], batches.append, clock), Sampler("good", [good], batches.append, clock)]
    for sampler in samplers:
        sampler.start()
    time.sleep(0.3)

    assert good.ticks >= 5
    assert stuck.is_stale(clock.monotonic_ns())
    assert stuck.started_ns > 0
    assert [sampler.stop(0.1) for sampler in samplers] == [False, True]
    assert "hangs" in caplog.text
    hanging.gate.set()

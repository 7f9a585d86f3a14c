"""The daemon's own metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from sonde.collectors.daemon import QUALITY, DaemonCollector
from sonde.config import NoKeys
from sonde.hostfs import HostFS
from sonde.model import Gap, Quality, Reading


class Runner:
    def __init__(self, name: str, **numbers: int) -> None:
        self.name = name
        self.took_ns = numbers.get("took_ns", 0)
        self.lateness_ns = numbers.get("lateness_ns", 0)
        self.failures = numbers.get("failures", 0)
        self.skipped = numbers.get("skipped", 0)
        self.overdue_ns = numbers.get("overdue_ns", 0)
        self.gaps: list[Gap] = []

    def staleness_ns(self, now_ns: int) -> int:
        return self.overdue_ns


class Receiver:
    points_rejected = 7


class Outlet:
    def __init__(self, name: str, sink: object = None) -> None:
        self.name = name
        self.sink = sink
        self.delivered, self.dropped, self.rejected, self.failures, self.depth = 5, 4, 3, 2, 1


@pytest.fixture
def collector() -> Iterator[DaemonCollector]:
    made = DaemonCollector(HostFS(), NoKeys())
    yield made
    made.close()


def named(reading: Reading) -> dict[tuple[str, ...], object]:
    pairs = zip(reading.layout, reading.values, strict=True)
    return {(spec.name, *labels): value for (spec, labels), value in pairs}


def test_own_cpu_memory_and_threads_are_real(collector: DaemonCollector) -> None:
    before = time.process_time()
    values = named(collector.collect())

    cpu = values["sonde_daemon_cpu_seconds_total",]
    resident = values["sonde_daemon_resident_bytes",]
    assert isinstance(cpu, float)
    assert before - 0.001 <= cpu <= time.process_time()
    assert isinstance(resident, int)
    assert 5e6 < resident < 1e9
    assert values["sonde_daemon_threads",] == 1 or isinstance(values["sonde_daemon_threads",], int)


def test_each_collector_and_sink_is_reported(collector: DaemonCollector) -> None:
    runner = Runner("cpu", took_ns=1_500_000, lateness_ns=2_000, failures=3, skipped=4, overdue_ns=5_000_000_000)
    collector.watch(lambda: [runner], lambda: [Outlet("archive")])
    values = named(collector.collect())

    assert values["sonde_collector_duration_seconds", "cpu"] == 0.0015
    assert values["sonde_collector_lateness_seconds", "cpu"] == 2e-6
    assert values["sonde_collector_staleness_seconds", "cpu"] == 5
    assert values["sonde_collector_failures_total", "cpu"] == 3
    assert values["sonde_collector_skipped_total", "cpu"] == 4
    assert values["sonde_sink_delivered_total", "archive"] == 5
    assert values["sonde_sink_dropped_total", "archive"] == 4
    assert values["sonde_sink_rejected_total", "archive"] == 3
    assert values["sonde_sink_failures_total", "archive"] == 2
    assert values["sonde_sink_queue_frames", "archive"] == 1


def test_gaps_are_counted_by_quality_and_vanish_with_them(collector: DaemonCollector) -> None:
    runner = Runner("power")
    runner.gaps = [Gap(QUALITY, (), Quality.DENIED, "root only"), Gap(QUALITY, (), Quality.DENIED, "root only")]
    collector.watch(lambda: [runner], list)
    assert named(collector.collect())["sonde_collector_quality", "power", "denied"] == 2

    runner.gaps = []

    assert ("sonde_collector_quality", "power", "denied") not in named(collector.collect())


def test_the_layout_is_kept_while_nothing_comes_or_goes(collector: DaemonCollector) -> None:
    runners = [Runner("cpu")]
    collector.watch(lambda: runners, list)
    first = collector.collect().layout
    assert collector.collect().layout is first

    runners.append(Runner("load"))

    assert len(collector.collect().layout) == len(first) + 5


def test_a_sink_whose_receiver_refuses_single_values_says_how_many(collector: DaemonCollector) -> None:
    collector.watch(tuple, lambda: [Outlet("otlp", Receiver()), Outlet("jsonl")])
    values = named(collector.collect())

    rejected = {key: value for key, value in values.items() if key[0] == "sonde_sink_points_rejected_total"}
    assert rejected == {("sonde_sink_points_rejected_total", "otlp"): 7}

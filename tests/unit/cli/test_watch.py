"""The line per second: rates and ratios between snapshots, each source at its own pace."""

from __future__ import annotations

import pytest

from sonde.cli.watch import Line, Samples, line, summarise

SECOND = 1_000_000_000


def samples(busy: float, idle: float, received: float, at: int, *, network_at: int | None = None) -> Samples:
    later = at if network_at is None else network_at
    return {
        "node_cpu_seconds_total": [({"cpu": "0", "mode": "user"}, busy, at), ({"cpu": "0", "mode": "idle"}, idle, at)],
        "node_network_receive_bytes_total": [({"device": "lo"}, 999.0, later), ({"device": "eth0"}, received, later)],
        "node_memory_MemTotal_bytes": [({}, 2.0**30, at)],
        "node_memory_MemAvailable_bytes": [({}, 2.0**29, at)],
    }


def test_rates_are_per_second_and_loopback_is_not_traffic() -> None:
    shown = Line(summarise(samples(10, 90, 1000, 0)))
    taken = shown.take(summarise(samples(11, 92, 3000, 2 * SECOND)))

    assert taken
    assert shown.figures["cpu_ratio"] == pytest.approx(1 / 3)
    assert shown.figures["received_bytes_per_second"] == 1000
    assert shown.figures["memory_used_bytes"] == 2**29


def test_a_slow_source_keeps_its_rate_and_is_not_divided_by_a_fast_ones_time() -> None:
    shown = Line(summarise(samples(10, 90, 1000, 0)))
    shown.take(summarise(samples(11, 91, 6000, 5 * SECOND)))
    shown.take(summarise(samples(12, 91, 6000, 6 * SECOND, network_at=5 * SECOND)))

    assert shown.figures["cpu_ratio"] == 1
    assert shown.figures["received_bytes_per_second"] == 1000


def test_nothing_new_is_no_line() -> None:
    shown = Line(summarise(samples(10, 90, 1000, 0)))

    assert not shown.take(summarise(samples(10, 90, 1000, 0)))


def test_what_is_missing_is_a_dash_and_never_zero() -> None:
    shown = Line(summarise({}))
    shown.take(summarise({"node_load1": [({}, 0.5, SECOND)]}))

    assert shown.figures["cpu_ratio"] is None
    assert shown.figures["disk_read_bytes_per_second"] is None
    assert line(shown.figures).count(" - ") >= 5


def test_a_counter_that_went_back_has_no_rate() -> None:
    shown = Line(summarise(samples(10, 90, 1000, 0)))
    shown.take(summarise(samples(11, 92, 10, SECOND)))

    assert shown.figures["received_bytes_per_second"] is None

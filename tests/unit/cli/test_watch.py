"""The line per second: rates and ratios between two snapshots."""

from __future__ import annotations

import pytest

from sonde.cli.watch import derive, line, summarise

SECOND = 1_000_000_000


def samples(busy: float, idle: float, received: float) -> dict[str, list[tuple[dict[str, str], float]]]:
    return {
        "node_cpu_seconds_total": [({"cpu": "0", "mode": "user"}, busy), ({"cpu": "0", "mode": "idle"}, idle)],
        "node_network_receive_bytes_total": [({"device": "lo"}, 999.0), ({"device": "eth0"}, received)],
        "node_memory_MemTotal_bytes": [({}, 2.0**30)],
        "node_memory_MemAvailable_bytes": [({}, 2.0**29)],
    }


def test_rates_are_per_second_and_loopback_is_not_traffic() -> None:
    figures = derive(summarise(samples(10, 90, 1000), 0), summarise(samples(11, 92, 3000), 2 * SECOND))

    assert figures["cpu_ratio"] == pytest.approx(1 / 3)
    assert figures["received_bytes_per_second"] == 1000
    assert figures["memory_used_bytes"] == 2**29


def test_what_is_missing_is_a_dash_and_never_zero() -> None:
    figures = derive(summarise({}, 0), summarise({}, SECOND))

    assert figures["cpu_ratio"] is None
    assert figures["disk_read_bytes_per_second"] is None
    assert line(figures).count(" - ") >= 5


def test_a_counter_that_went_back_has_no_rate() -> None:
    figures = derive(summarise(samples(10, 90, 1000), 0), summarise(samples(11, 92, 10), SECOND))

    assert figures["received_bytes_per_second"] is None

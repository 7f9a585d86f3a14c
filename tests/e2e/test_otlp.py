"""A real daemon that sends OTLP to a receiver that has its moods."""

from __future__ import annotations

import platform
from collections.abc import Callable
from itertools import pairwise

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)
from tests.e2e.conftest import RunningDaemon
from tests.otlp import Decoded, points_of, resource_of
from tests.receiver import Receiver, answer, receiving

Start = Callable[..., RunningDaemon]
CONFIG = """
[daemon]
labels = {{ cluster = "alpha" }}
[sinks.otlp]
endpoint = "{url}"
compression = "gzip"
"""


def named(receiver: Receiver, name: str) -> list[Decoded]:
    return [point for request in tuple(receiver.received) for point in points_of(request.body) if point.name == name]


def test_a_host_arrives_under_the_names_of_opentelemetry(daemon: Start) -> None:
    with receiving() as receiver:
        running = daemon(config=CONFIG.format(url=receiver.url))
        running.wait_for(lambda: len(named(receiver, "system.cpu.time")) > 8 and named(receiver, "system.memory.usage"))
        assert running.end() < 2.0

        resource = resource_of(receiver.received[0].body)
        assert (resource["service.name"], resource["host.name"]) == ("sonde", platform.node())
        cpu = named(receiver, "system.cpu.time")
        assert {("cpu.logical_number", 0), ("cpu.mode", "idle"), ("cluster", "alpha")} in [p.attributes for p in cpu]
        assert all(0 < point.start_ns < point.time_ns for point in cpu)
        assert named(receiver, "system.network.io") or named(receiver, "system.filesystem.usage")
        assert not named(receiver, "node_cpu_seconds_total")


def test_what_a_busy_receiver_does_not_take_it_gets_later_once_and_in_order(daemon: Start) -> None:
    with receiving() as receiver:
        receiver.answers = [answer("503 Busy", b"later", "Retry-After: 1"), answer("502 Bad Gateway")]
        running = daemon("--collectors", "load,daemon", config=CONFIG.format(url=receiver.url))
        refused = 2
        running.wait_for(lambda: len(receiver.received) > refused + 3, seconds=20)
        running.end()

    assert "status 503: later" in running.log()
    assert "sink otlp works again" in running.log()
    ticks = [
        [point.time_ns for point in points_of(request.body) if point.name == "node_load1"]
        for request in receiver.received
    ]
    taken = [tick for request in ticks[refused:] for tick in request]
    assert all(before < after for before, after in pairwise(taken))
    assert set(ticks[0] + ticks[1]) <= set(taken)


def test_points_a_receiver_rejects_are_on_the_page(daemon: Start) -> None:
    partial = ExportMetricsPartialSuccess(rejected_data_points=3, error_message="too old")
    body = ExportMetricsServiceResponse(partial_success=partial).SerializeToString()
    with receiving() as receiver:
        receiver.answers = [answer("200 OK", body)]
        running = daemon("--collectors", "load,daemon", config=CONFIG.format(url=receiver.url))
        running.wait_for(
            lambda: 'sonde_sink_points_rejected_total{sink="otlp",cluster="alpha"} 3' in running.page(), seconds=20
        )
        running.end()

    assert running.log().count("refused 3 of its points: too old") == 1

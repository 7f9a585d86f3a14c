"""dynolog's metrics over OTLP, read back with the published protobuf classes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.otlp import Attributes, Decoded, points_of, resource_of, scope_of
from tests.receiver import Receiver, receiving
from tests.unit.dialects.dynolog.conftest import TIME, cpu_frame, network_frame, said, uptime_frame

from sonde.dialects.dynolog.otlp import RULES, DynologOtlpConfig, DynologOtlpSink
from sonde.errors import ConfigError, SinkError
from sonde.hostfs import HostFS
from sonde.model import Frame, Kind, Layout, MetricSpec, Unit
from sonde.pipeline.outlet import Outlet
from sonde.version import VERSION

NOWHERE = HostFS("/nonexistent")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


@pytest.fixture
def sink(receiver: Receiver) -> Iterator[DynologOtlpSink]:
    config = DynologOtlpConfig(receiver.url, interface_prefixes=("eth",))
    sink = DynologOtlpSink(config, host="node01", files=NOWHERE, environ={})
    yield sink
    sink.close()


def tick(number: int) -> list[Frame]:
    busy = {"user": 0.25 * number, "idle": 0.75 * number, "guest": 0.1 * number}
    counts: dict[str, int | dict[int, int]] = {"eth0": {0: 4096 * number, 9: 3 * number}, "lo": number}
    return [
        cpu_frame({"0": busy}, TIME + number),
        network_frame(counts, TIME + number),
        uptime_frame(60.5 + number, TIME + number),
    ]


def exported(sink: DynologOtlpSink, receiver: Receiver) -> dict[tuple[str, Attributes], Decoded]:
    for number in range(2):
        sink.write(sink.translate(tick(number)))
    return {(point.name, point.attributes): point for point in points_of(receiver.received[-1].body)}


def one(points: dict[tuple[str, Attributes], Decoded], name: str, **attributes: str) -> Decoded:
    dotted = frozenset((key.replace("__", "."), value) for key, value in attributes.items())
    return points[name, dotted]


def test_names_stay_and_units_become_base_units(sink: DynologOtlpSink, receiver: Receiver) -> None:
    points = exported(sink, receiver)

    share = one(points, "cpu_u", cpu__mode="user")
    assert share.value == pytest.approx(0.25)
    assert (share.unit, share.instrument) == ("1", "gauge")
    util = one(points, "cpu_util", cpu__mode="active")
    assert util.value == pytest.approx(0.25)
    assert util.unit == "1"
    time = one(points, "cpu_u_ms", cpu__mode="user")
    assert time.value == pytest.approx(0.25)
    assert time.unit == "s"
    assert one(points, "cpu_guest_ms", cpu__mode="guest").value == pytest.approx(0.1)
    uptime = one(points, "uptime")
    assert (uptime.value, uptime.unit) == (61.0, "s")


def test_traffic_carries_its_direction_and_its_device(sink: DynologOtlpSink, receiver: Receiver) -> None:
    points = exported(sink, receiver)

    received = one(points, "rx_bytes", network__io__direction="receive", network__interface__name="eth0")
    assert (received.value, received.unit) == (4096.0, "By")
    sent = one(points, "tx_packets", network__io__direction="transmit", network__interface__name="eth0")
    assert (sent.value, sent.unit) == (3.0, "{packet}")
    assert not [key for key in points if ("network.interface.name", "lo") in key[1]]


def test_every_point_is_a_double_of_a_gauge(sink: DynologOtlpSink, receiver: Receiver) -> None:
    points = exported(sink, receiver)

    assert all(type(point.value) is float and point.instrument == "gauge" for point in points.values())
    assert {name for name, _ in points} == {
        key.partition(".")[0] for frame in sink.translate(tick(2)) for key in said(frame)
    }


def test_the_resource_is_dynologs(sink: DynologOtlpSink, receiver: Receiver) -> None:
    exported(sink, receiver)

    resource = resource_of(receiver.received[0].body)
    assert resource["service.name"] == "dynolog"
    assert resource["service.version"] == VERSION
    assert (resource["host.name"], resource["os.type"]) == ("node01", "linux")
    assert scope_of(receiver.received[0].body).scope.name == "dynolog"
    assert receiver.received[0].target == "/v1/metrics"


@pytest.mark.parametrize(
    ("name", "value", "expected", "unit", "attributes"),
    [
        ("gpu_memory_utilization", 50, 0.5, "1", {("hw.id", "3")}),
        ("gpu_power_draw", 250.5, 250.5, "W", {("hw.id", "3"), ("hw.type", "gpu")}),
        ("tensorcore_active", 0.25, 0.25, "1", {("hw.id", "3"), ("pipe", "tensorcore")}),
        ("nvlink_rx_bytes", 10, 10.0, "By/s", {("hw.id", "3"), ("network.io.direction", "receive")}),
        ("accelerator_utilization", 7, 7, "", {("device", "3")}),
    ],
)
def test_a_device_is_on_each_of_its_points(
    sink: DynologOtlpSink,
    receiver: Receiver,
    name: str,
    value: float,
    expected: float,
    unit: str,
    attributes: set[tuple[str, str]],
) -> None:
    spec = MetricSpec(name, Kind.GAUGE, Unit.NONE, "Of a device.", ("device",))
    sink.write([Frame("gpu", TIME, 0, 10**9, Layout([(spec, ("3",))]), (value,))])

    (point,) = points_of(receiver.received[0].body)
    assert point.value == pytest.approx(expected)
    assert (point.name, point.unit) == (name, unit)
    assert point.attributes == attributes


def test_sockets_have_their_number_as_an_attribute() -> None:
    (rule,) = RULES["cpu_s_node3"]

    assert (rule.scale, rule.unit) == (0.01, "1")
    assert rule.attributes == {"cpu.mode": "system", "cpu.socket": "3"}


def test_a_collector_that_is_down_costs_the_oldest_samples(receiver: Receiver) -> None:
    config = DynologOtlpConfig("http://127.0.0.1:9")  # discard: nobody listens
    sink = DynologOtlpSink(config, host="node01", files=NOWHERE, environ={})
    outlet = Outlet("dynolog_otlp", sink, limit=6, translate=sink.translate)
    for number in range(10):
        outlet.offer(tick(number))

    assert outlet.depth == 6
    assert outlet.dropped == 10 * 3 - 2 - 6  # the first tick has one frame
    with pytest.raises(SinkError, match="refused"):
        sink.write(sink.translate(tick(10)))
    sink.close()


def test_a_bad_endpoint_is_refused_under_its_own_section() -> None:
    with pytest.raises(ConfigError, match=r"sinks\.dynolog_otlp"):
        DynologOtlpSink(DynologOtlpConfig("ftp://x"), host="n", files=NOWHERE, environ={})

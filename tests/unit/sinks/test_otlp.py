"""The OTLP sink against a server that answers like a collector, and against ones that do not."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)
from tests.authority import Authority
from tests.otlp import points_of, resource_of, scope_of
from tests.receiver import Receiver, answer, receiving

from sonde.errors import ConfigError, SinkError
from sonde.model import Event, Frame, Kind, Layout, MetricSpec, Unit, Value
from sonde.sinks.otlp import OtlpSink
from sonde.sinks.otlp_names import Rule
from sonde.sinks.otlp_settings import OtlpConfig
from sonde.sinks.protobuf import VARINT, field, text, varint
from sonde.units import Duration
from sonde.version import VERSION

NOW = 1_800_000_000_000_000_000
S = 1_000_000_000
LOAD = MetricSpec("node_load1", Kind.GAUGE, Unit.NONE, "1m load average.")
SENT = MetricSpec("node_network_transmit_bytes_total", Kind.COUNTER, Unit.BYTES, "Out.", ("device",))
JOB = MetricSpec("sonde_job_cpu_seconds_total", Kind.COUNTER, Unit.SECONDS, "Of a job.", ("job_id",))
LAYOUT = Layout([(LOAD, ()), (SENT, ("eth0",))])
WIDE = Layout([(JOB, (str(number),)) for number in range(12_000)])


def frame(values: Sequence[Value] = (0.5, 7), tick: int = 0, layout: Layout = LAYOUT) -> Frame:
    return Frame("test", NOW + tick * S, 0, S, layout, values)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


def sink_to(receiver: Receiver, *, environ: dict[str, str] | None = None, **keys: object) -> OtlpSink:
    config = OtlpConfig(endpoint=receiver.url, timeout=Duration(5))._replace(**keys)  # type: ignore[arg-type]
    return OtlpSink(config, host="node01", environ=environ or {})


def test_a_request_is_what_a_collector_expects(receiver: Receiver) -> None:
    sink = sink_to(receiver, headers={"X-Tenant": "7"})
    sink.write([frame()])
    sink.close()

    (request,) = receiver.received
    assert request.target == "/v1/metrics"
    assert request.headers["content-type"] == "application/x-protobuf"
    assert request.headers["user-agent"] == f"sonde/{VERSION}"
    assert request.headers["x-tenant"] == "7"
    assert "content-encoding" not in request.headers  # on this machine it does not pay
    assert [(p.name, p.instrument, p.time_ns, p.value) for p in points_of(request.body)] == [
        ("node_load1", "gauge", NOW, 0.5),
        ("system.network.io", "counter", NOW, 7),
    ]
    assert 0 < points_of(request.body)[1].start_ns <= NOW


def test_the_resource_says_who_sends(receiver: Receiver) -> None:
    environ = {"OTEL_RESOURCE_ATTRIBUTES": "team=a,site=b", "OTEL_SERVICE_NAME": "probe"}
    sink = sink_to(receiver, environ=environ, attributes={"site": "c", "service.instance.id": "node01/gpu"})
    sink.write([frame()])
    sink.close()

    (request,) = receiver.received
    scope = scope_of(request.body)
    assert (scope.scope.name, scope.scope.version) == ("sonde", VERSION)
    assert scope.schema_url == "https://opentelemetry.io/schemas/1.44.0"
    assert resource_of(request.body) == {
        "service.name": "probe",
        "service.version": VERSION,
        "service.instance.id": "node01/gpu",
        "host.name": "node01",
        "os.type": "linux",
        "team": "a",
        "site": "c",
    }


def test_native_naming_keeps_our_names_and_claims_no_schema(receiver: Receiver) -> None:
    sink = sink_to(receiver, naming="native")
    sink.write([frame()])
    sink.close()

    (request,) = receiver.received
    assert [point.name for point in points_of(request.body)] == ["node_load1", "node_network_transmit_bytes_total"]
    assert scope_of(request.body).schema_url == ""


def test_a_dialect_brings_its_own_names(receiver: Receiver) -> None:
    rules = {"node_load1": (Rule("load", "1", attributes={"over": "1m"}),), SENT.name: ()}
    sink = OtlpSink(OtlpConfig(receiver.url), host="node01", rules=rules, scope="other", environ={})
    sink.write([frame()])
    sink.close()

    (point,) = points_of(receiver.received[0].body)
    assert (point.name, point.attributes) == ("load", frozenset({("over", "1m")}))
    assert scope_of(receiver.received[0].body).scope.name == "other"


def test_gzip_when_it_is_asked_for(receiver: Receiver) -> None:
    sink = sink_to(receiver, compression="gzip")
    sink.write([frame()])
    sink.close()

    (request,) = receiver.received
    assert request.headers["content-encoding"] == "gzip"
    assert int(request.headers["content-length"]) < len(request.body)
    assert len(points_of(request.body)) == 2


def test_one_connection_serves_many_writes(receiver: Receiver) -> None:
    sink = sink_to(receiver)
    for tick in range(5):
        sink.write([frame(tick=tick)])
    sink.close()

    assert len(receiver.received) == 5
    assert receiver.connections == 1


@pytest.mark.parametrize("status", ["429 Too Many Requests", "502 Bad Gateway", "503 Unavailable", "504 Timeout"])
def test_an_overloaded_receiver_is_tried_again_after_the_time_it_names(receiver: Receiver, status: str) -> None:
    receiver.answers = [answer(status, b"busy", "Retry-After: 17")]
    sink = sink_to(receiver)
    with pytest.raises(SinkError, match=f"status {status[:3]}: busy") as raised:
        sink.write([frame()])
    sink.write([frame()])
    sink.close()

    assert (raised.value.retry, raised.value.retry_after) == (True, 17.0)
    first, second = receiver.received
    assert first.body == second.body


@pytest.mark.parametrize("status", [400, 401, 404, 413, 500, 501])
def test_what_is_refused_for_good_is_not_tried_again_and_the_servers_words_are_shown(
    receiver: Receiver, status: int
) -> None:
    words = field(1, VARINT) + varint(3) + text(2, "point 3 is odd")
    receiver.answers = [answer(f"{status} No", words, "Content-Type: application/x-protobuf")]
    sink = sink_to(receiver)
    with pytest.raises(SinkError, match=f"/v1/metrics: status {status}: point 3 is odd") as raised:
        sink.write([frame()])
    sink.close()

    assert (raised.value.retry, raised.value.delivered, raised.value.refused) == (False, 0, 1)


def test_a_redirection_is_not_followed_but_shown(receiver: Receiver) -> None:
    receiver.answers = [answer("301 Moved", b"", "Location: https://new/v1/metrics")]
    sink = sink_to(receiver)
    with pytest.raises(SinkError, match="status 301: moved to https://new/v1/metrics"):
        sink.write([frame()])
    sink.close()


def test_points_that_are_rejected_are_counted_and_the_reason_logged_once(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    partial = ExportMetricsPartialSuccess(rejected_data_points=2, error_message="too old")
    body = ExportMetricsServiceResponse(partial_success=partial).SerializeToString()
    receiver.answers = [answer("200 OK", body)] * 3
    sink = sink_to(receiver)
    for tick in range(3):
        sink.write([frame(tick=tick)])
    sink.close()

    assert sink.points_rejected == 6
    assert [record.getMessage() for record in caplog.records] == [
        f"sink otlp: {receiver.url}/v1/metrics took a request but refused 2 of its points: too old"
    ]


def test_a_warning_without_rejection_is_logged_too(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    partial = ExportMetricsPartialSuccess(error_message="soon unsupported")
    receiver.answers = [
        answer("200 OK", ExportMetricsServiceResponse(partial_success=partial).SerializeToString()),
        answer("200 OK"),
    ]
    sink = sink_to(receiver)
    sink.write([frame()])
    sink.write([frame(tick=1)])
    sink.close()

    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["soon unsupported"]
    assert sink.points_rejected == 0


def test_a_web_page_instead_of_an_answer_is_said_once(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    receiver.answers = [answer("200 OK", b"<html>welcome</html>")] * 2
    sink = sink_to(receiver)
    sink.write([frame()])
    sink.write([frame(tick=1)])
    sink.close()

    (record,) = caplog.records
    assert "is this a receiver of OTLP?" in record.getMessage()


@pytest.mark.parametrize("reply", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"])
def test_a_broken_answer_is_worth_another_try(reply: bytes) -> None:
    with receiving() as server:
        server.answers, server.per_connection = [reply], 1
        sink = sink_to(server)
        with pytest.raises(SinkError) as raised:
            sink.write([frame()])
        sink.write([frame()])
        sink.close()

    assert raised.value.retry
    assert len(server.received) == 2


def test_silence_ends_with_the_time_out(receiver: Receiver) -> None:
    receiver.answers = [None]
    sink = sink_to(receiver, timeout=Duration(0.2))
    with pytest.raises(SinkError, match=r"no answer within 0\.2 s") as raised:
        sink.write([frame()])
    sink.write([frame()])
    sink.close()

    assert raised.value.retry


def test_a_receiver_that_is_away_is_worth_another_try() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    sink = OtlpSink(OtlpConfig(f"http://127.0.0.1:{port}"), host="node01", environ={})
    with pytest.raises(SinkError, match="refused") as raised:
        sink.write([frame()])
    sink.close()

    assert raised.value.retry


def test_a_large_batch_is_sent_in_parts_and_only_the_rest_comes_again(receiver: Receiver) -> None:
    frames = [frame([tick] * len(WIDE), tick, WIDE) for tick in range(3)]
    receiver.answers = [answer("200 OK"), answer("503 Later")]
    sink = sink_to(receiver)
    with pytest.raises(SinkError) as raised:
        sink.write(frames)
    sink.write(frames)
    sink.close()

    assert (raised.value.retry, raised.value.delivered, raised.value.refused) == (True, 1, 0)
    times = [{(point.time_ns - NOW) // S for point in points_of(request.body)} for request in receiver.received]
    assert times == [{0}, {1}, {1}, {2}]


def test_a_part_that_is_refused_for_good_does_not_take_the_others_with_it(receiver: Receiver) -> None:
    frames = [frame([tick] * len(WIDE), tick, WIDE) for tick in range(3)]
    receiver.answers = [answer("200 OK"), answer("400 No"), answer("200 OK")]
    sink = sink_to(receiver)
    with pytest.raises(SinkError, match="status 400") as raised:
        sink.write(frames)
    sink.close()

    assert (raised.value.retry, raised.value.delivered, raised.value.refused) == (False, 2, 1)
    assert len(receiver.received) == 3


def test_events_alone_send_nothing(receiver: Receiver) -> None:
    sink = sink_to(receiver)
    sink.write([Frame("test", NOW, 0, S, Layout(()), (), [Event(NOW, "process.exit", {})])])
    sink.close()

    assert receiver.connections == 0


def test_switched_off_by_the_environment_every_frame_is_refused(receiver: Receiver) -> None:
    sink = sink_to(receiver, environ={"OTEL_SDK_DISABLED": "true"})
    with pytest.raises(SinkError, match="OTEL_SDK_DISABLED is true: nothing is sent") as caught:
        sink.write([frame()])
    sink.close()

    assert (caught.value.retry, caught.value.delivered) == (False, 0)
    assert receiver.connections == 0


@pytest.mark.parametrize(
    ("reply", "advice"),
    [
        (answer("401 Unauthorized"), "check headers"),
        (answer("404 Not Found"), "check the path of the URL"),
        (answer("413 Content Too Large"), "raise its limit"),
        (answer("200 OK", b"<html>welcome</html>", "Content-Type: text/html"), "this is a web page: check the URL"),
    ],
)
def test_a_refusal_for_good_says_what_to_do(receiver: Receiver, reply: bytes, advice: str) -> None:
    receiver.answers = [reply]
    sink = sink_to(receiver)
    with pytest.raises(SinkError) as caught:
        sink.write([frame()])
    sink.close()

    assert (caught.value.retry, caught.value.refused) == (False, 1)
    assert advice in caught.value.hint


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (OtlpConfig("collector:4318"), "sinks.otlp: 'collector:4318/v1/metrics' is not a URL"),
        (
            OtlpConfig("https://c", ca_file="/nowhere"),
            "sinks.otlp: https://c/v1/metrics: cannot use the CA file /nowhere",
        ),
        (OtlpConfig("http://c", headers={"a": "b\r\nc: d"}), "sinks.otlp: the header 'a' holds what no header can"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_at_the_start(config: OtlpConfig, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        OtlpSink(config, host="node01", environ={})

    assert message in str(raised.value)


def test_over_tls_both_sides_prove_who_they_are(authority: Authority) -> None:
    client = authority.signed("node01")
    with receiving(authority.signed("collector"), client_ca=authority.ca) as server:
        sink = sink_to(server, ca_file=authority.ca, certificate_file=client.certificate, key_file=client.key)
        sink.write([frame()])
        sink.close()
        nameless = sink_to(server, environ={"OTEL_EXPORTER_OTLP_CERTIFICATE": authority.ca})
        with pytest.raises(SinkError, match="the server wants a certificate of ours") as raised:
            nameless.write([frame()])
        nameless.close()

    assert len(points_of(server.received[0].body)) == 2
    assert raised.value.retry
    assert "certificate and key" in raised.value.hint

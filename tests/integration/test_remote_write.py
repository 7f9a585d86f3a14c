"""Remote write to the real Prometheus and the real VictoriaMetrics."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sonde.cli.main import main
from sonde.clock import NS
from sonde.config import ArchiveConfig
from sonde.errors import ConfigError, SinkError, Unavailable
from sonde.hostfs import HostFS
from sonde.model import Collector, Frame, Histogram, Kind, Layout, MetricSpec, Unit, Value
from sonde.pipeline.assembly import construct
from sonde.pipeline.outlet import Outlet
from sonde.registry import COLLECTORS, load
from sonde.sinks.remote_write import RemoteWriteConfig, RemoteWriteSink
from sonde.store.archive import Archive

if TYPE_CHECKING:
    from tests.authority import Authority
    from tests.integration.conftest import Prometheus, VictoriaMetrics

BEAT = MetricSpec("sonde_test_beats_total", Kind.COUNTER, Unit.NONE, "Counts.", ("name",))
LATENCY = MetricSpec("sonde_test_seconds", Kind.HISTOGRAM, Unit.SECONDS, "Takes.", ("device",))
MANY = MetricSpec("sonde_test_many", Kind.GAUGE, Unit.NONE, "Many.", ("number",))
RECEIVER = "--web.enable-remote-write-receiver"
Open = Callable[..., RemoteWriteSink]


@pytest.fixture(params=["prometheus", "victoria_metrics"])
def server(request: pytest.FixtureRequest) -> Prometheus:
    """Each of the two, without anything to scrape."""
    start = request.getfixturevalue(request.param)
    started: Prometheus = start(flags=[RECEIVER]) if request.param == "prometheus" else start()
    return started


@pytest.fixture
def sink() -> Iterator[Open]:
    opened: list[RemoteWriteSink] = []

    def open_sink(url: str, **keys: Any) -> RemoteWriteSink:
        config = RemoteWriteConfig(url=f"{url}/api/v1/write", **keys)
        opened.append(RemoteWriteSink(config, host="node01"))
        return opened[-1]

    yield open_sink
    for each in opened:
        each.close()


def now_ns() -> int:
    """Two seconds ago: VictoriaMetrics rounds the time of a question down."""
    return time.time_ns() // 1_000_000 * 1_000_000 - 2 * NS


def beat(number: int, time_ns: int, names: Sequence[str] = ("a",), layout: Layout | None = None) -> Frame:
    return Frame("beat", time_ns, 0, NS, layout or Layout((BEAT, (name,)) for name in names), [number] * len(names))


def live_frames() -> list[Frame]:
    """A frame of every collector that has something to read on this host."""
    frames = []
    for name in COLLECTORS:
        cls: type[Collector] = load(COLLECTORS, name)
        try:
            collector = construct(cls, HostFS(), cls.Config())
        except Unavailable:
            continue
        frames.append(Frame(name, time.time_ns(), 0, NS, *collector.collect()))
        collector.close()
    return frames


def expected(frames: Sequence[Frame]) -> dict[frozenset[tuple[str, str]], list[tuple[int, float]]]:
    """The series and samples that a receiver must have of frames without histograms."""
    found: dict[frozenset[tuple[str, str]], list[tuple[int, float]]] = {}
    for frame in frames:
        for spec, labels, value in frame.samples():
            own = zip(spec.labels, labels, strict=True)
            pairs = {"__name__": spec.name, "job": "sonde", "instance": "node01", **dict(own)}
            key = frozenset((name, text) for name, text in pairs.items() if text)
            assert not isinstance(value, Histogram)
            found.setdefault(key, []).append((frame.time_ns // 1_000_000, float(value)))
    return found


def test_every_series_arrives_with_its_value_and_its_time(server: Prometheus, sink: Open) -> None:
    frames = live_frames()
    frames = [frame._replace(time_ns=frame.time_ns - NS) for frame in frames] + frames
    sink(server.url, processes=True).write(frames)

    wanted, stored = expected(frames), server.samples('{job="sonde"}')
    assert len(wanted) > 300
    assert stored.keys() == wanted.keys()
    for labels, samples in wanted.items():  # VictoriaMetrics keeps values as decimals
        times, values = zip(*samples, strict=True)
        stored_times, stored_values = zip(*stored[labels], strict=True)
        assert stored_times == times
        assert stored_values == pytest.approx(values, rel=1e-12)


def test_labels_of_every_kind_arrive_as_they_are(server: Prometheus, sink: Open) -> None:
    names = ['a "b"\\\n', "é 日本", "", "x" * 1000]
    sink(server.url).write([beat(7, now_ns(), names)])

    assert {dict(labels).get("name", "") for labels in server.samples("sonde_test_beats_total")} == set(names)


def test_a_histogram_can_be_asked_for_its_quantiles(server: Prometheus, sink: Open) -> None:
    layout = Layout([(LATENCY, ("sda",))])
    histogram = Histogram((0.1, 1.0, 10.0), (0, 50, 50, 0), 300.0)
    sink(server.url).write([Frame("io", now_ns(), 0, NS, layout, [histogram])])

    assert len(server.samples("sonde_test_seconds_bucket")) == 4
    assert list(server.query("histogram_quantile(0.5, sonde_test_seconds_bucket)").values()) == [1.0]
    assert list(server.query("sonde_test_seconds_sum / sonde_test_seconds_count").values()) == [3.0]


def test_a_series_that_has_ended_is_gone_at_once(server: Prometheus, sink: Open) -> None:
    writer = sink(server.url)
    begun = now_ns()
    writer.write([beat(1, begun - 3 * NS, ("a", "b")), beat(2, begun - 2 * NS, ("a", "b"))])
    writer.write([beat(3, begun - NS, ("a",))])
    left = {dict(labels)["name"] for labels in server.samples("sonde_test_beats_total")}

    assert left == {"a", "b"}  # what was, stays
    assert server.query("count(sonde_test_beats_total)") == {"count(sonde_test_beats_total)": 1}
    writer.close()
    until = time.monotonic() + 5
    while server.query("count(sonde_test_beats_total)") and time.monotonic() < until:
        time.sleep(0.1)
        server.samples("sonde_test_beats_total")  # VictoriaMetrics makes it visible
    assert server.query("count(sonde_test_beats_total)") == {}


def test_a_hundred_thousand_series_arrive(server: Prometheus, sink: Open) -> None:
    count = 100_000
    layout = Layout((MANY, (str(number),)) for number in range(count))
    writer = sink(server.url)
    begun = time.thread_time()
    writer.write([Frame("many", now_ns() - NS, 0, NS, layout, range(count))])
    first = time.thread_time() - begun
    writer.write([Frame("many", now_ns(), 0, NS, layout, range(1, count + 1))])
    again = time.thread_time() - begun - first
    server.samples('sonde_test_many{number="0"}')

    assert list(server.query("sum(sonde_test_many)").values()) == [sum(range(1, count + 1))]
    assert list(server.query("count(sonde_test_many)").values()) == [count]
    assert first < 5.0
    assert again < 1.0  # 50 ms on a quiet machine


def test_a_server_that_restarts_misses_nothing(victoria_metrics: Callable[..., VictoriaMetrics], sink: Open) -> None:
    server = victoria_metrics()
    outlet = Outlet("remote_write", sink(server.url), limit=30_000)
    outlet.start()
    layout = Layout([(BEAT, ("a",)), (BEAT, ("b",))])
    sent: list[Frame] = []

    def send(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            frame = Frame("beat", time.time_ns(), 0, NS // 20, layout, [len(sent), -len(sent)])
            sent.append(frame)
            outlet.offer([frame])
            time.sleep(0.05)

    send(0.5)
    server.stop()
    send(3.0)
    assert "refused" in outlet.error
    server.start()
    back = time.monotonic()
    send(0.2)
    while outlet.delivered < len(sent) and time.monotonic() < back + 10:
        time.sleep(0.02)
    caught_up = time.monotonic() - back

    assert (outlet.delivered, outlet.dropped, outlet.rejected) == (len(sent), 0, 0)
    assert caught_up < 5
    assert server.samples("sonde_test_beats_total") == expected(sent)
    assert outlet.stop(2)


def test_prometheus_refuses_one_sample_and_the_rest_of_the_batch_arrives(
    prometheus: Callable[..., Prometheus], sink: Open
) -> None:
    server = prometheus(flags=[RECEIVER])
    writer = sink(server.url)
    begun = now_ns()
    a, b = Layout([(BEAT, ("a",))]), Layout([(MANY, ("b",))])
    writer.write([beat(99, begun - 21 * NS, layout=a)])
    batch = []
    for number in range(8):
        second = begun - (20 - number) * NS
        batch.append(beat(number, second - (9 * NS if number == 4 else 0), layout=a))  # one is nine seconds late
        batch.append(beat(number, second, layout=b)._replace(source="other"))
    with pytest.raises(SinkError, match=r"1 of 16 frames refused: .* 400: out of order sample") as caught:
        writer.write(batch)

    assert caught.value.delivered == 15
    (late,), (good,) = (server.samples(name).values() for name in ("sonde_test_beats_total", "sonde_test_many"))
    assert [value for _, value in late] == [99, 0, 1, 2, 3, 5, 6, 7]
    assert [value for _, value in good] == list(range(8))


def test_what_was_sent_before_an_answer_got_lost_does_not_cost_what_is_new(
    prometheus: Callable[..., Prometheus], sink: Open
) -> None:
    server = prometheus(flags=[RECEIVER])
    begun = now_ns()
    layout = Layout([(BEAT, ("a",))])
    frames = [beat(number, begun - (20 - number) * NS, layout=layout) for number in range(12)]
    sink(server.url).write(frames[:6])  # arrived, but suppose nobody heard the answer

    with pytest.raises(SinkError):
        sink(server.url).write(frames)

    (stored,) = server.samples("sonde_test_beats_total").values()
    assert [value for _, value in stored] == list(range(12))


def test_a_server_that_asks_for_a_certificate_gets_one(
    prometheus: Callable[..., Prometheus], sink: Open, authority: Authority
) -> None:
    theirs, own = authority.signed("server"), authority.signed("node01")
    files = {"cert_file": theirs.certificate, "key_file": theirs.key}
    verify = {"client_auth_type": "RequireAndVerifyClientCert", "client_ca_file": authority.ca}
    server = prometheus(flags=[RECEIVER], web={"tls_server_config": {**files, **verify}})
    ours = {"certificate_file": own.certificate, "key_file": own.key}
    frame = beat(5, now_ns())

    with pytest.raises(SinkError, match="certificate is refused") as untrusted:
        sink(server.url, **ours).write([frame])
    with pytest.raises(SinkError, match=r"(?i)wants a certificate of ours") as unknown:
        sink(server.url, ca_file=authority.ca).write([frame])
    with pytest.raises(ConfigError, match="cannot use the CA file"):
        sink(server.url, ca_file=f"{authority.ca}.missing")
    sink(server.url, ca_file=authority.ca, **ours).write([frame])

    assert all(caught.value.retry for caught in (untrusted, unknown))
    server.tls = ssl.create_default_context(cafile=authority.ca)
    server.tls.load_cert_chain(own.certificate, own.key)
    assert server.samples("sonde_test_beats_total") == expected([frame])


def test_a_wrong_path_is_named_and_not_tried_again(server: Prometheus, sink: Open) -> None:
    with pytest.raises(SinkError, match=r"40[04]") as caught:
        sink(f"{server.url}/nowhere").write([beat(1, now_ns())])

    assert not caught.value.retry


def test_values_at_the_ends_of_the_floats_arrive(prometheus: Callable[..., Prometheus], sink: Open) -> None:
    server = prometheus(flags=[RECEIVER])
    values: list[Value] = [0, -0.0, 5e-324, 1.7976931348623157e308, 2**63, -(2**63), float("inf")]
    layout = Layout((MANY, (str(number),)) for number in range(len(values)))
    sink(server.url).write([Frame("many", now_ns(), 0, NS, layout, values)])

    stored = {
        int(dict(labels)["number"]): samples[0][1] for labels, samples in server.samples("sonde_test_many").items()
    }
    assert [stored[number] for number in range(len(values))] == values


def test_history_is_replayed_with_its_own_times_and_ends_when_it_ended(
    server: Prometheus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "archive.db")
    writer = Archive(path, ArchiveConfig(), host="node01", boot_id="boot")
    layout = Layout([(BEAT, ("a",))])
    begin = now_ns() - 300 * NS
    frames = [beat(number, begin + number * NS, layout=layout) for number in range(90)]
    for frame in frames:
        writer.write([frame])
    writer.close()

    code = main(["replay", path, "--to", "remote_write", "--set", f"url={server.url}/api/v1/write"])

    assert (code, "90 frames delivered" in capsys.readouterr().err) == (0, True)
    assert server.samples("sonde_test_beats_total") == expected(frames)
    assert server.query("sonde_test_beats_total") == {}

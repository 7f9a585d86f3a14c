"""The /metrics page before the real promtool and the real Prometheus."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sonde.errors import Unavailable
from sonde.hostfs import HostFS
from sonde.http import Request, Response, Server
from sonde.httpclient import request
from sonde.model import Collector, Frame, Histogram, Kind, Layout, MetricSpec, Unit
from sonde.pipeline.assembly import construct
from sonde.registry import COLLECTORS, load
from sonde.sinks.prometheus import PrometheusConfig, PrometheusSink

if TYPE_CHECKING:
    from tests.conftest import RunningLoop
    from tests.integration.conftest import NodeExporter, Prometheus

GOLDEN = Path(__file__).parents[1] / "golden"
PERIOD_NS = 3600 * 10**9  # nothing here goes stale

# Names promtool does not like and node_exporter has: camel case from the kernel's own names, and bits of entropy.
# https://prometheus.io/docs/practices/naming/ asks for snake case and bytes.
DISLIKED = ("node_memory_*", "node_netstat_*", "node_entropy_*_bits")

BEAT = MetricSpec("sonde_test_beats_total", Kind.COUNTER, Unit.NONE, "Counts.", ("name",))
LATENCY = MetricSpec("sonde_test_seconds", Kind.HISTOGRAM, Unit.SECONDS, "Takes.")
ODD = MetricSpec("sonde_test_odd", Kind.COUNTER, Unit.NONE, "A counter without the suffix.")
HOSTNAME = MetricSpec("sonde_test_info", Kind.INFO, Unit.NONE, "Who.", ("name",))
OURS = Frame(
    "test",
    0,
    0,
    PERIOD_NS,
    Layout([(BEAT, ('a "b"\\\n',)), (LATENCY, ()), (ODD, ()), (HOSTNAME, ("é",))]),
    [2**40, Histogram((0.1, 1.0), (5, 4, 3), 7.5), 17, 1],
)


def live_frames() -> Iterator[Frame]:
    """One frame of every collector that has something to read on this host."""
    for name in COLLECTORS:
        cls: type[Collector] = load(COLLECTORS, name)
        try:
            collector = construct(cls, HostFS(), cls.Config())
        except Unavailable:
            continue
        yield Frame(name, time.time_ns(), 0, PERIOD_NS, *collector.collect())
        collector.close()


class Place:
    """A sink behind a server. /text is the same page for a scraper that is taken for one that wants plain text."""

    def __init__(self, loop: RunningLoop) -> None:
        self.sink = PrometheusSink(PrometheusConfig())
        self.sink.write([*live_frames(), OURS])
        self.answers: list[str] = []
        self.server = Server(loop, {"/metrics": self._page, "/text": lambda r: self._page(r._replace(headers={}))})
        self.address = str(loop.call(lambda: self.server.listen("127.0.0.1:0")))

    def _page(self, asked: Request) -> Response:
        response = self.sink.page(asked)
        self.answers.append(response.content_type)
        return response


@pytest.fixture
def place(loop: RunningLoop) -> Iterator[Place]:
    place = Place(loop)
    yield place
    loop.call(place.server.close)


def test_promtool_dislikes_nothing_that_node_exporter_does_not_have(
    place: Place, promtool: Callable[[str], list[str]], node_exporter: Callable[..., NodeExporter]
) -> None:
    ours = promtool(request(f"http://{place.address}/metrics").body.decode())
    theirs = promtool(node_exporter("--collector.meminfo_numa").scrape())

    known = [line for line in ours if any(fnmatchcase(line.split()[0], pattern) for pattern in DISLIKED)]
    assert [line for line in ours if line not in known] == [
        'sonde_test_odd counter metrics should have "_total" suffix'  # on purpose
    ]
    assert [line for line in known if line not in theirs] == []


def test_promtool_reads_the_golden_page(promtool: Callable[[str], list[str]]) -> None:
    assert promtool((GOLDEN / "exposition.txt").read_text(encoding="utf-8")) == [
        "node_netstat_Tcp_InSegs metric names should be written in 'snake_case' not 'camelCase'",
        'node_procs_forks counter metrics should have "_total" suffix',
    ]


@pytest.mark.parametrize(
    ("path", "content_type"), [("/metrics", "application/openmetrics-text"), ("/text", "text/plain")]
)
def test_prometheus_scrapes_both_formats(
    place: Place, prometheus: Callable[..., Prometheus], path: str, content_type: str
) -> None:
    server = prometheus(place.address, path)

    found = server.wait_for('{__name__=~"sonde_test_.+", le!~"0.1|1.0"}')

    assert server.query("up") == {"up": 1}
    assert found == {
        "sonde_test_beats_total": 2**40,
        "sonde_test_seconds_bucket": 12,
        "sonde_test_seconds_sum": 7.5,
        "sonde_test_seconds_count": 12,
        "sonde_test_odd": 17,
        "sonde_test_info": 1,
    }
    assert server.query('sonde_test_beats_total{name="a \\"b\\"\\\\\\n"}') == {"sonde_test_beats_total": 2**40}
    assert server.query("count(node_cpu_seconds_total)")
    assert all(answer.startswith(content_type) for answer in place.answers)


def test_prometheus_scrapes_every_series_of_a_page_in_pieces(
    place: Place, prometheus: Callable[..., Prometheus]
) -> None:
    many = MetricSpec("sonde_test_many", Kind.GAUGE, Unit.NONE, "Many.", ("number",))
    layout = Layout((many, (str(number),)) for number in range(10_000))
    place.sink.write([Frame("many", 0, 0, PERIOD_NS, layout, list(range(10_000)))])

    server = prometheus(place.address)

    assert server.wait_for("sum(sonde_test_many)") == {"sum(sonde_test_many)": sum(range(10_000))}
    assert server.query("up") == {"up": 1}


def test_a_client_that_never_reads_does_not_delay_prometheus(
    place: Place, prometheus: Callable[..., Prometheus]
) -> None:
    stop = threading.Event()
    host, _, port = place.address.rpartition(":")

    def drip() -> None:
        with socket.create_connection((host, int(port)), timeout=10) as sock:
            for byte in b"GET /metrics HTTP/1.1\r\n":
                sock.send(bytes([byte]))
                if stop.wait(0.1):
                    return

    dripping = threading.Thread(target=drip)
    dripping.start()
    with socket.create_connection((host, int(port)), timeout=10) as deaf:
        deaf.sendall(b"GET /metrics HTTP/1.1\r\n\r\n" * 200)
        server = prometheus(place.address)
        assert server.wait_for("sonde_test_odd") == {"sonde_test_odd": 17}
        longest = server.wait_for("max_over_time(scrape_duration_seconds[10s])")
    stop.set()
    dripping.join()

    assert max(longest.values()) < 0.25
    assert server.query("up") == {"up": 1}

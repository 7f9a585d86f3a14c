"""The /metrics page: negotiation, staleness, large pages."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.clock import NS, ManualClock
from sonde.http import Request
from sonde.model import Frame, Kind, Layout, MetricSpec, Unit
from sonde.sinks.exposition import Format
from sonde.sinks.prometheus import PrometheusConfig, PrometheusSink, negotiate

LOAD = MetricSpec("node_load1", Kind.GAUGE, Unit.NONE, "1m load average.")
FOREIGN = MetricSpec("node_load1", Kind.UNTYPED, Unit.NONE, "From a file.")
BACKUP = MetricSpec("backup_age_seconds", Kind.GAUGE, Unit.SECONDS, "From a file.")
PROCESS = MetricSpec("sonde_process_cpu_seconds_total", Kind.COUNTER, Unit.SECONDS, "CPU time.", ("pid",))
MANY = MetricSpec("sonde_many_total", Kind.COUNTER, Unit.NONE, "Many.", ("number", "device"))
REAL_ACCEPT = (  # of Prometheus 2.42
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)


def frame(source: str, spec: MetricSpec, value: float, period: float = 1.0) -> Frame:
    labels = ("1",) * len(spec.labels)
    return Frame(source, 0, 0, round(period * NS), Layout([(spec, labels)]), [value])


def asked(accept: str = "") -> Request:
    return Request("GET", "/metrics", "", {"accept": accept} if accept else {}, True, True)


def page(sink: PrometheusSink, accept: str = "") -> str:
    body = sink.page(asked(accept)).body
    return (body if isinstance(body, bytes) else b"".join(body)).decode()


def samples(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return [line for line in lines if not line.startswith("sonde_exposition_")]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sink(clock: ManualClock) -> Iterator[PrometheusSink]:
    sink = PrometheusSink(PrometheusConfig(), clock)
    yield sink
    sink.close()


def test_the_latest_frame_of_every_source_is_shown(sink: PrometheusSink) -> None:
    sink.write([frame("load", LOAD, 1.0)])
    sink.write([frame("load", LOAD, 2.0), frame("textfile", BACKUP, 60)])

    assert samples(page(sink)) == ["node_load1 2.0", "backup_age_seconds 60"]


def test_a_source_vanishes_after_two_of_its_own_periods(sink: PrometheusSink, clock: ManualClock) -> None:
    sink.write([frame("load", LOAD, 1.0, period=1), frame("textfile", BACKUP, 60, period=10)])

    clock.advance(2.0)
    assert len(samples(page(sink))) == 2
    clock.advance(0.001)
    assert samples(page(sink)) == ["backup_age_seconds 60"]
    sink.write([frame("load", LOAD, 3.0)])
    assert "node_load1 3.0" in page(sink)


@pytest.mark.parametrize("seconds", [86400, -86400])
def test_a_clock_that_is_set_does_not_empty_the_page(sink: PrometheusSink, clock: ManualClock, seconds: int) -> None:
    sink.write([frame("load", LOAD, 1.0)])
    clock.jump(seconds)

    assert samples(page(sink)) == ["node_load1 1.0"]


def test_processes_are_shown_only_when_asked_for(sink: PrometheusSink) -> None:
    sink.write([frame("process", PROCESS, 5)])

    assert samples(page(sink)) == []
    sink.configure(PrometheusConfig(processes=True))
    assert samples(page(sink)) == ['sonde_process_cpu_seconds_total{pid="1"} 5']


def test_the_totals_of_process_trees_are_shown_without_asking(sink: PrometheusSink) -> None:
    sink.write([frame("process", MetricSpec("sonde_process_tree_processes", Kind.GAUGE, Unit.NONE, "Of a tree."), 5)])

    assert samples(page(sink)) == ["sonde_process_tree_processes 5"]


@pytest.mark.parametrize("order", [("load", "textfile"), ("textfile", "load")])
def test_on_a_clash_our_own_family_is_kept_whoever_came_first(sink: PrometheusSink, order: tuple[str, str]) -> None:
    frames = {"load": frame("load", LOAD, 0.5), "textfile": frame("textfile", FOREIGN, 9)}
    for source in order:
        sink.write([frames[source]])

    assert samples(page(sink)) == ["node_load1 0.5"]


def test_what_was_left_out_is_counted_on_the_page(sink: PrometheusSink) -> None:
    sink.write([frame("load", LOAD, 0.5), frame("textfile", FOREIGN, 9)])

    texts = [page(sink), page(sink, REAL_ACCEPT), page(sink)]
    sink.configure(PrometheusConfig())

    assert [f"sonde_exposition_families_dropped_total {n}" in text for n, text in enumerate(texts)] == [True] * 3
    assert sink.dropped == 3


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", Format.TEXT),
        ("*/*", Format.TEXT),
        ("text/html,application/xhtml+xml,*/*;q=0.8", Format.TEXT),
        (REAL_ACCEPT, Format.OPENMETRICS),
        ("application/openmetrics-text", Format.OPENMETRICS),
        ("Application/OpenMetrics-Text; Version=1.0.0; Q=0.9, text/plain;q=0.5", Format.OPENMETRICS),
        ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;q=0.2", Format.OPENMETRICS),
        ("application/openmetrics-text;q=0.4,text/plain;q=0.5", Format.TEXT),
        ("application/openmetrics-text;q=0", Format.TEXT),
        ("application/openmetrics-text;version=0.0.1", Format.TEXT),
        ("application/openmetrics-text;q=0.5,*/*;q=0.9", Format.TEXT),
        ("application/openmetrics-text;q=high", Format.TEXT),
    ],
)
def test_openmetrics_is_given_only_to_who_asks_for_it(accept: str, form: Format) -> None:
    assert negotiate(accept) is form


@given(st.text(max_size=60))
def test_any_accept_header_gets_a_format(accept: str) -> None:
    assert negotiate(accept) in Format


def test_the_content_type_names_the_format(sink: PrometheusSink) -> None:
    assert sink.page(asked()).content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert sink.page(asked(REAL_ACCEPT)).content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"


def test_a_hundred_thousand_series_come_in_pieces_that_do_not_hold_up_the_loop(clock: ManualClock) -> None:
    layout = Layout((MANY, (str(number), "eth0")) for number in range(100_000))
    sink = PrometheusSink(PrometheusConfig(), clock)
    sink.write([Frame("many", 0, 0, NS, layout, list(range(100_000)))])

    begun = time.thread_time()
    body = sink.page(asked()).body
    assert not isinstance(body, bytes)
    size, slowest = 0, time.thread_time() - begun
    while True:
        begun = time.thread_time()
        piece = next(body, None)
        slowest = max(slowest, time.thread_time() - begun)
        if piece is None:
            break
        size += piece.count(b"sonde_many_total{")

    assert size == 100_000
    assert slowest < 0.1  # names and values of one piece; 10 ms on an idle machine

"""The remote write sink before a receiver that answers as the test says; the real ones are in tests/integration."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.sinks.receiver import Answer, Receiver, Request

from sonde.clock import NS
from sonde.errors import ConfigError, SinkError
from sonde.model import Frame, Kind, Layout, MetricSpec, Series, Unit, Value
from sonde.pipeline.outlet import Outlet
from sonde.sinks.remote_write import RemoteWriteConfig, RemoteWriteSink
from sonde.version import VERSION

ONE = MetricSpec("node_one_total", Kind.COUNTER, Unit.NONE, "One.")
TWO = MetricSpec("node_two", Kind.GAUGE, Unit.BYTES, "Two.", ("device",))
LAYOUT = Layout([(ONE, ()), (TWO, ("a",)), (TWO, ("b",))])
START = 1_794_778_958
Open = Callable[..., RemoteWriteSink]


def frame(
    second: int, *, source: str = "test", layout: Layout = LAYOUT, values: Sequence[Value] = (1, 2, 3), period: int = NS
) -> Frame:
    return Frame(source, (START + second) * NS, 0, period, layout, values)


def single(name: str, value: Value = 1) -> tuple[Layout, list[Value]]:
    series: Series = (MetricSpec(name, Kind.GAUGE, Unit.NONE, ""), ())
    return Layout([series]), [value]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def sink(receiver: Receiver) -> Iterator[Open]:
    opened: list[RemoteWriteSink] = []

    def open_sink(**keys: Any) -> RemoteWriteSink:
        opened.append(RemoteWriteSink(RemoteWriteConfig(**{"url": receiver.url, **keys}), host="node01"))
        return opened[-1]

    yield open_sink
    for each in opened:
        each.close()


def times(receiver: Receiver, name: str) -> list[int]:
    """Seconds after the start of the values of a metric; the ends of series are negative."""
    return [
        -(ms - START * 1000) if math.isnan(value) else ms // 1000 - START
        for ms, value in receiver.samples.get(name, [])
    ]


def test_a_request_has_the_headers_of_the_protocol_and_ours(receiver: Receiver, sink: Open, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc")
    sink(headers={"X-Scope-OrgID": "t1"}, bearer_token_file=str(tmp_path / "token")).write([frame(0)])

    (request,) = receiver.requests
    wanted = {
        "Content-Encoding": "snappy",
        "Content-Type": "application/x-protobuf",
        "X-Prometheus-Remote-Write-Version": "0.1.0",
        "User-Agent": f"sonde/{VERSION}",
        "X-Scope-OrgID": "t1",
        "Authorization": "Bearer abc",
    }
    assert {name: request.headers.get(name) for name in wanted} == wanted
    assert request.metadata == {"node_one_total": (1, "One.", ""), "node_two": (2, "Two.", "bytes")}


def test_every_series_carries_the_host(receiver: Receiver, sink: Open) -> None:
    sink().write([frame(0)])
    sink(job="hpc", instance="rack1").write([frame(0)])

    identities = [
        {(dict(labels)["job"], dict(labels)["instance"]) for labels, _ in r.series} for r in receiver.requests
    ]
    assert identities == [{("sonde", "node01")}, {("hpc", "rack1")}]


def test_frames_that_wait_are_sent_as_one_request_with_several_samples_per_series(
    receiver: Receiver, sink: Open
) -> None:
    sink().write([frame(second, source=source) for second in range(20) for source in ("test", "empty")])

    (request,) = receiver.requests
    assert len(request.series) == 3
    assert [ms // 1000 - START for ms, _ in request.samples["node_one_total"]] == list(range(20))


def test_more_samples_than_allowed_are_sent_as_several_requests_in_order(receiver: Receiver, sink: Open) -> None:
    sink(max_samples_per_request=10).write([frame(second) for second in range(10)])

    assert [len(request.samples["node_one_total"]) for request in receiver.requests] == [3, 3, 3, 1]
    assert times(receiver, "node_one_total") == list(range(10))


def test_one_frame_of_more_samples_than_allowed_is_sent_in_pieces(receiver: Receiver, sink: Open) -> None:
    layout = Layout((TWO, (str(index),)) for index in range(1001))
    sink(max_samples_per_request=300).write([frame(0, layout=layout, values=range(1001))])

    assert [len(request.series) for request in receiver.requests] == [300, 300, 300, 101]
    assert [value for _, value in receiver.samples["node_two"]] == list(range(1001))


def test_a_series_that_left_the_layout_ends_with_the_first_frame_that_lacks_it(receiver: Receiver, sink: Open) -> None:
    writer = sink()
    smaller = Layout([(ONE, ()), (TWO, ("a",))])
    writer.write([frame(0)])
    writer.write([frame(1, layout=smaller, values=(1, 2))])
    writer.write([frame(2, layout=smaller, values=(1, 2)), frame(3)])

    ended = [(labels, ms) for r in receiver.requests for labels, s in r.series for ms, value in s if math.isnan(value)]
    assert [(dict(labels)["device"], ms // 1000 - START) for labels, ms in ended] == [("b", 1)]
    assert times(receiver, "node_one_total") == [0, 1, 2, 3]


def test_a_source_that_is_silent_for_two_periods_ends_and_may_come_back(receiver: Receiver, sink: Open) -> None:
    writer = sink()
    layout, values = single("slow")
    slow = [frame(second, source="slow", layout=layout, values=values, period=2 * NS) for second in (0, 6)]
    writer.write([slow[0], frame(0)])
    for second in (2, 4, 5):
        writer.write([frame(second)])
    writer.write([slow[1], frame(6)])

    assert times(receiver, "slow") == [0, -1800, 6]
    assert len(receiver.requests[3].series) == 4  # with the frame of second 5


def test_a_refused_request_does_not_forget_that_a_series_has_to_end(receiver: Receiver, sink: Open) -> None:
    writer = sink()
    smaller = Layout([(ONE, ())])
    writer.write([frame(0)])
    receiver.answers = [Answer(503, b"later", {"Retry-After": "7"})]
    with pytest.raises(SinkError, match="503: later") as caught:
        writer.write([frame(1, layout=smaller, values=(1,))])
    assert (caught.value.retry, caught.value.retry_after) == (True, 7)

    writer.write([frame(1, layout=smaller, values=(1,))])

    assert [math.isnan(value) for _, value in receiver.requests[-1].samples["node_two"]] == [True, True]


def test_when_the_sink_closes_all_series_end(receiver: Receiver, sink: Open) -> None:
    writer = sink()
    writer.write([frame(0)])
    writer.close()

    assert all(math.isnan(samples[-1][1]) for _, samples in receiver.requests[-1].series)
    assert len(receiver.requests[-1].series) == 3


def test_types_and_helps_are_told_again_after_five_minutes(receiver: Receiver, sink: Open) -> None:
    writer = sink()
    for second in (0, 1, 299, 300, 301):
        writer.write([frame(second, period=3600 * NS)])

    assert [bool(request.metadata) for request in receiver.requests] == [True, False, False, True, False]


class Picky(Receiver):
    """Does as Prometheus does: a sample that is not newer than the last of its series costs the whole request."""

    def __init__(self) -> None:
        super().__init__()
        self.newest: dict[object, int] = {}
        self.kept: list[tuple[str, int]] = []

    def judge(self, request: Request) -> Answer:
        newest = dict(self.newest)
        for labels, samples in request.series:
            for ms, _ in samples:
                if ms <= newest.get(labels, 0):
                    return Answer(400, b"out of order sample\n")
                newest[labels] = ms
        self.newest = newest
        self.kept += [(dict(labels)["__name__"], ms // 1000 - START) for labels, s in request.series for ms, _ in s]
        return Answer()


@pytest.fixture
def picky() -> Iterator[Picky]:
    receiver = Picky()
    yield receiver
    receiver.close()


def test_a_frame_out_of_order_costs_only_itself(picky: Picky, sink: Open) -> None:
    other, values = single("other")
    batch = [
        item
        for second, own in enumerate((0, 1, 2, 5, 3, 6, 7, 8))  # the fourth tells a time to come
        for item in (frame(own), frame(second, source="other", layout=other, values=values))
    ]
    with pytest.raises(SinkError, match=r"1 of 16 frames refused: .*: 400: out of order sample") as caught:
        sink(url=picky.url).write(batch)

    assert (caught.value.retry, caught.value.delivered) == (False, 15)
    assert [second for name, second in picky.kept if name == "node_one_total"][:7] == [0, 1, 2, 5, 6, 7, 8]
    assert [second for name, second in picky.kept if name == "other"][:8] == list(range(8))


def test_an_end_that_was_rolled_back_with_its_request_is_sent_again(picky: Picky, sink: Open) -> None:
    writer = sink(url=picky.url)
    other, values = single("other")
    writer.write([frame(1), frame(2, source="other", layout=other, values=values)])
    late = frame(1, source="other", layout=other, values=values)
    with pytest.raises(SinkError, match="1 of 2 frames refused"):
        writer.write([frame(2, layout=Layout([(ONE, ())]), values=(1,)), late])

    assert [second for name, second in picky.kept if name == "node_two"] == [1, 1, 2, 2]


def test_a_clock_set_back_is_not_searched_again_and_again(picky: Picky, sink: Open) -> None:
    writer = sink(url=picky.url)
    writer.write([frame(1000)])
    for second in range(0, 40, 4):
        with pytest.raises(SinkError):
            writer.write([frame(second + add) for add in range(4)])

    assert len(picky.requests) == 1 + 7 + 9  # the whole, its halves, its quarters; then one each


def test_a_request_that_is_too_large_is_halved(receiver: Receiver, sink: Open) -> None:
    receiver.answers = [Answer(413)]
    sink().write([frame(second) for second in range(4)])

    assert [len(request.samples["node_one_total"]) for request in receiver.requests] == [4, 2, 2]


def test_what_is_refused_for_good_names_the_answer_and_the_next_step(receiver: Receiver, sink: Open) -> None:
    receiver.answers = [Answer(404, b"no such path")] * 2
    with pytest.raises(SinkError, match=r"2 of 2 frames refused: .*: 404: no such path") as caught:
        sink().write([frame(0), frame(1)])

    assert (caught.value.retry, caught.value.delivered) == (False, 0)
    assert "path" in caught.value.hint


def test_a_server_that_fails_in_the_middle_is_sent_the_rest_only(receiver: Receiver, sink: Open) -> None:
    receiver.answers = [Answer(), Answer(500)]
    writer = sink(max_samples_per_request=6)
    batch = [frame(second) for second in range(6)]
    with pytest.raises(SinkError) as caught:
        writer.write(batch)
    assert (caught.value.retry, caught.value.delivered) == (True, 2)

    receiver.requests.clear()
    writer.write(batch[caught.value.delivered :])

    assert times(receiver, "node_one_total") == [2, 3, 4, 5]


@pytest.mark.parametrize(
    "answer", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 2x4 OK\r\n\r\n", b"\x16\x03\x01\x02", b"HTTP/1.1 204"]
)
def test_garbage_for_an_answer_is_tried_again(answer: bytes) -> None:
    def serve() -> None:
        sock, _ = server.accept()
        with sock:
            sock.recv(65536)
            sock.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        sink = RemoteWriteSink(RemoteWriteConfig(url=url), host="node01")
        with pytest.raises(SinkError) as caught:
            sink.write([frame(0)])
        sink.close()
        thread.join(10)

    assert caught.value.retry


def test_a_server_that_never_answers_delays_a_stop_by_its_deadline_only(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        sink = RemoteWriteSink(RemoteWriteConfig(url=url), host="node01")
        outlet = Outlet("remote_write", sink)
        outlet.start()
        outlet.offer([frame(0)])
        sock, _ = server.accept()
        begun = time.monotonic()

        assert not outlet.stop(0.3)
        assert time.monotonic() - begun < 1
        assert "hangs" in caplog.text
        sock.close()
        assert outlet.stop(5)


def test_two_sources_with_one_name_are_one_series_of_the_first_and_guests_give_way(
    receiver: Receiver, sink: Open, caplog: pytest.LogCaptureFixture
) -> None:
    writer = sink()
    theirs, ours = single("node_load1", 99), single("node_load1", 1)
    writer.write([frame(0, source="textfile", layout=theirs[0], values=theirs[1])])
    for second in (1, 2):
        writer.write(
            [
                frame(second, source="load", layout=ours[0], values=ours[1]),
                frame(second, source="textfile", layout=theirs[0], values=theirs[1]),
                frame(second, source="zoo", layout=(third := single("node_load1", 5))[0], values=third[1]),
            ]
        )

    plain = [(ms // 1000 - START, value) for ms, value in receiver.samples["node_load1"] if not math.isnan(value)]
    assert plain == [(0, 99), (1, 1), (2, 1)]
    assert caplog.text.count("node_load1 of source zoo is not sent: source load has it") == 1


def test_the_totals_of_process_trees_are_sent_without_asking(receiver: Receiver, sink: Open) -> None:
    layout, values = single("sonde_process_tree_cpu_seconds_total")
    sink().write([frame(0, layout=layout, values=values)])

    assert "sonde_process_tree_cpu_seconds_total" in receiver.samples


def test_a_web_page_is_a_refusal_for_good(receiver: Receiver, sink: Open) -> None:
    receiver.answers = [Answer(200, b"<html>welcome", {"Content-Type": "text/html"})]
    with pytest.raises(SinkError, match="welcome") as caught:
        sink().write([frame(0)])

    assert (caught.value.retry, caught.value.delivered) == (False, 0)
    assert caught.value.hint == "this is a web page: check the URL"


def test_single_processes_are_sent_only_when_asked_for(receiver: Receiver, sink: Open) -> None:
    layout, values = single("sonde_process_cpu_seconds_total")
    sink().write([frame(0, layout=layout, values=values), frame(0, source="other")])
    sink(processes=True).write([frame(0, layout=layout, values=values)])

    assert ["sonde_process_cpu_seconds_total" in request.samples for request in receiver.requests] == [False, True]


def test_a_source_that_breaks_its_promises_does_not_stop_the_others(
    receiver: Receiver, sink: Open, caplog: pytest.LogCaptureFixture
) -> None:
    writer = sink()
    layout, _ = single("broken")
    for second in range(3):
        broken = [
            frame(second, source="short", layout=layout, values=[]),
            frame(second, source="odd", layout=layout, values=["text"]),  # type: ignore[list-item]
        ]
        writer.write([*broken, frame(second)])

    assert times(receiver, "node_one_total") == [0, 1, 2]
    assert "broken" not in receiver.samples
    assert caplog.text.count("do not fit their layout") == 2


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"url": ""}, "sinks.remote_write.url is required"),
        ({"url": "victoria:8428"}, "is not a URL"),
        ({"url": "http://a:b@victoria:8428/"}, "holds a name or a password"),
        ({"username": "x"}, "go together"),
        ({"username": "x", "password_file": "y", "bearer_token_file": "z"}, "not both"),
        ({"headers": {"X": "a\r\nb"}}, "holds what no header can"),
        ({"max_samples_per_request": 0}, "must be positive"),
    ],
)
def test_what_cannot_work_is_refused_by_name(sink: Open, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sink(**keys)


def test_a_password_over_plain_http_is_warned_of(sink: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "password").write_text("secret")
    sink(username="u", password_file=str(tmp_path / "password"))

    assert "is not https" in caplog.text
    assert "secret" not in caplog.text

"""A server's answers of every kind, played by a small server; real ones answer in tests/e2e/test_fleet.py."""

from __future__ import annotations

import json
import re
import socket
import warnings
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.clock import NS
from sonde.errors import Denied, ReadError, SondeError, TimedOut, Unavailable, UsageError
from sonde.http import Request, Response, Server
from sonde.store import server as subject
from sonde.store.form import Series
from sonde.store.query import Selector, Span, parse_selector
from sonde.store.server import ServerReader, expression_of, promql

if TYPE_CHECKING:
    from tests.conftest import RunningLoop

BEGIN = 1_800_000_000  # seconds
DAY = Span(BEGIN * NS, (BEGIN + 86_400) * NS)
JSON = "application/json"


class Fake:
    """Keeps the questions, and answers with what a function says."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.reply: Callable[[dict[str, str]], Response] = lambda _: matrix([])
        self.metadata: dict[str, Any] = {}

    def query(self, request: Request) -> Response:
        parameters = {name: values[0] for name, values in parse_qs(request.query).items()}
        self.asked.append(parameters)
        self.headers.append(dict(request.headers))
        return self.reply(parameters)

    def about(self, _request: Request) -> Response:
        return success(self.metadata)


def success(data: object, **more: object) -> Response:
    return Response(200, json.dumps({"status": "success", "data": data, **more}).encode(), JSON)


def failure(status: int, error: str, kind: str = "bad_data") -> Response:
    return Response(status, json.dumps({"status": "error", "errorType": kind, "error": error}).encode(), JSON)


def matrix(series: list[tuple[dict[str, str], list[tuple[float, str]]]], **more: object) -> Response:
    result = [{"metric": labels, "values": [list(pair) for pair in values]} for labels, values in series]
    return success({"resultType": "matrix", "result": result}, **more)


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def reader(loop: RunningLoop, fake: Fake) -> Iterator[ServerReader]:
    routes = {"/prom/api/v1/query": fake.query, "/prom/api/v1/metadata": fake.about, "/prom/api/v1/series": fake.query}
    server = Server(loop, routes)
    address = loop.call(lambda: server.listen("127.0.0.1:0"))
    with ServerReader(f"http://{address}/prom/", DAY, headers={"Authorization": "Bearer x"}, timeout=5.0) as reader:
        yield reader
    loop.call(server.close)


def every_minute(parameters: dict[str, str]) -> Response:
    """A counter that is scraped each minute and counts the minutes, as Prometheus 2 gives it: both ends included."""
    end = float(parameters["time"])
    window = int(re.search(r"\[(\d+)ms\]", parameters["query"])[1]) / 1000  # type: ignore[index]
    first = max(0, -int(-(end - window - BEGIN) // 60))
    values = [(BEGIN + 60.0 * n, str(n)) for n in range(first, int((end - BEGIN) // 60) + 1)]
    return matrix([({"__name__": "minutes_total", "instance": "n1"}, values)])


def test_a_long_range_is_asked_in_pieces_and_has_every_point_once(reader: ServerReader, fake: Fake) -> None:
    fake.reply = every_minute

    (points,) = reader.read(Selector("minutes_total"), *DAY)

    assert points.series == Series("minutes_total", "counter", "", (("instance", "n1"),))
    assert points.values == list(range(1441))
    assert points.times == [(BEGIN + 60 * n) * NS for n in range(1441)]
    assert points.period_ns == 60 * NS
    assert 1 < len(fake.asked) < 10
    assert fake.headers[0]["authorization"] == "Bearer x"


@pytest.mark.parametrize("refusal", [failure(422, "query processing would load too many samples", "execution"), None])
def test_pieces_that_are_too_large_are_made_shorter(
    reader: ServerReader, fake: Fake, monkeypatch: pytest.MonkeyPatch, refusal: Response | None
) -> None:
    monkeypatch.setattr("sonde.httpclient._LIMIT", 3000)

    def picky(parameters: dict[str, str]) -> Response:
        reply = every_minute(parameters)
        return refusal if refusal is not None and len(reply.body) > 3000 else reply  # type: ignore[arg-type]

    fake.reply = picky

    (points,) = reader.read(Selector("minutes_total"), *DAY)

    assert points.values == list(range(1441))


def test_what_no_piece_is_short_enough_for_says_so(reader: ServerReader, fake: Fake) -> None:
    fake.reply = lambda _: failure(422, "would load too many samples", "execution")

    with pytest.raises(ReadError, match="too many values at once"):
        reader.read(Selector("minutes_total"), *DAY)
    assert len(fake.asked) < 10


def test_an_answer_is_capped_and_says_where_it_ends(
    reader: ServerReader, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "LIMIT", 100)
    fake.reply = every_minute

    (points,) = reader.read(Selector("minutes_total"), *DAY)

    assert 100 <= len(points.values) < 400
    assert "ask for fewer series" in reader.notes[0]


def test_a_series_that_ended_has_no_value_there(reader: ServerReader, fake: Fake) -> None:
    fake.reply = lambda _: matrix([({"__name__": "x"}, [(BEGIN, "1.5"), (BEGIN + 1, "NaN"), (BEGIN + 2, "+Inf")])])

    (points,) = reader.read(Selector("x"), BEGIN * NS, (BEGIN + 9) * NS)

    assert points.values == [1.5, float("inf")]


def test_a_histogram_is_read_by_its_parts(reader: ServerReader, fake: Fake) -> None:
    fake.metadata = {"wait_seconds": [{"type": "histogram", "help": "", "unit": ""}]}

    def parts(parameters: dict[str, str]) -> Response:
        name = parameters["query"].partition("[")[0]
        return matrix([] if name == "wait_seconds" else [({"__name__": name}, [(BEGIN, "1")])])

    fake.reply = parts

    found = reader.read(Selector("wait_seconds"), BEGIN * NS, (BEGIN + 9) * NS)

    assert [points.series.metric for points in found] == [
        "wait_seconds_bucket",
        "wait_seconds_count",
        "wait_seconds_sum",
    ]


def test_warnings_and_partial_answers_are_told_once(reader: ServerReader, fake: Fake) -> None:
    fake.reply = lambda _: matrix([], warnings=["store n3 is down"], isPartial=True)

    reader.read(Selector("x"), *DAY)

    assert reader.notes == [
        "the server warns: store n3 is down",
        "the server says that its answer is partial: a part of it does not answer",
    ]


@pytest.mark.parametrize(
    ("reply", "error", "message"),
    [
        (failure(400, "parse error at char 5"), UsageError, "parse error at char 5"),
        (failure(422, "unknown function", "422"), UsageError, "unknown function"),
        (Response(401, b"Unauthorized\n"), Denied, "does not let this user ask"),
        (Response(403, b"{}", JSON), Denied, "403"),
        (Response(302, b"", headers={"Location": "https://sso/"}), Unavailable, "sends us elsewhere"),
        (Response(404, b"404 page not found\n"), ReadError, "404 page not found"),
        (Response(503, b"no upstream\nat all"), Unavailable, r"\(503\): no upstream$"),
        (failure(503, "starting up", "unavailable"), Unavailable, "starting up"),
        (Response(200, b"<html>Grafana</html>", "text/html; charset=utf-8"), ReadError, "a web page"),
        (Response(200, b'{"status": "succ', JSON), ReadError, "does not speak"),
        (Response(200, b"[1]", JSON), ReadError, "does not speak"),
        (success([]), ReadError, "samples were expected"),
        (success({"result": [{"metric": {}, "values": [["now", "1"]]}]}), ReadError, "makes no sense"),
        (success({"result": [{"metric": {}}]}), ReadError, "makes no sense"),
        (success({"result": [7]}), ReadError, "makes no sense"),
    ],
)
def test_a_refusal_says_what_it_means(
    reader: ServerReader, fake: Fake, reply: Response, error: type[SondeError], message: str
) -> None:
    fake.reply = lambda _: reply

    with pytest.raises(error, match=message):
        reader.read(Selector("x"), *DAY)


def test_nobody_there_and_no_answer_in_time(loop: RunningLoop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with ServerReader(url, DAY, headers={}, timeout=0.1) as reader, pytest.raises(TimedOut):
            reader.read(Selector("x"), *DAY)
    with ServerReader(url, DAY, headers={}) as reader, pytest.raises(Unavailable, match="refused"):
        reader.names()


def test_a_server_without_metadata_is_a_server_all_the_same(reader: ServerReader, fake: Fake) -> None:
    fake.metadata = {"x_total": 3}
    fake.reply = lambda _: success([{"__name__": "x_total", "a": "1"}, {"__name__": "x_total", "a": "0"}])

    assert [series.labels for series in reader.series(Selector("x*"))] == [(("a", "0"),), (("a", "1"),)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node_load1", "node_load1"),
        ('up{job="a",x!="b\\\\c"}', 'up{job="a",x!="b\\\\c"}'),
        ('up{device=~"eth\\d+"}', 'up{device=~"eth\\\\d+"}'),
        ("node_*", '{__name__=~"node_.*"}'),
        ("*", '{__name__=~".+"}'),
        ('node_load?[!a-c]{a="1"}', '{__name__=~"node_load.[^a-c]",a="1"}'),
    ],
)
def test_selectors_in_promql(text: str, expected: str) -> None:
    assert promql(parse_selector(text)) == expected


NAMES = st.text("ab_1:", min_size=1, max_size=6)


@settings(max_examples=200, deadline=None)
@given(st.text("ab_1*?[]!-", min_size=1, max_size=8), NAMES)
def test_a_shell_pattern_and_its_expression_match_the_same_names(pattern: str, name: str) -> None:
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):  # of [--x], which RE2 has no plans for
            expression = re.compile(expression_of(pattern))
    except re.error:
        return  # a range whose ends are swapped: fnmatch takes it for nothing, a server says so

    assert bool(expression.fullmatch(name)) == fnmatchcase(name, pattern)

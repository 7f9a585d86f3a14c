"""The ODS and Scuba forms, against real HTTP servers."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.dialects.dynolog.conftest import TIME, cpu_frame, uptime_frame

from sonde.dialects.dynolog.graph import (
    DynologOdsConfig,
    DynologOdsSink,
    DynologScubaConfig,
    DynologScubaSink,
    quoted,
)
from sonde.errors import ConfigError, SinkError
from sonde.hostfs import HostFS
from sonde.model import Frame
from sonde.units import Duration

NOWHERE = HostFS("/nonexistent")


class Graph(HTTPServer):
    """Keeps the forms it gets; answers with `status`."""

    status = 200
    forms: list[dict[str, list[str]]]


class Handler(BaseHTTPRequestHandler):
    server: Graph

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        assert self.headers["Content-Type"] == "application/x-www-form-urlencoded"
        self.server.forms.append(parse_qs(body, keep_blank_values=True, strict_parsing=True))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def graph() -> Iterator[Graph]:
    server = Graph(("127.0.0.1", 0), Handler)
    server.forms = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def ods(graph: Graph, tmp_path: Path) -> Iterator[DynologOdsSink]:
    token = tmp_path / "token"
    token.write_text("secret&=\n")
    config = DynologOdsConfig(
        f"http://127.0.0.1:{graph.server_port}/ods", str(token), category_id="7", entity_prefix="lab."
    )
    sink = DynologOdsSink(config, host="node01", files=NOWHERE)
    yield sink
    sink.close()


@pytest.fixture
def scuba(graph: Graph) -> Iterator[DynologScubaSink]:
    sink = DynologScubaSink(DynologScubaConfig(f"http://127.0.0.1:{graph.server_port}/s"), host="node01", files=NOWHERE)
    yield sink
    sink.close()


def ticks(translate: Callable[[list[Frame]], list[Frame]], count: int) -> list[Frame]:
    """`count` ticks after the first, translated."""
    frames = []
    for number in range(count + 1):
        at = TIME + number * 10**9
        frames += translate([cpu_frame({"0": {"idle": number, "user": number}}, at), uptime_frame(number, at)])
    return frames[1:]


def test_ods_gets_data_points_with_the_token_of_the_file(ods: DynologOdsSink, graph: Graph) -> None:
    ods.write(ticks(ods.translate, 1))

    (form,) = graph.forms
    assert form["access_token"] == ["secret&="]
    assert form["category_id"] == ["7"]
    points = json.loads(form["datapoints"][0])
    assert {"entity": "lab.node01", "key": "dynolog.cpu_u", "value": "50.000"} in points
    assert {"entity": "lab.node01", "key": "dynolog.cpu_u_ms", "value": 1000} in points


def test_ods_gets_only_the_newest_of_what_had_to_wait(ods: DynologOdsSink, graph: Graph) -> None:
    ods.write(ticks(ods.translate, 5))

    (form,) = graph.forms
    points = {point["key"]: point["value"] for point in json.loads(form["datapoints"][0])}
    assert points["dynolog.uptime"] == 5


def test_scuba_gets_typed_columns_with_their_time(scuba: DynologScubaSink, graph: Graph) -> None:
    scuba.write(ticks(scuba.translate, 2))

    (form,) = graph.forms
    first, second = json.loads(form["logs"][0])
    assert first["category"] == "perfpipe_fair_cluster_gpu_stats"
    assert first["line_escape"] is False
    message = json.loads(first["message"])
    assert message["normal"] == {"host_name": "node01"}
    assert message["int"]["cpu_u_ms"] == 1000
    assert message["double"]["cpu_u"] == 50.0
    assert message["int"]["time"] == TIME // 10**9 + 1
    assert json.loads(second["message"])["int"]["time"] == TIME // 10**9 + 2


@pytest.mark.parametrize(("status", "retry"), [(500, True), (503, True), (429, True), (400, False), (403, False)])
def test_an_error_is_tried_again_when_that_can_help(
    scuba: DynologScubaSink, graph: Graph, status: int, retry: bool
) -> None:
    graph.status = status

    with pytest.raises(SinkError, match=str(status)) as caught:
        scuba.write(ticks(scuba.translate, 1))
    assert caught.value.retry is retry


def test_a_server_that_refuses_hangs_or_babbles_is_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        sink = DynologScubaSink(DynologScubaConfig(url, timeout=Duration(0.2)), host="n", files=NOWHERE)
        frames = ticks(sink.translate, 1)
        with pytest.raises(SinkError, match="no answer within") as hanging:
            sink.write(frames)

        thread = threading.Thread(target=_babble, args=(listener,))
        thread.start()
        with pytest.raises(SinkError, match="not an HTTP reply") as babbling:
            sink.write(frames)
        thread.join()
    with pytest.raises(SinkError, match="refused") as refusing:
        sink.write(frames)
    sink.close()

    assert hanging.value.retry
    assert babbling.value.retry
    assert refusing.value.retry


def _babble(listener: socket.socket) -> None:
    listener.accept()[0].close()  # of the call before, which has given up
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(b"SSH-2.0-something\r\n\r\n")


def test_a_token_that_cannot_be_read_is_said_and_tried_again(ods: DynologOdsSink, graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "token").unlink()

    with pytest.raises(SinkError, match="token") as caught:
        ods.write(ticks(ods.translate, 1))
    assert caught.value.retry
    assert not graph.forms


def test_without_a_url_nothing_starts() -> None:
    with pytest.raises(ConfigError, match=r"sinks\.dynolog_ods\.url is required"):
        DynologOdsSink(DynologOdsConfig(), host="n", files=NOWHERE)
    with pytest.raises(ConfigError, match=r"sinks\.dynolog_scuba\.url"):
        DynologScubaSink(DynologScubaConfig("ftp://x"), host="n", files=NOWHERE)


@given(st.text())
def test_what_is_quoted_comes_back(text: str) -> None:
    form = parse_qs(f"x={quoted(text)}", keep_blank_values=True, strict_parsing=True)

    assert form["x"] == [text.encode("utf-8", "replace").decode()]

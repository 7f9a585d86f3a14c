"""The HTTP client: kept connections, deadlines, replies of every kind."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from sonde.address import Address
from sonde.errors import ReadError, TimedOut, Unavailable, UsageError
from sonde.httpclient import Client, parse_url, request


@contextlib.contextmanager
def answering(reply: bytes, pause: float = 0.0) -> Iterator[str]:
    """A server that sends these bytes to whoever comes first."""

    def serve() -> None:
        sock, _ = server.accept()
        with sock:
            sock.recv(65536)
            time.sleep(pause)
            with contextlib.suppress(OSError):
                sock.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/x"
        thread.join(10)


def test_a_refused_connection_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    with pytest.raises(Unavailable, match="refused"):
        request(f"http://127.0.0.1:{port}/")


def test_a_server_that_does_not_answer_in_time_has_timed_out() -> None:
    with answering(b"", pause=0.3) as url, pytest.raises(TimedOut):
        request(url, timeout=0.1)


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n",
    ],
)
def test_a_reply_that_is_cut_or_malformed_is_a_read_error(reply: bytes) -> None:
    with answering(reply) as url, pytest.raises(ReadError):
        request(url)


def test_an_interim_reply_is_passed_over_and_a_body_to_the_end_is_taken() -> None:
    with answering(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 201 Created\r\n\r\nall of it") as url:
        reply = request(url, method="POST", body=b"data")

    assert (reply.status, reply.body) == (201, b"all of it")


@pytest.mark.parametrize("url", ["ftp://x/", "http:/x", "http://", "http://h:99999/", "http://h/a b", "http://h/ü"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        parse_url(url)


def test_a_url_has_the_port_of_its_scheme() -> None:
    assert parse_url("http://node01").address == Address("node01", 80)
    assert parse_url("https://[::1]/v1?x=1") == (True, Address("::1", 443), "/v1?x=1")


class Keeper:
    """A server that keeps connections, answers with what it was asked, and closes a connection when told to."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}/write"
        self.connections = 0
        self.requests: list[bytes] = []
        self.per_connection = 1000
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            sock, _ = self._server.accept()
            with sock:
                self.connections += 1
                for _ in range(self.per_connection):
                    data = sock.recv(65536)
                    if data == b"stop":
                        return
                    if not data:
                        break
                    self.requests.append(data)
                    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnice")

    def close(self) -> None:
        with socket.create_connection(self._server.getsockname()) as sock:
            sock.sendall(b"stop")
        self._thread.join(10)
        self._server.close()


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    server = Keeper()
    yield server
    server.close()


def test_a_client_keeps_its_connection(keeper: Keeper) -> None:
    with Client(keeper.url, headers={"X-Scope": "a"}) as client:
        replies = [client.send(body, headers={"X-Body": "b"}).body for body in (b"one", b"two", b"three")]

    assert replies == [b"nice"] * 3
    assert keeper.connections == 1
    assert keeper.requests[1].startswith(b"POST /write HTTP/1.1\r\nHost: ")
    assert b"\r\nX-Scope: a\r\nX-Body: b\r\nContent-Length: 3\r\n\r\ntwo" in keeper.requests[1]


def test_a_connection_that_the_server_closed_is_made_anew(keeper: Keeper) -> None:
    keeper.per_connection = 2
    with Client(keeper.url) as client:
        replies = [client.send(b"x").body for _ in range(6)]

    assert replies == [b"nice"] * 6
    assert keeper.connections == 3


def test_a_header_with_a_line_break_is_refused() -> None:
    with pytest.raises(UsageError, match="X-Evil"):
        Client("http://127.0.0.1/", headers={"X-Evil": "a\r\nHost: b"})


def test_a_body_larger_than_one_read_comes_whole_and_trailers_are_passed_over() -> None:
    chunk = b"40000\r\n" + b"y" * 0x40000 + b"\r\n"
    with answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 3 + b"0\r\nX: 1\r\n\r\n") as url:
        reply = request(url)

    assert reply.body == b"y" * (3 * 0x40000)


def test_a_server_that_answers_before_it_has_read_everything_is_heard() -> None:
    with answering(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig") as url:
        with Client(url) as client:
            reply = client.send(b"x" * 200_000)

    assert (reply.status, reply.body) == (413, b"big")

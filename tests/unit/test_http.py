"""The HTTP server on the loop, over real sockets, and the blocking client."""

from __future__ import annotations

import contextlib
import gzip
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sonde.address import Address
from sonde.errors import ReadError
from sonde.http import HEAD_LIMIT, Refused, Request, Response, Server, date, parse_request
from sonde.httpclient import request

if TYPE_CHECKING:
    from tests.conftest import RunningLoop

BIG = b"x" * 8_000_000  # more than the buffers of both ends hold


def pieces() -> Iterator[bytes]:
    yield b"one "
    yield b""
    yield b"two"


def fail(_request: Request) -> Response:
    raise ValueError("on purpose")


def broken_pieces() -> Iterator[bytes]:
    yield b"one"
    raise ValueError("on purpose")


ROUTES = {
    "/": lambda r: Response(200, b"hello"),
    "/echo": lambda r: Response(200, f"{r.method} {r.query} {r.headers.get('x-one', '')}".encode()),
    "/big": lambda r: Response(200, BIG),
    "/text": lambda r: Response(200, b"node_load1 0.5\n" * 1000),
    "/pieces": lambda r: Response(200, pieces()),
    "/broken-pieces": lambda r: Response(200, broken_pieces()),
    "/fail": fail,
    "/busy": lambda r: Response(503, b"stale: cpu\n"),
}


class Place:
    def __init__(self, loop: RunningLoop, server: Server, address: Address) -> None:
        self.loop = loop
        self.server = server
        self.address = address
        self.url = f"http://{address}"

    def connect(self) -> socket.socket:
        return socket.create_connection((self.address.host, self.address.port), timeout=10)

    def say(self, message: bytes) -> bytes:
        """Send and read until the server closes."""
        with self.connect() as sock:
            sock.sendall(message)
            return rest_of(sock)


def rest_of(sock: socket.socket) -> bytes:
    parts = []
    while data := sock.recv(65536):
        parts.append(data)
    return b"".join(parts)


@pytest.fixture
def place(loop: RunningLoop) -> Iterator[Place]:
    server = Server(loop, ROUTES, limit=8)
    yield Place(loop, server, loop.call(lambda: server.listen("127.0.0.1:0")))
    loop.call(server.close)


def test_a_page_is_served(place: Place) -> None:
    reply = request(f"{place.url}/")

    assert (reply.status, reply.body) == (200, b"hello")
    assert reply.headers["content-type"].startswith("text/plain")
    assert reply.headers["date"].endswith("GMT")


def test_query_and_headers_reach_the_handler(place: Place) -> None:
    assert request(f"{place.url}/echo?a=1&b", headers={"X-One": "two"}).body == b"GET a=1&b two"


def test_head_has_the_headers_of_get_and_no_body(place: Place) -> None:
    text = place.say(b"HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n")

    assert b"Content-Length: 5\r\n" in text
    assert text.endswith(b"\r\n\r\n")


def test_a_connection_is_kept_for_the_next_request(place: Place) -> None:
    with place.connect() as sock:
        for _ in range(3):
            sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert sock.recv(65536).endswith(b"hello")


def test_requests_sent_without_waiting_are_answered_in_order(place: Place) -> None:
    asked = b"".join(b"GET /echo?%d HTTP/1.1\r\n\r\n" % number for number in range(500))

    text = place.say(asked + b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")

    heads = text.split(b"HTTP/1.1 200 OK")[1:]
    assert [head.rpartition(b"\r\n\r\n")[2] for head in heads] == [b"GET %d " % n for n in range(500)] + [b"hello"]


def test_a_request_in_single_bytes_is_understood(place: Place) -> None:
    with place.connect() as sock:
        for byte in b"GET / HTTP/1.0\r\n\r\n":
            sock.send(bytes([byte]))
        assert rest_of(sock).endswith(b"hello")


def test_http_1_0_is_closed_after_the_reply_unless_asked_otherwise(place: Place) -> None:
    assert b"Connection: close\r\n" in place.say(b"GET / HTTP/1.0\r\n\r\n")
    with place.connect() as sock:
        sock.sendall(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert b"Connection: close" not in sock.recv(65536)


def test_a_body_in_pieces_is_chunked_for_http_1_1_only(place: Place) -> None:
    assert request(f"{place.url}/pieces").body == b"one two"
    assert place.say(b"GET /pieces HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\none two")


def test_a_large_body_arrives_whole(place: Place) -> None:
    assert request(f"{place.url}/big").body == BIG


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\n\r\n", 404),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"DELETE / HTTP/1.1\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 400),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"garbage\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"GET http://x/ HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * HEAD_LIMIT + b"\r\n\r\n", 431),
        (b"x" * (HEAD_LIMIT + 1), 431),
        (b"GET /fail HTTP/1.1\r\n\r\n", 500),
        (b"GET /busy HTTP/1.1\r\n\r\n", 503),
    ],
)
def test_what_cannot_be_answered_gets_its_status(place: Place, message: bytes, status: int) -> None:
    assert place.say(message).startswith(b"HTTP/1.1 %d " % status)


def test_a_wrong_method_is_told_the_right_ones(place: Place) -> None:
    assert b"Allow: GET, HEAD\r\n" in place.say(b"PUT / HTTP/1.1\r\n\r\n")


def test_a_handler_that_fails_is_counted_and_the_server_lives(place: Place) -> None:
    assert request(f"{place.url}/fail").status == 500
    assert request(f"{place.url}/").body == b"hello"
    assert place.server.failures == 1


def test_a_body_that_fails_half_way_is_not_taken_for_whole(place: Place) -> None:
    with pytest.raises(ReadError):
        request(f"{place.url}/broken-pieces")
    assert request(f"{place.url}/").body == b"hello"


def test_a_client_that_never_reads_delays_nobody(place: Place) -> None:
    with place.connect() as greedy:
        greedy.sendall(b"GET /big HTTP/1.1\r\n\r\n")
        begun = time.monotonic()
        replies = [request(f"{place.url}/").body for _ in range(20)]

    assert replies == [b"hello"] * 20
    assert time.monotonic() - begun < 2


def test_a_client_that_sends_slowly_delays_nobody(place: Place) -> None:
    with place.connect() as slow:
        slowest = 0.0
        for byte in b"GET / HTTP/1.0\r\n":
            slow.send(bytes([byte]))
            begun = time.monotonic()
            assert request(f"{place.url}/").body == b"hello"
            slowest = max(slowest, time.monotonic() - begun)
            time.sleep(0.02)

    assert slowest < 0.5


def test_beyond_the_cap_the_idlest_connection_gives_way(place: Place) -> None:
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(place.connect()) for _ in range(8)]
        for sock in idle:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert sock.recv(65536).endswith(b"hello")
        time.sleep(0.11)  # nobody is new any more

        assert request(f"{place.url}/").body == b"hello"
        assert idle[0].recv(10) == b""
        idle[1].sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert idle[1].recv(65536).endswith(b"hello")
        assert place.server.connections <= 8


def test_a_request_that_does_not_come_to_its_end_is_given_up(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sonde.http._REQUEST_TIME", 0.1)
    with place.connect() as sock:
        sock.sendall(b"GET / HT")
        assert rest_of(sock).startswith(b"HTTP/1.1 408 ")


def test_an_idle_connection_is_closed_without_a_word(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sonde.http._IDLE_TIME", 0.1)
    with place.connect() as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert sock.recv(65536).endswith(b"hello")
        assert sock.recv(65536) == b""


def test_two_listeners_serve_the_same_pages(place: Place) -> None:
    second = place.loop.call(lambda: place.server.listen("[::1]:0"))

    assert request(f"http://{second}/").body == b"hello"
    assert request(f"{place.url}/").body == b"hello"


def test_pages_are_compressed_only_when_the_server_is_told_to(loop: RunningLoop, place: Place) -> None:
    server = Server(loop, ROUTES, compress=True)
    address = loop.call(lambda: server.listen("127.0.0.1:0"))
    asked = {"Accept-Encoding": "gzip"}

    pressed = request(f"http://{address}/text", headers=asked)
    small = request(f"http://{address}/", headers=asked)
    plain = request(f"{place.url}/text", headers=asked)
    loop.call(server.close)

    assert pressed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(pressed.body) == plain.body
    assert "content-encoding" not in small.headers
    assert "content-encoding" not in plain.headers


def test_bytes_without_sense_do_not_hurt_the_server(place: Place) -> None:
    @settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        st.one_of(
            st.binary(max_size=400),
            st.builds(
                lambda a, b, c: b"GET /" + a + b" HTTP/1.1\r\n" + b + b"\r\n\r\n" + c,
                *[st.binary(max_size=60)] * 3,
            ),
        )
    )
    def throw(data: bytes) -> None:
        with place.connect() as sock, contextlib.suppress(OSError):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            rest_of(sock)

    throw()

    assert place.loop.failures == 0
    assert request(f"{place.url}/").body == b"hello"


@given(st.binary(max_size=200))
def test_a_head_is_a_request_or_refused(head: bytes) -> None:
    try:
        path = parse_request(head).path
    except Refused as refused:
        path = f"/{refused.response.status}"

    assert path.startswith("/")


def test_dates_are_in_english_whatever_the_locale() -> None:
    assert date(1_794_778_958) == "Sun, 15 Nov 2026 21:42:38 GMT"

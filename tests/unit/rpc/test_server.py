"""The RPC server, over real sockets."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sonde.address import Address
from sonde.errors import ConfigError, RpcError, Unavailable
from sonde.rpc import client
from sonde.rpc.codec import LENGTH, REQUEST_LIMIT, Message
from sonde.rpc.feed import Feed, Gone
from sonde.rpc.peer import Peer, process_of
from sonde.rpc.server import Entry, Function, Pending, RpcServer

if TYPE_CHECKING:
    from tests.conftest import RunningLoop

STATUS = b'{"fn":"getStatus"}'


def refuse(_request: Message, _peer: Peer) -> Message:
    raise RpcError("no-such-job", "there is no job 7", hint="list them")


def fail(_request: Message, _peer: Peer) -> Message:
    raise ValueError("on purpose")


def count(request: Message, _peer: Peer) -> Iterator[Message]:
    for number in range(request["to"]):
        yield {"number": number}


def count_and_fail(_request: Message, _peer: Peer) -> Iterator[Message]:
    yield {"number": 0}
    raise RpcError("lost", "the source went away")


def whoami(_request: Message, peer: Peer) -> Message:
    return {"uid": peer.uid, "pid": peer.pid, "address": peer.address}


def wait_for_disk(request: Message, _peer: Peer) -> Message:
    time.sleep(request["seconds"])
    if request.get("fails"):
        raise RpcError("gone", "the disk is gone")
    return {"thread": threading.current_thread().name}


def later(request: Message, _peer: Peer) -> Pending:
    """Answers from another callback of the loop, or never."""
    pending = Pending(request["within"])
    WAITING.append(pending)
    if request.get("at_once"):
        pending.resolve({"at": "once"})
    return pending


def read_slowly(request: Message, _peer: Peer) -> Feed:
    def make(put: Callable[[Message], None]) -> None:
        try:
            for number in range(request["to"]):
                time.sleep(request.get("pause", 0))
                put({"number": number, "filler": "x" * request.get("size", 0)})
            if request.get("fails"):
                raise RpcError("gone", "the disk is gone")
        except Gone:
            LEFT.append(number)
            raise

    return Feed(make)


LEFT: list[int] = []
WAITING: list[Pending] = []
FUNCTIONS: dict[str, Function | Entry] = {
    "getStatus": lambda request, peer: {"status": 1},
    "echo.say": lambda request, peer: {"request": request},
    "large.get": lambda request, peer: {"text": "x" * 8_000_000},
    "who.reads": whoami,
    "who.writes": Entry(whoami, writes=True),
    "job.describe": refuse,
    "bug.find": fail,
    "nan.get": lambda request, peer: {"value": float("nan")},
    "disk.read": Entry(wait_for_disk, blocks=True),
    "disk.finish": Entry(lambda request, peer: lambda: {"thread": threading.current_thread().name}, blocks=True),
    "disk.nonsense": Entry(lambda request, peer: 5, blocks=True),  # type: ignore[arg-type,return-value]
    "file.read": read_slowly,
    "job.await": later,
    "who.asks": Entry(whoami, identifies=True),
    "count.up": count,
    "count.fail": count_and_fail,
}


class Place:
    def __init__(self, loop: RunningLoop, server: RpcServer, tcp: Address, unix: Address) -> None:
        self.loop = loop
        self.server = server
        self.tcp = tcp
        self.unix = unix

    def call(self, fn: str, **arguments: Any) -> Message:
        return client.call(str(self.tcp), fn, **arguments)

    def connect(self) -> socket.socket:
        return socket.create_connection((self.tcp.host, self.tcp.port), timeout=10)

    def say(self, *segments: bytes) -> bytes:
        """Send in these segments; what comes until the server closes."""
        with self.connect() as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for segment in segments:
                sock.sendall(segment)
                time.sleep(0.02)
            return rest_of(sock)

    def error(self, *segments: bytes) -> dict[str, Any]:
        data = self.say(*segments)
        reply = json.loads(data[4:])
        assert len(data) == 4 + LENGTH.unpack_from(data)[0]
        assert reply["ok"] is False
        error: dict[str, Any] = reply["error"]
        return error


def rest_of(sock: socket.socket) -> bytes:
    parts = []
    while data := sock.recv(65536):
        parts.append(data)
    return b"".join(parts)


def framed(body: bytes) -> bytes:
    return struct.pack("=i", len(body)) + body


@pytest.fixture
def place(loop: RunningLoop, tmp_path: Path) -> Iterator[Place]:
    server = RpcServer(loop, FUNCTIONS)
    tcp = loop.call(lambda: server.listen("127.0.0.1:0"))
    unix = loop.call(lambda: server.listen(f"unix:{tmp_path}/rpc.sock"))
    yield Place(loop, server, tcp, unix)
    loop.call(server.close)


def test_a_request_gets_the_bytes_dynolog_would_send(place: Place) -> None:
    assert place.say(framed(STATUS)) == framed(b'{"status":1}')


def test_a_length_prefix_split_over_segments_is_put_together(place: Place) -> None:
    message = framed(STATUS)

    assert place.say(message[:1], message[1:3], message[3:10], message[10:]) == framed(b'{"status":1}')


def test_a_second_request_on_the_same_connection_gets_the_end(place: Place) -> None:
    assert place.say(framed(STATUS) + framed(STATUS)) == framed(b'{"status":1}')


def test_a_reply_to_one_of_our_functions_says_ok(place: Place) -> None:
    assert place.call("echo.say", a=[1, "é"]) == {"ok": True, "request": {"fn": "echo.say", "a": [1, "é"]}}


def test_a_unix_socket_serves_the_same(place: Place) -> None:
    assert client.call(str(place.unix), "getStatus") == {"status": 1}


def test_ipv6_loopback_serves_the_same(place: Place) -> None:
    address = place.loop.call(lambda: place.server.listen("[::1]:0"))

    assert client.call(str(address), "who.writes")["uid"] == os.getuid()


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (struct.pack("=i", 0), "bad-length"),
        (struct.pack("=i", -5) + b"abcde", "bad-length"),
        (struct.pack("=i", REQUEST_LIMIT + 1), "bad-length"),
        (b"GET / HTTP/1.1\r\n\r\n", "bad-length"),
        (framed(b"{garbage"), "bad-json"),
        (framed(b"[1]"), "bad-request"),
        (framed(b"{}"), "bad-request"),
        (framed(b'{"fn":7}'), "bad-request"),
        (framed(b'{"fn":"no.such"}'), "unknown-function"),
        (framed(b'{"fn":"job.describe"}'), "no-such-job"),
        (framed(b'{"fn":"bug.find"}'), "internal"),
        (framed(b'{"fn":"nan.get"}'), "internal"),
        (framed(b'{"fn":"count.up"}')[:-3] + b'\xff"}', "bad-json"),
    ],
)
def test_an_error_is_an_answer(place: Place, message: bytes, code: str) -> None:
    assert place.error(message)["code"] == code
    assert place.call("getStatus") == {"status": 1}


def test_an_unknown_function_is_told_the_known_ones(place: Place) -> None:
    assert "echo.say" in place.error(framed(b'{"fn":"no.such"}'))["hint"]


def test_a_refused_megabyte_does_not_drown_the_answer(place: Place) -> None:
    with place.connect() as sock:
        sock.sendall(struct.pack("=i", 2**30) + b"x" * 4_000_000)
        assert b"bad-length" in rest_of(sock)


def test_a_request_that_ends_early_is_told_so(place: Place) -> None:
    with place.connect() as sock:
        sock.sendall(framed(STATUS)[:-2])
        sock.shutdown(socket.SHUT_WR)
        assert b'"short"' in rest_of(sock)


def test_a_probe_that_sends_nothing_is_let_go(place: Place) -> None:
    with place.connect() as sock:
        sock.shutdown(socket.SHUT_WR)
        assert rest_of(sock) == b""


def test_a_request_that_takes_too_long_is_told_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sonde.rpc.server.REQUEST_TIME", 0.1)
    with place.connect() as sock:
        sock.sendall(b"\x10")
        assert b"timed-out" in rest_of(sock)


def test_a_failure_is_logged_with_its_traceback(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.error(framed(b'{"fn":"bug.find"}'))

    assert "on purpose" in caplog.text
    assert "Traceback" in caplog.text
    assert place.server.errors == 1


def test_a_large_request_and_a_large_reply_arrive_whole(place: Place) -> None:
    text = "y" * (REQUEST_LIMIT - 100)

    assert place.call("echo.say", text=text)["request"]["text"] == text
    assert len(place.call("large.get")["text"]) == 8_000_000


def test_a_stream_is_one_frame_each_and_ends_with_done(place: Place) -> None:
    messages = list(client.stream(str(place.tcp), "count.up", to=1000))

    assert [message["number"] for message in messages[:-1]] == list(range(1000))
    assert messages[-1] == {"ok": True, "done": True}


def test_a_stream_that_fails_ends_with_its_error(place: Place) -> None:
    messages = client.stream(str(place.tcp), "count.fail")

    assert next(messages)["number"] == 0
    with pytest.raises(RpcError, match="went away"):
        next(messages)


# Who is calling.


def test_a_unix_caller_is_known_by_pid_and_uid(place: Place) -> None:
    reply = client.call(str(place.unix), "who.reads")

    assert (reply["uid"], reply["pid"], reply["address"]) == (os.getuid(), os.getpid(), "unix")


def test_a_tcp_caller_on_loopback_is_identified_when_it_writes(place: Place) -> None:
    assert place.call("who.writes")["uid"] == os.getuid()
    assert place.call("who.reads")["uid"] is None  # not asked for


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_tcp_caller_of_another_user_is_told_apart(place: Place) -> None:
    code = f"""if True:
        import os, socket, struct
        os.setuid(65534)
        sock = socket.socket()
        sock.settimeout(10)
        sock.connect(("{place.tcp.host}", {place.tcp.port}))
        sock.sendall(struct.pack("=i", 19) + b'{{"fn":"who.writes"}}')
        print(sock.recv(1000)[4:].decode())
    """

    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=20).stdout

    assert json.loads(printed)["uid"] == 65534


def test_a_caller_that_has_closed_its_end_may_not_write(place: Place) -> None:
    with place.connect() as sock:
        sock.sendall(framed(b'{"fn":"who.writes"}')[:-1])
        sock.shutdown(socket.SHUT_WR)  # no longer established: the kernel vouches for nobody
        assert b'"short"' in rest_of(sock)
    with place.connect() as sock:

        def send_and_close() -> None:
            sock.sendall(framed(b'{"fn":"who.writes"}'))
            sock.shutdown(socket.SHUT_WR)

        place.loop.call(send_and_close)  # in the loop's thread: both happen before the server reads
        assert b'"denied"' in rest_of(sock)


def test_the_process_at_the_other_end_can_be_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()):
            connection, _ = server.accept()
            with connection:
                owner = process_of(connection)

    assert owner is not None
    assert owner.pid == os.getpid()


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"])
def test_other_machines_are_kept_out_unless_allowed(place: Place, address: str) -> None:
    with pytest.raises(ConfigError, match="other machines"):
        place.server.listen(address)


def test_listening_for_other_machines_is_logged(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    # 192.0.2.1 is for documentation (RFC 5737): nobody has it, so nothing is opened.
    with pytest.raises(Unavailable):
        place.server.listen("192.0.2.1:0", insecure=True)

    assert "without authentication" in caplog.text


# Nobody delays another.


def test_a_slow_sender_and_one_that_never_reads_do_not_delay_a_third(place: Place) -> None:
    stop = threading.Event()

    def drip() -> None:
        with place.connect() as sock:
            for byte in framed(STATUS):
                sock.send(bytes([byte]))
                if stop.wait(0.1):
                    return

    dripping = threading.Thread(target=drip)
    dripping.start()
    with place.connect() as deaf:
        deaf.sendall(framed(b'{"fn":"large.get"}'))
        slowest = 0.0
        for _ in range(200):
            begun = time.monotonic()
            assert place.call("getStatus") == {"status": 1}
            slowest = max(slowest, time.monotonic() - begun)
    stop.set()
    dripping.join()

    assert slowest < 0.5


def test_beyond_the_cap_new_callers_are_still_served(place: Place) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(80):
            stack.enter_context(place.connect())
        time.sleep(0.11)  # nobody is new any more

        assert place.call("getStatus") == {"status": 1}
        assert place.server.connections <= 64


def test_in_a_burst_a_caller_that_has_not_sent_yet_keeps_its_connection(place: Place) -> None:
    with contextlib.ExitStack() as stack:
        slow = stack.enter_context(place.connect())
        for _ in range(100):
            stack.enter_context(place.connect()).sendall(b"\x10")
        slow.sendall(b'\x12\0\0\0{"fn":"getStatus"}')

        assert slow.recv(100)[4:] == b'{"status":1}'


def test_a_burst_without_end_is_bounded(place: Place) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(600):
            stack.enter_context(place.connect())

        assert place.call("getStatus") == {"status": 1}
        assert place.server.connections <= 8 * 64


def test_bytes_without_sense_do_not_hurt_the_server(place: Place) -> None:
    served: list[Message] = []
    stop = threading.Event()

    def other_client() -> None:
        while not stop.is_set():
            served.append(place.call("getStatus"))

    anything = st.binary(max_size=200)
    message = st.one_of(anything, anything.map(framed), st.builds(lambda cut: framed(STATUS)[:cut], st.integers(0, 30)))

    @settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(message)
    def throw(data: bytes) -> None:
        with place.connect() as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            answer = rest_of(sock)
        assert answer or not data
        assert not answer or len(answer) == 4 + LENGTH.unpack_from(answer)[0]

    other = threading.Thread(target=other_client)
    other.start()
    throw()
    stop.set()
    other.join()

    assert len(served) > 10
    assert all(reply == {"status": 1} for reply in served)
    assert place.loop.failures == 0


def test_a_function_that_blocks_delays_nobody(place: Place) -> None:
    slow: list[Message] = []
    asking = threading.Thread(target=lambda: slow.append(place.call("disk.read", seconds=0.5)))
    asking.start()
    time.sleep(0.1)
    begun = time.monotonic()

    place.call("getStatus")
    took = time.monotonic() - begun
    asking.join()

    assert took < 0.2
    assert slow[0]["thread"] != threading.current_thread().name


def test_a_function_that_blocks_and_fails_answers_its_reason(place: Place) -> None:
    with pytest.raises(RpcError, match="the disk is gone"):
        place.call("disk.read", seconds=0, fails=True)


def test_more_blocking_functions_than_threads_are_refused(place: Place) -> None:
    answers: list[str] = []

    def ask() -> None:
        try:
            answers.append(str(place.call("disk.read", seconds=0.5)["ok"]))
        except RpcError as error:
            answers.append(error.code)

    asking = [threading.Thread(target=ask) for _ in range(12)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()

    assert sorted(answers) == ["True"] * 8 + ["busy"] * 4
    assert place.call("disk.read", seconds=0)["ok"]


def test_an_answer_may_come_later(place: Place) -> None:
    WAITING.clear()
    answers: list[Message] = []
    asking = threading.Thread(target=lambda: answers.append(place.call("job.await", within=10)))
    asking.start()
    until = time.monotonic() + 5
    while not WAITING and time.monotonic() < until:
        time.sleep(0.01)

    place.loop.post(lambda: WAITING[0].resolve({"state": "written"}))
    place.loop.post(lambda: WAITING[0].resolve({"state": "twice"}))
    asking.join()

    assert answers == [{"ok": True, "state": "written"}]


def test_an_answer_may_be_there_at_once(place: Place) -> None:
    assert place.call("job.await", within=10, at_once=True) == {"ok": True, "at": "once"}


def test_an_answer_that_never_comes_is_a_time_out(place: Place) -> None:
    with pytest.raises(RpcError, match=r"no answer was ready within 0\.2 s"):
        place.call("job.await", within=0.2)


def test_a_client_that_has_said_its_last_word_still_gets_the_answer(place: Place) -> None:
    WAITING.clear()
    with socket.create_connection((place.tcp.host, place.tcp.port)) as sock:
        sock.sendall(framed(json.dumps({"fn": "job.await", "within": 5}).encode()))
        sock.shutdown(socket.SHUT_WR)
        until = time.monotonic() + 5
        while not WAITING and time.monotonic() < until:
            time.sleep(0.01)
        place.loop.post(lambda: WAITING[0].resolve({"state": "written"}))
        sock.settimeout(5)

        assert b"written" in sock.recv(4096)


@pytest.mark.parametrize("family", ["tcp", "unix"])
def test_a_client_that_leaves_before_its_answer_costs_nothing(place: Place, family: str) -> None:
    WAITING.clear()
    where = getattr(place, family)
    sock = socket.socket(socket.AF_UNIX if where.path else socket.AF_INET)
    sock.connect(where.path or (where.host, where.port))
    sock.sendall(framed(json.dumps({"fn": "job.await", "within": 0.5}).encode()))
    until = time.monotonic() + 5
    while not WAITING and time.monotonic() < until:
        time.sleep(0.01)
    sock.close()
    before = time.process_time()
    while place.server.connections and time.monotonic() < until:
        time.sleep(0.02)

    assert place.server.connections == 0
    assert time.process_time() - before < 0.3  # the loop does not spin on an end of file
    WAITING[0].resolve({"state": "nobody"})


def test_a_function_that_identifies_is_told_who_calls_and_answers_everybody(place: Place) -> None:
    assert place.call("who.asks")["uid"] == os.getuid()


def test_a_blocking_function_may_finish_in_the_thread_of_the_loop(place: Place) -> None:
    loop_thread = place.loop.call(lambda: threading.current_thread().name)

    assert place.call("disk.finish")["thread"] == loop_thread


def test_a_blocking_function_that_returns_nonsense_is_a_fault_of_ours(place: Place) -> None:
    with pytest.raises(RpcError, match="must not return a int"):
        place.call("disk.nonsense")


def test_a_stream_made_by_a_thread_arrives_whole_and_in_order(place: Place) -> None:
    found = list(client.stream(str(place.tcp), "file.read", to=200, size=20_000))

    assert [message["number"] for message in found[:-1]] == list(range(200))
    assert found[-1]["done"]


def test_a_slow_stream_of_a_thread_delays_nobody_and_comes_as_it_is_made(place: Place) -> None:
    times = []
    for _ in client.stream(str(place.tcp), "file.read", to=4, pause=0.2):
        times.append(time.monotonic())
        begun = time.monotonic()
        place.call("getStatus")
        assert time.monotonic() - begun < 0.15

    assert times[2] - times[0] > 0.3


def test_a_stream_of_a_thread_that_fails_ends_with_the_reason(place: Place) -> None:
    with pytest.raises(RpcError, match="the disk is gone"):
        list(client.stream(str(place.tcp), "file.read", to=2, fails=True))


def test_the_thread_of_a_stream_learns_that_its_client_has_gone(place: Place) -> None:
    LEFT.clear()
    stream = client.stream(str(place.tcp), "file.read", to=100_000, size=100_000)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    until = time.monotonic() + 5
    while not LEFT and time.monotonic() < until:
        time.sleep(0.02)

    assert 0 < LEFT[0] < 1000


def test_what_follows_a_request_that_is_being_answered_is_not_kept(place: Place) -> None:
    WAITING.clear()
    with socket.create_connection((place.tcp.host, place.tcp.port)) as sock:
        sock.sendall(framed(json.dumps({"fn": "job.await", "within": 1}).encode()) + b"x" * 1_000_000)
        until = time.monotonic() + 5
        while not WAITING and time.monotonic() < until:
            time.sleep(0.01)
        place.loop.post(lambda: WAITING[0].resolve({"state": "written"}))
        sock.settimeout(5)

        assert b"written" in sock.recv(4096)

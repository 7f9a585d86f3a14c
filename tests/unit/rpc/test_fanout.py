"""Many calls at once, against real servers: good ones, slow ones, dead ones and ones that say nonsense."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.fleet import fleet
from tests.publicly import open_to_all

from sonde.errors import Denied, RpcError, TimedOut, Unavailable, UsageError
from sonde.rpc.fanout import Call, Outcome, fan_out
from sonde.rpc.switchboard import places

Handler = Callable[[socket.socket], None]


@contextlib.contextmanager
def serving(handler: Handler, server: socket.socket | None = None) -> Iterator[str]:
    """A server that gives every connection to the handler, in a thread each."""
    server = server or socket.create_server(("127.0.0.1", 0))
    threads = []

    def converse(sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            handler(sock)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                thread = threading.Thread(target=converse, args=(server.accept()[0],))
                thread.start()
                threads.append(thread)

    accepting = threading.Thread(target=accept)
    accepting.start()
    name = server.getsockname()
    try:
        yield f"unix:{name}" if isinstance(name, str) else f"127.0.0.1:{name[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)  # wakes accept(2)
        server.close()
        for thread in (accepting, *threads):
            thread.join(10)


def framed(body: bytes) -> bytes:
    return struct.pack("=i", len(body)) + body


def saying(data: bytes, pause: float = 0.0) -> Handler:
    def handle(sock: socket.socket) -> None:
        sock.recv(65536)
        time.sleep(pause)
        sock.sendall(data)

    return handle


GOOD = framed(b'{"status":1}')


def silent(sock: socket.socket) -> None:
    while sock.recv(65536):
        pass


def asked(*addresses: str, timeout: float = 5.0) -> dict[str, Outcome]:
    return {
        outcome.address: outcome
        for outcome in fan_out([Call(address, "getStatus") for address in addresses], timeout=timeout)
    }


def refused_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_outcomes_come_in_the_order_of_arrival() -> None:
    with (
        serving(saying(GOOD, 0.4)) as slow,
        serving(saying(GOOD)) as quick,
        serving(saying(GOOD, 0.2)) as middling,
    ):
        outcomes = list(fan_out(Call(address, "getStatus") for address in (slow, quick, middling)))

    assert [outcome.address for outcome in outcomes] == [quick, middling, slow]
    assert [outcome.reply for outcome in outcomes] == [{"status": 1}] * 3
    assert [outcome.error for outcome in outcomes] == [None] * 3
    assert outcomes[0].seconds < 0.2 <= outcomes[1].seconds < 0.4 <= outcomes[2].seconds < 2


def test_the_arguments_arrive() -> None:
    def echo(sock: socket.socket) -> None:
        sock.sendall(sock.recv(65536))

    with serving(echo) as address:
        (outcome,) = fan_out([Call(address, "trace.show", {"session": "a", "version": 3})])

    assert outcome.reply == {"fn": "trace.show", "session": "a", "version": 3}


def test_nothing_to_ask_is_nothing_to_tell() -> None:
    assert list(fan_out([])) == []


def test_a_server_that_never_answers_is_late_and_delays_nobody() -> None:
    with serving(silent) as dead, serving(saying(GOOD)) as live:
        outcomes = list(fan_out([Call(dead, "x"), Call(live, "x"), Call(dead, "x"), Call(live, "x")], timeout=0.4))

    assert [outcome.address for outcome in outcomes] == [live, live, dead, dead]
    assert all(outcome.seconds < 0.3 for outcome in outcomes[:2])
    for outcome in outcomes[2:]:
        assert isinstance(outcome.error, TimedOut)
        assert str(outcome.error) == f"{dead} did not answer within 0.4 s"
        assert 0.4 <= outcome.seconds < 2


def test_a_host_that_trickles_does_not_stretch_its_deadline() -> None:
    def trickle(sock: socket.socket) -> None:
        for byte in framed(b'{"status":1111111111111111111111111111}'):
            sock.sendall(bytes([byte]))
            time.sleep(0.05)

    with serving(trickle) as address:
        outcome = asked(address, timeout=0.4)[address]

    assert isinstance(outcome.error, TimedOut)
    assert outcome.seconds < 1.5


@pytest.mark.parametrize(
    ("reply", "code", "text"),
    [
        (b"", "closed", "after 0 of 4 bytes"),
        (b"\x05\x00", "closed", "after 2 of 4 bytes"),
        (GOOD[:-3], "closed", "after 13 of 16 bytes"),
        (struct.pack("=i", 0), "bad-length", "a message of 0 bytes"),
        (struct.pack("=i", -1), "bad-length", "a message of -1 bytes"),
        (struct.pack("=i", 2**31 - 1), "bad-length", "a message of 2147483647 bytes"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "bad-length", "is announced"),
        (framed(b"{x"), "bad-json", "not JSON"),
        (framed(b"\xff\xfe"), "bad-json", "not JSON"),
        (framed(b"[]"), "bad-request", "not list"),
        (framed(b'{"error":{"code":"denied","hint":"h","message":"m"},"ok":false}'), "denied", "m"),
    ],
)
def test_a_reply_that_is_none_is_an_error_with_a_code(reply: bytes, code: str, text: str) -> None:
    with serving(saying(reply)) as address, serving(saying(GOOD)) as good:
        outcomes = asked(address, good)

    error = outcomes[address].error
    assert isinstance(error, RpcError)
    assert error.code == code
    assert text in str(error)
    assert outcomes[address].reply is None
    assert outcomes[good].reply == {"status": 1}


def test_an_answer_before_the_question_was_read_is_taken() -> None:
    def refuse(sock: socket.socket) -> None:
        sock.sendall(framed(b'{"error":{"code":"busy","message":"later"},"ok":false}'))
        sock.shutdown(socket.SHUT_WR)
        time.sleep(0.2)

    with serving(refuse) as address:
        error = asked(address)[address].error

    assert isinstance(error, RpcError)
    assert error.code == "busy"


def test_a_refusal_is_heard_while_the_question_is_still_being_sent() -> None:
    over = threading.Event()

    def refuse(sock: socket.socket) -> None:
        sock.recv(4)
        sock.sendall(framed(b'{"error":{"code":"bad-length","message":"too much"},"ok":false}'))
        over.wait(10)

    with serving(refuse) as address:
        (outcome,) = fan_out([Call(address, "x", {"text": "x" * 9_000_000})], timeout=5.0)
        over.set()

    assert isinstance(outcome.error, RpcError)
    assert outcome.error.code == "bad-length"


def test_large_messages_go_in_pieces_both_ways() -> None:
    def echo(sock: socket.socket) -> None:
        with sock.makefile("rb") as file:
            head = file.read(4)
            body = file.read(*struct.unpack("=i", head))
        sock.sendall(head + body)

    text = "x" * 9_000_000  # more than the buffers of both sides hold
    with serving(echo) as address:
        (outcome,) = fan_out([Call(address, "echo", {"text": text})])

    assert outcome.reply == {"fn": "echo", "text": text}


def test_dead_hosts_say_what_is_wrong_and_what_to_do(tmp_path: Path) -> None:
    refused, missing, unknown = refused_address(), f"unix:{tmp_path}/rpc.sock", "no.such.host.invalid:1778"

    outcomes = asked(refused, missing, unknown, "nowhere", "x" * 64 + ".invalid:1", "é" * 64 + ".invalid:1")

    for address, text, hint in (
        (refused, f"nothing answers on {refused}: Connection refused", "sonde daemon"),
        (missing, f"nothing answers on {missing}: No such file or directory", "sonde daemon"),
        (unknown, "the host no.such.host.invalid is not found", "getent ahosts no.such.host.invalid"),
    ):
        error = outcomes[address].error
        assert isinstance(error, Unavailable)
        assert text in str(error)
        assert hint in error.hint
    assert isinstance(outcomes["nowhere"].error, UsageError)
    assert isinstance(outcomes["x" * 64 + ".invalid:1"].error, Unavailable)
    assert "is not the name of a host" in str(outcomes["é" * 64 + ".invalid:1"].error)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_socket_this_user_may_not_open_is_denied(tmp_path: Path) -> None:
    open_to_all(tmp_path)
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"{tmp_path}/rpc.sock")
    server.listen()
    (tmp_path / "rpc.sock").chmod(0o600)
    with serving(saying(GOOD), server) as address:
        os.seteuid(65534)
        try:
            error = asked(address)[address].error
        finally:
            os.seteuid(0)

    assert isinstance(error, Denied)
    assert str(error) == f"this user may not connect to {address}"


def unix_server(path: Path, backlog: int) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen(backlog)
    return server


def test_unix_sockets_are_asked_too(tmp_path: Path) -> None:
    with serving(saying(GOOD), unix_server(tmp_path / "rpc.sock", 5)) as address:
        assert asked(address)[address].reply == {"status": 1}


def test_a_full_queue_of_a_unix_socket_is_waited_for(tmp_path: Path) -> None:
    server = unix_server(tmp_path / "rpc.sock", 0)  # connect(2) answers EAGAIN once one waits

    def late() -> None:
        time.sleep(0.2)
        for _ in range(6):
            with server.accept()[0] as sock:
                sock.recv(65536)
                sock.sendall(GOOD)

    thread = threading.Thread(target=late)
    thread.start()
    outcomes = list(fan_out([Call(f"unix:{tmp_path}/rpc.sock", "getStatus")] * 6))
    thread.join(10)
    server.close()

    assert [outcome.reply for outcome in outcomes] == [{"status": 1}] * 6


def test_ending_early_leaves_no_descriptor() -> None:
    before = descriptors()
    with serving(silent) as dead, serving(saying(GOOD)) as live:
        calls = [Call(address, "x") for address in (dead, dead, dead, "no.such.host.invalid:1", live, dead)]
        outcomes = fan_out(calls)
        first = next(outcomes)
        open_then = descriptors()
        outcomes.close()  # type: ignore[attr-defined]

    assert first.address in (live, "no.such.host.invalid:1")
    assert open_then > before + 4
    until = time.monotonic() + 5
    while descriptors() != before and time.monotonic() < until:
        time.sleep(0.02)  # a name that is being looked up has a socket of its own until it is found
    assert descriptors() == before


def test_an_interrupt_leaves_no_descriptor() -> None:
    before = descriptors()
    with serving(silent) as dead, serving(saying(GOOD)) as live:
        outcomes = fan_out([Call(address, "x") for address in (dead, dead, live)])
        next(outcomes)

        with pytest.raises(KeyboardInterrupt):
            outcomes.throw(KeyboardInterrupt())  # type: ignore[attr-defined]

    assert descriptors() == before


def test_calls_that_cannot_be_written_leave_no_descriptor() -> None:
    before = descriptors()
    with serving(silent) as dead:
        with pytest.raises(ValueError, match="JSON"):
            list(fan_out([Call(dead, "x"), Call(dead, "x", {"share": float("nan")})]))

    assert descriptors() == before


def test_a_caller_that_takes_its_time_costs_nobody_their_answer() -> None:
    outcomes = []
    with serving(saying(GOOD, 0.1)) as address:
        for outcome in fan_out([Call(address, "x") for _ in range(4)], timeout=0.4):
            outcomes.append(outcome)
            time.sleep(0.3)

    assert [outcome.reply for outcome in outcomes] == [{"status": 1}] * 4
    assert all(outcome.seconds < 0.4 for outcome in outcomes)


def test_not_more_are_asked_at_once_than_allowed() -> None:
    most = 0
    present: set[socket.socket] = set()

    def count(sock: socket.socket) -> None:
        nonlocal most
        present.add(sock)
        most = max(most, len(present))
        sock.recv(65536)
        time.sleep(0.05)
        present.discard(sock)
        sock.sendall(GOOD)

    with serving(count) as address:
        outcomes = list(fan_out([Call(address, "x") for _ in range(12)], at_once=3))

    assert [outcome.reply for outcome in outcomes] == [{"status": 1}] * 12
    assert most == 3


@contextlib.contextmanager
def unanswering() -> Iterator[int]:
    """The port of a listener whose queue is full: the kernel drops what more wants to connect (listen(2))."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, contextlib.ExitStack() as stack:
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        time.sleep(0.05)
        yield server.getsockname()[1]


def resolving(monkeypatch: pytest.MonkeyPatch, names: dict[str, list[tuple[str, int]]], pause: float = 0.0) -> None:
    """Have these names stand for these addresses; what the C library knows stays as it is."""
    real = socket.getaddrinfo

    def resolve(host: bytes, port: int, **options: int) -> list[object]:
        found = names.get(host.decode())
        if found is None:
            return list(real(host, port, **options))
        time.sleep(pause)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def test_all_addresses_of_a_name_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    host, _, port = refused_address().partition(":")
    with unanswering() as swallowing, serving(saying(GOOD)) as live:
        routes = [(host, int(port)), ("127.0.0.1", swallowing), ("127.0.0.1", int(live.partition(":")[2]))]
        resolving(monkeypatch, {"both.example": routes, "none.example": routes[:1], "void.example": routes[:2]})
        outcomes = asked("both.example:1", "none.example:1", "void.example:1", timeout=1.0)

    assert outcomes["both.example:1"].reply == {"status": 1}
    assert 0.3 < outcomes["both.example:1"].seconds < 0.9
    assert isinstance(outcomes["none.example:1"].error, Unavailable)
    assert isinstance(outcomes["void.example:1"].error, TimedOut)


def test_a_name_that_is_looked_up_for_long_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(saying(GOOD)) as live:
        resolving(monkeypatch, {"slow.example": [("127.0.0.1", 1)]}, pause=1.5)
        outcomes = asked("slow.example:1", live, live.replace("127.0.0.1", "localhost"), timeout=0.5)

    assert isinstance(outcomes["slow.example:1"].error, TimedOut)
    assert outcomes["slow.example:1"].seconds < 1.4
    assert outcomes[live].seconds < 0.4
    assert outcomes[live.replace("127.0.0.1", "localhost")].reply == {"status": 1}


def test_a_host_whose_queue_is_full_is_late() -> None:
    with unanswering() as port:
        outcome = asked(f"127.0.0.1:{port}", timeout=0.3)[f"127.0.0.1:{port}"]

    assert isinstance(outcome.error, TimedOut)


@pytest.mark.parametrize("at_once", [300, 7])
def test_three_hundred_hosts_answer_and_the_silent_among_them_delay_nobody(at_once: int) -> None:
    before = descriptors()
    with fleet(300, "--silent", "5") as hosts:
        calls = [Call(address, "getStatus") for address in hosts.addresses]
        outcomes = list(fan_out(calls, at_once=at_once, timeout=3.0))

    assert sorted(outcome.address for outcome in outcomes) == sorted(hosts.addresses)
    assert [outcome.reply for outcome in outcomes[:295]] == [{"status": 1}] * 295
    assert [type(outcome.error) for outcome in outcomes[295:]] == [TimedOut] * 5
    assert descriptors() == before


FEW = """
import resource, sys
from sonde.rpc.fanout import Call, fan_out
at_first, later = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (at_first, at_first))
good = 0
for outcome in fan_out([Call(address, "getStatus") for address in sys.argv[3:]], timeout=20):
    good += outcome.reply == {"status": 1}
    resource.setrlimit(resource.RLIMIT_NOFILE, (later, at_first))
print(good)
"""


@pytest.mark.parametrize(("at_first", "later"), [(64, 64), (100, 10)])
def test_the_limit_of_descriptors_is_respected_also_when_it_is_lowered(at_first: int, later: int) -> None:
    with fleet(200) as hosts:
        command = [sys.executable, "-c", FEW, str(at_first), str(later), *hosts.addresses]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert done.stderr == ""
    assert done.stdout == "200\n"


def test_some_descriptors_are_left_to_others() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        few, many = places(5), places(512)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert few == 5
    assert 100 < many <= 200 - descriptors() - 40


def test_connections_that_another_process_has_inherited_disturb_nobody() -> None:
    """As a child between fork(2) and execve(2) has: what was closed here goes on to be reported by epoll(7)."""
    inherited = []
    with fleet(12) as hosts:
        calls = [Call(address, "getStatus") for address in hosts.addresses]
        try:
            outcomes = []
            for outcome in fan_out(calls, at_once=3):
                outcomes.append(outcome)
                names = [name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]
                sockets = [int(name) for name in names if os.readlink(f"/proc/self/fd/{name}").startswith("socket:")]
                inherited += [os.dup(fd) for fd in sockets[:8]]
        finally:
            for fd in inherited:
                os.close(fd)

    assert [outcome.error for outcome in outcomes] == [None] * 12

"""Everything that ends, blocks or swells dynolog, done to a running daemon while a well-behaved client asks it.

The inputs are those under which dynolog 0.6 was seen to die (SIGPIPE, SIGSEGV, SIGABRT), to hang, to stop answering for
ten seconds or to allocate what a stranger asks for.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.tracing import TracingDaemon, tracing_daemon
from tests.lacking import lacking

from sonde.agent import wire

NUMBERS = itertools.count()
_HEADER = struct.Struct("=Q32s")
_REQUEST = struct.Struct("=iiq")


@pytest.fixture(scope="module", params=["path", "abstract"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TracingDaemon]:
    """One daemon for all: what one test leaves behind must not hurt the next."""
    abstract = request.param == "abstract"
    if abstract and os.geteuid():
        lacking("a network namespace needs root")
    with tracing_daemon(tmp_path_factory.mktemp(request.param), abstract=abstract) as running:
        yield running


def framed(body: bytes) -> bytes:
    return struct.pack("=i", len(body)) + body


def poll_of(place: TracingDaemon) -> bytes:
    return wire.pack_request(wire.Request(3, 0, (os.getpid(),)))


@contextlib.contextmanager
def client(place: TracingDaemon, name: bytes | None = None) -> Iterator[socket.socket]:
    """A datagram socket with a name that libkineto would choose, or this one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.settimeout(5)
        sock.bind(name or wire.client_address(f"abuse{next(NUMBERS)}", place.environ))
        yield sock


def send(sock: socket.socket, data: bytes, place: TracingDaemon) -> None:
    """As libkineto does: a full queue is tried again."""
    for _ in range(500):
        with contextlib.suppress(BlockingIOError):
            sock.sendto(data, socket.MSG_DONTWAIT, place.ipc_address)
            return
        time.sleep(0.002)
    raise AssertionError("the daemon does not empty its queue")


def leave_before_the_response(place: TracingDaemon) -> None:
    with place.connected() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close resets
        sock.sendall(framed(b'{"fn":"daemon.status"}'))


def leave_in_the_middle_of_a_request(place: TracingDaemon) -> None:
    with place.connected() as sock:
        sock.sendall(framed(b'{"fn":"getStatus"}')[:-3])


def send_a_second_request(place: TracingDaemon) -> None:
    with place.connected() as sock:
        sock.sendall(framed(b'{"fn":"getStatus"}') * 2)
        assert sock.recv(100).endswith(b'{"status":1}')


def pause_for_abc_seconds(place: TracingDaemon) -> None:
    with place.connected() as sock:
        sock.sendall(framed(b'{"fn":"dcgmProfPause","duration_s":"abc"}'))
        assert b"type_error.302" in sock.recv(1000)


def ask_with_wrong_types(place: TracingDaemon) -> None:
    for body in (
        b'{"fn":"setKinetOnDemandRequest","config":5,"pids":[0]}',
        b'{"fn":"setKinetOnDemandRequest","config":"","pids":["a"]}',
        b'{"fn":"setKinetOnDemandRequest","config":"","pids":[0],"job_id":"12"}',
        b'{"fn":["getStatus"]}',
        b'{"fn":7}',
        b'["getStatus"]',
        b"{}",
        b"{",
    ):
        with place.connected() as sock:
            sock.sendall(framed(body))
            assert sock.recv(4000)


def announce(length: int, begin: bytes = b"") -> Callable[[TracingDaemon], None]:
    def act(place: TracingDaemon) -> None:
        with place.connected() as sock:
            sock.sendall(struct.pack("=i", length) + begin)
            assert b"bad-length" in sock.recv(4000)

    return act


def send_from_a_socket_without_a_name(place: TracingDaemon) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        send(sock, poll_of(place), place)


def send_from_one_half_of_a_pair(place: TracingDaemon) -> None:
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with pair[0] as sock, pair[1]:
        send(sock, poll_of(place), place)


def send_from_a_path(place: TracingDaemon) -> None:
    path = place.folder / f"client{next(NUMBERS)}"
    with client(place, os.fsencode(path)) as sock:
        send(sock, poll_of(place), place)
        assert wire.parse(sock.recv(wire.MAX_DATAGRAM))[0] == wire.REQUEST
    path.unlink()


def send_from_a_name_without_a_nul_at_its_end(place: TracingDaemon) -> None:
    with client(place, b"\0dynoconfigclient%d.%d" % (os.getpid(), next(NUMBERS))) as sock:
        send(sock, poll_of(place), place)
        assert wire.parse(sock.recv(wire.MAX_DATAGRAM))[0] == wire.REQUEST


def name_pids(count: int) -> Callable[[TracingDaemon], None]:
    payload = _REQUEST.pack(3, count, 0) + struct.pack("=i", os.getpid())
    return datagram(_HEADER.pack(len(payload), b"req") + payload)


def datagram(data: bytes) -> Callable[[TracingDaemon], None]:
    def act(place: TracingDaemon) -> None:
        with client(place) as sock:
            send(sock, data, place)

    return act


def be_gone_before_the_reply(place: TracingDaemon) -> None:
    with client(place) as sock:
        for _ in range(5):
            send(sock, poll_of(place), place)


INPUTS: dict[str, Callable[[TracingDaemon], None]] = {
    "a client that leaves before the response": leave_before_the_response,
    "a client that leaves in the middle of its request": leave_in_the_middle_of_a_request,
    "a second request on the same connection": send_a_second_request,
    "a pause of abc seconds": pause_for_abc_seconds,
    "wrong types": ask_with_wrong_types,
    "a length of 512 MB": announce(512 * 2**20, b"x" * 100_000),
    "a length of 2^31-1": announce(2**31 - 1),
    "a negative length": announce(-1, b"{}"),
    "a length of 0": announce(0),
    "a datagram from an unbound socket": send_from_a_socket_without_a_name,
    "a datagram from an unnamed pair": send_from_one_half_of_a_pair,
    "a datagram from a path": send_from_a_path,
    "a name without a NUL at its end": send_from_a_name_without_a_nul_at_its_end,
    "50 million pids": name_pids(50_000_000),
    "2 billion pids": name_pids(2_000_000_000),
    "-1 pids": name_pids(-1),
    "no pids": name_pids(0),
    "a size of 2^62": datagram(_HEADER.pack(2**62, b"req") + bytes(16)),
    "a size of 2^64-1": datagram(_HEADER.pack(2**64 - 1, b"ctxt") + bytes(16)),
    "an empty datagram": datagram(b""),
    "half a header": datagram(bytes(20)),
    "a type without an end": datagram(_HEADER.pack(16, b"r" * 32) + bytes(16)),
    "a client that is gone before the reply": be_gone_before_the_reply,
}


@pytest.mark.parametrize("name", INPUTS)
def test_the_daemon_and_its_other_clients_do_not_notice(place: TracingDaemon, name: str) -> None:
    act = INPUTS[name]
    for _ in range(5):
        act(place)

    with place.unharmed():
        for _ in range(60):
            act(place)


@pytest.mark.parametrize("count", [63, 64, 65, 300])
def test_idle_connections_up_to_the_limit_and_beyond_block_nobody(place: TracingDaemon, count: int) -> None:
    with contextlib.ExitStack() as held, place.unharmed():
        begun = time.monotonic()
        for _ in range(count):
            held.enter_context(place.connected())
        took = time.monotonic() - begun
        time.sleep(0.3)

    assert took < 0.9  # none of them had its first packet dropped, to send it again after a second


def test_connections_that_begin_a_request_and_wait_block_nobody(place: TracingDaemon) -> None:
    with contextlib.ExitStack() as held, place.unharmed():
        for _ in range(100):
            held.enter_context(place.connected()).sendall(struct.pack("=i", 2**20) + b" " * 1000)
        time.sleep(0.3)


def test_a_client_that_never_reads_its_answers_costs_the_others_nothing(place: TracingDaemon) -> None:
    with client(place) as deaf:
        for _ in range(30):  # its queue of ten is full
            send(deaf, poll_of(place), place)

        with place.unharmed():
            for _ in range(200):
                send(deaf, poll_of(place), place)


def test_a_flood_of_datagrams_is_drained(place: TracingDaemon) -> None:
    with client(place) as sock:
        for _ in range(1000):
            send(sock, b"", place)

        with place.unharmed():
            for _ in range(2000):
                send(sock, b"", place)


def test_no_descriptor_is_left_open(place: TracingDaemon) -> None:
    """After all of the above: the last test of its place."""
    until = time.monotonic() + 10  # those that have sent half a request have 5 s for the rest
    descriptors = Path(f"/proc/{place.process.pid}/fd")
    while len(list(descriptors.iterdir())) > 40:
        assert time.monotonic() < until, [str(fd.readlink()) for fd in descriptors.iterdir()]
        time.sleep(0.1)

    assert "Traceback" not in place.log()
    assert "failed" not in place.log()

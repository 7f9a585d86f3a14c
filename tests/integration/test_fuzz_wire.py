"""A hundred thousand messages that make no sense, to both sockets of a running daemon, while a client asks it.

What a message was made from is its seed: a failure names it, and `SONDE_FUZZ_SEED` repeats it.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import random
import re
import socket
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tests.integration.fuzzing import ARGUMENTS, Chance, datagram, framed, request
from tests.integration.tracing import TracingDaemon, tracing_daemon

from sonde.agent import wire

SEED = int(os.environ.get("SONDE_FUZZ_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
NUMBERS = itertools.count()
T = TypeVar("T")
GROWTH = 2 * 2**20  # bytes of resident memory: the interpreter takes and gives back arenas of 1 MiB


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TracingDaemon]:
    with tracing_daemon(tmp_path_factory.mktemp("fuzz"), abstract=False) as running:
        yield running


@pytest.fixture(scope="module")
def functions(place: TracingDaemon) -> list[str]:
    """Every function there is, by the daemon's own word."""
    with place.connected() as sock:
        sock.sendall(framed(b'{"fn":"?"}'))
        reply = json.loads(received(sock)[4:])
    names: list[str] = re.findall(r"[\w.]+", reply["error"]["hint"].partition(":")[2])
    assert "getStatus" in names
    return names


def received(sock: socket.socket) -> bytes:
    return b"".join(iter(lambda: sock.recv(65536), b""))


def say(place: TracingDaemon, data: bytes, *, leave: bool) -> bytes:
    """Say it to the RPC port and listen for the answer, or leave."""
    with place.connected() as sock, contextlib.suppress(OSError):  # cut off in the middle: so be it
        sock.settimeout(0.3 if b"wait_seconds" in data else 10)  # of those that answer later
        sock.sendall(data)
        if not leave:
            sock.shutdown(socket.SHUT_WR)
            return received(sock)
    return b""


def send(sock: socket.socket, data: bytes, place: TracingDaemon) -> None:
    for _ in range(2000):
        try:
            sock.sendto(data, socket.MSG_DONTWAIT, place.ipc_address)
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
            time.sleep(0.001)  # its queue is full
        else:
            return
    raise AssertionError("the daemon does not empty its queue")


def send_datagrams(place: TracingDaemon, count: int, chance: Chance) -> None:
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as no,
    ):
        sock.bind(wire.client_address(f"fuzz{next(NUMBERS)}", place.environ))
        sock.setblocking(False)
        for number in range(count):
            send(no if number % 10 == 9 else sock, datagram(chance, os.getpid()), place)
            if number % 4 == 0:
                with contextlib.suppress(BlockingIOError):
                    sock.recv(wire.MAX_DATAGRAM)


def send_requests(place: TracingDaemon, count: int, chance: Chance, functions: list[str]) -> None:
    for _ in range(count):
        data = request(chance, functions)
        reply = say(place, data, leave=chance.one_in(4))
        assert b'"code":"internal"' not in reply, (data, reply)


def memory_after(place: TracingDaemon, act: Callable[[], None]) -> int:
    act()
    return place.resident_bytes()


@contextlib.contextmanager
def unimpressed(place: TracingDaemon, warm_up: Callable[[], None]) -> Iterator[None]:
    """Afterwards the daemon lives, has not grown, has nothing to complain of, and has answered the other client.

    Its memory goes up and down by a megabyte with what it has just parsed. So the highest of ten looks is where it
    begins, and the lowest of three where it ends.
    """
    print(f"repeat with SONDE_FUZZ_SEED={SEED}")
    before = max(memory_after(place, warm_up) for _ in range(10))
    place.seen()
    yield
    seen = place.seen()
    grown = min(memory_after(place, warm_up) for _ in range(3)) - before
    print(f"the other client saw {seen._replace(failures=seen.failures[:3])}; grown by {grown} bytes")
    assert place.process.poll() is None
    place.assert_prompt(seen)
    assert grown <= GROWTH
    assert "Traceback" not in place.log()
    assert "failed" not in place.log()


LONG = pytest.param(50_000, marks=[pytest.mark.long, pytest.mark.timeout(600)])


@pytest.mark.parametrize("count", [20_000, LONG])
def test_datagrams_without_sense_are_taken_and_forgotten(place: TracingDaemon, count: int) -> None:
    chance = Chance(SEED)

    with unimpressed(place, lambda: send_datagrams(place, 400, chance)):
        send_datagrams(place, count, chance)


@pytest.mark.parametrize("count", [10_000, LONG])
def test_requests_without_sense_are_answered(place: TracingDaemon, functions: list[str], count: int) -> None:
    chance = Chance(SEED)

    with unimpressed(place, lambda: send_requests(place, 300, chance, functions)):
        send_requests(place, count, chance, functions)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def test_structures_without_sense_are_answered(place: TracingDaemon, functions: list[str]) -> None:
    calls = st.fixed_dictionaries({"fn": st.sampled_from(functions)}) | st.dictionaries(st.text(max_size=8), JSON)
    arguments = st.dictionaries(st.sampled_from(ARGUMENTS), JSON, max_size=5)

    def answered(requests: list[tuple[dict[str, object], dict[str, object]]]) -> None:
        for call, more in requests:
            reply = say(place, framed(json.dumps({**more, **call}).encode()), leave=False)
            assert reply or "wait_seconds" in more
            assert b'"code":"internal"' not in reply, (call, more, reply)

    with unimpressed(place, lambda: send_requests(place, 100, Chance(SEED), functions)):
        try_all(st.lists(st.tuples(calls, arguments), min_size=5, max_size=20), answered)


def test_datagrams_of_any_shape_are_taken_and_forgotten(place: TracingDaemon) -> None:
    kinds = st.sampled_from([b"req", b"ctxt"]) | st.binary(max_size=32)
    shapes = st.tuples(st.integers(0, 2**64 - 1) | st.integers(0, 100), kinds, st.binary(max_size=300))

    def taken(datagrams: list[tuple[int, bytes, bytes]]) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            for size, kind, payload in datagrams:
                send(sock, size.to_bytes(8, "little") + kind.ljust(32, b"\0") + payload, place)

    with unimpressed(place, lambda: send_datagrams(place, 100, Chance(SEED))):
        try_all(st.lists(shapes, min_size=5, max_size=20), taken)


def try_all(strategy: st.SearchStrategy[T], act: Callable[[T], None]) -> None:
    """Examples from the seed, without hypothesis' search for shorter ones: the daemon has a past by then."""

    @seed(SEED)
    @settings(
        max_examples=30,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def act_on(example: T) -> None:
        act(example)

    act_on()

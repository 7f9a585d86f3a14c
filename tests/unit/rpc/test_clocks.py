"""The clocks of other hosts, against stubs that are wrong by a known amount."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.authority import Authority
from tests.fleet import fleet, host

from sonde.errors import RpcError, TimedOut, Unavailable, UsageError
from sonde.rpc.clocks import Offset, measure, offset

SHIFT_NS = -3_000_000_017


@contextlib.contextmanager
def answering(reply: Callable[[int], object]) -> Iterator[str]:
    """A server that answers the nth question, from 0, with this; it closes its door when that is None."""

    def serve() -> None:
        number = 0
        with server, contextlib.suppress(OSError):
            while True:
                with server.accept()[0] as sock:
                    sock.recv(65536)
                    answer = reply(number)
                    number += 1
                    if answer is None:
                        return
                    body = json.dumps(answer).encode()
                    sock.sendall(struct.pack("=i", len(body)) + body)

    server = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{server.getsockname()[1]}"
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield address
    finally:
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.mark.parametrize("count", [1, 10, 500])
def test_the_true_offset_is_within_the_bound(count: int) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with fleet(count, "--shift-ns", str(SHIFT_NS)) as hosts:
        found = measure(hosts.addresses)

    assert len(found) == count
    for number, address in enumerate(hosts.addresses):
        result = found[address]
        assert isinstance(result, Offset)
        assert abs(result.offset_ns - (number + 1) * SHIFT_NS) <= result.bound_ns
        assert result.bound_ns < 1e9
        assert result.rounds == 8
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_true_offset_is_within_the_bound_over_tls(authority: Authority) -> None:
    own = authority.signed("clocks", names=",".join(f"IP:{host(number)}" for number in range(10)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.ca)
    context.load_cert_chain(*own)
    options = ["--certificate", own.certificate, "--key", own.key, "--ca", authority.ca]
    with fleet(10, "--shift-ns", str(SHIFT_NS), *options) as hosts:
        found = measure(hosts.addresses, rounds=4, tls=context)

    for number, address in enumerate(hosts.addresses):
        result = found[address]
        assert isinstance(result, Offset)
        assert abs(result.offset_ns - (number + 1) * SHIFT_NS) <= result.bound_ns
        assert result.rounds == 4


def test_one_disturbed_round_does_not_count() -> None:
    def reply(number: int) -> object:
        time.sleep(0.0 if number == 5 else 0.03)
        return {"ok": True, "time_ns": time.time_ns()}

    with answering(reply) as address:
        result = measure([address])[address]

    assert isinstance(result, Offset)
    assert result.bound_ns < 10_000_000
    assert result.rounds == 8


def test_the_time_it_takes_to_set_up_a_connection_is_not_in_the_bound() -> None:
    """Of 500 connections set up at once, those that wait for their turn have not asked yet."""
    with fleet(500) as hosts:
        found = measure(hosts.addresses, rounds=2)

    bounds = sorted(result.bound_ns for result in found.values() if isinstance(result, Offset))
    assert len(bounds) == 500
    assert bounds[250] < 100_000_000


def test_what_fails_has_its_error_and_delays_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        refused = f"127.0.0.1:{server.getsockname()[1]}"
    with fleet(40, "--silent", "30") as hosts, answering(lambda number: {"status": 1}) as dumb:
        begun = time.monotonic()
        found = measure([refused, dumb, "nowhere", *hosts.addresses], timeout=2.0)
        took = time.monotonic() - begun

    assert isinstance(found[refused], Unavailable)
    assert isinstance(found["nowhere"], UsageError)
    error = found[dumb]
    assert isinstance(error, RpcError)
    assert error.code == "bad-reply"
    assert [type(found[address]) for address in hosts.addresses] == [Offset] * 10 + [TimedOut] * 30
    assert 2.0 <= took < 4.0  # silent hosts are asked once, all at the same time


def test_a_host_that_goes_away_has_the_offset_of_the_rounds_before() -> None:
    with answering(lambda number: {"ok": True, "time_ns": time.time_ns()} if number < 3 else None) as address:
        result = measure([address], timeout=2.0)[address]

    assert isinstance(result, Offset)
    assert result.rounds == 3


def test_an_address_that_is_given_twice_is_asked_once() -> None:
    with answering(lambda number: {"ok": True, "time_ns": time.time_ns()}) as address:
        found = measure([address, address], rounds=2)

    assert list(found) == [address]


def test_no_address_is_no_result() -> None:
    assert measure([]) == {}


@given(
    sent_ns=st.integers(0, 2**62),
    there_ns=st.integers(0, 2**40),
    back_ns=st.integers(0, 2**40),
    shift_ns=st.integers(-(2**62), 2**62),
)
def test_whichever_way_takes_longer_the_bound_holds(sent_ns: int, there_ns: int, back_ns: int, shift_ns: int) -> None:
    read_ns = sent_ns + there_ns

    found = offset(sent_ns, read_ns + shift_ns, read_ns + back_ns)

    assert abs(found.offset_ns - shift_ns) <= found.bound_ns

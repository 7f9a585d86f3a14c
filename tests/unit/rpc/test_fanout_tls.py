"""Many calls at once over TLS with certificates of both sides, and what is said when one of them does not suit."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from tests.authority import Authority, Pair
from tests.fleet import fleet, host

from sonde.errors import Denied, RpcError, SondeError, TimedOut, Unavailable
from sonde.rpc.fanout import Call, Outcome, fan_out


@pytest.fixture(scope="session")
def daemon(authority: Authority) -> Pair:
    return authority.signed("daemon", names=",".join(f"IP:{host(number)}" for number in range(20)))


@pytest.fixture(scope="session")
def caller(authority: Authority) -> Pair:
    return authority.signed("caller")


def context(authority: Authority, own: Pair | None) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.load_verify_locations(authority.ca)
    if own is not None:
        made.load_cert_chain(*own)
    return made


def options(authority: Authority, own: Pair) -> list[str]:
    return ["--certificate", own.certificate, "--key", own.key, "--ca", authority.ca]


def only(outcomes: Iterator[Outcome]) -> SondeError | None:
    (outcome,) = outcomes
    return outcome.error


@contextlib.contextmanager
def answering(handle: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server for one connection."""

    def serve() -> None:
        with server.accept()[0] as sock, contextlib.suppress(OSError):
            handle(sock)

    with socket.create_server(("127.1.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.1.0.1:{server.getsockname()[1]}"
        thread.join(10)


def insisting(authority: Authority, own: Pair) -> Callable[[socket.socket], None]:
    """A server that wants a certificate and says so when it gets none that suits; asyncio's would only close."""
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(*own)
    theirs.load_verify_locations(authority.ca)
    theirs.verify_mode = ssl.CERT_REQUIRED

    def handle(sock: socket.socket) -> None:
        with theirs.wrap_socket(sock, server_side=True) as secured:
            secured.recv(65536)

    return handle


def test_hosts_with_certificates_answer_one_that_shows_its_own(
    authority: Authority, daemon: Pair, caller: Pair
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with fleet(20, *options(authority, daemon), "--silent", "2") as hosts:
        calls = [Call(address, "getStatus") for address in hosts.addresses]
        outcomes = list(fan_out(calls, tls=context(authority, caller), timeout=3.0))

    assert {outcome.address for outcome in outcomes[:18]} == set(hosts.addresses[:18])
    assert [outcome.reply for outcome in outcomes[:18]] == [{"status": 1}] * 18
    assert [type(outcome.error) for outcome in outcomes[18:]] == [TimedOut] * 2
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_tls_are_spoken(
    authority: Authority, daemon: Pair, caller: Pair, version: ssl.TLSVersion
) -> None:
    ours = context(authority, caller)
    ours.minimum_version = ours.maximum_version = version
    with fleet(1, *options(authority, daemon)) as hosts:
        (outcome,) = fan_out([Call(hosts.addresses[0], "getStatus")], tls=ours)

    assert outcome.reply == {"status": 1}


def test_a_large_question_goes_in_pieces(authority: Authority, daemon: Pair, caller: Pair) -> None:
    with fleet(1, *options(authority, daemon)) as hosts:
        call = Call(hosts.addresses[0], "getStatus", {"text": "x" * 3_000_000})
        (outcome,) = fan_out([call], tls=context(authority, caller))

    assert outcome.reply == {"status": 1}


def test_a_daemon_of_another_name_is_refused(authority: Authority, caller: Pair) -> None:
    other = authority.signed("other", names="DNS:other.example")
    with fleet(1, *options(authority, other)) as hosts:
        error = only(fan_out([Call(hosts.addresses[0], "x")], tls=context(authority, caller)))

    assert isinstance(error, Unavailable)
    assert str(error) == f"the certificate of {hosts.addresses[0]} is for another address"
    assert "by a name or address" in error.hint


def test_a_daemon_of_an_authority_we_do_not_know_is_refused(
    authority: Authority, daemon: Pair, caller: Pair, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stranger = Authority(tmp_path_factory.mktemp("stranger"), "stranger")
    with fleet(1, *options(authority, daemon)) as hosts:
        error = only(fan_out([Call(hosts.addresses[0], "x")], tls=context(stranger, caller)))

    assert isinstance(error, Unavailable)
    assert str(error) == f"the certificate of {hosts.addresses[0]} is not of an authority that ca.crt holds"


def test_a_daemon_that_wants_a_certificate_denies_one_without(authority: Authority, daemon: Pair) -> None:
    with answering(insisting(authority, daemon)) as address:
        error = only(fan_out([Call(address, "x")], tls=context(authority, None)))

    assert isinstance(error, Denied)
    assert str(error) == f"{address} wants a certificate of ours"
    assert "sonde certs show" in error.hint


def test_a_daemon_that_does_not_know_our_authority_denies_us(
    authority: Authority, daemon: Pair, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stranger = Authority(tmp_path_factory.mktemp("stranger"), "stranger")
    with answering(insisting(authority, daemon)) as address:
        error = only(fan_out([Call(address, "x")], tls=context(authority, stranger.signed("caller"))))

    assert isinstance(error, Denied)
    assert str(error) == f"{address} refuses our certificate: it does not know its authority"


def test_a_daemon_without_tls_is_recognised(authority: Authority, caller: Pair) -> None:
    body = b'{"error":{"code":"bad-length","message":"m"},"ok":false}'

    def answer(sock: socket.socket) -> None:
        sock.recv(65536)
        sock.sendall(struct.pack("=i", len(body)) + body)

    with answering(answer) as address:
        error = only(fan_out([Call(address, "x")], tls=context(authority, caller)))

    assert isinstance(error, Unavailable)
    assert str(error) == f"{address} does not speak TLS"


def test_a_daemon_that_closes_instead_of_shaking_hands_is_unavailable(authority: Authority, caller: Pair) -> None:
    with answering(lambda sock: None) as address:
        error = only(fan_out([Call(address, "x")], tls=context(authority, caller)))

    assert isinstance(error, Unavailable)
    assert str(error) == f"{address} closed the connection during the handshake"


def test_a_daemon_that_never_shakes_hands_is_late(authority: Authority, caller: Pair) -> None:
    begun = time.monotonic()
    with answering(lambda sock: time.sleep(0.6)) as address:
        error = only(fan_out([Call(address, "x")], tls=context(authority, caller), timeout=0.3))

    assert isinstance(error, TimedOut)
    assert time.monotonic() - begun < 5


def test_a_daemon_without_tls_asked_with_it_is_not_asked_in_clear(authority: Authority, caller: Pair) -> None:
    heard = []

    def listen(sock: socket.socket) -> None:
        heard.append(sock.recv(65536))

    with answering(listen) as address:
        only(fan_out([Call(address, "secret")], tls=context(authority, caller), timeout=1.0))

    assert b"secret" not in b"".join(heard)


def test_a_daemon_with_tls_asked_without_says_so(authority: Authority, daemon: Pair) -> None:
    with fleet(1, *options(authority, daemon)) as hosts:
        error = only(fan_out([Call(hosts.addresses[0], "x")], timeout=2.0))

    assert isinstance(error, RpcError)

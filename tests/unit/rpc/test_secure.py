"""Mutual TLS between the RPC server and its clients: ours, openssl's, and some that behave badly."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pwd
import re
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.authority import Authority, Pair

from sonde.address import Address
from sonde.errors import ConfigError, Denied, RpcError, TimedOut, Unavailable
from sonde.rpc import client, secure
from sonde.rpc.codec import Message
from sonde.rpc.peer import Peer
from sonde.rpc.server import Entry, Function, Pending, RpcServer
from sonde.rpc.tls import client_context, server_context

if TYPE_CHECKING:
    from tests.conftest import RunningLoop
    from tests.unit.rpc.conftest import Stock

Directory = Callable[..., Path]
STATUS = struct.pack("=i", 18) + b'{"fn":"getStatus"}'
ANSWER = struct.pack("=i", 12) + b'{"status":1}'


def whoami(_request: Message, peer: Peer) -> Message:
    return {"uid": peer.uid, "name": peer.name}


def count(request: Message, _peer: Peer) -> Iterator[Message]:
    for number in range(request["to"]):
        yield {"number": number, "text": "x" * 30_000}


FUNCTIONS: dict[str, Function | Entry] = {
    "getStatus": lambda request, peer: {"status": 1},
    "echo.say": lambda request, peer: {"request": request},
    "large.get": lambda request, peer: {"text": "x" * 8_000_000},
    "who.reads": whoami,
    "who.asks": Entry(whoami, identifies=True),
    "who.writes": Entry(whoami, writes=True),
    "who.blocks": Entry(whoami, writes=True, blocks=True),
    "who.counts": Entry(count, writes=True),
    "job.await": lambda request, peer: Pending(20.0),
    "count.up": count,
}


class Place:
    def __init__(self, loop: RunningLoop, server: RpcServer, address: Address) -> None:
        self.loop = loop
        self.server = server
        self.address = address

    def call(self, fn: str, tls: ssl.SSLContext | None, **arguments: Any) -> Message:
        return client.call(str(self.address), fn, tls=tls, **arguments)

    def connect(self) -> socket.socket:
        return socket.create_connection((self.address.host, self.address.port), timeout=10)


@pytest.fixture
def place(loop: RunningLoop, directory: Directory, stock: Stock) -> Iterator[Place]:
    """A server that trusts both authorities of the stock, and knows what the first has revoked."""
    context = server_context(str(directory("server", "server", ca=stock.both_authorities)))
    server = RpcServer(loop, FUNCTIONS)
    address = loop.call(lambda: server.listen("127.0.0.1:0", tls=context))
    yield Place(loop, server, address)
    loop.call(server.close)
    assert loop.failures == 0


@pytest.fixture
def root(directory: Directory) -> ssl.SSLContext:
    return client_context(str(directory("client", "root")))


def wait_for_log(caplog: pytest.LogCaptureFixture, words: str) -> None:
    """The server logs when it has sent its alert; the client may have it already."""
    deadline = time.monotonic() + 5
    while words not in caplog.text and time.monotonic() < deadline:
        time.sleep(0.01)
    assert words in caplog.text


def foreign(stock: Stock, pair: Pair | None) -> ssl.SSLContext:
    """The context of a client that looks neither at its own certificate nor much at the server's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.load_verify_locations(stock.authority.ca)
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    return context


@pytest.mark.parametrize("kind", ["server", "rsa", "ed25519"])
def test_a_valid_pair_connects(loop: RunningLoop, directory: Directory, stock: Stock, kind: str) -> None:
    server = RpcServer(loop, FUNCTIONS)
    there = server_context(str(directory("server", kind, crl=stock.crl)))
    here = client_context(str(directory("client", kind, crl=stock.crl)))
    address = loop.call(lambda: server.listen("127.0.0.1:0", tls=there))

    assert client.call(str(address), "getStatus", tls=here) == {"status": 1}
    loop.call(server.close)


def test_a_request_and_a_reply_of_many_records_arrive(place: Place, root: ssl.SSLContext) -> None:
    assert place.call("large.get", root)["text"] == "x" * 8_000_000
    assert place.call("echo.say", root, text="y" * 900_000)["request"]["text"] == "y" * 900_000


def test_a_stream_arrives(place: Place, root: ssl.SSLContext) -> None:
    messages = list(client.stream(str(place.address), "count.up", tls=root, to=50))

    assert [message.get("number") for message in messages] == [*range(50), None]


def test_tls_1_2_is_enough_and_1_1_is_not(place: Place, stock: Stock) -> None:
    context = foreign(stock, stock["root"])
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert place.call("getStatus", context) == {"status": 1}

    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        context.minimum_version = ssl.TLSVersion.TLSv1_1
    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(Unavailable, match="protocol version"):
        place.call("getStatus", context)


# What OpenSSL refuses: the log has the reason, the client gets an alert.
REFUSED = [
    ("expired", "has expired", "says that our certificate has expired"),
    ("early", "is not valid yet", "refuses our certificate: .*bad certificate"),
    ("short", "has a key that is too small", "refuses our certificate: .*bad certificate"),
    ("sha1", "is signed with a digest that is not safe", "refuses our certificate: .*bad certificate"),
    ("md5", "is signed with a digest that is not safe", "refuses our certificate: .*bad certificate"),
    ("stranger", "is not of an authority that ca.crt holds", "it does not know its authority"),
    ("impostor", "is not of an authority that ca.crt holds", "it does not know its authority"),
    ("for-servers", "is not for this use", "refuses our certificate: .*unsupported certificate"),
]


@pytest.mark.parametrize(("kind", "logged", "told"), REFUSED)
def test_a_client_whose_certificate_does_not_verify_is_refused(
    place: Place, stock: Stock, caplog: pytest.LogCaptureFixture, kind: str, logged: str, told: str
) -> None:
    with pytest.raises(Denied, match=told) as refused:
        place.call("getStatus", foreign(stock, stock[kind]))

    wait_for_log(caplog, f"refused a connection from 127.0.0.1: the client's certificate {logged}")
    assert "log of the daemon" in refused.value.hint


# What OpenSSL takes and we do not: the client is answered.
FLAWED = [
    ("v1", "is X.509 version 1"),
    ("ca-as-leaf", "is an authority's own"),
    ("no-usage", "has no keyUsage"),
    ("no-cn", "names no user"),
    ("two-cns", "names more than one user"),
]


@pytest.mark.parametrize(("kind", "words"), FLAWED)
def test_a_client_whose_certificate_has_a_flaw_is_told_which(
    place: Place, stock: Stock, caplog: pytest.LogCaptureFixture, kind: str, words: str
) -> None:
    with pytest.raises(RpcError, match=rf"the client's certificate {re.escape(words)}") as refused:
        place.call("getStatus", foreign(stock, stock[kind]))

    assert refused.value.code == "certificate"
    assert words in caplog.text


def test_a_client_without_a_certificate_is_refused(
    place: Place, stock: Stock, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Denied, match="wants a certificate of ours"):
        place.call("getStatus", foreign(stock, None))

    wait_for_log(caplog, "the client shows no certificate")


def test_a_revoked_client_is_refused_and_another_is_not(
    place: Place, stock: Stock, directory: Directory, caplog: pytest.LogCaptureFixture, root: ssl.SSLContext
) -> None:
    revoked = foreign(stock, stock["revoked"])
    assert place.call("getStatus", revoked) == {"status": 1}
    knowing = server_context(str(directory("server", "server", crl=stock.crl)))

    place.loop.call(lambda: place.server.renew(knowing))

    with pytest.raises(Denied, match="it is revoked"):
        place.call("getStatus", revoked)
    wait_for_log(caplog, "the client's certificate is revoked")
    assert place.call("getStatus", root) == {"status": 1}


def test_a_revocation_list_that_expires_while_the_daemon_runs_is_said_to_have(
    loop: RunningLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path / "authority")
    short = authority.revoking(dates=("-crlsec", "2"))
    there = server_context(authority.directory("server", authority.signed("server"), tmp_path / "s", crl=short))
    here = client_context(authority.directory("client", authority.signed("root"), tmp_path / "c"))
    server = RpcServer(loop, FUNCTIONS)
    address = loop.call(lambda: server.listen("127.0.0.1:0", tls=there))

    time.sleep(2.5)

    with pytest.raises(Denied, match="or its own revocation list has"):
        client.call(str(address), "getStatus", tls=here)
    wait_for_log(caplog, "our ca.crl has expired")
    loop.call(server.close)


@contextlib.contextmanager
def foreign_server(stock: Stock, pair: Pair) -> Iterator[str]:
    """A server that shows any certificate, takes any, and answers one request."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.load_cert_chain(pair.certificate, pair.key)

    def serve() -> None:
        sock, _ = server.accept()
        sock.settimeout(10)
        with contextlib.suppress(OSError), context.wrap_socket(sock, server_side=True) as line:
            received.append(line.recv(65536))
            line.sendall(ANSWER)
        sock.close()

    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(10)
    assert b"fn" not in b"".join(received), "the request was sent to a server that should have been refused"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("expired", "has expired"),
        ("early", "is not valid yet"),
        ("short", "has a key that is too small"),
        ("p224", "has no cipher, curve or kind of signature in common with us"),
        ("sha1", "is signed with a digest that is not safe"),
        ("md5", "is signed with a digest that is not safe"),
        ("stranger", r"is not of an authority that ca\.crt holds"),
        ("for-clients", "is not for this use"),
        ("elsewhere", "is for another address"),
        ("nameless", "is for another address"),
        ("v1", "is for another address"),
        ("ca-as-leaf", "is an authority's own"),
        ("no-usage", "has no keyUsage"),
        ("revoked", "is revoked"),
    ],
)
def test_a_server_with_a_defect_is_refused_before_anything_is_sent(
    stock: Stock, tmp_path: Path, kind: str, words: str
) -> None:
    lists = tmp_path / "lists"
    lists.write_text(Path(stock.crl).read_text() + Path(stock.rsa_authority.revoking()).read_text())
    ca = stock.both_authorities
    folder = stock.authority.directory("client", stock["root"], tmp_path / "certs", crl=str(lists), ca=ca)
    context = client_context(folder)

    with foreign_server(stock, stock[kind]) as address, pytest.raises(Unavailable, match=words) as refused:
        client.call(address, "getStatus", tls=context)

    assert refused.value.hint
    assert address in str(refused.value)


def test_a_host_is_verified_by_its_name_and_by_its_address(
    place: Place, directory: Directory, root: ssl.SSLContext
) -> None:
    context = server_context(str(directory("server", "server")))
    elsewhere = place.loop.call(lambda: place.server.listen("127.0.0.2:0", tls=context))

    for host in ("localhost", "127.0.0.1"):
        assert client.call(f"{host}:{place.address.port}", "getStatus", tls=root) == {"status": 1}
    with pytest.raises(Unavailable, match=r"127\.0\.0\.2:\d+ is for another address"):
        client.call(str(elsewhere), "getStatus", tls=root)


def test_a_plain_client_at_a_tls_port_is_told_so(place: Place) -> None:
    with pytest.raises(RpcError, match="speaks TLS only") as refused:
        place.call("getStatus", None)

    assert refused.value.code == "tls"
    assert "--certs-dir" in refused.value.hint
    assert json.loads(raw(place, b"GET / HTTP/1.1\r\n\r\n")[4:])["error"]["code"] == "tls"


def raw(place: Place, data: bytes) -> bytes:
    """What the server says to these bytes until it closes."""
    with place.connect() as sock:
        sock.sendall(data)
        parts = []
        while part := sock.recv(65536):
            parts.append(part)
    return b"".join(parts)


def test_a_tls_client_at_a_plain_port_is_told_so(loop: RunningLoop, root: ssl.SSLContext) -> None:
    server = RpcServer(loop, FUNCTIONS)
    address = loop.call(lambda: server.listen("127.0.0.1:0"))
    begun = time.monotonic()

    with pytest.raises(Unavailable, match="does not speak TLS") as refused:
        client.call(str(address), "getStatus", tls=root)

    assert time.monotonic() - begun < 3  # not by a deadline
    assert "--certs-dir" in refused.value.hint
    loop.call(server.close)


def test_a_plain_request_that_begins_as_a_handshake_would_is_a_request(loop: RunningLoop) -> None:
    server = RpcServer(loop, FUNCTIONS)
    address = loop.call(lambda: server.listen("127.0.0.1:0"))
    frame = len(b'{"fn":"echo.say","text":""}')

    for length in (0x316, 0x10316):
        reply = client.call(str(address), "echo.say", text="x" * (length - frame))

        assert len(reply["request"]["text"]) == length - frame
    loop.call(server.close)


def test_a_server_that_hangs_up_is_reported_as_such(stock: Stock, root: ssl.SSLContext) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            server.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(Unavailable, match="closed the connection during the handshake"):
            client.call(f"127.0.0.1:{server.getsockname()[1]}", "getStatus", tls=root)
        thread.join(10)


def test_a_server_that_is_silent_in_the_handshake_has_timed_out(root: ssl.SSLContext) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(TimedOut, match=r"within 0\.2 s"):
        client.call(f"127.0.0.1:{server.getsockname()[1]}", "getStatus", 0.2, tls=root)


def test_openssl_is_a_client(place: Place, stock: Stock) -> None:
    where = ["-connect", str(place.address), "-verify_return_error", "-verify_ip", "127.0.0.1"]
    files = ["-CAfile", stock.authority.ca, "-cert", stock["root"].certificate, "-key", stock["root"].key]
    command = ["openssl", "s_client", "-quiet", "-no_ign_eof", *where, *files]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(STATUS)
        process.stdin.flush()
        answer = process.stdout.read(len(ANSWER))
        process.communicate(timeout=20)

    assert answer == ANSWER


def test_clients_that_stall_in_the_handshake_delay_nobody_and_are_cut_off(
    place: Place, root: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(secure, "HANDSHAKE_TIME", 0.5)
    stalled = [place.connect() for _ in range(20)]
    for sock in stalled[10:]:
        sock.sendall(b"\x16\x03\x01")

    took = []
    for _ in range(5):
        begun = time.monotonic()
        assert place.call("getStatus", root) == {"status": 1}
        took.append(time.monotonic() - begun)

    assert min(took) < 0.3
    for sock in stalled:
        assert sock.recv(100) == b""
        sock.close()
    wait_for_log(caplog, "no handshake within 0.5 s")


def test_strangers_cannot_push_out_who_has_proved_itself(place: Place, root: ssl.SSLContext) -> None:
    def wait() -> None:
        with pytest.raises(TimedOut):
            place.call("job.await", root, timeout=2)
        outcome.append("waited")

    outcome: list[str] = []
    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.3)
    strangers = [place.connect() for _ in range(100)]
    waiting.join(20)
    for sock in strangers:
        sock.close()

    assert outcome == ["waited"]


def test_random_bytes_for_a_handshake_end_only_their_own_connection(place: Place, root: ssl.SSLContext) -> None:
    for number in range(200):
        hello = b"\x16\x03\x01\x00\x80\x01" if number % 2 else b""
        with place.connect() as sock, contextlib.suppress(OSError):
            sock.sendall(hello + os.urandom(150))
            sock.shutdown(socket.SHUT_WR)
            sock.recv(1000)

    assert place.call("getStatus", root) == {"status": 1}
    place.loop.call(lambda: None)
    assert place.loop.failures == 0


def test_a_client_that_breaks_off_at_any_byte_of_its_handshake_is_forgotten(
    place: Place, stock: Stock, root: ssl.SSLContext
) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        foreign(stock, None).wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    hello = outgoing.read()

    for length in range(0, len(hello), 7):
        with place.connect() as sock:
            sock.sendall(hello[:length])

    assert place.call("getStatus", root) == {"status": 1}
    deadline = time.monotonic() + 10
    while place.loop.call(lambda: place.server.connections) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert place.loop.call(lambda: place.server.connections) == 0


def test_a_reply_that_nobody_reads_delays_nobody(place: Place, root: ssl.SSLContext) -> None:
    with place.connect() as sock, root.wrap_socket(sock, server_hostname="localhost") as line:
        body = b'{"fn":"large.get"}'
        line.sendall(struct.pack("=i", len(body)) + body)

        assert place.call("getStatus", root) == {"status": 1}


def test_refusals_fill_no_log(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):
        raw(place, b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00")

    assert 1 <= caplog.text.count("refused a connection") <= 3


def test_a_certificate_vouches_for_the_user_it_names(place: Place, stock: Stock, root: ssl.SSLContext) -> None:
    nobody = foreign(stock, stock["nobody"])

    for fn in ("who.asks", "who.writes", "who.blocks"):
        assert place.call(fn, root) == {"ok": True, "uid": 0, "name": "root"}
        assert place.call(fn, nobody) == {"ok": True, "uid": pwd.getpwnam("nobody").pw_uid, "name": "nobody"}
    messages = list(client.stream(str(place.address), "who.counts", tls=nobody, to=3))
    assert [message.get("number") for message in messages] == [0, 1, 2, None]


def test_a_user_this_node_does_not_have_may_read_and_not_write(place: Place, stock: Stock) -> None:
    ghost = foreign(stock, stock["ghost"])

    assert place.call("who.reads", ghost)["name"] == "no-such-user"
    assert place.call("who.asks", ghost) == {"ok": True, "uid": None, "name": "no-such-user"}
    with pytest.raises(RpcError, match="this node has no user 'no-such-user'") as refused:
        place.call("who.writes", ghost)
    assert refused.value.code == "denied"
    assert "sonde certs client" in refused.value.hint


def test_the_owner_of_a_loopback_connection_says_nothing_beside_a_certificate(place: Place, stock: Stock) -> None:
    """Root calls with the certificate of another user and is that user."""
    assert place.call("who.writes", foreign(stock, stock["nobody"]))["uid"] != os.getuid()


def test_new_certificates_are_for_new_connections(
    place: Place, directory: Directory, stock: Stock, root: ssl.SSLContext
) -> None:
    with place.connect() as sock, root.wrap_socket(sock, server_hostname="localhost") as before:
        fresh = server_context(str(directory("server", "elsewhere")))
        place.loop.call(lambda: place.server.renew(fresh))

        with pytest.raises(Unavailable, match="is for another address"):
            place.call("getStatus", root)
        before.sendall(STATUS)
        assert before.recv(100) == ANSWER


def test_an_address_that_others_reach_needs_certificates_or_leave(loop: RunningLoop, directory: Directory) -> None:
    server = RpcServer(loop, FUNCTIONS)

    with pytest.raises(ConfigError, match="nothing there proves who is calling") as refused:
        loop.call(lambda: server.listen("192.0.2.1:0"))
    assert "--certs-dir" in refused.value.hint
    context = server_context(str(directory("server", "server")))
    with pytest.raises(Unavailable, match="cannot listen on"):  # not an address of this machine, but allowed
        loop.call(lambda: server.listen("192.0.2.1:0", tls=context))


def test_a_listener_with_tls_is_not_logged_as_insecure(
    loop: RunningLoop, directory: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    context = server_context(str(directory("server", "server")))
    server = RpcServer(loop, FUNCTIONS)

    loop.call(lambda: server.listen("127.0.0.1:0", tls=context))

    assert "without authentication" not in caplog.text
    loop.call(server.close)

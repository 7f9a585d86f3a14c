"""What fails with TLS is said in the same words by a single call, by a fan-out and by the comparison of clocks."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.authority import Pair

from sonde.errors import SondeError
from sonde.rpc import client
from sonde.rpc.clocks import measure
from sonde.rpc.fanout import Call, fan_out
from sonde.rpc.server import RpcServer
from sonde.rpc.tls import server_context

if TYPE_CHECKING:
    from tests.conftest import RunningLoop
    from tests.unit.rpc.conftest import Stock

Directory = Callable[..., Path]
OF_DAEMON = "the log of the daemon has the reason; `sonde certs show DIR` explains yours"
BY_NAME = "ask for the host by a name or address that its certificate carries"
TRUST = "it must be signed by an authority of our ca.crt: are both from the same `sonde certs init`?"

# The daemon's certificate, ours, what is said ({} is the address), and what to do: docs/how-to/certificates.md.
CASES = [
    ("", "root", "{} does not speak TLS", "leave out --certs-dir and $SONDE_CERTS_DIR, or start the daemon there with"),
    ("server", "", "this address speaks TLS only, and wants a certificate", "--certs-dir"),
    ("elsewhere", "root", "the certificate of {} is for another address", BY_NAME),
    ("stranger", "root", "the certificate of {} is not of an authority that ca.crt holds", TRUST),
    ("impostor", "root", "the certificate of {} is not", TRUST),
    ("server", "stranger", "{} refuses our certificate: it does not know its authority", OF_DAEMON),
    ("server", "revoked", "{} refuses our certificate: it is revoked", OF_DAEMON),
    ("server", "expired", "{} says that our certificate has expired, or its own revocation list has", OF_DAEMON),
    ("server", "nothing", "{} wants a certificate of ours", OF_DAEMON),
    ("server", "for-servers", "{} refuses our certificate: it is not for this use", OF_DAEMON),
    ("server", "early", "{} refuses our certificate: it is not valid yet, or too weak", OF_DAEMON),
]


def ours(stock: Stock, name: str) -> ssl.SSLContext | None:
    """A context that looks at nothing but the daemon's certificate; `nothing` shows none of its own."""
    if not name:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(stock.authority.ca)
    if name != "nothing":
        context.load_cert_chain(*stock[name])
    return context


def theirs(stock: Stock, directory: Directory, name: str) -> ssl.SSLContext | None:
    if not name:
        return None
    pair: Pair = stock[name]
    context = server_context(str(directory("server", "server", crl=stock.crl)))
    context.load_cert_chain(*pair)
    return context


@pytest.mark.parametrize(("daemon", "caller", "text", "hint"), CASES)
def test_a_failure_has_one_text_and_one_hint(
    loop: RunningLoop, stock: Stock, directory: Directory, daemon: str, caller: str, text: str, hint: str
) -> None:
    server = RpcServer(loop, {"getStatus": lambda request, peer: {"status": 1}})
    address = str(loop.call(lambda: server.listen("127.0.0.1:0", tls=theirs(stock, directory, daemon))))
    tls = ours(stock, caller)
    with pytest.raises(SondeError) as alone:
        client.call(address, "getStatus", tls=tls)
    (many,) = fan_out([Call(address, "getStatus")], tls=tls)
    timed = measure([address], tls=tls)[address]
    loop.call(server.close)

    assert isinstance(many.error, SondeError)
    assert isinstance(timed, SondeError)
    assert str(alone.value).startswith(text.format(address))
    assert hint in alone.value.hint
    assert {str(alone.value)} == {str(many.error), str(timed)}
    assert {alone.value.hint} == {many.error.hint, timed.hint}
    assert type(alone.value) is type(many.error) is type(timed)

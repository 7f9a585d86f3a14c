"""Ask many daemons at once, in one thread: a thousand hosts by dynolog's framing, each answer as it comes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from sonde.address import Address, parse_address
from sonde.errors import SondeError, UsageError
from sonde.rpc.codec import Message, encode
from sonde.rpc.exchange import Exchange
from sonde.rpc.switchboard import Switchboard

if TYPE_CHECKING:
    import ssl

_NOTHING: Mapping[str, object] = MappingProxyType({})


class Call(NamedTuple):
    """What to ask of whom: `Call("node01:1778", "process.list")`."""

    address: str
    fn: str
    arguments: Mapping[str, object] = _NOTHING


class Outcome(NamedTuple):
    """What became of a call: a reply or an error, as client.call returns or raises them, and how long it took."""

    address: str
    reply: Message | None
    error: SondeError | None
    seconds: float


def fan_out(
    calls: Iterable[Call],
    *,
    timeout: float = 5.0,
    tls: ssl.SSLContext | None = None,
    at_once: int = 512,
) -> Iterator[Outcome]:
    """Make all calls and give each outcome as it comes; end the iteration early and everything is closed.

    At most `at_once` connections are open, fewer where RLIMIT_NOFILE has it so. Each call has `timeout` seconds from
    when its turn comes. A host that does not answer costs its place for that time and delays nobody else; a function
    that is meant to wait (`trace.show` with `wait_seconds`) needs as many places as there are hosts. With `tls` a host
    is spoken to when its certificate is valid for the host of its address, and has no flaw (rpc/handshake.py).
    """
    with Switchboard(map(_exchange, calls), timeout=timeout, at_once=at_once, tls=tls) as board:
        for done in board.results():
            yield Outcome(done.subject, done.reply, done.error, done.took)


def _exchange(call: Call) -> Exchange:
    request = encode({**call.arguments, "fn": call.fn})
    try:
        return Exchange(call.address, parse_address(call.address), request)
    except UsageError as error:
        exchange = Exchange(call.address, Address(), b"")
        exchange.error = error
        return exchange

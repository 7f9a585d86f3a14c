"""How far the clocks of other hosts are from ours, by `clock.now` (docs/rpc.md), as NTP has it (RFC 5905, section 8).

    ours    t0 ──────────────────────── t3        offset = time − (t0 + t3) / 2
    theirs            time                        bound  = (t3 − t0) / 2

Their clock was read between t0 and t3 of ours, wherever in between, so the true offset is within the bound: a claim,
not an estimate. Of several rounds the one with the shortest way counts. What this process has to do for other hosts
does not lengthen it: t0 is taken before send(2), on a connection that is set up by then, and t3 by the kernel.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from sonde.address import Address, parse_address
from sonde.errors import RpcError, SondeError, UsageError
from sonde.rpc.codec import encode
from sonde.rpc.exchange import SO_TIMESTAMPNS, Exchange
from sonde.rpc.switchboard import Switchboard
from sonde.rpc.turns import Turns

if TYPE_CHECKING:
    import ssl

_REQUEST = encode({"fn": "clock.now"})
_SPACING = 0.02  # seconds between two rounds of a host: what disturbs one should not disturb all
_AT_ONCE = 512  # connections; of those that are set up a few ask at a time


class Offset(NamedTuple):
    """A host's clock minus ours; the true value is within ± `bound_ns`. `rounds` is how often it was asked."""

    offset_ns: int
    bound_ns: int
    rounds: int


def measure(
    addresses: Iterable[str],
    *,
    rounds: int = 8,
    timeout: float = 5.0,
    tls: ssl.SSLContext | None = None,
) -> dict[str, Offset | SondeError]:
    """Compare the clocks of all hosts with ours. Each round has `timeout` seconds; a host that fails is asked no more.

    One that has answered before it failed has an offset, from fewer rounds.
    """
    found: dict[str, Offset | SondeError] = {}
    # While one socket wants stamps, the kernel stamps every packet (net_enable_timestamp() in net/core/dev.c). It takes
    # a while to begin: this one keeps it from ending between two rounds.
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as keeper,
        Switchboard(_first_round(addresses), timeout=timeout, at_once=_AT_ONCE, tls=tls, turns=Turns()) as board,
    ):
        keeper.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        for done in board.results():
            result = found[done.subject] = _better(found.get(done.subject), done)
            if done.error is None and isinstance(result, Offset) and result.rounds < rounds:
                board.later(Exchange(done.subject, done.where, _REQUEST), _SPACING)
    return found


def _first_round(addresses: Iterable[str]) -> Iterator[Exchange]:
    for address in dict.fromkeys(addresses):
        try:
            exchange = Exchange(address, parse_address(address), _REQUEST)
        except UsageError as error:
            exchange = Exchange(address, Address(), b"")
            exchange.error = error
        yield exchange


def _better(known: Offset | SondeError | None, done: Exchange) -> Offset | SondeError:
    """What is known of a host after one more exchange."""
    if not isinstance(known, Offset):
        return _offset(done)
    latest = _offset(done)
    if not isinstance(latest, Offset):
        return known
    best = min(known, latest, key=lambda offset: offset.bound_ns)
    return best._replace(rounds=known.rounds + 1)


def _offset(done: Exchange) -> Offset | SondeError:
    if done.error is not None or done.reply is None:
        return done.error or RpcError("closed", f"{done.where} did not answer")
    time_ns = done.reply.get("time_ns")
    if not isinstance(time_ns, int) or isinstance(time_ns, bool):
        return RpcError("bad-reply", f"{done.where} answered clock.now with no time")
    return offset(done.sent_ns, time_ns, done.received_ns)


def offset(sent_ns: int, time_ns: int, received_ns: int) -> Offset:
    """From our clock before, theirs, and ours after."""
    return Offset(time_ns - (sent_ns + received_ns) // 2, (received_ns - sent_ns) // 2 + 1, 1)

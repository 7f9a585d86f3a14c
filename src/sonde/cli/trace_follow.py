"""Follow a session on all its hosts until every target has ended: long calls of `trace.show`, in rounds.

    requested → delivered → started → written, or an end that says why

A daemon answers as soon as something has changed, so a round takes a second at most and mostly far less.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sonde.cli.trace_hosts import Message, Node
from sonde.cli.trace_start import session_in
from sonde.clock import NS
from sonde.errors import RpcError, SondeError, TimedOut, Unavailable
from sonde.rpc.fanout import Call, fan_out

_WAIT = 1.0  # seconds a daemon may keep us waiting for news; others' news are taken only after that
_TIMEOUT = 10.0  # seconds, more than the wait
_PAUSE = 0.2  # seconds before a host is asked again that failed to answer, or answered at once
_PATIENCE = 10.0  # seconds a host may fail to answer before it is given up
GRACE = 10.0  # seconds beyond a target's deadline, for the daemon to notice and to say


class Change(NamedTuple):
    """A target has come to another state, or a host was given up (no target then)."""

    node: Node
    target: Message | None


def follow(
    nodes: Sequence[Node], session: str, *, limit_ns: int, tls: ssl.SSLContext | None
) -> Iterator[Sequence[Change]]:
    """Yield what has changed, at least once a round, until nothing is waited for.

    `limit_ns`, by our clock: when to give up targets that have no deadline of their own (yet).
    """
    silent_since: dict[str, float] = {}
    while waiting := {node.address: node for node in nodes if node.waiting}:
        begun = time.monotonic()
        calls = _calls(waiting.values(), session)
        for outcome in fan_out(calls, timeout=_TIMEOUT, tls=tls, at_once=len(calls)):
            node = waiting[outcome.address]
            if outcome.reply is not None:
                silent_since.pop(node.address, None)
                yield _taken(node, session_in(outcome.reply))
            elif _is_lost(silent_since, node.address, outcome.error):
                node.error = outcome.error
                yield [Change(node, None)]
        _give_up(waiting.values(), limit_ns)
        yield []
        time.sleep(max(0.0, _PAUSE - (time.monotonic() - begun)))


def _calls(nodes: Iterable[Node], session: str) -> list[Call]:
    return [
        Call(
            node.address,
            "trace.show",
            {"session": session, "version": node.session["version"] if node.session else 0, "wait_seconds": _WAIT},
        )
        for node in nodes
    ]


def _taken(node: Node, session: Message) -> list[Change]:
    before = {(target["pid"], target["own_pid"]): _standing(target) for target in node.targets}
    node.session = session
    return [
        Change(node, target)
        for target in node.targets
        if before.get((target["pid"], target["own_pid"])) != _standing(target)
    ]


def _standing(target: Message) -> tuple[str, str]:
    return target["state"], target["reason"] or ""


def _is_lost(silent_since: dict[str, float], address: str, error: SondeError | None) -> bool:
    """Some errors are for good; a host that does not answer may only be busy, or its daemon be restarting."""
    if not isinstance(error, Unavailable | TimedOut) and not (
        isinstance(error, RpcError) and error.code in ("busy", "closed", "timed-out")
    ):
        return True
    return time.monotonic() - silent_since.setdefault(address, time.monotonic()) > _PATIENCE


def _give_up(nodes: Iterable[Node], limit_ns: int) -> None:
    now_ns = time.time_ns()
    for node in nodes:
        late = [target for target in node.waiting if now_ns > _limit(node, target, limit_ns)]
        for target in late:
            state = target["state"]
            said = f" ({target['reason']})" if target["reason"] else ""
            target["state"] = "timed-out"
            target["reason"] = f"still {state}{said} when it should have been over"


def _limit(node: Node, target: Message, limit_ns: int) -> int:
    deadline = target["deadline_ns"]
    return limit_ns if deadline is None else int(deadline) - node.offset_ns + round(GRACE * NS)


def cancel(nodes: Iterable[Node], session: str, *, tls: ssl.SSLContext | None, take: bool = True) -> list[str]:
    """Call back what is not delivered yet; gives the hosts that could not be told, and why.

    `take`: the nodes' targets become what the daemons say of them afterwards.
    """
    asked = {node.address: node for node in nodes}
    failed = []
    for outcome in fan_out([Call(address, "trace.cancel", {"session": session}) for address in asked], tls=tls):
        node = asked[outcome.address]
        if outcome.reply is not None:
            node.session = session_in(outcome.reply) if take else node.session
        elif not (isinstance(outcome.error, RpcError) and outcome.error.code == "no-session"):
            failed.append(f"{node.name}: {outcome.error}")
    return failed

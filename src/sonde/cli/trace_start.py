"""When all ranks begin: one instant that every process can be told of in time; and the request to each host.

A process learns of a request at its next poll (every 5 s by default), needs 1.1 s from then because libkineto looks at
its requests once a second, and its warm-up before that.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Sequence

from sonde.cli.trace_hosts import Message, Node
from sonde.cli.trace_plan import Plan
from sonde.clock import NS
from sonde.rpc.clocks import Offset, measure
from sonde.rpc.fanout import Call, fan_out

POLL = 5.0  # seconds between polls when nothing says; libkineto's default
LEAD = 1.2  # seconds from a poll to the earliest start
_DRIFT = 0.05  # of a period: how much later than expected a busy process polls
WARMUP = 5.0  # seconds of a process with a GPU; libkineto's default
_ARMING = 0.5  # seconds until all hosts have the request; a poll that comes sooner may miss it
_TIMEOUT = 15.0  # seconds


def next_poll(process: Message, least: float, most: float) -> float:
    """Seconds until a process has fetched a request, when it was looked at `least` to `most` seconds ago."""
    period: float = process["poll_seconds"] or POLL
    if process["polled_seconds_ago"] is None or process["poll_seconds"] is None:
        return period
    sooner, later = (_due(period, process["polled_seconds_ago"] + elapsed) for elapsed in (most, least))
    # Less than it was: between the two it may have polled, and the next is a whole period away.
    return (later if sooner <= later else max(sooner, period)) + _DRIFT * period


def _due(period: float, since: float) -> float:
    due = period - since % period
    return due if due > _ARMING else due + period


def warmup_of(process: Message, asked: int | None) -> float:
    """As the daemon chooses it: a process without a GPU has nothing to warm up."""
    if asked is not None:
        return float(asked)
    return 0.0 if process["gpu"] is False else WARMUP


def earliest(nodes: Iterable[Node], warmup: int | None, now: float) -> float:
    """Seconds from now (monotonic) until all of them can begin."""
    return max(
        (
            next_poll(process, now - node.answered, now - node.asked) + LEAD + warmup_of(process, warmup)
            for node in nodes
            for process in node.traceable
        ),
        default=0.0,
    )


def start_of(nodes: Sequence[Node], plan: Plan, *, now: float, now_ns: int, delay: float) -> int:
    """The common start by our clock; 0 leaves it to the daemon, which starts a single process as soon as it can."""
    if plan.options.steps or (sum(len(node.traceable) for node in nodes) < 2 and not delay):
        return 0
    wait = earliest(nodes, plan.options.warmup_seconds, now) + delay
    return now_ns + round(wait * NS)


def measure_clocks(nodes: Sequence[Node], tls: ssl.SSLContext | None) -> list[str]:
    """Give each node its clock's offset; says which could not be measured."""
    asked = {node.address: node for node in nodes if node.found and node.error is None}
    said = []
    for address, offset in measure(asked, tls=tls).items():
        if isinstance(offset, Offset):
            asked[address].offset = offset
        else:
            said.append(f"{asked[address].name}: its clock could not be compared with ours: {offset}")
    return said


def arm(nodes: Sequence[Node], plan: Plan, session: str, start_ns: int, *, tls: ssl.SSLContext | None) -> None:
    """Ask all hosts at once; a node has its session, or an error, afterwards."""
    known = {node.address: node for node in nodes if node.found and node.error is None}
    calls = [Call(address, "trace.start", _request(node, plan, session, start_ns)) for address, node in known.items()]
    for outcome in fan_out(calls, timeout=_TIMEOUT, tls=tls):
        node = known[outcome.address]
        node.error = outcome.error
        if outcome.reply is not None:
            node.session = session_in(outcome.reply)


def session_in(reply: Message) -> Message:
    """The session of a reply: beside other fields, or the reply itself."""
    inner = reply.get("session")
    return inner if isinstance(inner, dict) else reply


def _request(node: Node, plan: Plan, session: str, start_ns: int) -> Message:
    request: Message = {"session": session, **plan.choice, **plan.recording}
    if not plan.options.steps:
        request["start_ns"] = start_ns + node.offset_ns if start_ns else 0
    if request.get("not_before_ns"):
        request["not_before_ns"] += node.offset_ns
    return request

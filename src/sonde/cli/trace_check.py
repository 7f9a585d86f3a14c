"""What the daemons have registered for a choice of processes, what is missing, and why: said plainly, host by host."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from sonde.cli.connection import is_here
from sonde.cli.ranks import folded
from sonde.cli.trace_hosts import Message, Node
from sonde.errors import RpcError
from sonde.rpc.fanout import Call, fan_out

_TIMEOUT = 15.0  # seconds; the reasons of processes that did not register are looked for in /proc
_LISTED = 16  # lines of a kind that are shown one by one


class Lack(NamedTuple):
    """A process or a rank of the choice that cannot be traced."""

    host: str  # empty: on none of them
    rank: int | None
    pid: int | None
    reason: str

    def __str__(self) -> str:
        return f"{name_of(self.rank, self.pid, self.host)}: {self.reason}"


def check(nodes: Sequence[Node], choice: Mapping[str, object], tls: ssl.SSLContext | None) -> None:
    """Ask all hosts at once; each node has its answer, or the error, afterwards."""
    known = {node.address: node for node in nodes}
    closed: list[Node] = []
    for outcome in fan_out([Call(address, "trace.check", choice) for address in known], timeout=_TIMEOUT, tls=tls):
        node = known[outcome.address]
        if outcome.reply is not None:
            _take(node, outcome.reply)
            node.answered = time.monotonic()
            node.asked = node.answered - outcome.seconds
        else:
            node.error = outcome.error
            if isinstance(outcome.error, RpcError) and outcome.error.code == "closed":
                closed.append(node)
    _look_for_dynolog(closed, tls)


def _take(node: Node, reply: Message) -> None:
    node.name = reply.get("host") or node.name
    node.ipc = reply["ipc"]
    node.found = reply["found"]
    node.missing = reply["missing"]


def _look_for_dynolog(nodes: Sequence[Node], tls: ssl.SSLContext | None) -> None:
    """Who closes the connection where sonde would answer with an error may be a dynolog."""
    known = {node.address: node for node in nodes}
    for outcome in fan_out([Call(address, "getVersion") for address in known], timeout=_TIMEOUT, tls=tls):
        if outcome.reply is not None and "version" in outcome.reply:
            node = known[outcome.address]
            node.foreign = str(outcome.reply["version"]) or "?"
            node.error = None


def learn_builds(nodes: Sequence[Node], tls: ssl.SSLContext | None) -> None:
    """Which version answers on each host; one that does not say has none."""
    known = {node.address: node for node in nodes if node.error is None and not node.foreign}
    for outcome in fan_out([Call(address, "daemon.version") for address in known], timeout=_TIMEOUT, tls=tls):
        if outcome.reply is not None:
            known[outcome.address].build = str(outcome.reply.get("build", ""))


def lacks(nodes: Sequence[Node], ranks: Sequence[int], whole_job: bool) -> list[Lack]:
    """What of the choice cannot be traced: what the daemons say, and ranks that are on no host."""
    # A host may have several daemons: what is not registered with one may be with another.
    there = {(node.name, process["pid"]) for node in nodes for process in node.found}
    said = [
        Lack(node.name, entry.get("rank"), entry.get("pid"), str(entry.get("reason", "not registered")))
        for node in nodes
        for entry in node.missing
        if (node.name, entry.get("pid")) not in there
    ]
    told = list(dict.fromkeys(said))
    if not whole_job:
        return told
    found = [process for node in nodes for process in node.found]
    known = {lack.rank for lack in told} | {process["rank"] for process in found}
    if any(node.foreign for node in nodes) and not ranks:
        return told  # a dynolog does not say which ranks it has
    absent = expected_ranks(found, ranks) - known
    where = "any host" if len(nodes) > 1 else "this host"
    if any(node.error is not None for node in nodes):
        where = "the hosts that answer"
    reason = f"no process found on {where}"
    return told + [Lack("", rank, None, reason) for rank in sorted(absent)]


def expected_ranks(found: Iterable[Message], ranks: Sequence[int]) -> set[int]:
    """The ranks that were asked for; without a choice all that the found ones say there are."""
    if ranks:
        return set(ranks)
    world = max((process["world_size"] or 0 for process in found), default=0)
    return set(range(world))


def remarks(nodes: Sequence[Node], wanted: str) -> list[str]:
    """What has to be said of each host, but for lacks: no answer, no IPC, nothing there, who has to wait.

    `wanted` begins the sentence about one that has nothing: `no process of job 77`.
    """
    lines: list[str] = []
    for node in nodes:
        lines += _of_host(node, wanted)
        lines += [line for process in node.found for line in _of_process(node, process)]
    return lines


def ended(nodes: Sequence[Node], pids: Sequence[int]) -> list[str]:
    """Pids that were named and are no processes of this host, when no other is asked."""
    if not all(is_here(node.address) for node in nodes):
        return []
    return [f"there is no process {pid} on this host" for pid in pids if not os.path.exists(f"/proc/{pid}")]


def _of_host(node: Node, wanted: str) -> list[str]:
    if node.error is not None:
        return [f"{node.name}: {_because(node)}"]
    if node.foreign:
        return [f"{node.name}: a dynolog daemon ({node.foreign}): it can be armed, but not followed"]
    if not node.ipc:
        from sonde.tracing.explain import SWITCH_ON

        return [f"{node.name}: daemon up, IPC off: {SWITCH_ON}"]
    if not node.found and not node.missing:
        return [f"{node.name}: daemon up, {wanted} has registered there"]
    return []


def _because(node: Node) -> str:
    error = node.error
    if isinstance(error, RpcError) and error.code == "unknown-function":
        return f"the daemon on {node.address} is too old to know sessions of traces"
    return str(error)


def _of_process(node: Node, process: Message) -> list[str]:
    name = name_of(process["rank"], process["pid"] or process["own_pid"], node.name)
    if not process.get("may_trace", True):
        return [f"{name}: belongs to {process['user']}, and {who_may({process['user']})} may trace it"]
    if process["waiting"]:
        return [f"{name}: another request waits for its next poll already"]
    if not process["accepts"]:
        return [f"{name}: a torch.profiler session is active, the request waits"]
    return []


def who_may(users: Collection[str]) -> str:
    """`only root`, or `only that user and root`."""
    return "only root" if set(users) == {"root"} else "only that user and root"


def name_of(rank: int | None, pid: int | None, host: str) -> str:
    """`rank 5 (n3, pid 812)`, `pid 812 on n3`, or what of it is known."""
    where = ", ".join([*([host] if host else []), *([f"pid {pid}"] if pid else [])])
    if rank is not None:
        return f"rank {rank} ({where})" if where else f"rank {rank}"
    return f"pid {pid} on {host}" if pid and host else where or "?"


def shortened(lacking: Sequence[Lack]) -> list[str]:
    """A line each; ranks that are nowhere, or very many that lack for the same reason, in one."""
    many = len(lacking) > _LISTED
    groups: dict[Lack | str, list[Lack]] = {}
    for lack in lacking:
        groups.setdefault(lack if lack.host and not many else lack.reason, []).append(lack)
    return [_together(group) for group in groups.values()]


def _together(group: Sequence[Lack]) -> str:
    if len(group) == 1:
        return str(group[0])
    ranks = [lack.rank for lack in group if lack.rank is not None]
    who = f"ranks {folded(ranks)}" if len(ranks) == len(group) else f"{len(group)} processes"
    return f"{who}: {group[0].reason}"


def census(nodes: Sequence[Node]) -> str:
    """`8 processes on 4 hosts, ranks 0-7, job 77`, `2 processes on 1 host, 1 of another user`."""
    found = [process for node in nodes for process in node.found]
    hosts = len({node.name for node in nodes if node.found})
    ranks = folded(process["rank"] for process in found if process["rank"] is not None)
    jobs = sorted({process["job"]["id"] for process in found if process["job"]})
    parts = [f"{_counted(len(found), 'process', 'processes')} on {_counted(hosts, 'host', 'hosts')}"]
    if ranks:
        parts.append(f"rank {ranks}" if ranks.isdigit() else f"ranks {ranks}")
    if jobs:
        parts.append(f"job{'s' if len(jobs) > 1 else ''} {', '.join(jobs[:8])}")
    others = len(found) - sum(len(node.traceable) for node in nodes)
    if others:
        parts.append(f"{others} of {'another user' if others == 1 else 'other users'}")
    return ", ".join(parts)


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"

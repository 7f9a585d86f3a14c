"""The hosts a trace is asked of: a job's, those that are named, or this one; and what each of them has answered."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from typing import Any

from sonde.cli.connection import DEFAULT_PORT, daemons_of
from sonde.daemon import runs
from sonde.daemon.paths import default_paths
from sonde.errors import ReadError, SondeError, TimedOut, Unavailable, UsageError
from sonde.rpc.clocks import Offset
from sonde.schedulers.hosts import batch_systems, hosts_of

Message = dict[str, Any]
ENDED = ("written", "refused", "failed", "timed-out", "cancelled", "lost")


class Node:
    """One host through a trace: where its daemon is, and the newest that it has said."""

    __slots__ = (
        "address",
        "answered",
        "asked",
        "build",
        "error",
        "failures",
        "foreign",
        "found",
        "ipc",
        "local",
        "matched",
        "missing",
        "name",
        "offset",
        "session",
    )

    def __init__(self, name: str, address: str) -> None:
        self.name = name  # its own name for itself once it has answered
        self.address = address
        self.local = False  # a daemon of this very host, found and not named
        self.error: SondeError | None = None  # why nothing more is to be had from it
        self.foreign = ""  # the version of a dynolog that answers there
        self.build = ""  # the version of the sonde that answers there
        self.ipc: list[str] = []
        self.asked = self.answered = 0.0  # when it was asked what it has, and when it had said so; monotonic
        self.found: list[Message] = []  # processes
        self.missing: list[Message] = []
        self.matched: list[Message] = []  # what a dynolog was asked to trace
        self.offset: Offset | None = None  # its clock minus ours
        self.session: Message | None = None
        self.failures = 0  # of being asked for news, in a row

    @property
    def traceable(self) -> list[Message]:
        """The processes found that this user may trace."""
        return [process for process in self.found if process.get("may_trace", True)]

    @property
    def targets(self) -> list[Message]:
        return list(self.session["targets"]) if self.session else []

    @property
    def asked_for(self) -> Message:
        """What was asked for, as the daemon has understood it."""
        config: Message = self.session.get("config", {}) if self.session else {}
        return config

    @property
    def waiting(self) -> list[Message]:
        """Targets of which more is to come."""
        return [] if self.error else [target for target in self.targets if target["state"] not in ENDED]

    @property
    def offset_ns(self) -> int:
        return self.offset.offset_ns if self.offset else 0

    def process_of(self, target: Message) -> Message:
        """What is known of a target's process; little when it was not found before."""
        for process in self.found:
            if (process["pid"], process["own_pid"]) == (target["pid"], target["own_pid"]):
                return process
        return {}


def nodes_of(args: argparse.Namespace) -> tuple[list[Node], list[str]]:
    """The daemons to ask, each once, and what had better be said about them."""
    if args.host:
        return _unique(node for text in args.host for node in _named(text)), []
    if not args.job:
        return _here(), []
    return _of_job(args.job)


def _of_job(job: str) -> tuple[list[Node], list[str]]:
    """A batch system tells a job's hosts; of one that none knows, this host is asked."""
    if not batch_systems(job):
        return _here(), []
    try:
        return _unique(node for name in hosts_of(job) for node in _of_host(name)), []
    except (Unavailable, ReadError, TimedOut) as error:
        return _here(), [f"only this host is asked: {error}"]


def _named(text: str) -> list[Node]:
    if text.startswith(("unix:", "[")):  # a socket, or an address of IPv6
        return [Node(text, text)]
    return [node for name in hosts_of(text) for node in _of_host(name)]


def _of_host(name: str) -> list[Node]:
    """A host by the name its user knows. This very host answers on sockets, where the kernel says who is asking."""
    if ":" in name:
        return [Node(name, name)]
    remote = f"{name}:{DEFAULT_PORT}"
    if _short(name) != _short(os.uname().nodename):
        return [Node(name, remote)]
    own = default_paths().rpc_socket
    return _local(name, [f"unix:{own}" if os.path.exists(own) else remote, *runs.living()])


def _here() -> list[Node]:
    return _local(os.uname().nodename, daemons_of(argparse.Namespace(host=None)))


def _local(name: str, addresses: Sequence[str]) -> list[Node]:
    nodes = [Node(name, address) for address in addresses]
    for node in nodes:
        node.local = True
    return nodes


def settled(nodes: Sequence[Node]) -> list[Node]:
    """Without those daemons of this host that have nothing, when others of it have: nobody has asked for them.

    There are several while `sonde run` has private ones.
    """
    local = [node for node in nodes if node.local]
    useful = [node for node in local if node.found] or [node for node in local if node.error is None] or local
    return [node for node in nodes if not node.local or node in useful]


def _short(name: str) -> str:
    return name.partition(".")[0]


def _unique(nodes: Iterable[Node]) -> list[Node]:
    unique = {node.address: node for node in nodes}
    if not unique:
        raise UsageError("no host is named", hint="--host n[1-4], or @FILE with one per line")
    return list(unique.values())

"""Gather the files of a session: streamed over the RPC as gzip, capped, checked against their SHA-256, then renamed.

No filesystem is shared with the hosts. Up to eight of them send at once, each its files one after the other.
"""

from __future__ import annotations

import os
import re
import ssl
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from sonde.cli.trace_hosts import Message, Node
from sonde.errors import RpcError, SondeError, TimedOut
from sonde.rpc import receipt
from sonde.rpc.client import stream
from sonde.rpc.fanout import Call, fan_out
from sonde.units import human_bytes

if TYPE_CHECKING:
    from sonde.tracing.summary import Summary

# A daemon that was restarted does not know what became of its targets, but the file may be there.
FETCHABLE = ("written", "lost")
_AT_ONCE = 8  # hosts
_TIMEOUT = 30.0  # seconds for each piece: a daemon reads it from a disk that others use
_TRIES = 3
_PAUSE = 0.5  # seconds before another try
_LEAVING = 2.0  # seconds for the threads to see that nobody waits for them
_UNNAMEABLE = re.compile(r"[^A-Za-z0-9.-]+")

Key = tuple[str, int | None, int]  # of a target: its host's address, its pid, its pid as it knows itself


class Gathered(NamedTuple):
    """A file that is here now, and what is in it; or why it is not."""

    file: str = ""  # its name in the output directory
    size: int = 0  # bytes of the trace itself
    stored: int = 0  # bytes on this disk
    sha256: str = ""  # of the trace itself
    summary: Summary | None = None
    error: str = ""


class Interrupted(Exception):
    """The user wants no more of it."""


def key_of(node: Node, target: Message) -> Key:
    return node.address, target["pid"], target["own_pid"]


def file_name(rank: int | None, host: str, pid: int) -> str:
    """`rank-0_n1_812.json.gz`, or `n1_812.json.gz`."""
    named = f"{_UNNAMEABLE.sub('-', host)}_{pid}.json.gz"
    return named if rank is None else f"rank-{rank}_{named}"


def names_of(written: Sequence[tuple[Node, Message]]) -> dict[Key, str]:
    """A name for each; two hosts may call themselves the same."""
    names: dict[Key, str] = {}
    taken: set[str] = set()
    for node, target in written:
        name = file_name(target["rank"], node.name, target["pid"] or target["own_pid"])
        number = 2
        while name in taken:
            name = file_name(target["rank"], f"{node.name}-{number}", target["pid"] or target["own_pid"])
            number += 1
        taken.add(name)
        names[key_of(node, target)] = name
    return names


class Gathering:
    """One walk through all hosts. `moved` is told of bytes of traces as they come, from any thread."""

    def __init__(
        self, session: str, output: str, *, max_size: int, tls: ssl.SSLContext | None, moved: Callable[[int], None]
    ) -> None:
        self._session = session
        self._output = output
        self._max_size = max_size
        self._tls = tls
        self._moved = moved
        self._stop = threading.Event()

    def gather(self, nodes: Sequence[Node], here: Collection[Key] = ()) -> Iterator[tuple[Key, Gathered]]:
        """Yield each file as it is done, without those that are here. Left early, it stops at the next piece."""
        all_written = [(node, target) for node in nodes for target in node.targets if target["state"] in FETCHABLE]
        names = names_of(all_written)
        written = [(node, target) for node, target in all_written if key_of(node, target) not in here]
        hosts: SimpleQueue[Sequence[tuple[Node, Message]]] = SimpleQueue()
        for address in dict.fromkeys(node.address for node, _ in written):
            hosts.put([one for one in written if one[0].address == address])
        done: SimpleQueue[tuple[Key, Gathered]] = SimpleQueue()
        # Daemons, because a thread that waits for a dead host must not keep the user waiting who has pressed Ctrl-C.
        threads = [
            threading.Thread(target=self._work, args=(hosts, names, done), daemon=True)
            for _ in range(min(_AT_ONCE, hosts.qsize()))
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in written:
                yield done.get()
        finally:
            self._stop.set()
            until = time.monotonic() + _LEAVING
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))

    def _work(
        self,
        hosts: SimpleQueue[Sequence[tuple[Node, Message]]],
        names: Mapping[Key, str],
        done: SimpleQueue[tuple[Key, Gathered]],
    ) -> None:
        while not self._stop.is_set():
            try:
                files = hosts.get_nowait()
            except Empty:
                return
            for node, target in files:
                key = key_of(node, target)
                done.put((key, self._one(node, target, names[key])))

    def _one(self, node: Node, target: Message, name: str) -> Gathered:
        size = target["size"] or 0
        if size > self._max_size:
            return Gathered(error=_too_large(size, self._max_size, node, target))
        try:
            return summarised(self._output, self._tried(node, target, name), node.asked_for)
        except Interrupted:
            return Gathered(error="not gathered: interrupted")
        except (SondeError, OSError) as error:
            said = f": {target['reason']}" if target["reason"] else ""
            return Gathered(error=f"lost{said}" if target["state"] == "lost" else f"not gathered: {error}")

    def _tried(self, node: Node, target: Message, name: str) -> Gathered:
        for again in range(1, _TRIES):
            try:
                return self._fetched(node, target, name)
            except (RpcError, TimedOut) as error:
                if not _may_help(error) or self._stop.wait(_PAUSE * again):
                    raise
        return self._fetched(node, target, name)

    def _fetched(self, node: Node, target: Message, name: str) -> Gathered:
        part = os.path.join(self._output, f".{name}.part")
        pid = target["pid"] if target["pid"] is not None else target["own_pid"]
        # A file that a killed command has left there is written over.
        try:
            with open(part, "wb") as file:
                received = Receipt(self._max_size, node, target)
                for message in stream(
                    node.address, "trace.fetch", timeout=_TIMEOUT, tls=self._tls, session=self._session, pid=pid
                ):
                    if self._stop.is_set():
                        raise Interrupted
                    before = received.size
                    file.write(received.take(message))
                    self._moved(received.size - before)
                stored = file.tell()
            received.verify()
            os.replace(part, os.path.join(self._output, name))
        except BaseException:
            _remove(part)
            raise
        return Gathered(name, received.size, stored, received.sha256)


class Receipt(receipt.Receipt):
    """Of a trace."""

    def __init__(self, limit: int, node: Node, target: Message) -> None:
        super().__init__(limit, lambda size: _too_large(size, limit, node, target))


def summarised(output: str, gathered: Gathered, asked: Mapping[str, object]) -> Gathered:
    """With what is in the file; a trace that cannot be read is no trace, though the file stays."""
    from sonde.tracing.summary import MARKS, summarise

    looked_for = [name for name in MARKS if asked.get(name)]
    try:
        return gathered._replace(summary=summarise(os.path.join(output, gathered.file), looked_for))
    except SondeError as error:
        return gathered._replace(error=f"not a trace: {error}")


def remove(nodes: Iterable[Node], session: str, *, tls: ssl.SSLContext | None) -> list[str]:
    """Have the files deleted on these hosts; says where that failed."""
    asked = {node.address: node for node in nodes}
    calls = [Call(address, "trace.remove", {"session": session}) for address in asked]
    return [
        f"{asked[outcome.address].name}: the files stay on that host: {outcome.error}"
        for outcome in fan_out(calls, timeout=_TIMEOUT, tls=tls)
        if outcome.error is not None
    ]


def _may_help(error: SondeError) -> bool:
    return not isinstance(error, RpcError) or error.code in ("busy", "closed", "timed-out", "garbled")


def _too_large(size: int, limit: int, node: Node, target: Message) -> str:
    return (
        f"not gathered: it has {human_bytes(size)} or more, beyond --max-size ({human_bytes(limit)});"
        f" it stays on {node.name}: {target['path']}"
    )


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass

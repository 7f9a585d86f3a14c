"""A node that acts: it answers the functions of tracing as docs/rpc.md has them, over a real RPC server.

Its processes are played: each goes through the states of a target as its part says, and its file is a trace of two
operators. Nothing of the daemon's own tracing is in here, so the command is tested against the contract.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.conftest import RunningLoop

from sonde.errors import RpcError
from sonde.rpc.codec import Message
from sonde.rpc.peer import Peer
from sonde.rpc.server import Entry, Pending, RpcServer
from sonde.rpc.tls import server_context

STEP = 0.05  # seconds between two states
ACTIVE = ("requested", "delivered", "started")


class Actor(NamedTuple):
    """A process and what becomes of its trace."""

    pid: int
    rank: int | None = None
    world_size: int | None = None
    job: str = "tune"
    uid: int = 0
    user: str = "root"
    gpu: bool | None = False
    accepts: bool = True
    may_trace: bool = True
    poll_seconds: float | None = 1.0
    part: str = "written"  # or timed-out, failed, stuck, refused: where it ends
    reason: str = ""
    late: float = 0.0  # seconds its first operator comes after the start
    file: bytes | None = None  # another content of the file than a trace
    lies: bool = False  # about the sum of its file


class TraceNode:
    """One host. `skew` is how much its clock is ahead, in seconds."""

    def __init__(
        self,
        loop: RunningLoop,
        name: str,
        *actors: Actor,
        ipc: bool = True,
        skew: float = 0.0,
        missing: tuple[Message, ...] = (),
        without: tuple[str, ...] = (),
        certs: str = "",
    ) -> None:
        self.name = name
        self.actors = actors
        self.requests: list[Message] = []
        self.sessions: dict[str, Message] = {}
        self.removed: list[str] = []
        self._loop = loop
        self._ipc = ["@dynolog"] if ipc else []
        self._skew_ns = round(skew * 1e9)
        self._missing = list(missing)
        self._waiters: list[tuple[str, Pending]] = []
        self.files: dict[int, bytes] = {}
        table = {name: entry for name, entry in self._functions().items() if name not in without}
        self.server = loop.call(lambda: RpcServer(loop, table))
        tls = server_context(certs) if certs else None
        self.address = str(loop.call(lambda: self.server.listen("127.0.0.1:0", tls=tls)))

    def close(self) -> None:
        self._loop.call(self.server.close)

    def now_ns(self) -> int:
        return time.time_ns() + self._skew_ns

    def _functions(self) -> dict[str, Entry]:
        return {
            "daemon.version": Entry(lambda request, peer: {"api": 1, "version": "9", "build": "9 (acting)"}),
            "clock.now": Entry(lambda request, peer: {"time_ns": self.now_ns()}),
            "trace.check": Entry(self._check),
            "trace.start": Entry(self._start),
            "trace.show": Entry(self._show),
            "trace.list": Entry(lambda request, peer: {"host": self.name, "sessions": list(self.sessions.values())}),
            "trace.cancel": Entry(self._cancel),
            "trace.fetch": Entry(self._fetch),
            "trace.remove": Entry(self._remove),
        }

    def _chosen(self, request: Message) -> list[Actor]:
        ranks = request.get("ranks")
        return [
            actor
            for actor in self.actors
            if self._ipc
            and (request.get("all") or actor.pid in request.get("pids", ()) or request.get("job") == actor.job)
            and (not ranks or actor.rank in ranks)
        ]

    def _check(self, request: Message, peer: Peer) -> Message:
        self.requests.append(request)
        found = [self._process(actor) for actor in self._chosen(request)]
        return {"host": self.name, "ipc": self._ipc, "found": found, "missing": self._missing}

    def _process(self, actor: Actor) -> Message:
        return {
            "pid": actor.pid,
            "own_pid": actor.pid,
            "uid": actor.uid,
            "user": actor.user,
            "command": "python train.py",
            "job": {"scheduler": "slurm", "id": actor.job, "raw_id": actor.job} if actor.job else None,
            "job_id": None,
            "rank": actor.rank,
            "local_rank": None,
            "world_size": actor.world_size,
            "framework": "torch 2.13.0",
            "gpu": actor.gpu,
            "step": None,
            "polls": 3,
            "poll_seconds": actor.poll_seconds,
            "polled_seconds_ago": 0.0,
            "accepts": actor.accepts,
            "waiting": False,
            "session": None,
            "state": "idle" if actor.accepts else "profiling",
            "may_trace": actor.may_trace,
        }

    def _start(self, request: Message, peer: Peer) -> Message:
        self.requests.append(request)
        if request.get("directory") == "/nowhere":
            raise RpcError("directory", "/nowhere is not there")
        if request["session"] in self.sessions:
            raise RpcError("exists", "there is a session of this id")
        chosen = self._chosen(request)[: request["limit"]]
        start_ns = request.get("start_ns") or self.now_ns()
        session = {
            "session": request["session"],
            "uid": 0,
            "user": "root",
            "created_ns": self.now_ns(),
            "state": "active",
            "version": 1,
            "config": {key: value for key, value in request.items() if key != "fn"},
            "targets": [self._target(actor, start_ns) for actor in chosen],
        }
        self.sessions[request["session"]] = session
        for actor, target in zip(chosen, session["targets"], strict=True):
            self._play(session, actor, target, start_ns)
        if not any(target["state"] in ACTIVE for target in session["targets"]):
            session["state"] = "done"
        return {"session": session, "missing": self._missing}

    def _target(self, actor: Actor, start_ns: int) -> Message:
        return {
            "pid": actor.pid,
            "own_pid": actor.pid,
            "uid": actor.uid,
            "rank": actor.rank,
            "job": actor.job,
            "state": "refused" if actor.part == "refused" else "requested",
            "reason": actor.reason if actor.part == "refused" else "" if actor.accepts else "a profiler runs in it",
            "path": f"/tmp/sonde_{actor.pid}.json",
            "size": None,
            "requested_ns": self.now_ns(),
            "delivered_ns": None,
            "start_ns": start_ns,
            "started_ns": None,
            "written_ns": None,
            "deadline_ns": self.now_ns() + 60 * 10**9,
        }

    def _play(self, session: Message, actor: Actor, target: Message, start_ns: int) -> None:
        """Each state in its turn; `stuck` and `refused` stay with the first."""
        if actor.part in ("stuck", "refused"):
            return
        for number, state in enumerate(["delivered", "started", actor.part], start=1):
            when = time.monotonic() + number * STEP
            self._loop.call_at(when, self._becomes(session, actor, target, state, start_ns))

    def _becomes(
        self, session: Message, actor: Actor, target: Message, state: str, start_ns: int
    ) -> Callable[[], None]:
        def become() -> None:
            if target["state"] not in ACTIVE:
                return
            target["state"] = state
            if state not in ACTIVE:
                target["reason"] = actor.reason
            if state == "written":
                first_ns = start_ns + round(actor.late * 1e9)
                steps = session["config"].get("steps", 0)
                self.files[actor.pid] = trace_file(first_ns, steps) if actor.file is None else actor.file
                target["size"] = len(self.files[actor.pid])
            self._changed(session)

        return become

    def _changed(self, session: Message) -> None:
        session["version"] += 1
        if not any(target["state"] in ACTIVE for target in session["targets"]):
            session["state"] = "done"
        waiters, self._waiters = self._waiters, []
        for name, pending in waiters:
            if name == session["session"]:
                pending.resolve(session)
            else:
                self._waiters.append((name, pending))

    def _named(self, request: Message) -> Message:
        try:
            return self.sessions[request["session"]]
        except KeyError:
            raise RpcError("no-session", f"there is no session {request['session']}") from None

    def _show(self, request: Message, peer: Peer) -> Message | Pending:
        session = self._named(request)
        wait = request.get("wait_seconds", 0)
        if not wait or session["version"] != request.get("version", 0):
            return session
        pending = Pending(wait + 5)
        self._waiters.append((request["session"], pending))
        self._loop.call_at(time.monotonic() + wait, lambda: pending.resolve(session))
        return pending

    def _cancel(self, request: Message, peer: Peer) -> Message:
        session = self._named(request)
        for target in session["targets"]:
            if target["state"] == "requested":
                target["state"] = "cancelled"
            elif target["state"] in ACTIVE:
                target["reason"] = "was delivered and cannot be called back"
        self._changed(session)
        return session

    def _fetch(self, request: Message, peer: Peer) -> Iterator[Message]:
        self._named(request)
        actor = next(actor for actor in self.actors if actor.pid == request["pid"])
        if actor.pid not in self.files:
            raise RpcError("not-written", f"pid {actor.pid} has written nothing")
        plain = self.files[actor.pid]
        packed = gzip.compress(plain)
        for begin in range(0, len(packed), 1000):
            yield {"data": base64.b64encode(packed[begin : begin + 1000]).decode()}
        told = b"something else" if actor.lies else plain
        yield {"done": True, "size": len(plain), "sha256": hashlib.sha256(told).hexdigest()}

    def _remove(self, request: Message, peer: Peer) -> Message:
        self._named(request)
        self.removed.append(request["session"])
        return {"removed": [f"/tmp/sonde_{pid}.json" for pid in self.files]}


def trace_file(first_ns: int, steps: int = 0) -> bytes:
    """Two operators and optimizer steps, in the form that libkineto writes: microseconds after a base."""
    base_ns = first_ns - 10**9
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": ts, "dur": 5.0}
        for ts in (1e6, 1e6 + 100)
    ]
    step = {"ph": "X", "cat": "user_annotation", "name": "Optimizer.step#SGD.step", "pid": 1, "tid": 1, "dur": 5.0}
    events += [{**step, "ts": 1e6 + number} for number in range(steps)]
    return json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": base_ns, "traceEvents": events}).encode()

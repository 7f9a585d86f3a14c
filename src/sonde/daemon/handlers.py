"""The functions a daemon answers: dynolog's by their names and replies, ours as `area.verb`.

Each takes the request's object and who asks, and returns the reply's object. They only read:
plain numbers of runners and outlets, the newest frames of the ring; in the loop's thread, but for those that block.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from sonde.clock import NS, iso
from sonde.errors import RpcError
from sonde.hostfs import HostFS
from sonde.ipc.processes import Processes
from sonde.model import Frame, Gap, Histogram, Value
from sonde.pipeline.assembly import Assembly
from sonde.pipeline.outlet import Outlet
from sonde.pipeline.runner import Runner
from sonde.pipeline.selection import Selection
from sonde.rpc.peer import Peer
from sonde.rpc.server import Entry
from sonde.store.ring import Ring
from sonde.tracing.on_demand import OnDemand, pause_profiling, resume_profiling
from sonde.version import API, VERSION, describe

if TYPE_CHECKING:
    from sonde.rpc.feed import Feed
    from sonde.tracing.functions import Tracing

Reply = dict[str, Any]


class Subject(Protocol):
    """What the functions answer about: the running daemon."""

    assembly: Assembly
    ring: Ring
    processes: Processes
    host: HostFS
    hostname: str
    started_ns: int
    addresses: dict[str, str]

    def tracing(self) -> Tracing: ...
    @property
    def config_source(self) -> str: ...
    @property
    def ipc_addresses(self) -> list[str]: ...
    @property
    def ipc_counts(self) -> dict[str, int]: ...
    @property
    def archive_path(self) -> str | None: ...


def functions(daemon: Subject) -> dict[str, Entry]:
    """The table of the RPC server."""
    return {
        "getStatus": Entry(lambda request, peer: {"status": 1}),
        "getVersion": Entry(lambda request, peer: {"version": VERSION}),
        "daemon.status": Entry(lambda request, peer: status(daemon)),
        "daemon.version": Entry(lambda request, peer: {"api": API, "version": VERSION, "build": describe()}),
        "setKinetOnDemandRequest": Entry(OnDemand(daemon.processes, daemon.host).request, writes=True),
        "dcgmProfPause": Entry(pause_profiling),
        "dcgmProfResume": Entry(resume_profiling),
        "process.list": Entry(lambda request, peer: process_list(daemon, peer), identifies=True, blocks=True),
        "process.explain": Entry(
            lambda request, peer: process_explain(daemon, request, peer), identifies=True, blocks=True
        ),
        **_tracing(daemon.tracing),
        "record.list": Entry(_record_list, writes=True, blocks=True),
        "record.fetch": Entry(_record_fetch, writes=True),
        "clock.now": Entry(lambda request, peer: {"time_ns": time.time_ns()}),
        "host.context": Entry(lambda request, peer: host_context(daemon), blocks=True),
        "metrics.snapshot": Entry(lambda request, peer: snapshot(daemon, request)),
    }


def _tracing(tracing: Callable[[], Tracing]) -> dict[str, Entry]:
    """Those for traces; what they need is made with the first call."""
    return {
        "trace.check": Entry(lambda request, peer: tracing().check(request, peer), identifies=True, blocks=True),
        "trace.start": Entry(lambda request, peer: tracing().start(request, peer), writes=True, blocks=True),
        "trace.show": Entry(lambda request, peer: tracing().show(request, peer), identifies=True),
        "trace.list": Entry(lambda request, peer: tracing().list(request, peer), identifies=True),
        "trace.cancel": Entry(lambda request, peer: tracing().cancel(request, peer), writes=True),
        "trace.fetch": Entry(lambda request, peer: tracing().fetch(request, peer), writes=True),
        "trace.remove": Entry(lambda request, peer: tracing().remove(request, peer), writes=True, blocks=True),
    }


def _record_list(request: Reply, peer: Peer) -> Reply:
    from sonde.jobs.serving import listing

    return listing(request, peer)


def _record_fetch(request: Reply, peer: Peer) -> Feed:
    from sonde.jobs.serving import fetch

    return fetch(request, peer)


def status(daemon: Subject) -> Reply:
    """Health of everything, newest numbers first-hand from the runners and outlets."""
    now = time.monotonic_ns()
    assembly = daemon.assembly
    cpu_seconds = time.process_time()
    return {
        "api": API,
        "build": describe(),
        "host": daemon.hostname,
        "pid": os.getpid(),
        "uptime_seconds": (now - daemon.started_ns) / NS,
        "config": daemon.config_source,
        "addresses": dict(daemon.addresses),
        "archive": daemon.archive_path,
        "ipc": {"processes": len(daemon.processes), "refused": daemon.processes.refused, **daemon.ipc_counts},
        "cpu_seconds": cpu_seconds,
        "resident_bytes": _resident_bytes(),
        "series": sum(len(frame.layout) for frame in daemon.ring.latest()),
        "collectors": [_runner(runner, now) for runner in assembly.runners],
        "absent": [absent._asdict() for absent in assembly.absent],
        "sinks": [_outlet(outlet) for outlet in assembly.outlets],
    }


def process_list(daemon: Subject, peer: Peer) -> Reply:
    """The processes that ask for work, and where they may."""
    from sonde.tracing.listing import listed

    processes = listed(daemon.processes, daemon.host, peer)
    return {"host": daemon.hostname, "ipc": daemon.ipc_addresses, "processes": processes}


def process_explain(daemon: Subject, request: Reply, peer: Peer) -> Reply:
    """Whether one process can be traced by this caller, and what is in the way."""
    from sonde.tracing.explain import explain

    pid = request.get("pid")
    if type(pid) is not int or not 0 < pid < 2**31:
        raise RpcError("bad-request", "pid must be the number of a process", hint="sonde processes lists them")
    found = explain(daemon.host, pid, daemon.processes, uid=peer.uid, addresses=daemon.ipc_addresses)
    return {"host": daemon.hostname, **found.reply()}


def host_context(daemon: Subject) -> Reply:
    """The hardware and kernel of this node: nothing of a process, the daemon's environment least of all."""
    from sonde.jobs.context import gather

    return {"host": daemon.hostname, "context": gather(daemon.host, private=False)}


def _runner(runner: Runner, now: int) -> Reply:
    # Taken once: the sampling thread may go on while this is answered.
    started = runner.started_ns
    running = (now - started) / NS if started else 0.0
    stale = runner.is_stale(now)
    return {
        "name": runner.name,
        "state": "hung" if stale and running else "failing" if runner.error else "stale" if stale else "ok",
        "error": runner.error,
        "period_seconds": runner.period_ns / NS,
        "ticks": runner.ticks,
        "failures": runner.failures,
        "skipped": runner.skipped,
        "took_seconds": runner.took_ns / NS,
        "lateness_seconds": runner.lateness_ns / NS,
        "staleness_seconds": runner.staleness_ns(now) / NS,
        "running_seconds": running,
        "gaps": [_gap(gap) for gap in runner.gaps],
    }


def _outlet(outlet: Outlet) -> Reply:
    return {
        "name": outlet.name,
        "state": "failing" if outlet.error else "ok",
        "error": outlet.error,
        "queued": outlet.depth,
        "delivered": outlet.delivered,
        "dropped": outlet.dropped,
        "rejected": outlet.rejected,
        "failures": outlet.failures,
    }


def _gap(gap: Gap) -> Reply:
    return {
        "metric": gap.spec.name,
        "labels": dict(zip(gap.spec.labels, gap.labels, strict=False)),
        "quality": gap.quality.value,
        "reason": gap.reason,
    }


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def snapshot(daemon: Subject, request: Reply) -> Reply:
    """The newest frame of every source, or what of them matches `include`."""
    include = request.get("include", [])
    if not isinstance(include, list) or not all(isinstance(pattern, str) for pattern in include):
        raise RpcError("bad-request", "include must be a list of shell patterns", hint='for example ["node_cpu_*"]')
    selection = Selection(include)
    chosen = (selection.apply(frame) for frame in daemon.ring.latest())
    return {"api": API, "host": daemon.hostname, "frames": [_frame(frame) for frame in chosen if frame]}


def _frame(frame: Frame) -> Reply:
    return {
        "source": frame.source,
        "time": iso(frame.time_ns),
        "time_ns": frame.time_ns,
        "took_ns": frame.took_ns,
        "period_ns": frame.period_ns,
        "samples": list(_samples(frame)),
        "gaps": [_gap(gap) for gap in frame.gaps],
    }


def _samples(frame: Frame) -> Iterable[list[Any]]:
    """`[name, kind, {label: value}, value]` each."""
    for spec, labels, value in frame.samples():
        yield [spec.name, spec.kind.value, dict(zip(spec.labels, labels, strict=True)), _json_value(value)]


def _json_value(value: Value) -> Any:
    if isinstance(value, Histogram):
        return value._asdict()
    # JSON has no infinity; text says it without loss.
    return value if isinstance(value, int) or value - value == 0 else repr(value)

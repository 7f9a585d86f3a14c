"""The registered processes as a reply shows them: docs/rpc.md, Tracing, "A process"."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from sonde.agent import wire
from sonde.clock import NS
from sonde.hostfs import HostFS
from sonde.ipc.processes import Process
from sonde.rpc.peer import Peer
from sonde.schedulers.job import Job
from sonde.tracing.family import Family, launchers, shown_rank
from sonde.tracing.identity import Identity, identity_of, membership
from sonde.tracing.on_demand import may_drive

Reply = dict[str, Any]


def listed(processes: Iterable[Process], host: HostFS, peer: Peer) -> list[Reply]:
    """Each as `process.list` has it, by job and rank. Reads /proc and asks the name service: for a thread."""
    rule, family = membership(host), Family(host)
    known = [(process, identity_of(process, host, rule)) for process in processes]
    above = launchers(family, [(process.pid, identity) for process, identity in known])
    now = time.monotonic_ns()
    found = [_entry(process, identity, peer, now, process.pid in above) for process, identity in known]
    return sorted(found, key=_order)


def _entry(process: Process, identity: Identity, peer: Peer, now_ns: int, launcher: bool) -> Reply:
    rank = shown_rank(identity, launcher)
    return {
        "pid": process.pid or None,
        "own_pid": process.own_name,
        "uid": process.uid,
        "user": identity.user,
        "command": identity.command,
        "job": _job(identity.job),
        "job_id": process.slurm_id or None,
        "rank": rank.global_rank,
        "local_rank": rank.local_rank,
        "world_size": rank.world_size,
        "launcher": launcher,
        "framework": identity.framework,
        "gpu": identity.gpu,
        "step": None,  # libkineto's polls do not tell it
        "polls": process.polls,
        "poll_seconds": process.poll_ns / NS if process.poll_ns else None,
        "polled_seconds_ago": (now_ns - process.polled_ns) / NS,
        "accepts": bool(process.kinds & wire.ACTIVITIES),
        "waiting": process.offer is not None,
        "session": process.session or None,
        "state": state_of(process),
        "may_trace": may_drive(peer, process),
    }


def state_of(process: Process) -> str:
    """`waiting` for its next poll, `tracing` for us, `profiling` by itself, or `idle`."""
    if process.offer is not None:
        return "waiting"  # for its next poll, or for its first step
    if process.session:
        return "tracing"
    return "idle" if process.kinds & wire.ACTIVITIES or not process.polls else "profiling"


def _job(job: Job | None) -> Reply | None:
    return None if job is None else {"scheduler": job.id.scheduler, "id": job.id.text, "raw_id": job.raw_id}


def _order(one: Reply) -> tuple[str, bool, int, int]:
    job, rank = one["job"] or {"id": ""}, one["rank"]
    return job["id"], rank is None, rank or 0, one["pid"] or 0

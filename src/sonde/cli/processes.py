"""The training processes that can be asked for a trace: those of PyTorch with KINETO_USE_DAEMON=1 set.

  sonde processes             a table
  sonde processes --job 77    those of one job
  sonde processes --json      a list of objects, as the daemon has them (docs/rpc.md)

A process is there from its first poll, about a second after `import torch`, until it ends. Why one is not there:
sonde doctor trace PID.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from sonde.cli.connection import add_connection, call_at, daemons_of
from sonde.cli.terminal import table

_HEADER = ("pid", "user", "job", "rank", "command", "framework", "last poll", "state", "step")
_RIGHT = (0, 3, 6, 8)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("--job", metavar="ID", help="only those of this job: 77, 123_4, or the name it was given")
    parser.add_argument("--json", action="store_true", help="print a list of objects")


def run(args: argparse.Namespace) -> int:
    replies = [call_at(address, args, "process.list", timeout=30.0) for address in daemons_of(args)]
    found = [process for reply in replies for process in reply["processes"]]
    if args.job:
        found = _of_job(found, args.job)
    if args.json:
        print(json.dumps(found, indent=2))
    elif found:
        print(table([_row(process) for process in found], header=_HEADER, right=_RIGHT))
    else:
        print(_nobody(args.job, replies))
    return 0


def _of_job(processes: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    from sonde.schedulers.job import Job, JobId
    from sonde.tracing.choice import meant

    jobs = [
        Job(JobId(job["scheduler"], job["id"]), job["raw_id"]) if (job := process["job"]) else None
        for process in processes
    ]
    wanted = meant(text, [job for job in jobs if job is not None])
    return [process for process, job in zip(processes, jobs, strict=True) if job is not None and job.key in wanted]


def _nobody(job: str | None, replies: list[dict[str, Any]]) -> str:
    if not any(reply["ipc"] for reply in replies):
        from sonde.tracing.explain import SWITCH_ON

        return f"tracing is switched off in the daemon: {SWITCH_ON}"
    if job and any(reply["processes"] for reply in replies):
        return f"no process of job {job} has registered; without --job there are others"
    return (
        "no process has registered: start it with `sonde run -- COMMAND`, or with KINETO_USE_DAEMON=1;\n"
        "sonde doctor trace says what else may be wrong"
    )


def _row(process: dict[str, Any]) -> list[str]:
    rank, size = process["rank"], process["world_size"]
    return [
        str(process["pid"] or f"({process['own_pid']})"),
        process["user"],
        (process["job"] or {"id": ""})["id"],
        "launcher" if process["launcher"] else "" if rank is None else f"{rank}/{size}" if size else str(rank),
        process["command"],
        process["framework"] + (" gpu" if process["gpu"] else ""),
        f"{process['polled_seconds_ago']:.1f} s ago",
        _state(process),
        "" if process["step"] is None else str(process["step"]),
    ]


def _state(process: dict[str, Any]) -> str:
    state: str = process["state"]
    if state == "waiting":
        return "waits for its next poll"
    return f"tracing {process['session']}" if process["session"] else state

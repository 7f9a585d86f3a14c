"""What to trace and what to record: from the command line to the arguments of `trace.check` and `trace.start`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sonde.cli.ranks import folded
from sonde.cli.trace_check import name_of, who_may
from sonde.cli.trace_hosts import Message, Node
from sonde.cli.trace_steps import Next
from sonde.errors import Denied, UsageError
from sonde.tracing import kineto
from sonde.tracing.recording import RANGES
from sonde.units import Duration

DEFAULT_DURATION = Duration(0.5)  # dynolog's
_SHOWN = 8  # jobs and processes named when a choice has to be made


class Plan(NamedTuple):
    choice: Message  # of trace.check and trace.start
    recording: Message  # of trace.start, but for the start
    options: kineto.Options  # the same for a dynolog; its file is to be named
    chosen: bool  # by the user; else what is here decides
    whole_job: bool  # the user wants all ranks of it, or those that were named

    @property
    def is_named(self) -> bool:
        """Has the user said which processes, so that one that is not there is a failure?"""
        return self.chosen and "all" not in self.choice

    @property
    def nobody(self) -> str:
        """What is said of a host that has none of the choice."""
        ranks = f" with rank {folded(self.choice['ranks'])}" if "ranks" in self.choice else ""
        if "job" in self.choice:
            return f"no process of job {self.choice['job']}{ranks}"
        if "pids" in self.choice:
            return f"neither pid {', '.join(map(str, self.choice['pids']))} nor a process below{ranks}"
        return f"no process of yours{ranks}"

    def again(self, following: Next) -> Plan:
        """The same from another multiple of steps."""
        begin = {"round_up": following.round_up, "not_before_ns": following.not_before_ns}
        return self._replace(
            recording={**self.recording, **begin}, options=self.options._replace(round_up=following.round_up)
        )

    @property
    def seconds(self) -> float:
        """How long it records; 0 for steps, whose length nobody knows."""
        return 0.0 if self.options.steps else self.options.duration_ms / 1000


def plan_of(args: argparse.Namespace) -> Plan:
    """Raises UsageError for what contradicts itself or would do harm."""
    _refuse_beyond(args)
    options = _options(args)
    kineto.check(options)
    chosen = bool(args.pid or args.job or args.all)
    choice: Message = {"pids": args.pid, "job": args.job, "ranks": list(args.rank), "all": args.all or not chosen}
    return Plan(
        {key: value for key, value in choice.items() if value},
        _recording(args, options),
        options,
        chosen,
        bool(args.job or args.rank),
    )


def _refuse_beyond(args: argparse.Namespace) -> None:
    """What every daemon would refuse, before any is asked."""
    for option, value, name, unit in (
        ("--duration", args.duration, "duration_ms", 0.001),
        ("--warmup", args.warmup or Duration(0), "warmup_seconds", 1),
        ("--timeout", args.timeout, "timeout_seconds", 1),
        ("--limit", args.limit, "limit", 1),
    ):
        shown = type(value)
        low, high = (shown(bound * unit) for bound in RANGES[name])
        if not low <= value <= high:
            raise UsageError(f"{option} must be from {low} to {high}, not {value}")


def _options(args: argparse.Namespace) -> kineto.Options:
    if not args.steps and (args.at_step is not None or args.round_up is not None):
        raise UsageError("--at-step and --round-up say at which step to begin", hint="say how many: --steps 10")
    if args.steps == 0:
        raise UsageError("a trace of no steps records nothing", hint="--steps 10")
    if args.warmup is not None and args.warmup != round(args.warmup):
        raise UsageError("libkineto counts its warm-up in whole seconds", hint="--warmup 5s")
    return kineto.Options(
        log_file=os.path.join(args.directory or "/tmp", "trace.json"),  # noqa: S108 - the default of the daemon
        duration_ms=round(args.duration * 1000),
        steps=args.steps or 0,
        at_step=args.at_step or 0,
        round_up=args.round_up if args.round_up is not None else 1,
        warmup_seconds=None if args.warmup is None else round(args.warmup),
        shapes=args.shapes,
        memory=args.memory,
        snapshot=args.memory_snapshot,
        stacks=args.stacks or args.modules,  # modules are frames of the stacks, for those of Python
        flops=args.flops,
        modules=args.modules,
        activities=args.activities,
    )


def _recording(args: argparse.Namespace, options: kineto.Options) -> Message:
    kept = ("shapes", "memory", "snapshot", "stacks", "flops", "modules", "warmup_seconds")
    recording: Message = {key: getattr(options, key) for key in kept}
    recording |= {"activities": list(options.activities), "timeout_seconds": float(args.timeout), "limit": args.limit}
    if args.directory:
        recording["directory"] = args.directory
    if not options.steps:
        return recording | {"duration_ms": options.duration_ms}
    begin = {"at_step": options.at_step} if args.at_step is not None else {"round_up": options.round_up}
    return recording | {"steps": options.steps} | begin


def decided(plan: Plan, nodes: Sequence[Node], uid: int) -> Plan:
    """The plan with a choice: that of the user, else the only job that this user has here.

    Forgets what was found beyond it. Raises UsageError when there are several.
    """
    if plan.chosen:
        return plan
    groups = jobs_of(process for node in nodes for process in node.found if process["uid"] == uid)
    if len(groups) > 1 or (not groups and any(node.found for node in nodes)):
        raise _asks(groups or jobs_of(process for node in nodes for process in node.found), whose=bool(groups))
    if not groups:
        return plan
    for node in nodes:
        node.missing = []  # nobody asked for them
        node.found = [process for process in node.found if process["uid"] == uid]
    job, pid = next(iter(groups))
    choice: Message = {"job": job} if job else {"pids": [pid]}
    return plan._replace(choice=choice | {key: plan.choice[key] for key in ("ranks",) if key in plan.choice})


Group = tuple[str, int]  # a job's id, or a process that belongs to none


def jobs_of(processes: Iterable[Message]) -> dict[Group, list[Message]]:
    groups: dict[Group, list[Message]] = {}
    for process in processes:
        job = process["job"]["id"] if process["job"] else ""
        groups.setdefault((job, 0 if job else process["pid"] or process["own_pid"]), []).append(process)
    return groups


def _asks(groups: Mapping[Group, Sequence[Message]], *, whose: bool) -> UsageError:
    shown = [_described(group, members) for group, members in list(groups.items())[:_SHOWN]]
    if len(groups) > _SHOWN:
        shown.append(f"and {len(groups) - _SHOWN} more (sonde processes)")
    problem = "there is more than one job here" if whose else "no process of yours is here"
    (job, pid), _ = next(iter(groups.items()))
    example = f"--job {job}" if job else f"--pid {pid}"
    return UsageError(f"{problem}: {'; '.join(shown)}", hint=f"say which: {example}, or --all")


def _described(group: Group, members: Sequence[Message]) -> str:
    job, pid = group
    user = members[0]["user"]
    if not job:
        command = members[0]["command"]
        return f"pid {pid} of {user}" + (f" ({command})" if command else "")
    ranks = folded(process["rank"] for process in members if process["rank"] is not None)
    count = f"{len(members)} process{'es' if len(members) > 1 else ''}"
    return f"job {job} of {user} ({count}{f', ranks {ranks}' if ranks else ''})"


def refuse_harm(plan: Plan, nodes: Sequence[Node]) -> None:
    """Raise for what would harm a process that was found, or may not be done at all."""
    found = [(node, process) for node in nodes for process in node.found]
    if found and not any(process.get("may_trace", True) for _, process in found):
        users = sorted({process["user"] for _, process in found})
        raise Denied(f"all that was found belongs to {', '.join(users)}", hint=f"{who_may(users)} may trace it")
    if not plan.options.snapshot:
        return
    for node, process in found:
        if process["gpu"] is not True:
            name = name_of(process["rank"], process["pid"] or process["own_pid"], node.name)
            why = "has no GPU" if process["gpu"] is False else "is not known to have a GPU"
            raise UsageError(
                f"{name} {why}: asked for a memory snapshot, a PyTorch without CUDA writes none and spins from then on",
                hint="leave out --memory-snapshot; --memory records allocations in the trace",
            )


def refuse_outlasting(needed: float, left: int | None, job: str) -> None:
    """Raise for a recording that would not be over when its job must be."""
    if left is not None and needed > left:
        raise UsageError(
            f"job {job} ends in {left} s, and this trace may need {needed:.0f} s",
            hint="a shorter --duration or --delay may still fit",
        )

"""What keeps processes from being traced: one, check by check, or all of this user.

  sonde doctor trace          daemons, their sockets, and each PyTorch process of yours that has not registered: why
  sonde doctor trace 812      everything that must be right for process 812

Exit code 0 when it can be traced, 1 when not, 3 when no daemon answers: then /proc alone is looked at.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from sonde.cli.arguments import count
from sonde.cli.connection import add_connection, address_of, call, call_at, daemons_of, is_here
from sonde.cli.terminal import paint
from sonde.errors import Denied, SondeError, TimedOut, Unavailable
from sonde.hostfs import HostFS
from sonde.tracing.explain import BAD, OK, SWITCH_ON, UNKNOWN, Check, explain

_COLOUR = {OK: "green", BAD: "red", UNKNOWN: "yellow"}
_TIMEOUT = 30.0  # seconds: a node with thousands of processes is looked at


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("pid", nargs="?", type=count, help="the process, by its number on this host")
    parser.add_argument("--root", default="/", metavar="DIR", help="where the host's /proc is found")
    parser.add_argument("--json", action="store_true", help="print an object")


def run(args: argparse.Namespace) -> int:
    try:
        found, code = _one(args) if args.pid else _all(args), 0
    except (Unavailable, TimedOut) as error:
        if isinstance(error, Denied):
            raise
        found, code = _without_daemon(args, error), 3
    if args.json:
        print(json.dumps(found, indent=2))
    else:
        print(_rendered(found))
    return code or (0 if found["traceable"] else 1)


def _one(args: argparse.Namespace) -> dict[str, Any]:
    """The word of the daemon that knows the process; else of the one it would register with; else of the node's."""
    replies = [reply for _, reply in _answers(args, "process.explain", pid=args.pid)]
    return min(replies, key=lambda reply: (not reply["registered"], _listens_elsewhere(reply)))


def _listens_elsewhere(reply: dict[str, Any]) -> bool:
    return any(check["name"] == "socket" and check["state"] == BAD for check in reply["checks"])


def _answers(args: argparse.Namespace, function: str, **arguments: Any) -> list[tuple[str, dict[str, Any]]]:
    """What the daemons here say; raises what is wrong with the first when none of them answers."""
    found, failed = [], []
    for address in daemons_of(args):
        try:
            found.append((address, call_at(address, args, function, timeout=_TIMEOUT, **arguments)))
        except SondeError as error:
            failed.append(error)
    if not found:
        raise failed[0]
    return found


def _all(args: argparse.Namespace) -> dict[str, Any]:
    replies = _answers(args, "process.list")
    addresses = [address for _, reply in replies for address in reply["ipc"]]
    processes = [process for _, reply in replies for process in reply["processes"]]
    checks = []
    for address, reply in replies:
        checks += [Check("daemon", OK, f"answers at {address}"), _ipc_check(reply["ipc"], bool(addresses))]
    mine = [process for process in processes if process["may_trace"]]
    pids = ", ".join(str(process["pid"] or f"({process['own_pid']})") for process in mine)
    others = f", and {len(processes) - len(mine)} of other users" if len(processes) > len(mine) else ""
    checks.append(Check("registered", OK if mine else UNKNOWN, (pids or "none of yours") + others))
    checks += _absentees(args, {process["pid"] for process in processes if process["pid"]}, addresses)
    return _summary(checks)


def _ipc_check(addresses: list[str], elsewhere: bool) -> Check:
    """`elsewhere`: another daemon here has tracing on, and may be the one that is meant."""
    if addresses:
        return Check("sockets", OK, ", ".join(addresses))
    return Check("sockets", UNKNOWN if elsewhere else BAD, "tracing is switched off", SWITCH_ON)


def _absentees(args: argparse.Namespace, registered: set[int], addresses: list[str] | None) -> list[Check]:
    """The processes of this user that could be traced, if it were not for something."""
    if not is_here(address_of(args)):
        return [_named(one) for one in call(args, "trace.check", timeout=_TIMEOUT, all=True)["missing"]]
    from sonde.tracing.choice import Choice, absent
    from sonde.tracing.identity import identify

    host = HostFS(args.root)
    known = {pid: identify(host, pid, os.getuid()) for pid in registered}
    found = absent(host, Choice((), "", (), all=True), known, uid=os.getuid(), addresses=addresses)
    return [_named(one._asdict()) for one in found]


def _named(one: dict[str, Any]) -> Check:
    rank = "" if one["rank"] is None else f" (rank {one['rank']})"
    return Check(str(one["pid"]), BAD, f"{one['command']}{rank}: {one['reason']}", f"sonde doctor trace {one['pid']}")


def _without_daemon(args: argparse.Namespace, error: SondeError) -> dict[str, Any]:
    if not is_here(address_of(args)):
        raise error
    if args.pid:
        return explain(HostFS(args.root), args.pid, (), uid=os.getuid(), addresses=None).reply()
    checks = [Check("daemon", BAD, str(error), "start one: sonde daemon")]
    return _summary([*checks, *_absentees(args, set(), None)])


def _summary(checks: list[Check]) -> dict[str, Any]:
    bad = [check for check in checks if check.state == BAD]
    verdict = f"{bad[0].name}: {bad[0].detail}" if bad else "nothing is in the way"
    return {"traceable": not bad, "verdict": verdict, "checks": [check._asdict() for check in checks]}


def _rendered(found: dict[str, Any]) -> str:
    checks = found["checks"]
    width = max(len(check["name"]) for check in checks)
    lines = []
    for check in checks:
        state = paint(f"{check['state']:<7}", _COLOUR[check["state"]])
        lines.append(f"{check['name']:<{width}}  {state} {check['detail']}".rstrip())
        if check["hint"] and check["state"] != OK:
            lines.append(f"{'':<{width}}          → {check['hint']}")
    return "\n".join([*lines, "", found["verdict"]])

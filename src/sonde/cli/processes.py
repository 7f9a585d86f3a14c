"""The training processes that can be asked for a trace: those of PyTorch with KINETO_USE_DAEMON=1 set.

  sonde processes             a table
  sonde processes --json      a list of objects

A process is there from its first poll, about a second after `import torch`, until it ends.
"""

from __future__ import annotations

import argparse
import json
import pwd
from typing import Any

from sonde.cli.connection import add_connection, daemons_of
from sonde.cli.terminal import table
from sonde.rpc.client import call


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("--json", action="store_true", help="print a list of objects")


def run(args: argparse.Namespace) -> int:
    found = [process for address in daemons_of(args) for process in call(address, "process.list")["processes"]]
    if args.json:
        print(json.dumps(found, indent=2))
    elif found:
        header = ("pid", "user", "job", "last poll", "polls", "state")
        print(table([_row(process) for process in found], header=header, right=(0, 3, 4)))
    else:
        print("no process has registered: start it with `sonde run -- COMMAND`")
    return 0


def _row(process: dict[str, Any]) -> list[str]:
    state = "waits for its next poll" if process["waiting"] else "idle" if process["accepts"] else "profiling"
    return [
        str(process["pid"] or f"({process['own_pid']})"),
        _user(process["uid"]),
        str(process["job_id"] or ""),
        f"{process['polled_seconds_ago']:.1f} s ago",
        str(process["polls"]),
        state,
    ]


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)

"""What a node is: CPU, memory, accelerators, network, kernel, limits, software; and in what nodes differ.

  sonde context                       this node
  sonde context --pid 812 --pid 813   with the limits, environment and libraries of a job's processes
  sonde context DIR                   the nodes of a recording, and who is not like the others
  sonde context --host n[1-16]        the nodes whose daemons answer, likewise
  sonde context --json                everything; without it, the lists are shortened

Files are read and nothing else; it needs no daemon and no root. What root would add, and whatever else could not be
seen, is listed at the end. Values that look like secrets are not shown, and not kept in recordings either.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from sonde.cli.connection import tls_of
from sonde.cli.context_text import render, render_differences
from sonde.cli.trace_hosts import nodes_of
from sonde.errors import SondeError, Unavailable, UsageError
from sonde.hostfs import HostFS
from sonde.jobs.context import among, gather
from sonde.jobs.recording import open_recording

Contexts = dict[str, dict[str, Any]]

_PATIENCE = 20.0  # seconds for the answer of a host


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", nargs="?", metavar="DIR", help="a recording; default: this node, now")
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="HOSTS",
        help="nodes to ask instead: n[1-4], a job's id, @FILE with one per line; may be repeated",
    )
    parser.add_argument("--certs-dir", metavar="DIR", help="speak mutual TLS with this directory's certificates")
    parser.add_argument("--pid", type=int, action="append", default=[], metavar="N", help="a process of the job")
    parser.add_argument("--root", default="/", metavar="DIR", help="where the host's /proc and /sys are found")
    parser.add_argument("--json", action="store_true", help="print everything as an object")


def run(args: argparse.Namespace) -> int:
    if args.directory and args.host:
        raise UsageError("a recording or hosts, not both")
    failed: dict[str, str] = {}
    if args.directory:
        contexts = of_recording(args.directory)
    elif args.host:
        contexts, failed = of_hosts(args)
    else:
        contexts = {"": gather(HostFS(args.root), args.pid)}
    show(contexts, as_json=args.json)
    for host, reason in failed.items():
        print(f"sonde: context: {host}: {reason}", file=sys.stderr)
    return 1 if failed else 0


def show(contexts: Contexts, *, as_json: bool) -> None:
    found = among(contexts) if len(contexts) > 1 else []
    first = next(iter(contexts.values()))
    if as_json and len(contexts) == 1:
        print(json.dumps(first, indent=2))
    elif as_json:
        told = [{"subject": item.subject, "groups": [group._asdict() for group in item.groups]} for item in found]
        print(json.dumps({"contexts": contexts, "differences": told}, indent=2))
    elif len(contexts) == 1:
        print(render(first))
    else:
        print(render_differences(found, len(contexts)))
        print()
        print(render(first))


def of_recording(path: str) -> Contexts:
    """The contexts that the nodes of a recording have left; a file of one is taken too."""
    if os.path.isfile(path):
        return {path: _file(path)}
    contexts = {}
    for node in open_recording(path).nodes:
        context = node.context()
        if context is not None:
            contexts[node.host] = context
    if not contexts:
        raise Unavailable(f"{path} has no context of any node", hint="it was recorded without one, or killed at once")
    return contexts


def _file(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from None
    if not isinstance(found, dict) or "unseen" not in found:
        raise UsageError(f"{path} is no context", hint="sonde context --json > FILE makes one")
    return found


def of_hosts(args: argparse.Namespace) -> tuple[Contexts, dict[str, str]]:
    """What the daemons of hosts answer, and why some do not."""
    from sonde.rpc.fanout import Call, fan_out

    nodes, _ = nodes_of(argparse.Namespace(host=args.host, job=None))
    names = {node.address: node.name for node in nodes}
    contexts: Contexts = {}
    failed: dict[str, str] = {}
    last: SondeError | None = None
    calls = [Call(address, "host.context") for address in names]
    for outcome in fan_out(calls, timeout=_PATIENCE, tls=tls_of(args)):
        if outcome.reply is not None:
            contexts[names[outcome.address]] = outcome.reply["context"]
        elif outcome.error is not None:
            failed[names[outcome.address]] = str(outcome.error)
            last = outcome.error
    if last is not None and not contexts:
        raise last
    return dict(sorted(contexts.items())), failed

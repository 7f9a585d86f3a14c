"""The sessions that are known on the hosts: list them, look at one, call it back, gather its files later."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Sequence

from sonde.cli import trace_manifest
from sonde.cli.arguments import duration
from sonde.cli.connection import tls_of
from sonde.cli.terminal import table
from sonde.cli.trace_follow import GRACE, cancel
from sonde.cli.trace_hosts import Message, Node, nodes_of
from sonde.cli.trace_kept import kept_rows, restored
from sonde.cli.trace_run import MERGED, Run, default_output
from sonde.cli.trace_start import measure_clocks, session_in
from sonde.cli.trace_table import Row, as_object, rendered, rows_of
from sonde.clock import NS, iso
from sonde.errors import RpcError, SondeError, Unavailable
from sonde.rpc.fanout import Call, fan_out
from sonde.units import Size

_SILENT = argparse.SUPPRESS  # a verb's own default must not undo what stands before the verb


def add_hosts(parser: argparse._ArgumentGroup | argparse.ArgumentParser, *, verb: bool = False) -> None:
    """--job, --host and --certs-dir: which daemons to ask."""
    parser.add_argument("--job", default=_SILENT if verb else "", metavar="ID", help="a job, on all its hosts")
    parser.add_argument(
        "--host",
        action="append",
        default=_SILENT if verb else [],
        metavar="HOST[:PORT]",
        help="daemons to ask: n1, n[1-4], @FILE; repeatable (default: the job's hosts, else this one)",
    )
    parser.add_argument(
        "--certs-dir",
        default=_SILENT if verb else None,
        metavar="DIR",
        help="speak mutual TLS, with client.crt, client.key and ca.crt of this directory (else $SONDE_CERTS_DIR)",
    )


def add_verbs(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(verb=None)
    verbs = parser.add_subparsers(dest="verb", metavar="[list|show|cancel|fetch]", title="sessions", required=False)
    for name, function, text in (
        ("list", run_list, "the sessions known on the hosts"),
        ("show", run_show, "how far a session is"),
        ("cancel", run_cancel, "call back what was not delivered yet"),
        ("fetch", run_fetch, "gather the files of a session begun with --no-wait, or interrupted"),
    ):
        verb = verbs.add_parser(name, help=text, description=f"sonde trace {name}: {text}.")
        verb.set_defaults(run_verb=function)
        if name != "list":
            verb.add_argument("session", metavar="SESSION", help="its id")
            verb.add_argument(
                "--output", default=_SILENT, metavar="DIR", help="where its manifest is (./trace-SESSION)"
            )
        add_hosts(verb, verb=True)
        verb.add_argument("--json", action="store_true", default=_SILENT, help="print an object")
        if name == "fetch":
            _add_fetch(verb)


def _add_fetch(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--wait", action=argparse.BooleanOptionalAction, default=_SILENT, help="for what is not written")
    verb.add_argument("--timeout", type=duration, default=_SILENT, metavar="60s", help="for that (60s)")
    verb.add_argument("--merge", action="store_true", default=_SILENT, help="write merged.json.gz too")
    verb.add_argument("--keep", action="store_true", default=_SILENT, help="leave the files on their hosts as well")
    verb.add_argument("--max-size", type=_size, default=_SILENT, metavar="2GB", help="of a file (2GB)")
    verb.add_argument("--verbose", action="store_true", default=_SILENT, help="a line for each change")


def _size(text: str) -> Size:
    try:
        return Size.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run_list(args: argparse.Namespace) -> int:
    nodes, _ = nodes_of(args)
    known = {node.address: node for node in nodes}
    found: list[tuple[Node, Message]] = []
    failed: dict[str, SondeError] = {}
    for outcome in fan_out([Call(address, "trace.list") for address in known], tls=tls_of(args)):
        node = known[outcome.address]
        if outcome.reply is not None:
            node.name = outcome.reply.get("host") or node.name
            found += [(node, session) for session in outcome.reply["sessions"]]
        elif outcome.error is not None:
            failed[node.name] = outcome.error
    if len(failed) == len(nodes):
        raise next(iter(failed.values()))
    found.sort(key=lambda item: (-item[1]["created_ns"], item[0].name))
    _show_list(args, found, failed)
    return 1 if failed else 0


def _show_list(args: argparse.Namespace, found: Sequence[tuple[Node, Message]], failed: dict[str, SondeError]) -> None:
    if args.json:
        sessions = [{"host": node.name, **session} for node, session in found]
        print(json.dumps({"sessions": sessions, "failed": {host: str(why) for host, why in failed.items()}}, indent=2))
        return
    rows = [
        (one["session"], node.name, one["user"], iso(one["created_ns"], digits=0), one["state"], _states(one))
        for node, one in found
    ]
    print(table(rows, header=("session", "host", "user", "created", "state", "ranks")) if rows else "no sessions")
    for host, why in failed.items():
        print(f"{host}: {why}")


def _states(session: Message) -> str:
    counts = Counter(target["state"] for target in session["targets"])
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def run_show(args: argparse.Namespace) -> int:
    nodes = _known_nodes(args)
    _ask(nodes, args)
    rows = rows_of(nodes, {}, [])
    if args.json:
        print(json.dumps({"session": args.session, "ranks": [as_object(row) for row in rows]}, indent=2))
    else:
        print(rendered(rows))
    return 1 if any(node.error for node in nodes) else 0


def run_cancel(args: argparse.Namespace) -> int:
    nodes = _known_nodes(args)
    _ask(nodes, args)
    before = _count(nodes, "cancelled")
    failed = cancel([node for node in nodes if node.session], args.session, tls=tls_of(args))
    cancelled = _count(nodes, "cancelled") - before
    rows = rows_of(nodes, {}, [])
    if args.json:
        ranks = [as_object(row) for row in rows]
        told = {"session": args.session, "cancelled": cancelled, "ranks": ranks, "failed": failed}
        print(json.dumps(told, indent=2))
    else:
        print(rendered(rows))
        print(*failed, _called_back(nodes, cancelled), sep="\n")
    return 1 if failed or not cancelled else 0


def _count(nodes: Sequence[Node], state: str) -> int:
    return sum(target["state"] == state for node in nodes for target in node.targets)


def _called_back(nodes: Sequence[Node], cancelled: int) -> str:
    targets = [target for node in nodes for target in node.targets]
    delivered = sum(target["state"] in ("delivered", "started") for target in targets)
    if delivered:
        return f"{cancelled} cancelled; {delivered} delivered before, which cannot be called back"
    if cancelled:
        return f"{cancelled} cancelled"
    return f"nothing was left to cancel: {_states({'targets': targets}) or 'no process was armed'}"


def run_fetch(args: argparse.Namespace) -> int:
    output = args.output or default_output(args.session)
    trace_manifest.check_output(output, args.session)
    before = trace_manifest.read(output) if _has_manifest(output) else None
    kept = kept_rows(output, before) if before else []
    if before and kept and len(kept) == len(before["ranks"]):
        return _fetched_before(args, output, before, kept)
    nodes = _known_nodes(args)
    _ask(nodes, args)
    run = Run(args, args.session, output, nodes, tls_of(args))
    trace_manifest.make(output)
    if before:
        _take_over(run, before, kept)
    run.say(*measure_clocks([node for node in nodes if node.offset is None], run.tls))
    if not args.wait:
        return run.completed(None)
    return run.completed(time.time_ns() + round((float(args.timeout) + GRACE) * NS))


def _fetched_before(args: argparse.Namespace, output: str, manifest: Message, kept: Sequence[Row]) -> int:
    """Everything is here: nobody is asked, and nothing but what --merge adds is written."""
    if args.merge and not os.path.exists(os.path.join(output, MERGED)):
        from sonde.cli.merge import parse_manifest
        from sonde.tracing.merge import merge

        merge(parse_manifest(os.path.join(output, trace_manifest.NAME)), os.path.join(output, MERGED))
        manifest = manifest | {"merged": MERGED}
        trace_manifest.write(output, manifest)
    if args.json:
        print(json.dumps(manifest | {"exit_code": 0, "output": os.path.abspath(output)}, indent=2))
    else:
        print(rendered(kept))
        print(f"already gathered: {len(kept)} of {len(kept)} in {output}")
    return 0


def _has_manifest(output: str) -> bool:
    return os.path.exists(os.path.join(output, trace_manifest.NAME))


def _take_over(run: Run, before: Message, kept: list[Row]) -> None:
    """Go on with the manifest that the beginning has written, and with what is here already."""
    run.lacking = trace_manifest.lacks_in(before)
    run.notes = list(before["notes"])
    run.request, run.start_ns, run.created_ns = before["request"], before["start_ns"], before["created_ns"]
    run.merged = before["merged"] if os.path.exists(os.path.join(run.output, before["merged"] or MERGED)) else ""
    run.kept = kept
    run.gathered = restored(run.output, kept, run.nodes)
    if kept:
        run.say(f"already gathered: {len(kept)} of {len(before['ranks'])}")


def _known_nodes(args: argparse.Namespace) -> list[Node]:
    """The hosts that are named, else those of the manifest, else this one."""
    output = args.output or default_output(args.session)
    if not args.host and not args.job and _has_manifest(output):
        manifest = trace_manifest.read(output)
        if manifest["session"] == args.session:
            return trace_manifest.nodes_in(manifest)
    return nodes_of(args)[0]


def _ask(nodes: list[Node], args: argparse.Namespace) -> None:
    """Give each node its session. A host that has none of this id is left out; one that must have it has an error."""
    known = {node.address: node for node in nodes}
    calls = [Call(address, "trace.show", {"session": args.session}) for address in known]
    for outcome in fan_out(calls, tls=tls_of(args)):
        node = known[outcome.address]
        if outcome.reply is not None:
            node.session = session_in(outcome.reply)
        elif isinstance(outcome.error, RpcError) and outcome.error.code == "no-session" and not node.found:
            nodes.remove(node)
        else:
            node.error = outcome.error
    if not any(node.session for node in nodes):
        errors = [node.error for node in nodes if node.error is not None]
        raise Unavailable(
            f"no host has a session {args.session}" + (f": {errors[0]}" if errors else ""),
            hint=(errors[0].hint if errors else "")
            or "sonde trace list shows those of this host; name others with --host",
        )

"""The verbs of `sonde record`: gather, resume and recover."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence

from sonde.cli.arguments import Parser, duration
from sonde.cli.connection import DEFAULT_PORT, tls_of
from sonde.cli.record_after import fetch, tell_missing
from sonde.clock import iso
from sonde.errors import UsageError
from sonde.jobs.gather import missing_parts
from sonde.jobs.recording import open_recording
from sonde.schedulers.hosts import hosts_of
from sonde.units import Duration


def run(verb: str, words: Sequence[str]) -> int:
    texts, add, work = VERBS[verb]
    parser = Parser(prog=f"sonde record {verb}", description=texts)
    parser.add_argument("directory", metavar="DIR", help="what sonde record has written")
    parser.add_argument("--json", action="store_true", help="print an object")
    add(parser)
    return work(parser.parse_args(list(words)))


def _add_gather(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hosts", metavar="LIST", help="n[1-4],x, @FILE or a job's id (default: those that are missing)"
    )
    parser.add_argument(
        "--from", dest="source", default="", metavar="PATH", help="its path on the nodes (default: DIR)"
    )
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, metavar="PORT", help="of their daemons")
    parser.add_argument("--certs-dir", metavar="DIR", help="speak mutual TLS (else $SONDE_CERTS_DIR)")


def _gather(args: argparse.Namespace) -> int:
    hosts = list(hosts_of(args.hosts)) if args.hosts else open_recording(args.directory).missing
    if not hosts:
        raise UsageError("no part is missing", hint="name the hosts with --hosts to fetch others")
    addresses = {_name(host): host if ":" in host else f"{host}:{args.port}" for host in hosts}
    os.makedirs(args.directory, exist_ok=True)
    failed = fetch(args.directory, addresses, args.source, tls_of(args))
    there = [host for host in addresses if host not in missing_parts(args.directory, list(addresses))]
    if args.json:
        print(json.dumps({"directory": args.directory, "gathered": there, "missing": failed}))
        return 1 if failed else 0
    print(f"{len(there)} of {len(addresses)} parts are in {args.directory}")
    return tell_missing(args.directory, failed)


def _name(host: str) -> str:
    """A host without its port."""
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _recover(args: argparse.Namespace) -> int:
    from sonde.jobs.interrupted import recover

    done = recover(args.directory)
    if args.json:
        print(json.dumps([one._asdict() for one in done]))
    elif not done:
        print("nothing was interrupted")
    for one in done if not args.json else ():
        if one.ended_ns is not None:
            print(f"{one.host}: finished; its last value is of {iso(one.ended_ns)}")
        else:
            print(f"sonde: record: {one.host}: {one.error}", file=sys.stderr)
    return 1 if any(one.ended_ns is None for one in done) else 0


def _add_resume(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--collectors", metavar="A,B", help="only these; with a + before the first, these as well")
    parser.add_argument(
        "--linger", type=duration, default=Duration(5), metavar="5s", help="go on this long without any process of it"
    )
    parser.add_argument("--stop-file", metavar="FILE", help="end when this says anything but INPROGRESS")
    parser.add_argument("-v", "--verbose", action="store_true", help="say what is recorded, on standard error")


def _resume(args: argparse.Namespace) -> int:
    from sonde.cli.record import resume

    return resume(args)


def _add_nothing(parser: argparse.ArgumentParser) -> None:
    del parser


VERBS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int]]] = {
    "gather": (
        "Fetch the parts of other nodes from their daemons, over the RPC, and compare clocks.\n\n"
        "  sonde record gather ./sonde-77                    those that the job had and that are not here\n"
        "  sonde record gather ./sonde-77 --hosts 'n[1-4]' --from /scratch/ada/sonde-77\n\n"
        "Each daemon sends only what the user who asks may read. Exit code 1 when a part is missing.",
        _add_gather,
        _gather,
    ),
    "resume": (
        "Go on with a recording of this node that was interrupted, if what it was about still runs.",
        _add_resume,
        _resume,
    ),
    "recover": (
        "Finish what was interrupted: each part ends with the last value in its archive.",
        _add_nothing,
        _recover,
    ),
}

"""The newest value of every metric the daemon has, or of those whose names match.

sonde metrics                       everything
sonde metrics 'node_memory_Mem*'    shell patterns, several may be given
sonde metrics --names               names, kinds and meanings only; needs no daemon
"""

from __future__ import annotations

import argparse
import json
from fnmatch import fnmatch

from sonde.cli.connection import add_connection, call
from sonde.cli.terminal import label_text, table
from sonde.errors import Unavailable
from sonde.registry import COLLECTORS, load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pattern", nargs="*", help="shell patterns of metric names")
    add_connection(parser)
    parser.add_argument("--names", action="store_true", help="list the metrics sonde knows instead of values")
    parser.add_argument("--json", action="store_true", help="print an object")


def run(args: argparse.Namespace) -> int:
    if args.names:
        return _names(args)
    reply = call(args, "metrics.snapshot", include=args.pattern)
    if args.json:
        print(json.dumps(reply, indent=2))
        return 0
    rows = [
        [name + label_text(labels.items()), str(value)]
        for frame in reply["frames"]
        for name, _, labels, value in frame["samples"]
    ]
    if not rows:
        raise Unavailable(
            f"no metric matches {' '.join(args.pattern)}" if args.pattern else "the daemon has no values yet",
            hint="sonde metrics --names lists what sonde knows, sonde status what this host has",
        )
    print(table(rows))
    return 0


def _names(args: argparse.Namespace) -> int:
    specs = {
        spec.name: (name, spec)
        for name in COLLECTORS
        for spec in load(COLLECTORS, name).metrics  # type: ignore[attr-defined]
        if not args.pattern or any(fnmatch(spec.name, pattern) for pattern in args.pattern)
    }
    if args.json:
        print(
            json.dumps(
                [
                    {"name": spec.name, "collector": name, "kind": spec.kind.value, "unit": spec.unit.value}
                    | {"labels": list(spec.labels), "help": spec.help}
                    for name, spec in specs.values()
                ],
                indent=2,
            )
        )
    else:
        rows = [[spec.name, spec.kind.value, ",".join(spec.labels), name, spec.help] for name, spec in specs.values()]
        print(table(rows, header=("metric", "kind", "labels", "collector", "meaning")))
    return 0

"""What the archive holds and whether it is whole.

sonde archive info      size, time covered, blocks, series
sonde archive check     verify every page and every checksum; exit code 1 when something is damaged
"""

from __future__ import annotations

import argparse
import json

from sonde.cli.query import default_archive
from sonde.cli.terminal import table
from sonde.clock import iso
from sonde.store.reader import ArchiveReader
from sonde.units import human_bytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", choices=("info", "check"))
    parser.add_argument("--archive", metavar="FILE", help="the archive (default: the daemon's)")
    parser.add_argument("--json", action="store_true", help="print an object")


def run(args: argparse.Namespace) -> int:
    with ArchiveReader(default_archive(args)) as reader:
        return _check(reader, as_json=args.json) if args.verb == "check" else _info(reader, as_json=args.json)


def _check(reader: ArchiveReader, *, as_json: bool) -> int:
    faults = reader.check()
    if as_json:
        print(json.dumps({"archive": reader.path, "faults": faults}))
    elif faults:
        print("\n".join(faults))
    else:
        print(f"{reader.path} is whole")
    return 1 if faults else 0


def _info(reader: ArchiveReader, *, as_json: bool) -> int:
    summary, span, series = reader.summary(), reader.span(), reader.series()
    if as_json:
        covered = {"start_ns": span.start_ns, "end_ns": span.end_ns} if span else None
        print(json.dumps({"archive": reader.path, "span": covered, "series": len(series)} | summary._asdict()))
        return 0
    rows = [
        ["archive", reader.path],
        ["covers", f"{iso(span.start_ns)} to {iso(span.end_ns)}" if span else "nothing yet"],
        ["size", f"{human_bytes(summary.file_bytes)}, {human_bytes(summary.free_bytes)} of it free for reuse"],
        ["blocks", f"{summary.blocks} of {summary.ticks} ticks, {human_bytes(summary.block_bytes)}"],
        ["tail", f"{summary.tail_rows} batches"],
        ["series", f"{len(series)} in {summary.forms} layouts"],
        ["events", str(summary.events)],
        ["gaps", str(summary.gaps)],
    ]
    print(table(rows))
    return 0

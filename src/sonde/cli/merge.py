"""Traces of several ranks as one file, on one clock: for Perfetto (ui.perfetto.dev) and chrome://tracing.

  sonde merge rank0.json rank1.json -o merged.json.gz          the ranks from the names of the files
  sonde merge a.json b.json --rank 0,1 -o merged.json.gz       or as they are given
  sonde merge --manifest trace-x/manifest.json -o merged.json.gz
                          what `sonde trace` has gathered, moved by the difference of the hosts' clocks it measured

Each process of each rank becomes a process called `rank 0 · n1 · pid 812 · python`. A trace is plain or gzip, of
torch.profiler or taken on demand; the merged one is compressed when its name ends in .gz. A rank that is neither given
nor in the name of the file is taken from the trace, where torch.profiler has it. Without a manifest no clock is moved.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from sonde.cli.arguments import count
from sonde.cli.progress import Progress
from sonde.cli.terminal import table
from sonde.errors import ParseError, UsageError
from sonde.tracing.chrome import Trace
from sonde.tracing.merge import Part, merge, refuse_others
from sonde.units import human_bytes

_RANK = re.compile(r"(?:^|[^a-z])rank[-_]?(\d{1,9})(?!\d)", re.IGNORECASE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", metavar="FILE", help="traces (default: all that the manifest names)")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the merged trace; FILE.gz: compressed")
    parser.add_argument("--rank", type=_ranks, default=[], metavar="R,R", help="the ranks of the files, in their order")
    parser.add_argument("--manifest", metavar="FILE", help="manifest.json of `sonde trace`: ranks, hosts and clocks")
    parser.add_argument("--json", action="store_true", help="print what was merged as an object")


def run(args: argparse.Namespace) -> int:
    parts = _parts(args)
    _note_clocks(args, parts)
    with Progress("merge") as progress:
        events = merge(parts, args.output, progress=progress.show)
    size = os.path.getsize(args.output)
    if args.json:
        told = [part._asdict() for part in parts]
        print(json.dumps({"output": args.output, "bytes": size, "events": events, "parts": told}, indent=2))
        return 0
    header = ("rank", "host", "clock moved by", "file")
    print(table([_row(part) for part in parts], header=header, right=(0, 2)))
    print(f"{events} events in {args.output} ({human_bytes(size)})")
    return 0


def _row(part: Part) -> list[str]:
    moved = f"{part.shift_ns / 1e6:+.3f} ms" if part.shift_ns else "0"
    if part.bound_ns is not None:
        moved = f"{part.shift_ns / 1e6:+.3f} ± {part.bound_ns / 1e6:.3f} ms"
    return ["" if part.rank is None else str(part.rank), part.host, moved, part.path]


def _parts(args: argparse.Namespace) -> list[Part]:
    if args.rank and len(args.rank) != len(args.files):
        raise UsageError(f"{len(args.rank)} ranks for {len(args.files)} files", hint="name one rank for each file")
    gathered = parse_manifest(args.manifest) if args.manifest else [_described(path) for path in args.files]
    parts = _chosen(gathered, args)
    _refuse_twice(parts)
    if not parts:
        raise UsageError("which traces?", hint="name the files, or --manifest DIR/manifest.json of `sonde trace`")
    if args.rank:
        parts = [part._replace(rank=rank) for part, rank in zip(parts, args.rank, strict=True)]
    return sorted(parts, key=lambda part: (part.rank is None, part.rank or 0))


def _refuse_twice(parts: Sequence[Part]) -> None:
    """A file by two names would be two ranks. One that is not there is found out when it is read."""
    seen = set()
    for path in [part.path for part in parts if os.path.exists(part.path)]:
        found = os.stat(path)
        if (found.st_dev, found.st_ino) in seen:
            raise UsageError(f"{path} is named twice", hint="name each trace once")
        seen.add((found.st_dev, found.st_ino))


def _described(path: str) -> Part:
    """What the name of a file and the beginning of the trace tell."""
    with Trace(path) as trace:
        trace.begin()
        refuse_others(trace)
        host, distributed = trace.metadata.get("host_name"), trace.metadata.get("distributedInfo")
    named = _RANK.search(os.path.basename(path))
    rank = distributed.get("rank") if isinstance(distributed, dict) else None
    if named is None and (not isinstance(rank, int) or isinstance(rank, bool) or rank < 0):
        rank = None
    return Part(path, int(named[1]) if named else rank, host if isinstance(host, str) else "", 0, 0)


def parse_manifest(path: str) -> list[Part]:
    """The traces a manifest names. Their times are to be those of the clock that all others were compared with."""
    try:
        with open(path, encoding="utf-8") as file:
            manifest = json.load(file)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ParseError(path, error) from None
    try:
        clocks = {host["name"]: host["clock"] for host in manifest["hosts"]}
        return [_gathered(path, entry, clocks.get(entry["host"])) for entry in manifest["ranks"] if entry["file"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ParseError(path, manifest, f"not a manifest of `sonde trace` ({error!r})") from None


def _gathered(manifest: str, entry: dict[str, Any], clock: dict[str, Any] | None) -> Part:
    path = os.path.join(os.path.dirname(manifest), os.path.basename(entry["file"]))
    rank, pid = entry["rank"], int(entry["pid"] or 0)
    part = Part(path, None if rank is None else int(rank), str(entry["host"]), pid, 0)
    if clock is None:
        return part
    return part._replace(shift_ns=-int(clock["offset_ns"]), bound_ns=int(clock["bound_ns"]))


def _chosen(gathered: Sequence[Part], args: argparse.Namespace) -> list[Part]:
    """Those of a manifest that the command line names, by the names of the files, wherever they are now."""
    if not args.files or not args.manifest:
        return list(gathered)
    known = {os.path.basename(part.path): part for part in gathered}
    for path in args.files:
        if os.path.basename(path) not in known:
            raise UsageError(f"{args.manifest} has no {os.path.basename(path)}", hint=f"it has {', '.join(known)}")
    return [known[os.path.basename(path)]._replace(path=path) for path in args.files]


def _note_clocks(args: argparse.Namespace, parts: Sequence[Part]) -> None:
    hosts = sorted({part.host for part in parts})
    unknown = [part.host for part in parts if part.bound_ns is None]
    if args.manifest and unknown:
        note = f"the clock of {', '.join(sorted(set(unknown)))} was not measured, and is not moved"
    elif not args.manifest and len(hosts) > 1:
        note = f"the clocks of {', '.join(hosts)} are taken as they are; --manifest tells how they differ"
    else:
        return
    print(f"sonde: merge: {note}", file=sys.stderr)


def _ranks(text: str) -> list[int]:
    return [count(word) for word in text.split(",")]

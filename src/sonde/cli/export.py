"""A recording for pandas, polars, DuckDB, Excel, Prometheus or any other tool.

sonde export ./sonde-4711 --to parquet                          4711.parquet: host, time, a column per series
sonde export ./sonde-4711 --to csv --resample 10s --rate        counters per second, one row per 10 s
sonde export ./sonde-4711 --to hdf5 --output all.h5 --append    several jobs may add to one file at once (sqlite too)
sonde export ./sonde-4711 --to csv --select 'node_load*' --output -
sonde export ./sonde-4711 --to prometheus --output job.om       for promtool tsdb create-blocks-from openmetrics
sonde export ./sonde-4711 --to prometheus --url http://victoria:8428/api/v1/write
sonde export ./sonde-4711 --to perfmon --frames csv,hdf5        the files ska-sdp-perfmon would have written

What was not measured is empty, never 0. Units are base units: bytes, seconds, ratios from 0 to 1. Counters are as they
were read, without --rate. A value's row is its tick; json, sqlite and prometheus keep the time of each value.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, NamedTuple

from sonde.cli.arguments import duration
from sonde.cli.progress import Progress
from sonde.errors import SondeError, Unavailable, UsageError
from sonde.jobs.recording import Recording, open_recording
from sonde.store.query import parse_selector
from sonde.units import Duration


class Format(NamedTuple):
    suffix: str
    writer: str  # module:function
    text: bool = False  # takes an open file, which may be standard output
    append: str = ""  # the function of `destination` that adds to a file
    beside: bool = False  # cannot hold what it is about: that goes into a file of its own


_PACKAGE = "sonde.jobs.export"
FORMATS = {
    "csv": Format(".csv", "text:write_csv", text=True, beside=True),
    "parquet": Format(".parquet", "arrow:write_parquet"),
    "feather": Format(".feather", "arrow:write_feather"),
    "orc": Format(".orc", "arrow:write_orc", beside=True),
    "hdf5": Format(".h5", "frame:write_hdf5", append="extended"),
    "pickle": Format(".pkl", "frame:write_pickle", beside=True),
    "xlsx": Format(".xlsx", "sheet:write_xlsx"),
    "json": Format(".json", "text:write_json", text=True),
    "sqlite": Format(".sqlite", "sqlite:write_sqlite", append="shared"),
    "prometheus": Format(".om", "openmetrics:write_openmetrics", text=True),
    "perfmon": Format("-perfmon", ""),
}
_NOTES, _HOSTS = 5, 4  # shown
FRAMES = ("csv", "hdf5", "parquet", "pickle", "feather", "orc")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", metavar="DIR", help="what sonde record has written")
    parser.add_argument("--to", required=True, choices=FORMATS, help="the format")
    parser.add_argument(
        "--output", "-o", metavar="FILE", help="a file, a directory, or - (default: JOB.SUFFIX in this directory)"
    )
    parser.add_argument(
        "--select", action="append", default=[], metavar="SELECTOR", help="only these series, as sonde query takes them"
    )
    parser.add_argument(
        "--resample", type=duration, metavar="DURATION", help="one row per step: means of gauges, counters' last values"
    )
    parser.add_argument("--rate", action="store_true", help="counters as increase per second")
    parser.add_argument(
        "--append", action="store_true", help="add to a file that other jobs use: hdf5, sqlite, perfmon"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace what is there")
    parser.add_argument("--frames", default="", metavar="FORMATS", help=f"of perfmon's tables: {','.join(FRAMES)}")
    parser.add_argument("--url", metavar="URL", help="with prometheus: send by remote write instead of writing a file")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="with --url: a key of [sinks.remote_write]"
    )
    parser.add_argument(
        "--patience", type=duration, default=Duration(60), metavar="DURATION", help="for a server that fails (60s)"
    )
    parser.add_argument("--json", action="store_true", help="print what was written as an object")


class _Done(NamedTuple):
    """What an export has come to."""

    paths: list[str]
    told: dict[str, Any]  # counts, for --json
    text: str  # the same for people
    notes: list[tuple[str, str]]
    complete: bool


def run(args: argparse.Namespace) -> int:
    _refuse(args)
    recording = open_recording(args.recording)
    begun = time.monotonic()
    with Progress("export") as progress:
        done = _exported(args, recording, progress.show)
    _tell(args, recording, done, time.monotonic() - begun)
    return 0 if done.complete else 1


def _refuse(args: argparse.Namespace) -> None:
    if args.append and not (FORMATS[args.to].append or args.to == "perfmon"):
        raise UsageError(f"--append: a {args.to} file holds one recording", hint="hdf5 and sqlite hold many")
    if (args.url or args.set) and args.to != "prometheus":
        raise UsageError("--url and --set belong to --to prometheus")
    if args.set and not args.url:
        raise UsageError("--set is for --url")
    if args.url and (args.resample or args.rate or args.output):
        raise UsageError("--url sends what was recorded, as it was recorded", hint="leave --resample and the like away")
    if args.frames and args.to != "perfmon":
        raise UsageError("--frames belongs to --to perfmon")
    unknown = [name for name in _frames(args) if name not in FRAMES]
    if unknown:
        raise UsageError(f"--frames: no format is called {unknown[0]!r}", hint=f"there are {', '.join(FRAMES)}")
    if args.output == "-" and not FORMATS[args.to].text:
        raise UsageError(f"{args.to} is not text: name a file with --output")


def _frames(args: argparse.Namespace) -> list[str]:
    return [name for name in args.frames.split(",") if name]


def _exported(args: argparse.Namespace, recording: Recording, tell: Callable[[float], None]) -> _Done:
    try:
        if args.url:
            return _sent(args, recording, tell)
        return _perfmon(args, recording, tell) if args.to == "perfmon" else _written(args, recording, tell)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("sonde"):
            raise
        missing = (error.name or "a package").partition(".")[0]
        raise Unavailable(
            f"--to {args.to} needs {missing}, which is not installed", hint="pip install 'sonde[export]'"
        ) from None


def _written(args: argparse.Namespace, recording: Recording, tell: Callable[[float], None]) -> _Done:
    chosen = FORMATS[args.to]
    module, _, function = chosen.writer.partition(":")
    writer = getattr(import_module(f"{_PACKAGE}.{module}"), function)  # first: it may lack a package
    from sonde.jobs.export.about import description, write_beside
    from sonde.jobs.export.choice import choice_of
    from sonde.jobs.export.table import Table

    path = _place(args, recording, chosen)
    step_ns = args.resample.ns if args.resample else 0
    table = Table(recording, choice_of(args.select, step_ns, rate=args.rate), tell)
    paths = [path]
    if path == "-":
        writer(table, sys.stdout)
    else:
        with _destination(args, chosen, path) as part:
            _write(writer, table, part, as_text=chosen.text)
        if chosen.beside:
            paths.append(write_beside(path, description(table)))
    counts = {
        "nodes": len(recording.nodes),
        "series": len(table.fields),
        "values": table.values,
        "gaps": len(table.gaps),
    }
    text = f"{_count(counts['nodes'], 'node')}, {counts['series']} series, {_count(table.values, 'value')}"
    return _Done(paths, counts, text, table.notes, not table.damaged)


def _count(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def _write(writer: Callable[[Any, Any], None], table: Any, path: str, *, as_text: bool) -> None:
    if not as_text:
        writer(table, path)
        return
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer(table, file)


def _place(args: argparse.Namespace, recording: Recording, chosen: Format) -> str:
    name = f"{recording.name.replace('/', '_')}{chosen.suffix}"
    path = str(args.output or name)
    if path != "-" and os.path.isdir(path):
        path = os.path.join(path, name)
    if path != "-" and not args.append and not args.overwrite:
        from sonde.jobs.export.destination import refuse_existing

        refuse_existing(path, appends=bool(chosen.append))
    return path


def _destination(args: argparse.Namespace, chosen: Format, path: str) -> AbstractContextManager[str]:
    from sonde.jobs.export import destination

    name = chosen.append if args.append else "replaced"
    result: AbstractContextManager[str] = getattr(destination, name)(path)
    return result


def _perfmon(args: argparse.Namespace, recording: Recording, tell: Callable[[float], None]) -> _Done:
    from sonde.dialects.perfmon.files import write_files

    if args.select or args.rate or args.resample:
        raise UsageError("perfmon's files have the series perfmon has", hint="leave --select and the like away")
    folder = str(args.output or f"{recording.name.replace('/', '_')}{FORMATS['perfmon'].suffix}")
    if os.path.isdir(os.path.join(folder, "metrics")) and not args.append and not args.overwrite:
        raise UsageError(f"{folder} has metrics already", hint="--overwrite replaces them")
    result = write_files(recording, folder, _frames(args), tell=tell)
    counts = {"nodes": len(recording.nodes), "families": list(result.families)}
    text = f"{len(recording.nodes)} nodes, {', '.join(result.families) or 'nothing'}"
    return _Done(result.paths, counts, text, result.notes, not result.damaged)


def _sent(args: argparse.Namespace, recording: Recording, tell: Callable[[float], None]) -> _Done:
    from sonde.cli.replay import assignment
    from sonde.config import SinkConfig, split
    from sonde.jobs.export.remote import send
    from sonde.sinks.remote_write import RemoteWriteConfig

    keys = {"url": args.url, **dict(map(assignment, args.set))}
    _, config = split(SinkConfig, RemoteWriteConfig, keys, "sinks.remote_write")
    selectors = [parse_selector(text) for text in args.select]
    sent = send(recording, config, selectors, patience=float(args.patience), tell=tell)
    told = {"nodes": sent.nodes, **sent.counts._asdict()}
    text = f"{sent.nodes} nodes, {sent.counts.delivered} frames delivered"
    if sent.counts.rejected:
        raise SondeError(f"{text}; {sent.counts.rejected} were refused for good: {sent.counts.reason}")
    return _Done([args.url], told, text, sent.notes, not sent.damaged)


def _tell(args: argparse.Namespace, recording: Recording, done: _Done, seconds: float) -> None:
    file = sys.stderr if args.output == "-" else sys.stdout
    if args.json:
        notes = [{"host": host, "text": text} for host, text in done.notes]
        told = {"recording": recording.name, "to": args.to, "paths": done.paths, **done.told, "notes": notes}
        print(json.dumps({**told, "seconds": round(seconds, 3)}), file=file)
        return
    first, *others = done.paths
    print(f"{'standard output' if first == '-' else first}: {done.text}", *others, sep="\n", file=file)
    _tell_notes(done.notes)


def _tell_notes(notes: Sequence[tuple[str, str]]) -> None:
    """What holds for several nodes is told once; of much, the beginning."""
    hosts: dict[str, list[str]] = {}
    for host, text in notes:
        hosts.setdefault(text, []).append(host)
    for text, where in list(hosts.items())[:_NOTES]:
        more = f" and {len(where) - _HOSTS} more" if len(where) > _HOSTS else ""
        print(f"sonde: export: {', '.join(where[:_HOSTS])}{more}: {text}", file=sys.stderr)
    if len(hosts) > _NOTES:
        print(f"sonde: export: {len(hosts) - _NOTES} more notes: --json prints them all", file=sys.stderr)

"""Ranges, rates and sparklines from the archive, with or without a running daemon, or from a Prometheus server.

sonde query node_load1                                          the last five minutes
sonde query 'node_cpu_seconds_total{mode!="idle"}' --rate --sum-by mode --since 1h --step 1m
sonde query 'node_memory_*' --since 2h --spark
sonde query --list 'node_disk_*'                                what there is
sonde query node_load1 --since 2026-11-15T20:00Z --until 2026-11-15T21:00Z --csv
sonde query node_load1 --server http://prometheus:9090          of all nodes; VictoriaMetrics, Mimir, Thanos too

A selection is a metric's name or shell pattern and, in braces, label matchers: = and != compare, =~ and !~ match the
whole value with a regular expression. A counter's --rate is per second; a counter that was reset counts from 0.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase

from sonde.cli.arguments import duration
from sonde.cli.connection import call
from sonde.cli.credentials import add_credentials, authorization, tls_of
from sonde.cli.moments import parse_span
from sonde.cli.points import show, show_list
from sonde.cli.terminal import label_text
from sonde.clock import iso
from sonde.daemon.paths import state_dir
from sonde.errors import ReadError, SondeError, Unavailable, UsageError
from sonde.httpclient import parse_url
from sonde.store import query
from sonde.store.form import Series
from sonde.store.query import Points, Selector, Source, Span
from sonde.store.reader import ArchiveReader
from sonde.units import Duration

_BRIDGED_PERIODS = 5  # missing ticks a rate still spans
_SUGGESTED = 5  # names shown when there is none such


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("metric", nargs="?", help='name or pattern, with label matchers: name{label="value"}')
    parser.add_argument("--since", default="5m", metavar="WHEN", help="how long ago, or a time in UTC (default 5m)")
    parser.add_argument("--until", default="", metavar="WHEN", help="likewise (default now)")
    parser.add_argument("--rate", action="store_true", help="increase per second, of counters")
    parser.add_argument("--step", metavar="DURATION", help="one value per step, as 10s or 1m")
    parser.add_argument(
        "--agg", choices=sorted(query.AGGREGATES), help="of the values in a step (default mean or last)"
    )
    parser.add_argument("--sum-by", metavar="LABELS", help="add up series that agree in these labels; '' for all")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--archive", metavar="FILE", help="the archive (default: the daemon's)")
    place.add_argument("--server", metavar="URL", help="ask a Prometheus-compatible server: http://prometheus:9090")
    add_credentials(parser)
    parser.add_argument(
        "--timeout", type=duration, default=Duration(30), metavar="DURATION", help="for each of its answers (30s)"
    )
    parser.add_argument("--list", action="store_true", help="list metrics instead of values")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print an object")
    shape.add_argument("--csv", action="store_true", help="print a line per time")
    shape.add_argument("--spark", action="store_true", help="print a sparkline per series")


def default_archive(args: argparse.Namespace) -> str:
    """The file named on the command line, or the running daemon's, or where one would have left it."""
    if args.archive:
        return str(args.archive)
    try:
        told = call(argparse.Namespace(host=None), "daemon.status", timeout=1.0).get("archive")
    except SondeError:
        told = None
    return str(told) if told else os.path.join(state_dir(), "archive.db")


def run(args: argparse.Namespace) -> int:
    if args.metric is None and not args.list:
        raise UsageError("which metric?", hint="sonde query --list shows what there is")
    selector = query.parse_selector(args.metric) if args.metric else Selector("*")
    if args.agg and not args.step and args.sum_by is None:
        raise UsageError("--agg is of the values in a step", hint=f"say how long one is: --step 1m --agg {args.agg}")
    span = parse_span(args.since, args.until, time.time_ns())
    step_ns = parse_step(args.step)
    with ExitStack() as resources:
        source = _source(args, span, resources)
        if args.list:
            show_list(source.series(selector), as_json=args.json)
        else:
            show(args, answer(source, selector, args, span, step_ns), _origin(args, source))
        return _tell(source)


def _source(args: argparse.Namespace, span: Span, resources: ExitStack) -> Source:
    if not args.server:
        return resources.enter_context(ArchiveReader(default_archive(args)))
    from sonde.store.server import ServerReader

    headers, where = authorization(args), args.server
    if "@" in where.partition("://")[2].partition("/")[0]:
        raise UsageError(
            "a password in a URL is in everybody's process list", hint="put user:password into a --password-file"
        )
    reader = resources.enter_context(
        ServerReader(where, span, headers=headers, tls=tls_of(args), timeout=float(args.timeout))
    )
    url = parse_url(where)
    if headers and not url.secure and not url.address.is_local:
        reader.notes.append("the credentials travel in the clear: use https")
    return reader


def _origin(args: argparse.Namespace, source: Source) -> dict[str, object]:
    if args.server:
        return {"server": source.path, "notes": source.notes}
    return {"archive": source.path, "damaged": source.damaged, "notes": source.notes}


def parse_step(text: str | None) -> int:
    if text is None:
        return 0
    try:
        step_ns = Duration.parse(text).ns
    except ValueError as error:
        raise UsageError(f"--step: {error}") from None
    if step_ns <= 0:
        raise UsageError("--step must be longer than nothing")
    return step_ns


def answer(source: Source, selector: Selector, args: argparse.Namespace, span: Span, step_ns: int) -> list[Points]:
    """The series asked for, transformed as asked for; Unavailable says why there is none."""
    found = query.select(source, selector, *span)
    if not found:
        raise _nothing(source, selector, span)
    if args.rate:
        found = _rates(found)
    found = [points for points in map(query.in_order, found) if points.times]
    if args.sum_by is not None and found:
        _refuse_unknown_labels(args.sum_by, found)
        return _summed(found, [name for name in args.sum_by.split(",") if name], args.agg, step_ns)
    if step_ns:
        found = [_stepped(points, step_ns, args.agg) for points in found]
    if not found:
        raise Unavailable("a rate needs two values", hint="ask for a longer --since")
    return found


def _rates(found: Sequence[Points]) -> list[Points]:
    counters = [points for points in found if points.series.kind in ("counter", "untyped")]
    if not counters:
        series = found[0].series
        raise UsageError(f"{series.metric} is a {series.kind}: --rate is for counters")
    return [query.rate(points, max_gap_ns=_BRIDGED_PERIODS * points.period_ns) for points in counters]


def _stepped(points: Points, step_ns: int, aggregate: str | None) -> Points:
    return query.downsampled(points, step_ns, aggregate or query.default_aggregate(points.series))


def _summed(found: list[Points], labels: list[str], aggregate: str | None, step_ns: int) -> list[Points]:
    step_ns = step_ns or max(points.period_ns for points in found)
    stepped = [_stepped(points, step_ns, aggregate) for points in found]
    times = sorted({moment for points in stepped for moment in points.times})
    return query.summed_by(stepped, labels, times, 0)


def _nothing(source: Source, selector: Selector, span: Span) -> Unavailable:
    """Why a selection is empty: no such metric, no such labels, or nothing in that time."""
    names = source.names()
    if not any(_same_metric(name, selector) for name in names):
        close = similar(selector.metric, names)
        hint = f"did you mean {' or '.join(close)}?" if close else "sonde query --list shows what there is"
        return Unavailable(f"no metric {selector.metric} in {source.path}", hint=hint)
    try:
        matching = _of_metric(source, selector)
    except ReadError:  # too many to list: no examples then
        matching = []
    if matching and not any(_labels_match(series, selector) for series in matching):
        examples = ", ".join(label_text(series.labels) for series in matching[:_SUGGESTED])
        return Unavailable(f"no series of {selector.metric} has these labels", hint=f"there are {examples}")
    covered = source.span()
    hint = f"{source.path} covers {iso(covered[0])} to {iso(covered[1])}" if covered else "ask for a longer --since"
    return Unavailable(f"{selector.metric} has no values from {iso(span[0])} to {iso(span[1])}", hint=hint)


def similar(metric: str, names: Sequence[str]) -> list[str]:
    """Names one may have meant: those that hold the words typed, then those that are spelled alike."""
    words = [word for word in metric.replace("*", "_").replace("?", "_").split("_") if word]
    holding = [name for name in names if words and all(word in name for word in words)]
    alike = difflib.get_close_matches(metric, names, n=_SUGGESTED, cutoff=0.6)
    holding.sort(key=lambda name: (not name.startswith(metric), len(name)))
    return list(dict.fromkeys([*holding, *alike]))[:_SUGGESTED]


def _of_metric(source: Source, selector: Selector) -> list[Series]:
    for name in _stems(selector.metric):
        if found := source.series(Selector(name)):
            return found
    return []


def _stems(metric: str) -> list[str]:
    """A name, and the name of the histogram it may be a part of."""
    return list(dict.fromkeys([metric, *[metric.removesuffix(end) for end in ("_bucket", "_count", "_sum")]]))


def _same_metric(name: str, selector: Selector) -> bool:
    return any(fnmatchcase(name, stem) for stem in _stems(selector.metric))


def _labels_match(series: Series, selector: Selector) -> bool:
    labels = dict(series.labels)
    return all(matcher.label == "le" or matcher.matches(labels) for matcher in selector.matchers)


def _tell(source: Source) -> int:
    for note in source.notes:
        print(f"sonde: query: {note}", file=sys.stderr)
    if not source.damaged:
        return 0
    print(f"sonde: query: {source.damaged} damaged rows were skipped", file=sys.stderr)
    print("  sonde archive check tells which", file=sys.stderr)
    return 1


def _refuse_unknown_labels(text: str, found: list[Points]) -> None:
    known = {name for points in found for name, _ in points.series.labels}
    for name in text.split(","):
        if name and name not in known:
            raise UsageError(
                f"--sum-by: no series has a label {name!r}", hint=f"labels here: {', '.join(sorted(known))}"
            )

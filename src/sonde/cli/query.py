"""Ranges, rates and sparklines from the archive, with or without a running daemon.

sonde query node_load1                                          the last five minutes
sonde query 'node_cpu_seconds_total{mode!="idle"}' --rate --sum-by mode --since 1h --step 1m
sonde query 'node_memory_*' --since 2h --spark
sonde query --list 'node_disk_*'                                what there is
sonde query node_load1 --since 2026-11-15T20:00Z --until 2026-11-15T21:00Z --csv

A selection is a metric's name or shell pattern and, in braces, label matchers: = and != compare, =~ and !~ match the
whole value with a regular expression. A counter's --rate is per second; a counter that was reset counts from 0.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from sonde.cli.connection import call
from sonde.cli.terminal import label_text, table
from sonde.clock import NS, iso
from sonde.daemon.paths import state_dir
from sonde.errors import SondeError, Unavailable, UsageError
from sonde.store import query
from sonde.store.form import Series
from sonde.store.query import Points, Selector
from sonde.store.reader import ArchiveReader
from sonde.units import Duration

_BRIDGED_PERIODS = 5  # missing ticks a rate still spans
_TABLE_SERIES = 6  # more do not fit beside each other: then a line per series
_BLOCKS = "▁▂▃▄▅▆▇█"


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
    parser.add_argument("--archive", metavar="FILE", help="the archive (default: the daemon's)")
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
    now_ns = time.time_ns()
    since_ns, until_ns = parse_when(args.since, now_ns), parse_when(args.until or "0s", now_ns)
    if since_ns >= until_ns:
        raise UsageError(f"--since {args.since} is not before --until {args.until or 'now'}")
    step_ns = parse_step(args.step)
    with ArchiveReader(default_archive(args)) as reader:
        if args.list:
            _print_list(reader.series(selector), as_json=args.json)
        else:
            _show(args, answer(reader, selector, args, (since_ns, until_ns), step_ns), reader)
        return _tell(reader)


def parse_when(text: str, now_ns: int) -> int:
    """`5m` ago, `2026-11-15T20:00Z`, or seconds since the epoch."""
    try:
        return now_ns - Duration.parse(text).ns
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is not None:
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1e6) * 1000
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1e8 < seconds < 1e11:  # 5 is not five seconds after 1970: a unit was forgotten
        raise UsageError(f"{text!r} is no time", hint="write 5m, 2026-11-15T20:00Z or seconds since 1970")
    return round(seconds * NS)


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


def answer(
    reader: ArchiveReader, selector: Selector, args: argparse.Namespace, span: tuple[int, int], step_ns: int
) -> list[Points]:
    """The series asked for, transformed as asked for; Unavailable says why there is none."""
    found = query.select(reader, selector, *span)
    if not found:
        raise _nothing(reader, selector, span)
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


def _nothing(reader: ArchiveReader, selector: Selector, span: tuple[int, int]) -> Unavailable:
    """Why a selection is empty: no such metric, no such labels, or nothing in that time."""
    every = reader.series()
    if not any(_same_metric(series, selector) for series in every):
        names = sorted({series.metric for series in every})
        close = difflib.get_close_matches(selector.metric, names, n=5, cutoff=0.5)
        hint = f"similar: {', '.join(close)}" if close else "sonde query --list shows what there is"
        return Unavailable(f"no metric {selector.metric} in {reader.path}", hint=hint)
    matching = [series for series in every if _same_metric(series, selector)]
    if not any(_labels_match(series, selector) for series in matching):
        examples = ", ".join(label_text(series.labels) for series in matching[:5])
        return Unavailable(f"no series of {selector.metric} has these labels", hint=f"there are {examples}")
    covered = reader.span()
    hint = "the archive is empty" if covered is None else f"the archive covers {iso(covered[0])} to {iso(covered[1])}"
    return Unavailable(f"{selector.metric} has no values from {iso(span[0])} to {iso(span[1])}", hint=hint)


def _same_metric(series: Series, selector: Selector) -> bool:
    names = [selector.metric, *[selector.metric.removesuffix(end) for end in ("_bucket", "_count", "_sum")]]
    return any(Selector(name).matches(series) for name in names)


def _labels_match(series: Series, selector: Selector) -> bool:
    labels = dict(series.labels)
    return all(matcher.label == "le" or matcher.matches(labels) for matcher in selector.matchers)


def _show(args: argparse.Namespace, found: list[Points], reader: ArchiveReader) -> None:
    if args.json:
        print(json.dumps(_as_object(found, reader), allow_nan=False))
    elif args.csv:
        _print_csv(found)
    elif args.spark:
        print(table([_spark_row(points, _spark_width(found)) for points in found]))
    elif len(found) > _TABLE_SERIES:
        print(_summary(found))
    else:
        print(_timetable(found))


def _tell(reader: ArchiveReader) -> int:
    for note in reader.notes:
        print(f"sonde: query: {note}", file=sys.stderr)
    if not reader.damaged:
        return 0
    print(f"sonde: query: {reader.damaged} damaged rows were skipped", file=sys.stderr)
    print("  sonde archive check tells which", file=sys.stderr)
    return 1


def _as_object(found: list[Points], reader: ArchiveReader) -> dict[str, object]:
    return {
        "archive": reader.path,
        "damaged": reader.damaged,
        "notes": reader.notes,
        "series": [
            {
                "metric": points.series.metric,
                "labels": dict(points.series.labels),
                "kind": points.series.kind,
                "unit": points.series.unit,
                "points": [
                    [moment, value if math.isfinite(value) else str(value)]
                    for moment, value in zip(points.times, points.values, strict=True)
                ],
            }
            for points in found
        ],
    }


def _refuse_unknown_labels(text: str, found: list[Points]) -> None:
    known = {name for points in found for name, _ in points.series.labels}
    for name in text.split(","):
        if name and name not in known:
            raise UsageError(
                f"--sum-by: no series has a label {name!r}", hint=f"labels here: {', '.join(sorted(known))}"
            )


def _print_list(every: list[Series], *, as_json: bool) -> None:
    metrics: dict[tuple[str, str, str], list[Series]] = {}
    for series in every:
        metrics.setdefault(series[:3], []).append(series)
    if as_json:
        rows = [
            {"metric": name, "kind": kind, "unit": unit, "labels": [dict(series.labels) for series in group]}
            for (name, kind, unit), group in metrics.items()
        ]
        print(json.dumps(rows))
        return
    lines = [
        [name, kind, unit, str(len(group)), ",".join(label for label, _ in group[0].labels)]
        for (name, kind, unit), group in metrics.items()
    ]
    print(table(lines, header=("metric", "kind", "unit", "series", "labels"), right=(3,)))


def number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _rows(found: list[Points]) -> list[tuple[int, list[float | None]]]:
    """Series beside each other; those with times of their own are first brought to the slowest one's pace."""
    step_ns = max(points.period_ns for points in found)  # 0 for sums: these are on one grid already
    if step_ns and any(points.times != found[0].times for points in found):
        found = [query.downsampled(points, step_ns, "last") for points in found]
    times = sorted({moment for points in found for moment in points.times})
    columns = [query.aligned(points, times, lookback_ns=0) for points in found]
    return [(moment, list(values)) for moment, values in zip(times, zip(*columns, strict=True), strict=True)]


def _timetable(found: list[Points]) -> str:
    one_metric = len({points.series.metric for points in found}) == 1
    names = [(label_text(points.series.labels) or "value") if one_metric else _name(points.series) for points in found]
    rows = [
        [iso(moment), *["" if value is None else number(value) for value in values]] for moment, values in _rows(found)
    ]
    title = f"{found[0].series.metric} {found[0].series.unit}".rstrip() + "\n" if one_metric else ""
    return title + table(rows, header=("time", *names), right=range(1, len(names) + 1))


def _summary(found: list[Points]) -> str:
    rows = [
        [
            _name(points.series),
            *map(number, (points.values[-1], min(points.values), _mean(points.values), max(points.values))),
            points.series.unit,
        ]
        for points in found
    ]
    return table(rows, header=("series", "last", "min", "mean", "max", "unit"), right=(1, 2, 3, 4))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _name(series: Series) -> str:
    return series.metric + label_text(series.labels)


def _print_csv(found: list[Points]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["time", *[_name(points.series) for points in found]])
    for moment, values in _rows(found):
        writer.writerow([iso(moment, digits=9), *["" if value is None else repr(value) for value in values]])


def _spark_width(found: list[Points]) -> int:
    names = max(len(_name(points.series)) for points in found)
    return max(10, min(60, shutil.get_terminal_size().columns - names - 40))


def _spark_row(points: Points, width: int) -> list[str]:
    drawn = spark(points, width)
    low, high = min(points.values), max(points.values)
    return [_name(points.series), drawn, f"{number(low)} to {number(high)}, last {number(points.values[-1])}"]


def spark(points: Points, width: int) -> str:
    """The course of a series in one line: the mean of each part of its time, a blank where there is nothing."""
    start, end = points.times[0], points.times[-1]
    step = max(1, -(-(end - start + 1) // width))
    shifted = Points(points.series, points.period_ns, [moment - start for moment in points.times], points.values)
    bars = query.downsampled(shifted, step, "mean")
    low, high = min(bars.values), max(bars.values)
    height = (high - low) or 1
    drawn = [" "] * (bars.times[-1] // step + 1)
    for moment, value in zip(bars.times, bars.values, strict=True):
        share = (value - low) / height if math.isfinite(height) and math.isfinite(value) else 0.0
        drawn[moment // step] = _BLOCKS[round(share * (len(_BLOCKS) - 1))]
    return "".join(drawn)

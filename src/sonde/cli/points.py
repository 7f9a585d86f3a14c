"""Series and their values for people and programs: a table, a line per series, a sparkline, CSV, JSON."""

from __future__ import annotations

import argparse
import csv
import json
import math
import shutil
import sys
from collections.abc import Sequence

from sonde.cli.terminal import label_text, table
from sonde.clock import iso
from sonde.store import query
from sonde.store.form import Series
from sonde.store.query import Points

_TABLE_SERIES = 6  # more do not fit beside each other: then a line per series
_BLOCKS = "▁▂▃▄▅▆▇█"


def show(args: argparse.Namespace, found: list[Points], origin: dict[str, object]) -> None:
    """Print as the command line asks for. `origin` is where it comes from, for JSON."""
    if args.json:
        print(json.dumps(origin | {"series": [_as_object(points) for points in found]}, allow_nan=False))
    elif args.csv:
        _print_csv(found)
    elif args.spark:
        print(table([_spark_row(points, _spark_width(found)) for points in found]))
    elif len(found) > _TABLE_SERIES:
        print(_summary(found))
    else:
        print(_timetable(found))


def _as_object(points: Points) -> dict[str, object]:
    return {
        "metric": points.series.metric,
        "labels": dict(points.series.labels),
        "kind": points.series.kind,
        "unit": points.series.unit,
        "points": [
            [moment, value if math.isfinite(value) else str(value)]
            for moment, value in zip(points.times, points.values, strict=True)
        ],
    }


def show_list(every: list[Series], *, as_json: bool) -> None:
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

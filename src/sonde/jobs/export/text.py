"""CSV, a line per moment of a node; and JSON, tidy: each series with the times of its own, beside what it is."""

from __future__ import annotations

import csv
import json
import math
from typing import IO, Any

import numpy as np

from sonde.jobs.export.about import description
from sonde.jobs.export.table import Cells, Rows, Table


def write_csv(table: Table, file: IO[str]) -> None:
    """RFC 4180; a value that is not there is an empty field, times are ISO 8601 in UTC to the nanosecond."""
    csv.writer(file, lineterminator="\n").writerow(["host", "time", *[field.name for field in table.fields]])
    for rows in table.rows():
        host = _quoted(rows.host)
        columns = [_times(rows), *map(_texts, rows.cells)]
        file.writelines([f"{host},{','.join(row)}\n" for row in zip(*columns, strict=True)])


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\n\r') else text


def _times(rows: Rows) -> list[str]:
    texts: list[str] = np.datetime_as_string(rows.times.astype("datetime64[ns]"), unit="ns").tolist()
    return [f"{text}Z" for text in texts]


def _texts(cells: Cells) -> list[str]:
    texts = list(map(repr, cells.values.tolist()))
    if cells.missing is not None:
        for place in np.nonzero(cells.missing)[0]:
            texts[place] = ""
    return texts


def write_json(table: Table, file: IO[str]) -> None:
    """One object. Series are written node by node, so that memory is one node's."""
    told = description(table)
    del told["columns"]
    text = json.dumps(told, indent=1, ensure_ascii=False)
    file.write(text[: text.rindex("\n}")] + ',\n "series": [')
    begin = "\n"
    for host, found in table.chosen():
        for one in found:
            series = one.series
            record: dict[str, Any] = {
                "host": host,
                "metric": series.metric,
                "labels": dict(series.labels),
                "kind": series.kind,
                "unit": series.unit,
                "times_ns": one.times.tolist(),
                "values": list(map(_number, one.values.tolist())),
            }
            file.write(f"{begin}  {json.dumps(record, ensure_ascii=False, separators=(',', ':'))}")
            begin = ",\n"
    file.write("\n ]\n}\n")


def _number(value: float) -> float | str:
    """JSON has no infinity; Prometheus' own API writes it as text, too."""
    return value if math.isfinite(value) else f"{value:+}".title()

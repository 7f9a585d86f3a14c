"""An Excel workbook: the sheets metrics, series, gaps and notes, by XlsxWriter, row by row.

Excel holds 1 048 576 rows and 16 384 columns, times to the millisecond and integers to 15 digits.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import xlsxwriter

from sonde.errors import UsageError
from sonde.jobs.export.table import Cells, Table

_ROWS, _COLUMNS = 1_048_575, 16_384  # a row is the header


def write_xlsx(table: Table, path: str) -> None:
    _refuse_wide(table)
    options = {"constant_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    with xlsxwriter.Workbook(path, options) as book:
        moment = book.add_format({"num_format": "yyyy-mm-dd hh:mm:ss.000"})
        _write_metrics(book.add_worksheet("metrics"), table, moment)
        _write(
            book.add_worksheet("series"),
            ("column", "metric", "labels", "kind", "unit"),
            [
                (field.name, field.series[0], json.dumps(dict(field.series[3])), *field.series[1:3])
                for field in table.fields
            ],
        )
        _write(
            book.add_worksheet("gaps"),
            ("host", "from", "to", "metric", "labels", "quality", "reason"),
            [
                (gap.host, _moment(gap.from_ns), None if gap.to_ns is None else _moment(gap.to_ns), *gap[3:4],
                 json.dumps(gap.labels), gap.quality, gap.reason)
                for gap in table.gaps
            ],
            moment,
        )  # fmt: skip
        _write(book.add_worksheet("notes"), ("host", "text"), table.notes)


def _refuse_wide(table: Table) -> None:
    if len(table.fields) + 2 > _COLUMNS:
        raise UsageError(f"{len(table.fields)} series are more than Excel has columns", hint="choose some: --select")


def _write_metrics(sheet: Any, table: Table, moment: Any) -> None:
    sheet.freeze_panes(1, 2)
    sheet.set_column(1, 1, 24)
    sheet.write_row(0, 0, ["host", "time", *[field.name for field in table.fields]])
    at = 1
    for rows in table.rows():
        if at + len(rows.times) > _ROWS + 1:
            raise UsageError(
                f"more than {_ROWS} rows do not fit a sheet", hint="ask for fewer: --resample 10s, or another format"
            )
        columns = [_values(cells) for cells in rows.cells]
        for place, time_ns in enumerate(rows.times.tolist()):
            sheet.write_string(at, 0, rows.host)
            sheet.write_datetime(at, 1, _moment(time_ns), moment)
            for number, column in enumerate(columns, 2):
                value = column[place]
                if value is not None:
                    sheet.write(at, number, value)
            at += 1


def _values(cells: Cells) -> list[float | str | None]:
    values = cells.values.tolist()
    if cells.missing is not None:
        values = [None if gone else value for value, gone in zip(values, cells.missing.tolist(), strict=True)]
    # A cell cannot be infinite.
    return [str(value) if value is not None and not math.isfinite(value) else value for value in values]


def _write(sheet: Any, names: tuple[str, ...], rows: list[Any], moment: Any = None) -> None:
    sheet.write_row(0, 0, names)
    for at, row in enumerate(rows, 1):
        for number, value in enumerate(row):
            if isinstance(value, datetime):
                sheet.write_datetime(at, number, value, moment)
            elif value is not None:
                sheet.write_string(at, number, value)


def _moment(time_ns: int) -> datetime:
    """Without a zone, as Excel's are; UTC."""
    return datetime.fromtimestamp(round(time_ns / 1_000_000) / 1000, UTC).replace(tzinfo=None)

"""Every format, read back by the library its users use, and compared value by value."""

from __future__ import annotations

import csv
import io
import json
import math
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import openpyxl
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet
import pytest
import tables
from tests.recordings import BEGUN_NS, make_recording
from tests.unit.jobs.export.conftest import COLUMNS, HOSTS, SECONDS, Truth, rounded

from sonde.clock import NS
from sonde.errors import UsageError
from sonde.jobs.export import arrow, frame, openmetrics, sheet, sqlite, text
from sonde.jobs.export.choice import choice_of
from sonde.jobs.export.table import Table
from sonde.jobs.recording import Recording

NAMES = ["host", "time", *COLUMNS]


def nanoseconds(moment: Any) -> int:
    return int(pd.Timestamp(moment).as_unit("ns").value)


def asked(question: str) -> duckdb.DuckDBPyRelation:
    answer = duckdb.sql(question)
    assert answer is not None
    return answer


def of_frame(data: Any) -> Truth:
    """A pandas frame as hosts, times and values; NaN and NA are None."""
    return {
        (host, nanoseconds(time)): {
            name: None if pd.isna(value) else value for name, value in zip(COLUMNS, row, strict=True)
        }
        for host, time, *row in data[NAMES].itertuples(index=False, name=None)
    }


def of_arrow(data: pa.Table) -> Truth:
    columns = [data.column("host").to_pylist(), data.column("time").cast(pa.int64()).to_pylist()]
    rows = zip(*columns, *[data.column(name).to_pylist() for name in COLUMNS], strict=True)
    return {(host, time): dict(zip(COLUMNS, row, strict=True)) for host, time, *row in rows}


def test_csv(table: Table, truth: Truth, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    with path.open("w", encoding="utf-8") as file:
        text.write_csv(table, file)

    with path.open(encoding="utf-8") as file:
        names, *rows = csv.reader(file)
    by_pandas = pd.read_csv(path, parse_dates=["time"], dtype_backend="numpy_nullable")
    by_polars = pl.read_csv(path, try_parse_dates=True, infer_schema_length=None)
    by_duckdb = asked(f"SELECT host, node_load1, node_gappy_total FROM '{path}' ORDER BY ALL").fetchall()

    assert names == NAMES
    assert rows[0][:3] == ["gpu-2", "2026-09-21T14:13:20.000000000Z", "0"]
    assert of_frame(by_pandas) == truth
    assert by_polars["node_gappy_total"].to_list() == [row["node_gappy_total"] for row in truth.values()]
    assert by_polars["node_load1"].to_list() == [row["node_load1"] for row in truth.values()]
    assert sorted(by_duckdb, key=repr) == sorted(
        [(host, row["node_load1"], row["node_gappy_total"]) for (host, _), row in truth.items()], key=repr
    )


def test_parquet(table: Table, truth: Truth, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    arrow.write_parquet(table, str(path))

    by_arrow = pyarrow.parquet.read_table(path)
    by_polars = pl.read_parquet(path)
    by_duckdb = asked(f"SELECT * FROM '{path}'").to_arrow_table()
    by_pandas = pd.read_parquet(path, dtype_backend="numpy_nullable")

    assert of_arrow(by_arrow) == truth
    assert of_arrow(by_polars.to_arrow()) == truth
    assert of_arrow(by_duckdb) == truth
    assert of_frame(by_pandas) == truth
    assert by_arrow.schema.field("time").type == pa.timestamp("ns", tz="UTC")
    assert by_arrow.schema.field("node_gappy_total").type == pa.int64()
    told = json.loads(by_arrow.schema.metadata[b"sonde"])
    assert told["gaps"][0]["reason"] == "readable by root only"
    assert told["notes"] == [{"host": "n1", "text": "a note"}]


def test_feather(table: Table, truth: Truth, tmp_path: Path) -> None:
    path = tmp_path / "x.feather"
    arrow.write_feather(table, str(path))

    assert of_arrow(pyarrow.feather.read_table(path)) == truth
    assert of_arrow(pl.read_ipc(path).to_arrow()) == truth
    assert of_frame(pd.read_feather(path, dtype_backend="numpy_nullable")) == truth


def test_orc(table: Table, truth: Truth, tmp_path: Path) -> None:
    path = tmp_path / "x.orc"
    arrow.write_orc(table, str(path))

    assert of_arrow(pyarrow.orc.read_table(path)) == truth
    assert of_frame(pd.read_orc(path, dtype_backend="numpy_nullable")) == truth


def test_pickle(table: Table, truth: Truth, tmp_path: Path) -> None:
    path = tmp_path / "x.pkl"
    frame.write_pickle(table, str(path))

    data = pd.read_pickle(path)

    assert of_frame(data) == truth
    assert str(data["node_gappy_total"].dtype) == "Int64"
    assert str(data["time"].dtype) == "datetime64[ns, UTC]"


def test_hdf5(table: Table, truth: Truth, tmp_path: Path) -> None:
    path = str(tmp_path / "x.h5")
    frame.write_hdf5(table, path)

    nodes: Any = pd.read_hdf(path, "nodes_4711")
    parts: Any = {row.host: pd.read_hdf(path, row.key) for row in nodes.itertuples()}
    data = pd.concat(parts, names=["host"]).reset_index()
    gaps: Any = pd.read_hdf(path, "gaps_4711")
    with tables.open_file(path) as file:
        block = file.root.metrics_4711.n1.axis1.read()

    exact = {"node_load1", "node_only_n1"}
    assert [set(part.columns) for part in parts.values()] == [set(COLUMNS)] * 2
    assert of_frame(data) == truth
    assert {str(dtype) for name, dtype in parts["gpu-2"].dtypes.items() if name not in exact} == {"int64"}
    assert gaps["reason"].tolist() == ["readable by root only"] * 2
    assert block.tolist() == [BEGUN_NS + tick * NS for tick in range(SECONDS)]


def test_xlsx(table: Table, truth: Truth, tmp_path: Path) -> None:
    path = tmp_path / "x.xlsx"
    sheet.write_xlsx(table, str(path))

    book = openpyxl.load_workbook(path, read_only=True)
    names, *rows = book["metrics"].iter_rows(values_only=True)
    found = {
        (host, (moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)): row
        for host, moment, *row in rows
    }
    gaps = list(book["gaps"].iter_rows(values_only=True))
    book.close()

    assert list(names) == NAMES
    assert len(found) == len(truth)
    for (host, time_ns), row in rounded(truth).items():
        cells = found[host, time_ns // 1_000_000]
        for cell, value in zip(cells, row.values(), strict=True):
            # Excel keeps 15 digits.
            assert (cell is None) if value is None else math.isclose(cell, value, rel_tol=1e-14)  # type: ignore[arg-type]
    assert gaps[1][3:] == ("node_rapl_package_joules_total", "[]", "denied", "readable by root only")


def test_json(table: Table, truth: Truth) -> None:
    file = io.StringIO()
    text.write_json(table, file)

    told = json.loads(file.getvalue())

    found: dict[tuple[str, int, str], Any] = {}
    for one in told["series"]:
        labels = ",".join(f"{name}={json.dumps(value)}" for name, value in one["labels"].items())
        name = f"{one['metric']}{{{labels}}}" if labels else one["metric"]
        for time_ns, value in zip(one["times_ns"], one["values"], strict=True):
            found[one["host"], time_ns, name] = value
    assert found == {
        (*key, name): value for key, row in truth.items() for name, value in row.items() if value is not None
    }
    assert told["recording"] == "4711"
    assert [node["host"] for node in told["nodes"]] == sorted(HOSTS)
    assert {gap["quality"] for gap in told["gaps"]} == {"denied"}


def test_infinity_is_text_in_json(tmp_path: Path) -> None:
    recording = make_recording(tmp_path / "r", ("n1",), 2, series={"node_a": lambda t, host: -math.inf})
    file = io.StringIO()

    text.write_json(Table(recording, choice_of([])), file)

    assert json.loads(file.getvalue())["series"][0]["values"] == ["-Inf", "-Inf"]


def test_sqlite(table: Table, truth: Truth, tmp_path: Path) -> None:
    path = str(tmp_path / "x.sqlite")
    sqlite.write_sqlite(table, path)

    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT host, time_ns, metric, labels, value FROM samples").fetchall()
        notes = connection.execute("SELECT host, text FROM note").fetchall()
        gaps = connection.execute("SELECT DISTINCT metric, quality, reason FROM gap").fetchall()
    connection.close()

    found = {}
    for host, time_ns, metric, labels, value in rows:
        inside = ",".join(f"{name}={json.dumps(text)}" for name, text in json.loads(labels).items())
        found[host, time_ns, f"{metric}{{{inside}}}" if inside else metric] = value
    assert found == {
        (*key, name): value for key, row in truth.items() for name, value in row.items() if value is not None
    }
    assert notes == [("n1", "a note")]
    assert gaps == [("node_rapl_package_joules_total", "denied", "readable by root only")]


def test_openmetrics_families_stand_together(table: Table) -> None:
    file = io.StringIO()
    openmetrics.write_openmetrics(table, file)

    lines = file.getvalue().splitlines()

    declared = [line for line in lines if line.startswith("# TYPE")]
    assert lines[-1] == "# EOF"
    assert len(declared) == len(set(declared)) == 4
    assert "# TYPE node_network_receive_bytes counter" in declared
    at = lines.index("# TYPE node_gappy counter")
    assert lines[at + 1] == 'node_gappy_total{instance="gpu-2",job="sonde"} 0 1790000000.000'
    assert f'node_network_receive_bytes_total{{device="a,\\"b",instance="n1",job="sonde"}} 69 {1790000069}.000' in lines


@pytest.mark.parametrize("form", ["hdf5", "sqlite"])
def test_a_recording_that_is_appended_again_replaces_itself_and_another_of_its_name_does_not(
    tmp_path: Path, form: str
) -> None:
    def one(name: str, begun_ns: int) -> Recording:
        return make_recording(tmp_path / name, ("n1",), 3, begun_ns=begun_ns, series={"node_a": lambda t, host: 1.0})

    path = str(tmp_path / "shared")
    write = {"hdf5": frame.write_hdf5, "sqlite": sqlite.write_sqlite}[form]

    for recording in (one("a", BEGUN_NS), one("b", BEGUN_NS + 60 * NS)):
        for _ in range(2):
            write(Table(recording, choice_of([])), path)

    if form == "hdf5":
        with pd.HDFStore(path, "r") as store:
            keys = store.keys()
        assert sorted(key for key in keys if "metrics" in key) == ["/metrics_4711/n1", "/metrics_4711_2/n1"]
    else:
        connection = sqlite3.connect(path)
        assert connection.execute("SELECT count(*) FROM recording").fetchone() == (2,)
        assert connection.execute("SELECT count(*) FROM sample").fetchone() == (6,)
        connection.close()


@pytest.mark.parametrize("write", [frame.write_hdf5, sqlite.write_sqlite])
def test_a_file_of_another_kind_is_not_touched(table: Table, tmp_path: Path, write: Any) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("important " * 1000)

    with pytest.raises(UsageError):
        write(table, str(path))

    assert path.read_text() == "important " * 1000


def test_more_columns_than_a_sheet_has_are_refused(tmp_path: Path) -> None:
    series = {f'node_a{{n="{number}"}}': lambda t, host: 1 for number in range(16_383)}
    recording = make_recording(tmp_path / "r", ("n1",), 1, series=series)

    with pytest.raises(UsageError, match="more than Excel has columns"):
        sheet.write_xlsx(Table(recording, choice_of([])), str(tmp_path / "x.xlsx"))

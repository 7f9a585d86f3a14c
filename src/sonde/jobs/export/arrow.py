"""Parquet, Feather (the Arrow file format) and ORC, by pyarrow; one row group or batch per node."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa

from sonde.jobs.export.about import description
from sonde.jobs.export.table import Cells, Field, Table

_METADATA = b"sonde"  # of the schema: the description of the export, as JSON


def write_parquet(table: Table, path: str) -> None:
    from pyarrow import parquet

    with parquet.ParquetWriter(path, _schema(table), compression="zstd") as writer:
        for batch in _batches(table):
            writer.write_batch(batch)


def write_feather(table: Table, path: str) -> None:
    # Feather version 2 is the Arrow file format; written as such, it needs not be in memory as a whole.
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, _schema(table), options=options) as writer:
        for batch in _batches(table):
            writer.write_batch(batch)


def write_orc(table: Table, path: str) -> None:
    from pyarrow import orc

    with orc.ORCWriter(path, compression="zlib") as writer:
        for batch in _batches(table):
            writer.write(pa.Table.from_batches([batch]))


def _schema(table: Table) -> pa.Schema:
    fields = [pa.field("host", pa.string(), nullable=False), pa.field("time", _TIME, nullable=False)]
    fields += [_field(field) for field in table.fields]
    return pa.schema(fields, metadata={_METADATA: json.dumps(description(table)).encode()})


_TIME = pa.timestamp("ns", tz="UTC")


def _field(field: Field) -> pa.Field:
    series = field.series
    told = {
        "metric": series.metric,
        "kind": series.kind,
        "unit": series.unit,
        "labels": json.dumps(dict(series.labels)),
    }
    return pa.field(field.name, pa.int64() if field.integral else pa.float64(), metadata=told)


def _batches(table: Table) -> Iterator[pa.RecordBatch]:
    schema = _schema(table)
    for rows in table.rows():
        hosts = pa.array([rows.host] * len(rows.times), pa.string())
        times = pa.array(rows.times, pa.int64()).cast(_TIME)
        yield pa.record_batch([hosts, times, *map(_array, rows.cells)], schema=schema)


def _array(cells: Cells) -> pa.Array:
    return pa.array(cells.values, mask=cells.missing)

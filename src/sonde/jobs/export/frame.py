"""pandas: a pickled data frame, and HDF5 with keys per job and node in a file that many jobs share.

    nodes = pandas.read_hdf("all.h5", "nodes_4711")                     host, key, begun, ended
    pandas.read_hdf("all.h5", "metrics_4711/n1")                        index time, a column per series
    pandas.concat({row.host: pandas.read_hdf("all.h5", row.key) for row in nodes.itertuples()}, names=["host"])

`series_4711` says what the columns are; there are `gaps_4711` and `notes_4711`. The values stand in pandas' `fixed`
format: a `table` keeps the names of its columns in a header of 64 KiB, which 1500 of ours exceed. It has no nullable
integers: an integer column with gaps is of floats here.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tables import HDF5ExtError

from sonde.errors import UsageError
from sonde.jobs.export.about import gap_row, identity, node_row
from sonde.jobs.export.choice import Gap
from sonde.jobs.export.table import Cells, Field, Table

_LOCKING = "HDF5_USE_FILE_LOCKING"  # HDF5's own locks fail on filesystems that have none; ours is around it


def write_pickle(table: Table, path: str) -> None:
    """`host`, `time` and the series; integers with gaps are Int64 with NA."""
    parts = list(table.rows())
    hosts = np.repeat(np.array([part.host for part in parts], object), [len(part.times) for part in parts])
    columns: dict[str, Any] = {"host": hosts, "time": _moments(np.concatenate([part.times for part in parts]))}
    for number, field in enumerate(table.fields):
        columns[field.name] = _column([part.cells[number] for part in parts], field)
        for part in parts:
            part.cells[number] = Cells(np.empty(0), None)  # one copy of everything in memory is enough
    pd.DataFrame(columns, copy=False).to_pickle(path)


def _moments(times: NDArray[np.int64]) -> pd.DatetimeIndex:
    return pd.DatetimeIndex(times.astype("datetime64[ns]"), name="time").tz_localize("UTC")


def _column(cells: Sequence[Cells], field: Field) -> Any:
    values = np.concatenate([one.values for one in cells])
    if not field.integral or all(one.missing is None for one in cells):
        return values
    missing = [np.zeros(len(one.values), np.bool_) if one.missing is None else one.missing for one in cells]
    return pd.arrays.IntegerArray(values, np.concatenate(missing))


def _floating(cells: Cells) -> NDArray[Any]:
    if cells.missing is None or cells.values.dtype == np.float64:
        return cells.values
    return np.where(cells.missing, np.nan, cells.values.astype(np.float64))


def write_hdf5(table: Table, path: str) -> None:
    """Add a recording's keys to a file, which is made when it is not there."""
    os.environ.setdefault(_LOCKING, "BEST_EFFORT")
    try:
        # zlib, not blosc: every HDF5 reader has it.
        with pd.HDFStore(path, "a", complevel=4, complib="zlib") as store:
            put(store, table)
    except HDF5ExtError as error:
        raise UsageError(f"{path} is no HDF5 file that can be added to ({_line(error)})") from None


def _line(error: Exception) -> str:
    """HDF5 tells its whole stack; the last line says what is wrong."""
    return str(error).strip().rpartition("\n")[2]


def put(store: Any, table: Table) -> None:
    name = _key(store, table)
    _clear(store, f"metrics_{name}")
    names = [field.name for field in table.fields]
    nodes: list[dict[str, Any]] = []
    for part, node in zip(table.rows(), table.recording.nodes, strict=True):
        key = _free(f"metrics_{name}/{_word(part.host)}", {row["key"] for row in nodes})
        frame = pd.DataFrame(dict(zip(names, map(_floating, part.cells), strict=True)), index=_moments(part.times))
        store.put(key, frame, format="fixed", track_times=False)
        told = node_row(node)
        nodes.append({"host": part.host, "key": key, "begun": told["begun"], "ended": told["ended"] or ""})
    _put_rows(store, f"nodes_{name}", nodes)
    store.get_storer(f"nodes_{name}").attrs.sonde = identity(table.recording)
    _put_rows(store, f"series_{name}", [_series_row(field) for field in table.fields])
    _put_rows(store, f"gaps_{name}", [_gap_row(gap) for gap in table.gaps])
    _put_rows(store, f"notes_{name}", [{"host": host, "text": text} for host, text in table.notes])


def _gap_row(gap: Gap) -> dict[str, Any]:
    told = gap_row(gap)
    return {**told, "labels": json.dumps(told["labels"]), "to": told["to"] or ""}


def _series_row(field: Field) -> dict[str, str]:
    series = field.series
    labels = json.dumps(dict(series.labels))
    return {"column": field.name, "metric": series.metric, "labels": labels, "kind": series.kind, "unit": series.unit}


def _put_rows(store: Any, key: str, rows: Sequence[dict[str, Any]]) -> None:
    _clear(store, key)
    if rows:  # pandas keeps no table without rows
        store.put(key, pd.DataFrame(rows), format="table", track_times=False)


def _clear(store: Any, key: str) -> None:
    if key in store.root:
        store.remove(key)


def _key(store: Any, table: Table) -> str:
    """The job's id as a name HDF5 likes; of another recording with the same one, the next that is free."""
    mine, name = identity(table.recording), _word(table.recording.name)
    others = {key for key in store.root._v_children if key.startswith("nodes_")}
    return _free(name, {key.removeprefix("nodes_") for key in others if _identity_of(store, key) != mine})


def _identity_of(store: Any, key: str) -> str:
    return str(getattr(store.get_storer(key).attrs, "sonde", ""))


def _word(text: str) -> str:
    """Letters, digits and underscores: PyTables warns of other names."""
    return re.sub(r"\W", "_", text, flags=re.ASCII) or "_"


def _free(name: str, taken: set[str]) -> str:
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free

"""SQLite, one row per value: a wide table cannot hold more than 2000 columns, and several jobs never have the same.

    SELECT time_ns, value FROM sample JOIN series ON series.id = series WHERE host = 'n1' AND metric = 'node_load1'

The view `samples` has everything beside each value. A recording that is appended again replaces itself.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from sonde.errors import SondeError, UsageError
from sonde.jobs.export.about import head, identity
from sonde.jobs.export.table import Table

_TABLES = """
CREATE TABLE IF NOT EXISTS recording (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, identity TEXT NOT NULL UNIQUE, about TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS series (
    id INTEGER PRIMARY KEY, recording INTEGER NOT NULL REFERENCES recording, host TEXT NOT NULL, metric TEXT NOT NULL,
    labels TEXT NOT NULL, kind TEXT NOT NULL, unit TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS series_metric ON series (metric, recording);
CREATE TABLE IF NOT EXISTS sample (
    series INTEGER NOT NULL REFERENCES series, time_ns INTEGER NOT NULL, value, PRIMARY KEY (series, time_ns)
    ) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS gap (
    recording INTEGER NOT NULL REFERENCES recording, host TEXT NOT NULL, from_ns INTEGER NOT NULL, to_ns INTEGER,
    metric TEXT NOT NULL, labels TEXT NOT NULL, quality TEXT NOT NULL, reason TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS note (
    recording INTEGER NOT NULL REFERENCES recording, host TEXT NOT NULL, text TEXT NOT NULL);
CREATE VIEW IF NOT EXISTS samples AS
    SELECT recording.name AS recording, host, metric, labels, kind, unit, time_ns, value
    FROM sample JOIN series ON series.id = sample.series JOIN recording ON recording.id = series.recording;
"""
_BUSY = 60.0  # seconds; those who append wait for each other elsewhere, this is for those who read


def write_sqlite(table: Table, path: str) -> None:
    """Add a recording to a file, which is made when it is not there; all of it or nothing."""
    connection = sqlite3.connect(path, timeout=_BUSY, isolation_level=None)
    try:
        connection.executescript(_TABLES)
        connection.execute("BEGIN IMMEDIATE")
        _fill(connection, table)
        connection.execute("COMMIT")
    except sqlite3.DatabaseError as error:
        raise _explained(path, error) from None
    finally:
        connection.close()  # what was not committed is rolled back


def _explained(path: str, error: sqlite3.DatabaseError) -> SondeError:
    if "not a database" in str(error) or "no such column" in str(error):
        return UsageError(f"{path} is a file of another kind ({error})", hint="name another file with --output")
    return SondeError(f"{path}: {error}")


def _fill(connection: sqlite3.Connection, table: Table) -> None:
    recording = _recording(connection, table)
    for host, found in table.chosen():
        for one in found:
            told = (recording, host, one.series.metric, json.dumps(dict(one.series.labels)), *one.series[1:3])
            series = connection.execute(
                "INSERT INTO series (recording, host, metric, labels, kind, unit) VALUES (?, ?, ?, ?, ?, ?)", told
            ).lastrowid
            rows = zip([series] * len(one.times), one.times.tolist(), one.values.tolist(), strict=True)
            connection.executemany("INSERT OR REPLACE INTO sample VALUES (?, ?, ?)", rows)
    gaps: list[tuple[Any, ...]] = [
        (recording, gap.host, gap.from_ns, gap.to_ns, gap.metric, json.dumps(gap.labels), gap.quality, gap.reason)
        for gap in table.gaps
    ]
    connection.executemany("INSERT INTO gap VALUES (?, ?, ?, ?, ?, ?, ?, ?)", gaps)
    connection.executemany("INSERT INTO note VALUES (?, ?, ?)", [(recording, *note) for note in table.notes])


def _recording(connection: sqlite3.Connection, table: Table) -> int:
    """The number of a recording; what was there of it before is removed."""
    known = connection.execute("SELECT id FROM recording WHERE identity = ?", (identity(table.recording),)).fetchone()
    if known is not None:
        connection.execute("DELETE FROM sample WHERE series IN (SELECT id FROM series WHERE recording = ?)", known)
        for name in ("series", "gap", "note"):
            connection.execute(f"DELETE FROM {name} WHERE recording = ?", known)  # noqa: S608 - three literals
        connection.execute("DELETE FROM recording WHERE id = ?", known)
    told = (table.recording.name, identity(table.recording), json.dumps(head(table.recording)))
    added = connection.execute("INSERT INTO recording (name, identity, about) VALUES (?, ?, ?)", told).lastrowid
    assert added is not None  # noqa: S101 - SQLite gives the number of every row it inserts
    return added

"""Reads an archive, also while a daemon writes it, also from read-only media; damaged rows are skipped and counted."""

from __future__ import annotations

import os
import shutil
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from sonde.errors import Denied, StoreError, Unavailable
from sonde.store import schema
from sonde.store.codec import Block
from sonde.store.engine import sqlite3
from sonde.store.form import Form, Series, restored
from sonde.store.query import Points, Selector, Span
from sonde.store.tail import Packed, open_block, open_tail

_FEW = 500  # rows of one statement: SQLite's limit of variables is 999 in old builds


class EventRow(NamedTuple):
    time_ns: int
    source: str
    name: str
    attrs: str  # JSON


class GapRow(NamedTuple):
    from_ns: int
    to_ns: int | None
    source: str
    metric: str
    labels: str  # JSON
    quality: str
    reason: str


Wanted = dict[int, tuple[Form, list[tuple[int, Series]]]]  # by form: the columns to read and what they are


class Selection(NamedTuple):
    wanted: Wanted
    rows: list[tuple[int, int, int, bytes]]  # form, begin, end and data of each block: what open_block takes
    tail: list[Packed]


class Summary(NamedTuple):
    blocks: int
    ticks: int
    block_bytes: int
    tail_rows: int
    forms: int
    events: int
    gaps: int
    file_bytes: int
    free_bytes: int


class ArchiveReader:
    """A `query.Source`. `damaged` counts rows that were skipped; `notes` says what else the caller should tell."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.damaged = 0
        self.notes: list[str] = []
        self._forms: dict[int, Form | None] = {}
        self._resources = ExitStack()
        if not os.path.exists(path):
            raise Unavailable(f"no archive at {path}", hint="start `sonde daemon`, or name the file with --archive")
        if os.path.isdir(path):
            raise Unavailable(f"{path} is a directory", hint=f"name the file in it: {os.path.join(path, 'archive.db')}")
        if not os.access(path, os.R_OK):
            raise Denied(f"{path} may not be read by this user")
        try:
            self._connection = self._connected()
        except BaseException:
            self._resources.close()
            raise

    def _connected(self) -> sqlite3.Connection:
        try:
            return self._checked(self.path, "mode=ro")
        except schema.ERRORS as error:
            if schema.code_of(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                raise schema.explain(self.path, error) from None
        # In WAL mode SQLite needs a -shm file beside the archive, and in a read-only place it cannot make one. Without
        # a log the file is complete and nobody writes it; with a log, left by a killed writer, a copy is read.
        try:
            if _size(self.path + "-wal"):
                return self._checked(self._copied(), "mode=ro")
            return self._checked(self.path, "mode=ro&immutable=1")
        except schema.ERRORS as error:
            raise schema.explain(self.path, error) from None
        except OSError as error:
            raise StoreError(f"{self.path} is in a read-only place and cannot be copied: {error.strerror}") from None

    def _copied(self) -> str:
        directory = self._resources.enter_context(tempfile.TemporaryDirectory(prefix="sonde-"))
        copy = os.path.join(directory, "archive.db")
        for end in ("", "-wal"):
            shutil.copyfile(self.path + end, copy + end)
        self.notes.append("read from a copy: the archive is in a read-only place and was not closed in order")
        return copy

    def _checked(self, path: str, options: str) -> sqlite3.Connection:
        connection = sqlite3.connect(schema.uri(path, options), uri=True, timeout=5.0, isolation_level=None)
        try:
            connection.text_factory = schema.lossy
            connection.execute("PRAGMA cache_size = -2048")
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                raise Unavailable(f"{self.path} is empty")
            schema.check_identity(connection, self.path)
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        self._connection.close()
        self._resources.close()

    def __enter__(self) -> ArchiveReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """One state of the file: a block must not become one between reading the blocks and reading the tail."""
        try:
            self._connection.execute("BEGIN")
            yield
        except schema.ERRORS as error:
            raise schema.explain(self.path, error) from None
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def span(self) -> Span | None:
        """The time the archive covers; None when it has no values yet."""
        with self._snapshot():
            start, end = self._connection.execute("SELECT min(start_ns), max(end_ns) FROM block").fetchone()
            times = [frame.time_ns for frame in self._tail()]
        times += [] if start is None else [start, end]
        return Span(min(times), max(times)) if times else None

    def series(self, selector: Selector | None = None) -> list[Series]:
        """All series there are, or those a selector matches; by name."""
        with self._snapshot():
            ids = [row[0] for row in self._connection.execute("SELECT id FROM form")]
            forms = self._known(ids)
        found = {series for form in forms.values() for series in form.series()}
        return sorted(series for series in found if selector is None or selector.matches(series))

    def names(self) -> list[str]:
        """The names of all metrics there are."""
        return sorted({series.metric for series in self.series()})

    def read(self, selector: Selector, since_ns: int, until_ns: int) -> list[Points]:
        """The values of every series that matches, from `since` to `until`, both included, as they were recorded."""
        selection = self.selection(selector, since_ns, until_ns)
        gathered = _Gathered(since_ns, until_ns)
        for row in selection.rows:
            self._add_block(gathered, selection.wanted, row)
        for frame in selection.tail:
            form, columns = selection.wanted[frame.form]
            values = form.unpack(frame.fixed, frame.rest)
            gathered.add(form, columns, [frame.time_ns], {column: [values[column]] for column, _ in columns})
        return gathered.points()

    def selection(self, selector: Selector, since_ns: int, until_ns: int) -> Selection:
        """The blocks and frames that hold something of what matches, as they are stored: one state of the file."""
        with self._snapshot():
            rows = self._connection.execute(
                "SELECT id, form FROM block WHERE end_ns >= ? AND start_ns <= ? ORDER BY id", (since_ns, until_ns)
            ).fetchall()
            tail = self._tail()
            wanted = self._wanted(selector, {form for _, form in rows}.union(frame.form for frame in tail))
            blobs = [self._blob(row_id) for row_id, form in rows if form in wanted]
        found = [blob for blob in blobs if blob is not None]
        return Selection(wanted, found, [frame for frame in tail if frame.form in wanted])

    def host(self) -> str:
        """The host whose daemon wrote last."""
        with self._snapshot():
            row = self._connection.execute("SELECT host FROM boot ORDER BY id DESC LIMIT 1").fetchone()
        return str(row[0]) if row else ""

    def catalogue(self, since_ns: int, until_ns: int) -> tuple[array[int], array[int], list[Packed]]:
        """Begin and number of each block of a range, by begin, and the frames of the tail: one state of the file."""
        starts, rows = array("q"), array("q")
        with self._snapshot():
            found = self._connection.execute(
                "SELECT start_ns, id FROM block WHERE end_ns >= ? AND start_ns <= ? ORDER BY start_ns, id",
                (since_ns, until_ns),
            )
            for start_ns, row_id in found:
                starts.append(start_ns)
                rows.append(row_id)
            return starts, rows, self._tail()

    def form(self, form_id: int) -> Form | None:
        """What the frames of a block or of the tail are; None when its description is damaged."""
        with self._snapshot():
            return self._known([form_id]).get(form_id)

    def block(self, row_id: int) -> tuple[Form, Block] | None:
        """A block of the catalogue; None when it is damaged, or pruned since by the daemon that writes."""
        with self._snapshot():
            row = self._blob(row_id)
        form = self.form(row[0]) if row is not None else None
        if row is None or form is None:
            return None
        try:
            return form, Block(open_block(*row))
        except StoreError:
            self.damaged += 1
            return None

    def events_after(self, time_ns: int, row_id: int, until_ns: int, limit: int) -> list[tuple[int, EventRow]]:
        """The next events in order of time and number, with their numbers."""
        with self._snapshot():
            rows = self._connection.execute(
                "SELECT id, time_ns, source, name, attrs FROM event"
                " WHERE (time_ns, id) > (?, ?) AND time_ns <= ? ORDER BY time_ns, id LIMIT ?",
                (time_ns, row_id, until_ns, limit),
            ).fetchall()
        return [(row[0], EventRow(*row[1:])) for row in rows]

    def _add_block(self, gathered: _Gathered, wanted: Wanted, row: tuple[int, int, int, bytes]) -> None:
        form, columns = wanted[row[0]]
        try:
            block = Block(open_block(*row))
            gathered.add(form, columns, block.times, {column: block.column(column) for column, _ in columns})
        except (StoreError, IndexError):
            self.damaged += 1

    def _blob(self, row_id: int) -> tuple[int, int, int, bytes] | None:
        try:
            row: tuple[int, int, int, bytes] | None = self._connection.execute(
                "SELECT form, start_ns, end_ns, data FROM block WHERE id = ?", (row_id,)
            ).fetchone()
        except schema.ERRORS:
            row = None
        if row is None:
            self.damaged += 1
        return row

    def _tail(self) -> list[Packed]:
        frames: list[Packed] = []
        for (blob,) in self._connection.execute("SELECT data FROM tail ORDER BY id"):
            try:
                frames += open_tail(blob)
            except StoreError:
                self.damaged += 1
        return frames

    def _known(self, ids: Sequence[int]) -> dict[int, Form]:
        missing = [form_id for form_id in ids if form_id not in self._forms]
        for start in range(0, len(missing), _FEW):
            few = missing[start : start + _FEW]
            marks = ",".join("?" * len(few))
            rows = dict(self._connection.execute(f"SELECT id, data FROM form WHERE id IN ({marks})", few))  # noqa: S608
            for form_id in few:
                self._forms[form_id] = self._restored(form_id, rows.get(form_id, b""))
        return {form_id: form for form_id in ids if (form := self._forms[form_id]) is not None}

    def _restored(self, form_id: int, data: bytes) -> Form | None:
        try:
            return restored(form_id, data)
        except StoreError:
            self.damaged += 1
            return None

    def _wanted(self, selector: Selector, ids: set[int]) -> Wanted:
        wanted: Wanted = {}
        for form_id, form in self._known(sorted(ids)).items():
            series = form.series()
            columns = [(n, series[place]) for n, place in enumerate(form.order) if selector.matches(series[place])]
            if columns:
                wanted[form_id] = (form, columns)
        return wanted

    def events(self, since_ns: int, until_ns: int) -> list[EventRow]:
        with self._snapshot():
            rows = self._connection.execute(
                "SELECT time_ns, source, name, attrs FROM event WHERE time_ns BETWEEN ? AND ? ORDER BY time_ns, id",
                (since_ns, until_ns),
            ).fetchall()
        return [EventRow(*row) for row in rows]

    def gaps(self, since_ns: int, until_ns: int) -> list[GapRow]:
        """What was missing or qualified at some time of the range, and why."""
        with self._snapshot():
            rows = self._connection.execute(
                "SELECT from_ns, to_ns, source, metric, labels, quality, reason FROM gap"
                " WHERE from_ns <= ? AND (to_ns IS NULL OR to_ns >= ?) ORDER BY from_ns, id",
                (until_ns, since_ns),
            ).fetchall()
        return [GapRow(*row) for row in rows]

    def summary(self) -> Summary:
        with self._snapshot():
            ask = self._connection.execute
            blocks, ticks, size = ask("SELECT count(*), total(count), total(length(data)) FROM block").fetchone()
            tail, forms, events, gaps = (
                ask(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 - literals
                for table in ("tail", "form", "event", "gap")
            )
            page, free = (ask(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "freelist_count"))
        file_bytes = _size(self.path) + _size(self.path + "-wal")
        return Summary(blocks, int(ticks), int(size), tail, forms, events, gaps, file_bytes, page * free)

    def check(self) -> list[str]:
        """Everything that is wrong with the file; empty when nothing is."""
        wrong = []
        with self._snapshot():
            answers = [row[0] for row in self._connection.execute("PRAGMA quick_check(20)")]
            wrong += [] if answers == ["ok"] else [" ".join(str(answer).split()) for answer in answers]
            ids = [row[0] for row in self._connection.execute("SELECT id FROM block ORDER BY id")]
            for row_id in ids:
                wrong += self._block_faults(row_id)
            self._tail()
            self._known([row[0] for row in self._connection.execute("SELECT id FROM form")])
        if self.damaged:
            wrong.append(f"{self.damaged} rows are damaged and will be skipped")
        return wrong

    def _block_faults(self, row_id: int) -> list[str]:
        row = self._blob(row_id)
        if row is None:
            return [f"block {row_id} cannot be read"]
        try:
            Block(open_block(*row))
        except StoreError as error:
            self.damaged += 1
            return [f"block {row_id}: {error}"]
        if row[0] not in self._known([row[0]]):
            return [f"block {row_id}: its layout is not described"]
        return []


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0


class _Gathered:
    """Collects columns of blocks into series, within a range of time."""

    def __init__(self, since_ns: int, until_ns: int) -> None:
        self._since_ns = since_ns
        self._until_ns = until_ns
        self._points: dict[Series, Points] = {}

    def add(
        self, form: Form, columns: Sequence[tuple[int, Series]], times: list[int], values: dict[int, list[Any]]
    ) -> None:
        inside = [n for n, time in enumerate(times) if self._since_ns <= time <= self._until_ns]
        whole = len(inside) == len(times)
        kept = times if whole else [times[n] for n in inside]
        for column, series in columns:
            points = self._points.get(series)
            if points is None:
                points = self._points[series] = Points(series, form.period_ns, [], [])
            points.period_ns = form.period_ns
            points.times += kept
            points.values += values[column] if whole else [values[column][n] for n in inside]

    def points(self) -> list[Points]:
        return [self._points[series] for series in sorted(self._points) if self._points[series].times]

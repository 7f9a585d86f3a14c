"""Finds damage when an archive is opened, moves the damaged file aside and saves what can be read of it."""

from __future__ import annotations

import glob
import itertools
import json
import os
import time
from collections import defaultdict

from sonde.errors import StoreError
from sonde.model import Event
from sonde.store import form as forms
from sonde.store import schema
from sonde.store.engine import sqlite3
from sonde.store.happenings import event_row
from sonde.store.pages import Field, Pages, missing_bytes
from sonde.store.retention import transaction
from sonde.store.tail import Packed, open_block, open_tail, packed_again, seal_tail

_KEPT_ASIDE = 2  # damaged files; more would fill the disk that damaged them


class Salvage:
    """What happened to a damaged archive."""

    def __init__(self, path: str, aside: str, reason: str) -> None:
        self.path = path
        self.aside = aside
        self.reason = reason
        self.blocks = 0
        self.frames = 0  # of the tail
        self.forms = 0
        self.others = 0  # events, gaps, boots
        self.unreadable = 0  # rows that are there but make no sense

    def __str__(self) -> str:
        return (
            f"{self.path} was damaged ({self.reason}) and is now {self.aside}; saved {self.blocks} blocks and"
            f" {self.frames} frames of {self.forms} layouts and {self.others} other rows,"
            f" {self.unreadable} rows were unreadable"
        )


def refuse_truncated(path: str) -> None:
    """Called before SQLite opens the file: closing a descriptor would drop the locks SQLite has on it."""
    missing = missing_bytes(path)
    if missing:
        raise schema.Damaged(f"{missing} bytes are missing at its end")


def check(connection: sqlite3.Connection) -> None:
    """Whether the trees are whole: 0.1 s for 200 MB. The blocks' own checksums are verified when they are read."""
    try:
        answer = connection.execute("PRAGMA quick_check(1)").fetchone()
    except schema.ERRORS as error:
        connection.close()
        if not schema.is_damage(error):
            raise
        raise schema.Damaged(str(error)) from None
    if answer is None or answer[0] != "ok":
        connection.close()
        raise schema.Damaged(" ".join(str(answer and answer[0]).split()))


def set_aside(path: str, reason: str) -> Salvage:
    """Rename the file and its log; the newest few such files are kept."""
    stem = f"{path}.damaged-"
    second = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    names = (f"{stem}{second}{suffix}" for suffix in itertools.chain([""], (f"-{n}" for n in itertools.count(2))))
    aside = next(name for name in names if not os.path.exists(name))
    try:
        os.rename(path, aside)
        if os.path.exists(path + "-wal"):
            os.rename(path + "-wal", aside + "-wal")
        if os.path.exists(path + "-shm"):
            os.unlink(path + "-shm")
        older = [name for name in glob.glob(glob.escape(stem) + "*") if not name.endswith("-wal")]
        for name in sorted(older, key=os.path.getmtime)[:-_KEPT_ASIDE]:
            _remove(name)
    except OSError as error:
        raise StoreError(f"{path} is damaged ({reason}) and cannot be moved aside: {error.strerror}") from None
    return Salvage(path, aside, reason)


def _remove(name: str) -> None:
    for suffix in ("", "-wal"):
        if os.path.exists(name + suffix):
            os.unlink(name + suffix)


def restore(connection: sqlite3.Connection, salvage: Salvage) -> None:
    """Copy what can be read of the file set aside into the new, empty one, and note there what happened."""
    rows = _Rows(connection, salvage)
    with transaction(connection), Pages(salvage.aside, schema.PAGE) as pages:
        for row in pages.rows():
            if row is None or not rows.keep(*row):
                salvage.unreadable += 1
        rows.keep_tail()
        attrs: dict[str, str | int | float | bool | None] = {
            "aside": salvage.aside,
            "reason": salvage.reason,
            "blocks": salvage.blocks,
            "frames": salvage.frames,
            "unreadable": salvage.unreadable,
        }
        connection.execute(*event_row("archive", Event(time.time_ns(), "archive.damaged", attrs)))


class _Rows:
    """Tells rows by their shape, as schema.TABLES has it; the integer key stands outside the record, as NULL."""

    def __init__(self, connection: sqlite3.Connection, salvage: Salvage) -> None:
        self._connection = connection
        self._salvage = salvage
        self._blocks: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)
        self._tail: dict[tuple[int, int], Packed] = {}

    def keep(self, rowid: int, fields: list[Field]) -> bool:
        """False for a row of ours that is damaged."""
        match fields:
            case [None, bytes(data)]:
                return self._keep_form_or_tail(rowid, data)
            case [None, int(form), int(start), int(end), int(), int(), int(), bytes(data)]:
                return self._keep_block(rowid, fields, (form, start, end, data))
            case [None, int(), str(), str(), str(attrs)]:
                return _is_json(attrs) and self._insert("event (id, time_ns, source, name, attrs)", rowid, fields)
            case [None, int(), int() | None, str(), str(), str(labels), str(), str()]:
                columns = "gap (id, from_ns, to_ns, source, metric, labels, quality, reason)"
                return _is_json(labels) and self._insert(columns, rowid, fields)
            case [None, str(), str(), int(), int()]:
                return self._insert("boot (id, boot_id, host, started_ns, offset_ns)", rowid, fields)
        return True  # SQLite's own tables

    def _insert(self, columns: str, rowid: int, fields: list[Field]) -> bool:
        marks = ", ".join("?" * len(fields))
        self._connection.execute(
            f"INSERT OR IGNORE INTO {columns} VALUES ({marks})",  # noqa: S608 - columns are literals above
            (rowid, *fields[1:]),
        )
        self._salvage.others += 1
        return True

    def _keep_form_or_tail(self, rowid: int, data: bytes) -> bool:
        try:
            if data[:2] == b"T1":
                self._tail.update({(frame.form, frame.time_ns): frame for frame in open_tail(data)})
            else:
                forms.restored(rowid, data)
                self._connection.execute("INSERT OR IGNORE INTO form VALUES (?, ?)", (rowid, data))
                self._salvage.forms += 1
        except StoreError:
            return False
        return True

    def _keep_block(self, rowid: int, fields: list[Field], block: tuple[int, int, int, bytes]) -> bool:
        form, start, end, _ = block
        try:
            open_block(*block)
        except StoreError:
            return False
        if (start, end) in self._blocks[form]:
            return True  # a copy left in a free page
        self._blocks[form].add((start, end))
        taken = self._connection.execute("SELECT 1 FROM block WHERE id = ?", (rowid,)).fetchone()
        self._connection.execute(
            "INSERT INTO block (id, form, start_ns, end_ns, count, boot, offset_ns, data)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (None if taken else rowid, *fields[1:]),
        )
        self._salvage.blocks += 1
        return True

    def keep_tail(self) -> None:
        """Frames that are in no block: free pages still hold rows of the tail that became blocks long ago."""
        frames = [
            frame
            for frame in sorted(self._tail.values(), key=lambda frame: frame.time_ns)
            if not any(start <= frame.time_ns <= end for start, end in self._blocks[frame.form])
        ]
        if frames:
            self._connection.execute("INSERT INTO tail (data) VALUES (?)", (seal_tail([packed_again(frames)]),))
        self._salvage.frames = len(frames)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True

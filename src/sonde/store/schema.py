"""The SQLite file of the archive: its tables, its settings, and the ways it can be wrong.

meta    what the file is about: byte order, host and time of its creation
boot    one row per writer: boot id, host, and wall clock minus monotonic clock when it began
form    the series of a layout (form.py); id is a checksum of the text
block   at least 60 ticks of one form, compressed (codec.py), with a CRC
tail    what is not in blocks yet: one row per batch of packed frames (tail.py), with a CRC
event   what happened once
gap     which value was missing or qualified, why, from when to when; `to_ns` is empty while it lasts
"""

from __future__ import annotations

import os
import sys
from typing import Literal

from sonde.errors import StoreError
from sonde.store import mount
from sonde.store.engine import sqlite3

VERSION = 1
APPLICATION = 0x736F6E64  # "sond": file(1) and SQLite show it
PAGE = 4096

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE boot (
    id INTEGER PRIMARY KEY, boot_id TEXT NOT NULL, host TEXT NOT NULL, started_ns INTEGER NOT NULL,
    offset_ns INTEGER NOT NULL);
CREATE TABLE form (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE block (
    id INTEGER PRIMARY KEY, form INTEGER NOT NULL, start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL,
    count INTEGER NOT NULL, boot INTEGER NOT NULL, offset_ns INTEGER NOT NULL, data BLOB NOT NULL);
CREATE INDEX block_time ON block (end_ns, start_ns, form);
CREATE TABLE tail (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE event (
    id INTEGER PRIMARY KEY, time_ns INTEGER NOT NULL, source TEXT NOT NULL, name TEXT NOT NULL, attrs TEXT NOT NULL);
CREATE INDEX event_time ON event (time_ns);
CREATE TABLE gap (
    id INTEGER PRIMARY KEY, from_ns INTEGER NOT NULL, to_ns INTEGER, source TEXT NOT NULL, metric TEXT NOT NULL,
    labels TEXT NOT NULL, quality TEXT NOT NULL, reason TEXT NOT NULL);
"""
_EXPECTED = frozenset(statement.strip() for statement in TABLES.split(";") if statement.strip())

Journal = Literal["auto", "wal", "rollback"]

# Codes that speak of the disk, a lock or a permission. Anything else while opening means that the content is wrong:
# SQLite calls damage CORRUPT or NOTADB, but also ERROR when a flipped byte changed the schema's text.
_OUTSIDE = {
    sqlite3.SQLITE_BUSY: "is locked by another process",
    sqlite3.SQLITE_LOCKED: "is locked",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full",
    sqlite3.SQLITE_IOERR: "cannot be read or written",
    sqlite3.SQLITE_READONLY: "is read-only",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_PERM: "may not be opened by this user",
    sqlite3.SQLITE_AUTH: "may not be opened by this user",
    sqlite3.SQLITE_NOMEM: "needs more memory than there is",
}


_REPAIR = "a daemon that opens it moves it aside and saves what can be read; sonde archive check tells what is damaged"


class Damaged(Exception):
    """The file is an archive whose content makes no sense, or no database at all. Does not leave the store."""


# SQLite quotes damaged text in its messages, and the module then fails to decode the message.
ERRORS = (sqlite3.Error, UnicodeDecodeError)


def code_of(error: Exception) -> int:
    """SQLite's primary result code."""
    if isinstance(error, UnicodeDecodeError):
        return sqlite3.SQLITE_CORRUPT
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def is_damage(error: Exception) -> bool:
    return code_of(error) not in _OUTSIDE


def explain(path: str, error: Exception) -> StoreError:
    """What SQLite complains about, for an operator."""
    code = code_of(error)
    what = _OUTSIDE.get(code)
    if what is None:
        return StoreError(f"{path}: {error}", hint=_REPAIR)
    return StoreError(f"{path} {what} ({error}); {free_space(path)}")


def free_space(path: str) -> str:
    from sonde.units import human_bytes

    directory = os.path.dirname(os.path.abspath(path))
    try:
        space = os.statvfs(directory)
    except OSError as error:
        return f"{directory}: {error.strerror}"
    return f"{human_bytes(space.f_bavail * space.f_frsize)} free in {directory}"


def connect_writer(path: str, *, journal: Journal, checkpoint_pages: int) -> sqlite3.Connection:
    """A connection that may create the file. StoreError when the outside is wrong, Damaged when the content is."""
    try:
        # close() comes from the daemon's thread after the sink's own has ended.
        connection = sqlite3.connect(path, timeout=5.0, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise explain(path, error) from None
    try:
        _settle(connection, path, journal, checkpoint_pages)
    except ERRORS as error:
        connection.close()
        if is_damage(error):
            raise Damaged(str(error)) from None
        raise explain(path, error) from None
    except (StoreError, Damaged):
        connection.close()
        raise
    return connection


def _settle(connection: sqlite3.Connection, path: str, journal: Journal, checkpoint_pages: int) -> None:
    connection.text_factory = lossy
    fresh = not _number(connection, "application_id") and not _tables(connection)
    if fresh:
        connection.execute(f"PRAGMA page_size = {PAGE}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # so that a lowered limit can shrink the file
    else:
        check_identity(connection, path)
    connection.execute(f"PRAGMA journal_mode = {'WAL' if use_wal(path, journal) else 'TRUNCATE'}")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA cache_size = -192")  # KiB: what is written is hardly ever read again by the writer
    connection.execute(f"PRAGMA wal_autocheckpoint = {checkpoint_pages}")
    connection.execute(f"PRAGMA journal_size_limit = {2 * checkpoint_pages * PAGE}")
    if fresh:
        connection.executescript(
            f"BEGIN; {TABLES} INSERT INTO meta VALUES ('byteorder', '{sys.byteorder}');"  # noqa: S608 - a constant
            f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;"
        )
    if not _tables(connection).issuperset(_EXPECTED):
        raise Damaged("its schema has changed")


def check_identity(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a file of another program, of a newer sonde or of a machine with another byte order."""
    if _number(connection, "application_id") != APPLICATION:
        raise StoreError(f"{path} is a database of another program, not an archive", hint="name another file")
    version = _number(connection, "user_version")
    if version > VERSION:
        raise StoreError(
            f"{path} has format {version}, this sonde knows {VERSION}",
            hint="use the sonde that wrote it, or a newer one",
        )
    row = connection.execute("SELECT value FROM meta WHERE key = 'byteorder'").fetchone()
    if row is not None and row[0] in {"little", "big"} - {sys.byteorder}:
        raise StoreError(f"{path} was written by a {row[0]}-endian machine, this one is {sys.byteorder}-endian")


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    number: int = connection.execute(f"PRAGMA {pragma}").fetchone()[0]
    return number


def _tables(connection: sqlite3.Connection) -> set[str]:
    """The statements that made the tables and indexes, as SQLite keeps them: word for word."""
    return {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}


def use_wal(path: str, journal: Journal) -> bool:
    if journal != "auto":
        return journal == "wal"
    return not mount.is_network(mount.filesystem_type(os.path.dirname(os.path.abspath(path))))


def lossy(data: bytes) -> str:
    """Damaged text is shown, not refused."""
    return data.decode("utf-8", "replace")


def uri(path: str, options: str) -> str:
    escaped = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"file:{escaped}?{options}"

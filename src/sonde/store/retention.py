"""Keeps the archive within its age and size: the oldest blocks go first, a few at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from sonde.store.engine import sqlite3

_STEP = 64  # blocks deleted in one transaction: a few hundred kilobytes of log
_STEPS = 64  # in one call, so that a lowered limit does not hold the sink up for long
_VACUUM_PAGES = 1024


def prune(connection: sqlite3.Connection, *, oldest_ns: int, max_bytes: int, live: Collection[int]) -> int:
    """Delete what ended before `oldest_ns` and, oldest first, what is beyond `max_bytes`; returns the blocks deleted.

    The forms in `live` are being written and stay even when no block has them yet.
    """
    deleted = 0
    forms: set[int] = set()
    for _ in range(_STEPS):
        excess = used_bytes(connection) - max_bytes
        with transaction(connection):
            gone = _delete_blocks(connection, oldest_ns, excess)
            events = _delete_events(connection, gone[-1][1] if gone else oldest_ns, crowded=excess > 0 and not gone)
        forms.update(form for _, _, form, _ in gone)
        deleted += len(gone)
        if not gone and not events:
            break
    if forms:
        _forget_forms(connection, forms.difference(live))
    _shrink(connection, max_bytes)
    return deleted


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing. SQLite itself may have rolled back already, as it does when the disk is full."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def used_bytes(connection: sqlite3.Connection) -> int:
    """What the content takes; free pages inside the file are used again before it grows."""
    size, count, free = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
    )
    used: int = size * (count - free)
    return used


def _delete_blocks(connection: sqlite3.Connection, before_ns: int, excess: int) -> list[tuple[int, int, int, int]]:
    """Delete the oldest blocks: those that are too old, and as many as make up the excess; a step's worth at most.

    Returns id, end, form and size of each.
    """
    rows = []
    for row in connection.execute("SELECT id, end_ns, form, length(data) FROM block ORDER BY end_ns LIMIT ?", (_STEP,)):
        if row[1] >= before_ns and excess <= 0:
            break
        rows.append(row)
        excess -= row[3]
    connection.executemany("DELETE FROM block WHERE id = ?", [(row[0],) for row in rows])
    return rows


def _delete_events(connection: sqlite3.Connection, until_ns: int, *, crowded: bool) -> int:
    """Delete events and closed gaps up to a time; the oldest, whatever their time, where nothing else is left."""
    gone = connection.execute("DELETE FROM event WHERE time_ns < ?", (until_ns,)).rowcount
    gone += connection.execute("DELETE FROM gap WHERE to_ns < ?", (until_ns,)).rowcount
    if crowded and not gone:
        for table, time in (("event", "time_ns"), ("gap", "from_ns")):
            oldest = f"SELECT id FROM {table} ORDER BY {time} LIMIT {16 * _STEP}"  # noqa: S608 - names from above
            gone += connection.execute(f"DELETE FROM {table} WHERE id IN ({oldest})").rowcount  # noqa: S608
    return gone


def _forget_forms(connection: sqlite3.Connection, candidates: Iterable[int]) -> None:
    """Drop descriptions that no block uses any more. One in use is found among the oldest blocks, at once."""
    for form in candidates:
        if connection.execute("SELECT 1 FROM block WHERE form = ? LIMIT 1", (form,)).fetchone() is None:
            connection.execute("DELETE FROM form WHERE id = ?", (form,))


def _shrink(connection: sqlite3.Connection, max_bytes: int) -> None:
    """Give pages back when the file itself is larger than it may be: the limit was lowered, or a lot has aged."""
    size = connection.execute("PRAGMA page_size").fetchone()[0]
    count = connection.execute("PRAGMA page_count").fetchone()[0]
    free = connection.execute("PRAGMA freelist_count").fetchone()[0]
    if free and (size * count > max_bytes or free > _VACUUM_PAGES + count // 2):
        vacuum(connection)


def vacuum(connection: sqlite3.Connection) -> None:
    """Give some of the free pages back to the filesystem."""
    # Each step of this statement frees one page and returns no row: execute() would take one step, a script takes all.
    connection.executescript(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")

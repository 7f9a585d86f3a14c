"""Writes frames to disk: a raw tail that is safe at once, compressed blocks as soon as there is enough of it.

Every batch becomes one row of the tail and one commit. Only batches of collectors that are all faster than `_HOLD_NS`
wait for each other, up to that long: that is what a killed daemon loses, and nothing of slower ones. When a layout
has 60 ticks in the tail they become a block in the same transaction that deletes them from the tail; layouts that have
fewer are carried over as one row. docs/adr/0004 has the reasons and the numbers.
"""

from __future__ import annotations

import fcntl
import logging
import os
import struct
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from weakref import WeakKeyDictionary

from sonde.clock import Clock, SystemClock
from sonde.config import SMALLEST_ARCHIVE, ArchiveConfig
from sonde.errors import StoreError
from sonde.model import Frame, Layout
from sonde.store import repair, schema
from sonde.store.engine import sqlite3
from sonde.store.form import Form, describe, ids, restored, stored, types_of
from sonde.store.happenings import NOTHING, Changes, Happenings
from sonde.store.retention import prune, transaction, vacuum
from sonde.store.stretch import BLOCK_TICKS, Share, Stretch, Written
from sonde.store.tail import Batch, Packed, open_tail, packed_again, seal_block, seal_tail

log = logging.getLogger(__name__)

_REVIEW = 64  # batches between two looks at what is due; a little more than a block, for threads that come late
_HOLD_NS = 800_000_000
_TAIL_BYTES = 4 * 2**20  # in memory and on disk; then everything becomes blocks, however short
_RETIRED = 64  # layouts no longer in use that wait for the next conversion
_BATCHES = 16  # combinations of layouts for which the packing is remembered
_TAIL_ROW = "INSERT INTO tail (data) VALUES (?)"
_VALUES, _PERIOD, _BATCH = map(attrgetter, ("values", "period_ns", "batch"))

Key = tuple[tuple[Layout, ...], tuple[str, ...], tuple[int, ...]]  # layouts, sources, periods of a batch


class Archive:
    """The writing side of an archive. One thread at a time; every method raises StoreError or sqlite3.Error.

    After an error nothing of the batch has been kept and the same batch can be written again.
    """

    def __init__(
        self, path: str, config: ArchiveConfig, *, host: str, boot_id: str, clock: Clock | None = None
    ) -> None:
        if config.max_size < SMALLEST_ARCHIVE:
            raise StoreError(f"an archive of {config.max_size} is too small: give it {SMALLEST_ARCHIVE} or more")
        self.path = path
        self._config = config
        self._clock = clock or SystemClock()
        # The log is folded into the file at 4 MB, or at a fortieth of the limit; its file stays within twice that.
        self._checkpoint_pages = max(32, min(1000, config.max_size // schema.PAGE // 40))
        self._max_bytes = config.max_size - 2 * self._checkpoint_pages * schema.PAGE
        self._lock = _locked(path)
        self._batches: dict[Key, Batch] = {}
        self._forms: WeakKeyDictionary[Layout, dict[tuple[str, int, str], Form]] = WeakKeyDictionary()
        self._unsaved: dict[int, Form] = {}
        self._held: list[Sequence[Frame]] = []  # not committed yet
        self._written: list[Written] = []  # in the tail, not yet in stretches
        self._stretches: dict[int, Stretch] = {}  # by form
        self._current: dict[str, int] = {}  # the form each source has now
        self._converted: list[int] = []
        self._tail_bytes = 0
        self._headroom = 0
        self._due = False
        self._prune_due = True
        self._boot: int | None = None
        self._happenings = Happenings()
        self.salvage: repair.Salvage | None = None
        try:
            self._connection = self._opened()
            found = os.stat(path)
            self._file = (found.st_dev, found.st_ino)
            self._begin(host, boot_id)
        except schema.ERRORS as error:
            self._unlock()
            raise schema.explain(path, error) from None
        except BaseException:
            self._unlock()
            raise

    def _opened(self) -> sqlite3.Connection:
        try:
            repair.refuse_truncated(self.path)
            connection = self._connected()
            repair.check(connection)
        except schema.Damaged as damage:
            self.salvage = repair.set_aside(self.path, str(damage))
            connection = self._connected()
            repair.restore(connection, self.salvage)
            log.warning("archive %s", self.salvage)
        return connection

    def _connected(self) -> sqlite3.Connection:
        try:
            return schema.connect_writer(
                self.path, journal=self._config.journal, checkpoint_pages=self._checkpoint_pages
            )
        except schema.Damaged:
            raise
        except OSError as error:
            raise StoreError(f"{self.path}: {error.strerror}") from None

    def _begin(self, host: str, boot_id: str) -> None:
        """Turn the tail of the writer before into blocks, under its own boot, and begin a new one."""
        row = self._connection.execute("SELECT id, offset_ns FROM boot ORDER BY id DESC LIMIT 1").fetchone()
        offset_ns: int
        self._boot, offset_ns = row or (0, self._offset_ns())
        self._read_tail()
        now = self._clock.time_ns()
        with transaction(self._connection):
            self._convert(offset_ns, everything=True)
            self._connection.execute("UPDATE gap SET to_ns = ? WHERE to_ns IS NULL", (now,))
            self._boot = self._connection.execute(
                "INSERT INTO boot (boot_id, host, started_ns, offset_ns) VALUES (?, ?, ?, ?)",
                (boot_id, host, now, self._offset_ns()),
            ).lastrowid
            self._connection.executemany(
                "INSERT OR IGNORE INTO meta VALUES (?, ?)", [("host", host), ("created_ns", str(now))]
            )
        self._stretches.clear()

    def _read_tail(self) -> None:
        lost = 0
        for (blob,) in self._connection.execute("SELECT data FROM tail ORDER BY id").fetchall():
            try:
                frames = open_tail(blob)
            except StoreError:
                lost += 1
                continue
            for packed in frames:
                try:
                    stretch = self._stretch_of(packed.form)
                except StoreError:  # its description is damaged
                    lost += 1
                    continue
                stretch.append(packed)
        if lost:
            log.warning("archive %s: %d rows of the tail were damaged and are lost", self.path, lost)

    def _stretch_of(self, form_id: int) -> Stretch:
        stretch = self._stretches.get(form_id)
        if stretch is None:
            row = self._connection.execute("SELECT data FROM form WHERE id = ?", (form_id,)).fetchone()
            stretch = self._stretches[form_id] = Stretch(restored(form_id, row[0] if row else b""))
        return stretch

    def _offset_ns(self) -> int:
        return self._clock.time_ns() - self._clock.monotonic_ns()

    def write(self, frames: Sequence[Frame]) -> None:
        """Keep a batch. Returns when it is committed, or held for part of a second of fast collectors."""
        if self._prune_due:
            self._prune()
        changes = self._happenings.changes(frames)
        if not all(map(_VALUES, frames)):
            frames = [frame for frame in frames if frame.values]
        if frames and not changes and self._may_hold(frames):
            self._held.append(frames)
        elif frames or changes:
            self._commit([*self._held, frames] if frames else self._held, changes)
            self._held.clear()
        self._happenings.done(changes)

    def _may_hold(self, frames: Sequence[Frame]) -> bool:
        if max(map(_PERIOD, frames)) >= _HOLD_NS:
            return False
        begun = self._held[0][0] if self._held else frames[0]
        return 0 <= frames[-1].time_ns - begun.time_ns + frames[-1].period_ns < _HOLD_NS

    def _pack(self, frames: Sequence[Frame]) -> Written:
        sources, times, _, periods, layouts, values, _, _ = zip(*frames, strict=True)
        key = (layouts, sources, periods)
        batch = self._batches.get(key) or self._adopt(key, list(map(types_of, values)))
        try:
            data = batch.pack(times, values)
        except (TypeError, struct.error):  # a value of another type than before
            types = [form.widened(now) for form, now in zip(batch.forms, values, strict=True)]
            batch = self._adopt(key, types)
            data = batch.pack(times, values)
        rest = [form.rest(now) for form, now in zip(batch.forms, values, strict=True)] if batch.mixed else ()
        return Written(batch, times, data, rest)

    def _adopt(self, key: Key, types: Sequence[str]) -> Batch:
        """The way to pack frames of layouts that did not come together before, or not with these types."""
        if len(self._batches) >= _BATCHES:
            self._batches.clear()
        batch = self._batches[key] = Batch(list(map(self._form_of, *key, types)))
        return batch

    def _form_of(self, layout: Layout, source: str, period_ns: int, types: str) -> Form:
        """One form for all combinations a layout comes in: its text is longer than everything else about it."""
        forms = self._forms.setdefault(layout, {})
        form = forms.get((source, period_ns, types))
        if form is None:
            form = forms[source, period_ns, types] = self._form(describe(source, period_ns, layout, types))
        return form

    def _form(self, text: bytes) -> Form:
        for form_id in ids(text):
            if form_id in self._unsaved:
                if self._unsaved[form_id].text == text:
                    return self._unsaved[form_id]
                continue
            row = self._connection.execute("SELECT data FROM form WHERE id = ?", (form_id,)).fetchone()
            if row is None or not _is_of_another(text, form_id, row[0]):
                form = Form(text, form_id)
                if row is None or stored(text) != row[0]:  # new, or damaged, or by another zlib
                    self._unsaved[form_id] = form
                return form
        raise StoreError(f"{self.path}: no id is free for a layout of {len(text)} bytes")

    def _commit(self, batches: Sequence[Sequence[Frame]], changes: Changes) -> None:
        written = [self._pack(frames) for frames in batches]
        rows = [(seal_tail([item.data for item in written]),)] if written else []
        if self._due or changes or self._unsaved:
            self._commit_more(rows, changes)
        elif rows:
            self._connection.execute(_TAIL_ROW, rows[0])
        self._written += written
        if len(self._written) >= _REVIEW:
            self._review()

    def _commit_more(self, rows: Sequence[tuple[bytes]], changes: Changes) -> None:
        with transaction(self._connection):
            saved = [(form.id, stored(form.text)) for form in self._unsaved.values()]
            self._connection.executemany("INSERT OR REPLACE INTO form VALUES (?, ?)", saved)
            for statement, arguments in changes.statements:
                self._connection.execute(statement, arguments)
            if self._due:
                self._convert(self._offset_ns())
            self._connection.executemany(_TAIL_ROW, rows)
        self._unsaved.clear()
        if self._due:
            self._settle()

    def _review(self) -> None:
        """Sort what was written into stretches, and see whether one is long enough for a block."""
        for batch, group in groupby(self._written, key=_BATCH):
            written = list(group)
            for number, (form, start, end) in enumerate(batch.parts):
                stretch = self._stretches.get(form.id)
                if stretch is None:
                    stretch = self._stretches[form.id] = Stretch(form)
                stretch.add(Share(written, number, start, end))
                self._current[form.source] = form.id
            self._tail_bytes += sum([len(item.data) for item in written])
        self._written.clear()
        self._due = (
            self._tail_bytes > _TAIL_BYTES
            or len(self._stretches) - len(self._current) > _RETIRED
            or any(stretch.count >= stretch.target for stretch in self._stretches.values())
        )

    def _convert(self, offset_ns: int, *, everything: bool = False) -> None:
        """Blocks out of what is long enough or no longer in use; the tail keeps the rest, as one row."""
        carried: list[Packed] = []
        self._converted = []
        for stretch in self._stretches.values():
            if everything or self._is_ready(stretch):
                self._insert_block(stretch, offset_ns)
                self._converted.append(stretch.form.id)
            else:
                carried += stretch.ticks()
        self._connection.execute("DELETE FROM tail")
        if carried:
            self._connection.execute(_TAIL_ROW, (seal_tail([packed_again(carried)]),))

    def _is_ready(self, stretch: Stretch) -> bool:
        return (
            stretch.count >= BLOCK_TICKS
            or self._current.get(stretch.form.source) != stretch.form.id
            or self._tail_bytes > _TAIL_BYTES
        )

    def _insert_block(self, stretch: Stretch, offset_ns: int) -> None:
        form_id = stretch.form.id
        _, times, fixed, rest = zip(*stretch.ticks(), strict=True)
        start_ns, end_ns = min(times), max(times)
        data = seal_block(form_id, start_ns, end_ns, stretch.form.block(times, fixed, rest))
        self._connection.execute(
            "INSERT INTO block (form, start_ns, end_ns, count, boot, offset_ns, data) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (form_id, start_ns, end_ns, len(times), self._boot, offset_ns, data),
        )

    def _settle(self) -> None:
        """What the committed conversion means for what is kept in memory."""
        self._headroom = 2 * self._tail_bytes  # until the next time: as much tail again, and the blocks out of it
        for form_id in self._converted:
            del self._stretches[form_id]
        self._tail_bytes = sum([stretch.let_go() for stretch in self._stretches.values()])
        self._due = False
        self._prune_due = True

    def _prune(self) -> None:
        # Before a batch and not after it: a batch that was committed must not fail, it would be written twice.
        oldest_ns = self._clock.time_ns() - self._config.max_age.ns
        live = {form.id for forms in self._forms.values() for form in forms.values()}
        max_bytes = self._max_bytes - self._headroom
        prune(self._connection, oldest_ns=oldest_ns, max_bytes=max_bytes, live=live | self._stretches.keys())
        self._prune_due = False

    def close(self) -> None:
        """Commit what is held, turn the tail into blocks and fold the log into the file."""
        try:
            if self._held:
                self._commit(self._held, NOTHING)
            self._review()
            with transaction(self._connection):
                self._convert(self._offset_ns(), everything=True)
            vacuum(self._connection)
        finally:
            self.abandon()

    def in_place(self) -> bool:
        """Is the file still the one of its name? Removed or replaced, it would be written to for nobody."""
        try:
            now = os.stat(self.path)
        except OSError:
            return False
        return (now.st_dev, now.st_ino) == self._file

    def abandon(self) -> None:
        """Let go of the file as a killed process would."""
        self._connection.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _is_of_another(text: bytes, form_id: int, data: bytes) -> bool:
    """Whether a row describes another layout whose checksum happens to be the same."""
    try:
        return restored(form_id, data).text != text
    except StoreError:
        return False


def _locked(path: str) -> int:
    """A descriptor that keeps other writers away for as long as it is open; a killed process lets go of it."""
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        lock = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}; {schema.free_space(path)}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d\n" % os.getpid(), 0)
    except BlockingIOError:
        owner = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
        os.close(lock)
        raise StoreError(f"{path} is being written by process {owner}", hint="one archive has one writer") from None
    except OSError as error:
        os.close(lock)
        raise StoreError(f"{path} cannot be locked: {error.strerror}; {schema.free_space(path)}") from None
    return lock

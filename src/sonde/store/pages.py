"""Rows straight from the pages of a damaged SQLite file and its write-ahead log.

SQLite refuses a file whose tree is broken anywhere on the way to a row. The rows themselves stand in leaf pages (type
13) that can be read one by one: sqlite.org/fileformat2.html, sections 1.6 (pages, cells, overflow), 2.1 (records) and
4.1 (the log). What is deleted but not overwritten is found as well; the caller checks every row.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from types import TracebackType

_MAGIC = b"SQLite format 3\0"
_LEAF = 13
_WAL_HEADER = 32
_FRAME_HEADER = 24
_WAL_MAGIC = (0x377F0682, 0x377F0683)
_INTEGER_SIZES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_LARGEST = 2**26  # bytes of one row; nothing the archive writes comes near

Field = int | float | bytes | str | None


class Pages:
    """The pages of a file, those in its log before those in the file itself."""

    def __init__(self, path: str, page_size: int) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._size = _page_size(os.pread(self._fd, 100, 0)) or page_size
        self._wal_fd = -1
        self._logged: dict[int, int] = {}  # page to its offset in the log
        try:
            self._wal_fd = os.open(path + "-wal", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        self._read_log()

    def __enter__(self) -> Pages:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)
        if self._wal_fd >= 0:
            os.close(self._wal_fd)

    def _read_log(self) -> None:
        header = os.pread(self._wal_fd, _WAL_HEADER, 0)
        if len(header) < _WAL_HEADER or int.from_bytes(header[:4], "big") not in _WAL_MAGIC:
            return
        salts = header[16:24]
        pending: dict[int, int] = {}
        offset = _WAL_HEADER
        while len(frame := os.pread(self._wal_fd, _FRAME_HEADER, offset)) == _FRAME_HEADER and frame[8:16] == salts:
            number, committed = struct.unpack_from(">II", frame)
            pending[number] = offset + _FRAME_HEADER
            if committed:
                self._logged |= pending
                pending = {}
            offset += _FRAME_HEADER + self._size

    def _page(self, number: int) -> bytes:
        offset = self._logged.get(number)
        if offset is not None:
            return os.pread(self._wal_fd, self._size, offset)
        return os.pread(self._fd, self._size, (number - 1) * self._size)

    def rows(self) -> Iterator[tuple[int, list[Field]] | None]:
        """Row id and fields of every row found; None for a row that could not be read."""
        last = max(os.fstat(self._fd).st_size // self._size + 1, *self._logged, 0)
        for number in range(1, last + 1):
            page = self._page(number)
            start = 100 if number == 1 else 0
            if len(page) < start + 8 or page[start] != _LEAF:
                continue
            cells, content = struct.unpack_from(">HH", page, start + 3)
            if not start + 8 + 2 * cells <= (content or 65536) <= self._size:
                yield None  # not a leaf, or a damaged one
                continue
            for (offset,) in struct.iter_unpack(">H", page[start + 8 : start + 8 + 2 * cells]):
                try:
                    yield self._row(page, offset)
                except (IndexError, ValueError, struct.error):
                    yield None

    def _row(self, page: bytes, offset: int) -> tuple[int, list[Field]]:
        length, offset = _varint(page, offset)
        rowid, offset = _varint(page, offset)
        if length > _LARGEST:
            raise ValueError("too long")
        local = self._local(length)
        payload = page[offset : offset + local]
        if local < length:
            overflow = int.from_bytes(page[offset + local : offset + local + 4], "big")
            payload += self._overflow(overflow, length - local)
        if len(payload) != length:
            raise ValueError("cut off")
        return rowid, _fields(payload)

    def _local(self, length: int) -> int:
        """How much of a row stands in its leaf page."""
        usable = self._size
        if length <= usable - 35:
            return length
        least = (usable - 12) * 32 // 255 - 23
        some = least + (length - least) % (usable - 4)
        return some if some <= usable - 35 else least

    def _overflow(self, number: int, length: int) -> bytes:
        parts = []
        while length > 0:
            page = self._page(number) if number else b""
            if len(page) < 5:
                raise ValueError("a broken chain")
            number = int.from_bytes(page[:4], "big")
            parts.append(page[4 : 4 + length])
            length -= len(parts[-1])
        return b"".join(parts)


def missing_bytes(path: str) -> int:
    """How much shorter a file is than its header says; 0 when that cannot be told."""
    try:
        with open(path, "rb") as file:
            header = file.read(100)
            size = os.fstat(file.fileno()).st_size
        logged = os.path.getsize(path + "-wal") if os.path.exists(path + "-wal") else 0
    except OSError:
        return 0
    if logged or not size:  # pages may still be in the log; an empty file is a new one
        return 0
    if len(header) < 100:
        return 100 - len(header)
    # The page count holds only when the change counter (24) equals the one it was noted with (92).
    known = header[24:28] == header[92:96]
    return max(0, int.from_bytes(header[28:32], "big") * _page_size(header) - size) if known else 0


def _page_size(header: bytes) -> int:
    if len(header) < 100 or not header.startswith(_MAGIC):
        return 0
    size = int.from_bytes(header[16:18], "big")
    return 65536 if size == 1 else size if size >= 512 and not size & (size - 1) else 0


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    """A number of up to nine bytes, high bits first; the ninth has all its eight bits."""
    number = 0
    for index in range(8):
        byte = data[offset + index]
        number = number << 7 | byte & 127
        if byte < 128:
            return number, offset + index + 1
    number = number << 8 | data[offset + 8]
    return number - (number >> 63 << 64), offset + 9


def _fields(payload: bytes) -> list[Field]:
    end, offset = _varint(payload, 0)
    kinds = []
    while offset < end:
        kind, offset = _varint(payload, offset)
        kinds.append(kind)
    fields = []
    for kind in kinds:
        value, offset = _field(payload, offset, kind)
        fields.append(value)
    return fields


def _field(payload: bytes, offset: int, kind: int) -> tuple[Field, int]:
    if kind in _INTEGER_SIZES:
        end = offset + _INTEGER_SIZES[kind]
        return int.from_bytes(payload[offset:end], "big", signed=True), end
    if kind == 7:
        return struct.unpack_from(">d", payload, offset)[0], offset + 8
    if kind >= 12:
        end = offset + (kind - 12) // 2
        if end > len(payload):
            raise ValueError("cut off")
        data = payload[offset:end]
        return (data.decode("utf-8", "replace") if kind % 2 else data), end
    if kind in (0, 8, 9):
        return (None, 0, 1)[max(0, kind - 7)], offset
    raise ValueError("no such type")

"""The archive's blobs and their checksums: rows of the tail, and blocks.

A row of the tail is `T1`, the CRC-32 of the rest, then batches of frames:

    uint32 frames; for each frame int64 form, uint32 fixed values; uint32 length of the JSON
    int64 time of each frame; the fixed values (int64 or float64) of all frames; the JSON

The JSON has the values of no fixed size: {"0": [...]} for the first frame's. The data of a block is `B1`, the CRC-32 of
the block and of its row's form, start and end, then the block.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from typing import Any, NamedTuple

from sonde.errors import StoreError
from sonde.model import Value
from sonde.shape import picker
from sonde.store import codec
from sonde.store.form import Form

_COUNT = struct.Struct("<I")
_HEAD = struct.Struct("<qI")
_ROW = struct.Struct("<qqq")
_SEAL = struct.Struct("<2sI")
_TAIL = b"T1"
_BLOCK = b"B1"
_FLOATS = {float}


class Packed(NamedTuple):
    """A frame as it stands in the tail."""

    form: int
    time_ns: int
    fixed: bytes
    rest: Sequence[Value]


class Batch:
    """Packs frames of certain forms, again and again: all values in one call of struct, not one per frame."""

    __slots__ = ("_fixed", "_floats", "_heads", "_size", "_struct", "forms", "mixed", "parts")

    def __init__(self, forms: Sequence[Form]) -> None:
        self.forms = tuple(forms)
        types = "".join([form.types for form in forms])
        fixed = [place for place, letter in enumerate(types) if letter != "m"]
        self._size = len(types)
        self.mixed = len(fixed) < len(types)
        self._fixed = picker(fixed)
        self._floats = picker([place for place, letter in enumerate(types) if letter == "d"])
        self._struct = struct.Struct(f"@{len(forms)}q{_runs(types.replace('m', ''))}")
        self._heads = _heads([(form.id, form.fixed) for form in forms])
        start = len(self._heads) + _COUNT.size + 8 * len(forms)
        self.parts: list[tuple[Form, int, int]] = []  # where the fixed values of each frame stand
        for form in forms:
            self.parts.append((form, start, start + 8 * form.fixed))
            start += 8 * form.fixed

    def pack(self, times: Sequence[int], values: Sequence[Sequence[Value]]) -> bytes:
        """TypeError or struct.error when a value is not of the type its form has."""
        flat = list(chain.from_iterable(values))
        # struct takes an integer for a float without a word; it refuses a float for an integer.
        if len(flat) != self._size or not set(map(type, self._floats(flat))) <= _FLOATS:
            raise TypeError("values of other types than before")
        if not self.mixed:
            return self._heads + b"\0\0\0\0" + self._struct.pack(*times, *flat)
        rest = _rest_text([form.rest(of_frame) for form, of_frame in zip(self.forms, values, strict=True)])
        return self._heads + _COUNT.pack(len(rest)) + self._struct.pack(*times, *self._fixed(flat)) + rest


def _runs(types: str) -> str:
    """`qqqdd` as `3q2d`: struct keeps 32 bytes for every letter of a format, 16 KB for 500 series."""
    return "".join([f"{len(list(group))}{letter}" for letter, group in groupby(types)])


def packed_again(frames: Sequence[Packed]) -> bytes:
    """A batch of frames that were packed before."""
    rest = _rest_text([frame.rest for frame in frames])
    times = struct.pack(f"@{len(frames)}q", *[frame.time_ns for frame in frames])
    heads = _heads([(frame.form, len(frame.fixed) // 8) for frame in frames])
    return b"".join([heads, _COUNT.pack(len(rest)), times, *[frame.fixed for frame in frames], rest])


def _heads(frames: Sequence[tuple[int, int]]) -> bytes:
    return _COUNT.pack(len(frames)) + b"".join([_HEAD.pack(form, fixed) for form, fixed in frames])


def _rest_text(rest: Sequence[Sequence[Value]]) -> bytes:
    tree = {n: [codec.jsonable(value) for value in values] for n, values in enumerate(rest) if values}
    return json.dumps(tree, separators=(",", ":")).encode() if tree else b""


def seal_tail(batches: Iterable[bytes]) -> bytes:
    body = b"".join(batches)
    return _SEAL.pack(_TAIL, zlib.crc32(body)) + body


def open_tail(blob: bytes) -> list[Packed]:
    """The frames of a row; StoreError when it is damaged."""
    body = _unsealed(blob, _TAIL, b"")
    frames: list[Packed] = []
    offset = 0
    try:
        while offset < len(body):
            offset = _open_batch(body, offset, frames)
    except (struct.error, ValueError):
        raise StoreError("a row of the tail that makes no sense") from None
    return frames


def _open_batch(body: bytes, offset: int, frames: list[Packed]) -> int:
    (count,) = _COUNT.unpack_from(body, offset)
    offset += _COUNT.size
    heads: list[tuple[int, int]] = list(_HEAD.iter_unpack(body[offset : offset + count * _HEAD.size]))
    offset += count * _HEAD.size
    length: int
    (length,) = _COUNT.unpack_from(body, offset)
    offset += _COUNT.size
    times = struct.unpack_from(f"@{count}q", body, offset)
    offset += 8 * count
    end = offset + 8 * sum([fixed for _, fixed in heads])
    rest: dict[str, list[Any]] = json.loads(body[end : end + length]) if length else {}
    for number, ((form, fixed), time_ns) in enumerate(zip(heads, times, strict=True)):
        values = [codec.from_jsonable(value) for value in rest.get(str(number), ())]
        frames.append(Packed(form, time_ns, body[offset : offset + 8 * fixed], values))
        offset += 8 * fixed
    return end + length


def seal_block(form: int, start_ns: int, end_ns: int, body: bytes) -> bytes:
    return _SEAL.pack(_BLOCK, zlib.crc32(_ROW.pack(form, start_ns, end_ns), zlib.crc32(body))) + body


def open_block(form: int, start_ns: int, end_ns: int, blob: bytes) -> bytes:
    """The block in a row; StoreError when it is damaged."""
    return _unsealed(blob, _BLOCK, _ROW.pack(form, start_ns, end_ns))


def _unsealed(blob: bytes, magic: bytes, row: bytes) -> bytes:
    if not isinstance(blob, bytes) or len(blob) < _SEAL.size:
        raise StoreError("a damaged row")
    found, checksum = _SEAL.unpack_from(blob)
    body = blob[_SEAL.size :]
    if found != magic or zlib.crc32(row, zlib.crc32(body)) != checksum:
        raise StoreError("a row whose checksum is wrong")
    return body

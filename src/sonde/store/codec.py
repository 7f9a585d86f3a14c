"""Columns of values to compressed bytes and back, exactly: what stands in the `data` of a block of the archive.

A block holds the ticks of one layout, column by column. Neighbours in a column are alike, so a column keeps its first
value and the differences, signed, in the narrowest of 1, 2, 4 or 8 bytes; columns of one width stand together and
their bytes are shuffled (all lowest bytes, then all second bytes, ...), which is what zlib likes best. In the narrowest
width a sign costs next to nothing, so differences need no zigzag, which took 22 % more CPU for the same size.

    integers        as they are
    decimals        12.34 is 1234 with a scale of 2, when dividing gives back the very same bits for the whole column
    other floats    their IEEE 754 bits as integers
    everything else (integers beyond 64 bits, columns that mix types) as JSON
    histograms      one integer column per bucket and one float column for the sums, when the bounds stay the same

Before compression: rows, columns and length of the JSON (3 × uint32), a tag byte per column (transform << 4 | width),
the first values (int64, shuffled), the columns by width, the JSON. Little-endian. docs/adr/0004 has the numbers.
"""

from __future__ import annotations

import json
import struct
import zlib
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, repeat
from operator import sub, truediv
from typing import Any, NamedTuple

from sonde.errors import StoreError
from sonde.model import Histogram, Value

_HEAD = struct.Struct("<III")
_TYPECODES = {1: "b", 2: "h", 4: "i", 8: "q"}
RAW = 9  # as width: all values, 8 bytes each, for differences that do not fit 64 bits
_LARGEST_SCALE = 9
_WINDOW, _MEMORY = 12, 6  # 15 and 8, as usual, clear 256 KiB per block: 61 µs, not 22, for one of 2 KB
_LEVEL = 3  # 0.9 % smaller than 1 at the same cost; 6 is another 1.8 % smaller for 13 % more

INTEGER = 0
DECIMAL = 1  # to 10: scales 0 to 9
BITS = 11
_JSON = 12
_HISTOGRAM = 13

# Adding this to a float below 2**51 rounds it to an integer in the unit and leaves that integer in the low bits.
_ROUNDER = 1.5 * 2.0**52
_ROUNDER_BITS = struct.unpack("<q", struct.pack("<d", _ROUNDER))[0]
_SMALLEST_ROUNDED, _LARGEST_ROUNDED = 2.0**52, 2.0**53


class _Builder:
    """Collects physical columns; a histogram is several of them."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._tags = bytearray()
        self._firsts = array("q")
        self._groups: dict[int, list[bytes]] = {1: [], 2: [], 4: [], 8: [], RAW: []}
        self._texts: list[object] = []

    def add_integers(self, values: array[int], transform: int = INTEGER, offset: int = 0) -> None:
        """A column of integers, each given as itself plus the offset."""
        width, data = _packed(values)
        self._tags.append(transform << 4 | width)
        self._firsts.append(values[0] - offset)
        if width:
            self._groups[width].append(data)

    def add_floats(self, bits: array[int]) -> None:
        """A column of floats, given as their bits."""
        if _constant(bits):
            self.add_integers(bits, BITS)
            return
        scale, scaled = _decimals(bits)
        if scaled is None:
            self.add_integers(bits, BITS)
        else:
            self.add_integers(scaled, DECIMAL + scale, _ROUNDER_BITS)

    def add_mixed(self, values: Sequence[Value]) -> None:
        bounds = _shared_bounds(values)
        if bounds is not None and self._add_histograms(bounds, values):
            return
        self._note(_JSON, 0, [jsonable(value) for value in values])

    def _add_histograms(self, bounds: tuple[float, ...], values: Sequence[Any]) -> bool:
        try:
            counts = [array("q", column) for column in zip(*[value.counts for value in values], strict=True)]
        except (OverflowError, TypeError, ValueError):
            return False
        if not all(type(value.sum) is float for value in values):
            return False
        self._note(_HISTOGRAM, len(counts), bounds)
        for column in counts:
            self.add_integers(column)
        self.add_floats(_bits_of(value.sum for value in values))
        return True

    def _note(self, transform: int, first: int, text: object) -> None:
        self._tags.append(transform << 4)
        self._firsts.append(first)
        self._texts.append(text)

    def finish(self) -> bytes:
        text = json.dumps(self._texts, separators=(",", ":")).encode() if self._texts else b""
        parts = [_HEAD.pack(self._rows, len(self._tags), len(text)), bytes(self._tags)]
        parts.append(_shuffled(self._firsts.tobytes(), 8))
        parts += [_shuffled(b"".join(data), min(width, 8)) for width, data in self._groups.items()]
        parts.append(text)
        deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -_WINDOW, _MEMORY)
        return deflate.compress(b"".join(parts)) + deflate.flush()


def encode(
    times: array[int],
    integers: Iterable[array[int]] = (),
    floats: Iterable[array[int]] = (),
    mixed: Iterable[Sequence[Value]] = (),
) -> bytes:
    """One block of at least one row. Times, integers and the bits of floats come as arrays of type `q`."""
    builder = _Builder(len(times))
    builder.add_integers(times)
    for column in integers:
        builder.add_integers(column)
    for column in floats:
        builder.add_floats(column)
    for values in mixed:
        builder.add_mixed(values)
    return builder.finish()


class Physical(NamedTuple):
    """A block's columns as they are stored: the time, then one or more for each logical column."""

    rows: int
    data: bytes
    tags: bytes  # transform << 4 | width
    firsts: Sequence[int]
    places: Sequence[int]  # within the group of its width
    groups: dict[int, tuple[int, int, int]]  # by width: offset in the data, columns, values of each
    positions: Sequence[int]  # where each logical column begins


class Block:
    """A block read back. Columns are decoded one by one, when asked for, in the order they were given to `encode`."""

    def __init__(self, data: bytes) -> None:
        try:
            self._data = zlib.decompress(data, wbits=-15)
            head: tuple[int, int, int] = _HEAD.unpack_from(self._data)
            self.rows, count, text = head
            self._tags = self._data[_HEAD.size : _HEAD.size + count]
            offset = _HEAD.size + count
            self._firsts = _first_values(self._data, offset, count)
            self._locate(offset + 8 * count)
            self._texts = json.loads(self._data[len(self._data) - text :]) if text else []
            self._walk()
        except (zlib.error, struct.error, ValueError, IndexError, KeyError) as error:
            raise StoreError(f"a block makes no sense: {error}") from None

    def _locate(self, offset: int) -> None:
        """Where the group of each width begins, how many columns it has, and each column's place in it."""
        widths = [tag & 15 for tag in self._tags]
        self._places: list[int] = []
        members = dict.fromkeys((0, *_TYPECODES, RAW), 0)
        for width in widths:
            self._places.append(members[width])
            members[width] += 1
        self._groups: dict[int, tuple[int, int]] = {}
        for width in (*_TYPECODES, RAW):
            self._groups[width] = (offset, members[width])
            offset += members[width] * self._length(width) * min(width, 8)

    def _length(self, width: int) -> int:
        return self.rows if width == RAW else self.rows - 1

    def physical(self) -> Physical:
        """The columns as they are stored, for a reader that decodes many at once."""
        groups = {width: (*place, self._length(width)) for width, place in self._groups.items() if place[1]}
        positions = [position for position, _ in self._starts]
        return Physical(self.rows, self._data, self._tags, self._firsts, self._places, groups, positions)

    def _walk(self) -> None:
        """The physical column at which each logical one begins, and which text belongs to it."""
        self._starts: list[tuple[int, int]] = []
        position = texts = 0
        while position < len(self._tags):
            self._starts.append((position, texts))
            transform = self._tags[position] >> 4
            texts += transform in (_JSON, _HISTOGRAM)
            position += self._firsts[position] + 2 if transform == _HISTOGRAM else 1

    def __len__(self) -> int:
        return len(self._starts) - 1  # the first is time

    @property
    def times(self) -> list[int]:
        return self._integers(0)

    def column(self, index: int) -> list[Any]:
        """The values of one column: integers, floats or histograms, as they were given."""
        position, text = self._starts[index + 1]
        transform = self._tags[position] >> 4
        if transform == _JSON:
            return [from_jsonable(value) for value in self._texts[text]]
        if transform == _HISTOGRAM:
            return self._histograms(position, tuple(self._texts[text]))
        return self._scalars(position, transform)

    def _scalars(self, position: int, transform: int) -> list[Any]:
        values = self._integers(position)
        if transform == INTEGER:
            return values
        if transform == BITS:
            return _floats_of(array("q", values)).tolist()
        return list(map(truediv, values, repeat(10.0 ** (transform - DECIMAL))))

    def _histograms(self, position: int, bounds: tuple[float, ...]) -> list[Histogram]:
        count = self._firsts[position]
        rows = zip(*[self._integers(position + 1 + n) for n in range(count)], strict=True)
        last = position + 1 + count
        sums = self._scalars(last, self._tags[last] >> 4)
        return [Histogram(bounds, counts, total) for counts, total in zip(rows, sums, strict=True)]

    def _integers(self, position: int) -> list[int]:
        width, first = self._tags[position] & 15, self._firsts[position]
        if width == 0:
            return [first] * self.rows
        stored = self._stored(position, width)
        return stored.tolist() if width == RAW else list(accumulate(stored, initial=first))

    def _stored(self, position: int, width: int) -> array[int]:
        begin, members = self._groups[width]
        length, size = self._length(width), min(width, 8)
        out = bytearray(length * size)
        for plane in range(size):
            start = begin + (plane * members + self._places[position]) * length
            out[plane::size] = self._data[start : start + length]
        numbers = array("q" if width == RAW else _TYPECODES[width])
        numbers.frombytes(out)
        return numbers


def _packed(values: array[int]) -> tuple[int, bytes]:
    """Width and differences of a column; width 0 when it never changes."""
    if _constant(values):
        return 0, b""
    numbers = values.tolist()
    deltas = list(map(sub, numbers[1:], numbers))
    for width, typecode in _TYPECODES.items():
        try:
            return width, array(typecode, deltas).tobytes()
        except OverflowError:  # at the first value that does not fit
            continue
    return RAW, values.tobytes()


def _constant(values: array[int]) -> bool:
    return values.tobytes() == values[:1].tobytes() * len(values)


def _decimals(bits: array[int]) -> tuple[int, array[int] | None]:
    """The scale at which a column is integers, and these plus _ROUNDER_BITS; None when there is no such scale."""
    floats = _floats_of(bits).tolist()
    scale = max(map(_digits, (floats[0], floats[len(floats) // 2], floats[-1])))
    while scale <= _LARGEST_SCALE:
        factor = 10.0**scale
        # Comprehensions, not map(): the interpreter has instructions of its own for float * and +, half the cost; and
        # round() would make an integer object per value.
        rounded = [value * factor + _ROUNDER for value in floats]
        back = [(value - _ROUNDER) / factor for value in rounded]
        if back == floats:
            # -0.0 equals 0.0 but is another float, and infinity equals itself but is no integer.
            exact = array("d", back).tobytes() == bits.tobytes()
            fits = exact and min(rounded) >= _SMALLEST_ROUNDED and max(rounded) < _LARGEST_ROUNDED
            return scale, _bits_of(rounded) if fits else None
        scale += 1
    return 0, None


def _digits(value: float) -> int:
    """Digits after the point of the shortest text that reads back as this float."""
    text = repr(value)
    if not text[-1].isdigit() or "e" in text:
        return _LARGEST_SCALE + 1
    return 0 if text.endswith(".0") else len(text) - 1 - text.index(".")


def _floats_of(bits: array[int]) -> array[float]:
    floats = array("d")
    floats.frombytes(bits.tobytes())
    return floats


def _bits_of(floats: Iterable[float]) -> array[int]:
    bits = array("q")
    bits.frombytes(array("d", floats).tobytes())
    return bits


def _shuffled(data: bytes, width: int) -> bytes:
    return data if width == 1 else b"".join([data[plane::width] for plane in range(width)])


def _first_values(data: bytes, offset: int, count: int) -> array[int]:
    out = bytearray(8 * count)
    for plane in range(8):
        out[plane::8] = data[offset + plane * count : offset + (plane + 1) * count]
    numbers = array("q")
    numbers.frombytes(out)
    return numbers


def _shared_bounds(values: Sequence[Value]) -> tuple[float, ...] | None:
    first = values[0]
    if not isinstance(first, Histogram):
        return None
    alike = all(
        isinstance(value, Histogram) and value.bounds == first.bounds and len(value.counts) == len(first.counts)
        for value in values
    )
    return first.bounds if alike else None


def jsonable(value: Value) -> object:
    return {"histogram": [value.bounds, value.counts, value.sum]} if isinstance(value, Histogram) else value


def from_jsonable(value: Any) -> Value:
    if isinstance(value, dict):
        bounds, counts, total = value["histogram"]
        return Histogram(tuple(bounds), tuple(counts), total)
    number: Value = value
    return number

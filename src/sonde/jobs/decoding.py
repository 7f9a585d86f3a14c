"""Blocks of the archive into arrays, without an object per value: what store/codec.py writes, read with numpy.

A block's columns of one width stand together, plane after plane, so all of them are put together by one transposition
and summed up by one call.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sonde.store.codec import BITS, DECIMAL, RAW, Physical

_DTYPES = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64, RAW: np.int64}


def integers(block: Physical, positions: Sequence[int]) -> NDArray[np.int64]:
    """Physical columns as rows of integers, before any transform. ValueError when the block is too short."""
    out = np.zeros((len(positions), block.rows), np.int64)
    out[:, 0] = [block.firsts[position] for position in positions]
    members: dict[int, list[int]] = {}
    for row, position in enumerate(positions):
        members.setdefault(block.tags[position] & 15, []).append(row)
    raw = members.pop(RAW, [])
    members.pop(0, None)  # never changes: the differences are the zeros that are there
    for width, rows in members.items():
        out[rows, 1:] = _stored(block, width, [block.places[positions[row]] for row in rows])
    np.cumsum(out, axis=1, out=out)
    if raw:
        out[raw] = _stored(block, RAW, [block.places[positions[row]] for row in raw])
    return out


def _stored(block: Physical, width: int, places: Sequence[int]) -> NDArray[np.signedinteger]:
    offset, columns, length = block.groups[width]
    size = min(width, 8)
    planes = np.frombuffer(block.data, np.uint8, size * columns * length, offset).reshape(size, columns, length)
    if len(places) < columns:
        planes = planes[:, places]
    # Places ascend, as positions do: with all of a group wanted, they are all of it in order.
    values = np.ascontiguousarray(planes.transpose(1, 2, 0)).view(_DTYPES[width])
    return values.reshape(len(places), length)


def floats(values: NDArray[np.int64], block: Physical, positions: Sequence[int]) -> NDArray[np.float64]:
    """The floats that rows of integers stand for: decimals of some scale, or bits."""
    transforms = [block.tags[position] >> 4 for position in positions]
    bits = [row for row, transform in enumerate(transforms) if transform == BITS]
    if len(bits) == len(transforms):
        return values.view(np.float64)
    factors = np.array([10.0 ** max(0, transform - DECIMAL) for transform in transforms])
    out: NDArray[np.float64] = values / factors[:, np.newaxis]
    if bits:
        out[bits] = values[bits].view(np.float64)
    return out

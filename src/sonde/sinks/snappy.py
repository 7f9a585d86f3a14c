"""Snappy's block format, after google/snappy's format_description.txt.

    05 10 68 65 6c 6c 6f  →  hello         the length, then elements: here one literal of (10 >> 2) + 1 bytes

With cramjam installed (`pip install sonde[remote-write]`) the blocks are compressed. Without it they are one literal:
every decoder takes it, and it costs bytes on the wire, not time (docs/adr/0016).
"""

from __future__ import annotations

from collections.abc import Callable

from sonde.sinks.protobuf import varint

_ONE_BYTE = 60  # the longest literal whose length fits into its tag
_LONG = 63 << 2  # the tag of a literal whose length minus one follows in four bytes


def literal(data: bytes) -> bytes:
    """A block that is not compressed."""
    size = len(data)
    if not size:
        return b"\0"
    if size <= _ONE_BYTE:
        return varint(size) + bytes(((size - 1) << 2,)) + data
    return b"".join((varint(size), bytes((_LONG,)), (size - 1).to_bytes(4, "little"), data))


def compressor() -> Callable[[bytes], bytes]:
    """The best there is. cramjam is imported here and not above: 2 MB, for those who send."""
    try:
        from cramjam import snappy
    except ImportError:
        return literal
    return lambda data: bytes(snappy.compress_raw(data))

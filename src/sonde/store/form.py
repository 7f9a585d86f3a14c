"""How the frames of one layout are written: which series, in which order, of which types.

A form is a layout as the archive knows it. Its text is JSON, `metrics` being [name, kind, unit, label names, label
values of each series]:

    {"source": "load", "period_ns": 1000000000, "types": "ddd",
     "metrics": [["node_load1", "gauge", "", [], [[]]], ["node_load5", "gauge", "", [], [[]]], ...]}

`types` has a letter per series: `q` integers of 64 bits, `d` floats, `m` anything (as JSON). Its id is a checksum of
that text, so the same layout has the same id after a restart, and blocks whose form was lost to damage get their
names back as soon as the same collector writes again.

A block (codec.py) has the integers first, then the floats, then the rest: `order` says which series each column is.
"""

from __future__ import annotations

import itertools
import json
import zlib
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sonde.errors import StoreError
from sonde.model import Layout, Value
from sonde.shape import picker
from sonde.store import codec

_PROBES = 16  # ids tried when two texts share a checksum


class Series(NamedTuple):
    """One series as it was written."""

    metric: str
    kind: str
    unit: str
    labels: tuple[tuple[str, str], ...]


class Form:
    """A layout with its types. Built from its text alone."""

    __slots__ = ("_mixed", "_split", "fixed", "id", "order", "period_ns", "source", "text", "types")

    def __init__(self, text: bytes, form_id: int) -> None:
        tree = json.loads(text)
        self.id = form_id
        self.text = text
        self.source: str = tree["source"]
        self.period_ns: int = tree["period_ns"]
        self.types: str = tree["types"]
        places = {letter: [n for n, other in enumerate(self.types) if other == letter] for letter in "qdm"}
        self.order = [*places["q"], *places["d"], *places["m"]]
        self.fixed = len(places["q"]) + len(places["d"])  # values of 8 bytes
        self._split = len(places["q"])
        self._mixed = picker(places["m"])

    def series(self) -> list[Series]:
        """The series, in the order of the layout."""
        return [
            Series(name, kind, unit, tuple(zip(names, values, strict=True)))
            for name, kind, unit, names, rows in json.loads(self.text)["metrics"]
            for values in rows
        ]

    def rest(self, values: Sequence[Value]) -> Sequence[Value]:
        """The values of no fixed size."""
        rest: Sequence[Value] = self._mixed(values)
        return rest

    def block(self, times: Sequence[int], fixed: Sequence[bytes], rest: Sequence[Sequence[Value]]) -> bytes:
        """Frames as one compressed block."""
        flat = array("q")
        flat.frombytes(b"".join(fixed))
        if len(flat) != self.fixed * len(times):
            raise StoreError(f"packed frames of {self.source} have the wrong size")
        columns = self._columns(flat)
        mixed = [list(column) for column in zip(*rest, strict=True)]
        return codec.encode(array("q", times), columns[: self._split], columns[self._split :], mixed)

    def unpack(self, fixed: bytes, rest: Sequence[Value]) -> list[Any]:
        """The values of one packed frame, in the order of `order`."""
        flat = array("q")
        flat.frombytes(fixed)
        columns = self._columns(flat)
        floats = array("d")
        floats.frombytes(b"".join([column.tobytes() for column in columns[self._split :]]))
        return [*[column[0] for column in columns[: self._split]], *floats, *rest]

    def _columns(self, flat: array[int]) -> list[array[int]]:
        """Frames stand with their series in order; columns come with the integers first."""
        places = [place for place, letter in enumerate(self.types.replace("m", "")) if letter == "q"]
        places += [place for place, letter in enumerate(self.types.replace("m", "")) if letter == "d"]
        return [flat[place :: self.fixed] for place in places]

    def widened(self, values: Sequence[Value]) -> str:
        """The types these values need, given those the form already has: never narrower."""
        return "".join(mine if mine == now else "m" for mine, now in zip(self.types, types_of(values), strict=True))


def types_of(values: Iterable[Value]) -> str:
    return "".join(map(_type_of, values))


def _type_of(value: Value) -> str:
    if isinstance(value, int):
        return "q" if -(2**63) <= value < 2**63 else "m"
    return "d" if type(value) is float else "m"


def describe(source: str, period_ns: int, layout: Layout, types: str) -> bytes:
    """The text of a form."""
    metrics = [
        [spec.name, spec.kind.value, spec.unit.value, list(spec.labels), [list(labels) for _, labels in group]]
        for spec, group in itertools.groupby(layout, key=lambda series: series[0])
    ]
    tree = {"source": source, "period_ns": period_ns, "types": types, "metrics": metrics}
    return json.dumps(tree, separators=(",", ":")).encode()


def ids(text: bytes) -> Iterable[int]:
    """The ids a text may have, best first: positive, 62 bits. zlib's checksums: hashlib would bring OpenSSL along."""
    first = zlib.crc32(text) << 30 | zlib.adler32(text) >> 2
    return range(first, first + _PROBES)


def stored(text: bytes) -> bytes:
    return zlib.compress(text, 6)


def restored(form_id: int, data: bytes) -> Form:
    """The form behind a row of the archive; StoreError when the row is damaged."""
    try:
        text = zlib.decompress(data)
        if form_id in ids(text):
            return Form(text, form_id)
    except (zlib.error, TypeError, ValueError, KeyError):
        pass
    raise StoreError(f"the description of layout {form_id} is damaged")

"""Sockets in use by protocol, from /proc/net/sockstat and /proc/net/sockstat6.

    sockets: used 14
    TCP: inuse 1 orphan 0 tw 2 alloc 1 mem 178
    UDP: inuse 0 mem 0                      mem in pages (proc(5), net/ipv4/proc.c)

node_exporter's names: one per protocol and key, and for memory one more in bytes.
"""

from __future__ import annotations

import os
from typing import ClassVar

from sonde.config import NoKeys
from sonde.errors import ParseError
from sonde.hostfs import HostFile, HostFS
from sonde.model import EMPTY_LAYOUT, Gap, Kind, Layout, MetricSpec, Quality, Reading, Unit
from sonde.shape import Shape

_USED = MetricSpec("node_sockstat_sockets_used", Kind.GAUGE, Unit.NONE, "Number of IPv4 sockets in use.")
_KEYS = {
    "TCP": ("inuse", "orphan", "tw", "alloc", "mem"),
    "UDP": ("inuse", "mem"),
    "UDPLITE": ("inuse",),
    "RAW": ("inuse",),
    "FRAG": ("inuse", "memory"),
    "TCP6": ("inuse",),
    "UDP6": ("inuse",),
    "UDPLITE6": ("inuse",),
    "RAW6": ("inuse",),
    "FRAG6": ("inuse", "memory"),
}


def _spec(protocol: str, key: str, unit: Unit = Unit.NONE) -> MetricSpec:
    text = f"Number of {protocol} sockets in state {key}."
    return MetricSpec(f"node_sockstat_{protocol}_{key}", Kind.GAUGE, unit, text)


COUNTS = {("sockets", "used"): _USED} | {(p, k): _spec(p, k) for p, keys in _KEYS.items() for k in keys}
MEMORY = {(p, "mem"): _spec(p, "mem_bytes", Unit.BYTES) for p in ("TCP", "UDP")}


class SocketsCollector:
    Config: ClassVar[type] = NoKeys
    metrics: ClassVar[tuple[MetricSpec, ...]] = (*COUNTS.values(), *MEMORY.values())
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: NoKeys) -> None:
        self._four = host.record("proc/net/sockstat")
        self._six: HostFile | None = None
        if host.exists("proc/net/sockstat6"):  # not with ipv6.disable=1
            self._six = host.record("proc/net/sockstat6")
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._shape: Shape | None = None
        self._in_pages = 0  # that many at the end are pages to be made bytes
        self._layout = EMPTY_LAYOUT
        self._gaps: tuple[Gap, ...] = ()

    def collect(self) -> Reading:
        text = self._four.read()
        if self._six is not None:
            text += self._six.read()
        tokens = text.split()
        shape = self._shape
        if shape is None or not shape.fits(tokens):
            shape = self._learn(tokens)
        try:
            values = [*map(int, shape.values(tokens))]
        except ValueError:
            raise ParseError("/proc/net/sockstat", text) from None
        for index in range(len(values) - self._in_pages, len(values)):
            values[index] *= self._page
        return Reading(self._layout, values, (), self._gaps)

    def _learn(self, tokens: list[bytes]) -> Shape:
        places = parse_places(tokens)
        names = sorted(set(range(len(tokens))) - set(places.values()))
        counts = [(COUNTS[key], places[key]) for key in COUNTS if key in places]
        memory = [(MEMORY[key], places[key]) for key in MEMORY if key in places]
        self._layout = Layout((spec, ()) for spec, _ in counts + memory)
        self._gaps = tuple(
            Gap(spec, (), Quality.UNSUPPORTED, "not in the kernel's sockstat")
            for key, spec in [*COUNTS.items(), *MEMORY.items()]
            if key not in places
        )
        self._in_pages = len(memory)
        self._shape = Shape(tokens, names, [place for _, place in counts + memory])
        return self._shape

    def close(self) -> None:
        self._four.close()
        if self._six is not None:
            self._six.close()


def parse_places(tokens: list[bytes]) -> dict[tuple[str, str], int]:
    """Where the number of each protocol and key stands."""
    places: dict[tuple[str, str], int] = {}
    protocol = ""
    index = 0
    while index < len(tokens):
        token = tokens[index].decode("ascii", "replace")
        if token.endswith(":"):
            protocol = token[:-1]
            index += 1
            continue
        if not protocol or index + 1 == len(tokens) or (protocol, token) in places:
            raise ParseError("/proc/net/sockstat", b" ".join(tokens))
        places[protocol, token] = index + 1
        index += 2
    if not places:
        raise ParseError("/proc/net/sockstat", b" ".join(tokens))
    return places

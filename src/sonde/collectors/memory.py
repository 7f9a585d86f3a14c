"""Memory and swap, from /proc/meminfo.

    MemTotal:       24682416 kB      node_memory_MemTotal_bytes
    Active(anon):       1508 kB      node_memory_Active_anon_bytes
    HugePages_Total:       0         node_memory_HugePages_Total: a number of pages

Every line is a metric under node_exporter's name for it, also one that a future kernel adds. The kernel's kB are
1,024 bytes (proc_meminfo(5)).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import mul
from typing import ClassVar, NamedTuple

from sonde.config import NoKeys
from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.model import EMPTY_LAYOUT, Kind, Layout, MetricSpec, Reading, Unit
from sonde.shape import Skeleton

# What Linux 4.18 to 6.18 have (fs/proc/meminfo.c); which lines are there depends on the version and configuration.
_KNOWN_BYTES = """
MemTotal MemFree MemAvailable Buffers Cached SwapCached Active Inactive Active_anon Inactive_anon Active_file
Inactive_file Unevictable Mlocked SwapTotal SwapFree Zswap Zswapped Dirty Writeback AnonPages Mapped Shmem KReclaimable
Slab SReclaimable SUnreclaim KernelStack ShadowCallStack PageTables SecPageTables NFS_Unstable Bounce WritebackTmp
CommitLimit Committed_AS VmallocTotal VmallocUsed VmallocChunk Percpu EarlyMemtestBad HardwareCorrupted AnonHugePages
ShmemHugePages ShmemPmdMapped FileHugePages FilePmdMapped CmaTotal CmaFree Unaccepted Balloon Hugepagesize Hugetlb
DirectMap4k DirectMap2M DirectMap4M DirectMap1G
"""
_KNOWN_PAGES = "HugePages_Total HugePages_Free HugePages_Rsvd HugePages_Surp"
_DIGITS = re.compile(rb"[0-9]+")
_LINE = re.compile(rb"([A-Za-z0-9_]+)(?:\(([A-Za-z0-9_]+)\))?:[ \t]+([0-9]+)( kB)?[ \t]*")


def _spec(field: str, unit: Unit) -> MetricSpec:
    suffix = "_bytes" if unit is Unit.BYTES else ""
    return MetricSpec(f"node_memory_{field}{suffix}", Kind.GAUGE, unit, f"{field} of /proc/meminfo, proc_meminfo(5).")


_SPECS = {name: _spec(name, Unit.BYTES) for name in _KNOWN_BYTES.split()}
_SPECS |= {name: _spec(name, Unit.NONE) for name in _KNOWN_PAGES.split()}


class Field(NamedTuple):
    """One line: its name as node_exporter writes it, and what one of its units is worth."""

    name: str
    factor: int  # 1024, or 1 for a line without unit
    digits_in_name: int  # runs of digits: one in DirectMap4k


class MemoryCollector:
    Config: ClassVar[type] = NoKeys
    metrics: ClassVar[tuple[MetricSpec, ...]] = tuple(_SPECS.values())
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: NoKeys) -> None:
        self._file = host.record("proc/meminfo")
        self._skeleton: Skeleton | None = None
        self._factors: list[int] = []
        self._layout = EMPTY_LAYOUT

    def collect(self) -> Reading:
        text = self._file.read()
        numbers = self._skeleton.numbers(text) if self._skeleton is not None else None
        if numbers is None:
            numbers = self._learn(text)
        try:
            return Reading(self._layout, list(map(mul, map(int, numbers), self._factors)))
        except ValueError:  # more digits than int() takes
            raise ParseError("/proc/meminfo", text) from None

    def _learn(self, text: bytes) -> Sequence[bytes]:
        fields = parse_fields(text)
        places = []
        place = 0
        for field in fields:
            place += field.digits_in_name
            places.append(place)
            place += 1
        self._factors = [field.factor for field in fields]
        self._layout = Layout((_spec_of(field), ()) for field in fields)
        self._skeleton = Skeleton(text, places)
        numbers = self._skeleton.numbers(text)
        if numbers is None:
            raise ParseError("/proc/meminfo", text)
        return numbers

    def close(self) -> None:
        self._file.close()


def parse_fields(text: bytes) -> list[Field]:
    """The names and units of the lines, in order."""
    fields = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            raise ParseError("/proc/meminfo", line)
        name, kind, _, unit = match.groups()
        # Active(anon) is written Active_anon.
        runs = len(_DIGITS.findall(name + b" " + (kind or b"")))
        fields.append(Field((name + (b"_" + kind if kind else b"")).decode(), 1024 if unit else 1, runs))
    if not fields or len({field.name for field in fields}) != len(fields):
        raise ParseError("/proc/meminfo", text)
    return fields


def _spec_of(field: Field) -> MetricSpec:
    """The declared spec; one made here for a line, or a unit, that no kernel had when this was written."""
    unit = Unit.NONE if field.factor == 1 else Unit.BYTES
    known = _SPECS.get(field.name)
    return known if known is not None and known.unit is unit else _spec(field.name, unit)

"""Memory of each NUMA node, from /sys/devices/system/node/node*/meminfo and node*/numastat.

    Node 0 MemFree:         3822376 kB      node_memory_numa_MemFree{node="0"}, in bytes
    Node 0 HugePages_Total:     0           node_memory_numa_HugePages_Total{node="0"}: a number of pages
    numa_miss 0                             node_memory_numa_numa_miss_total{node="0"}, pages since boot

The names are those of node_exporter's `meminfo_numa`. What numastat counts: Documentation/admin-guide/numastat.rst.
"""

from __future__ import annotations

import errno
import re
from operator import mul
from typing import ClassVar, NamedTuple

from sonde.errors import ParseError, Unavailable
from sonde.hostfs import HostFile, HostFS
from sonde.model import EMPTY_LAYOUT, Kind, Labels, Layout, MetricSpec, Reading, Unit
from sonde.shape import Shape

# What Linux 4.18 to 6.18 have (drivers/base/node.c).
_KNOWN_BYTES = """
MemTotal MemFree MemUsed SwapCached Active Inactive Active_anon Inactive_anon Active_file Inactive_file Unevictable
Mlocked Dirty Writeback FilePages Mapped AnonPages Shmem KernelStack ShadowCallStack PageTables SecPageTables
NFS_Unstable Bounce WritebackTmp KReclaimable Slab SReclaimable SUnreclaim AnonHugePages ShmemHugePages ShmemPmdMapped
FileHugePages FilePmdMapped Unaccepted
"""
_KNOWN_PAGES = "HugePages_Total HugePages_Free HugePages_Surp"
_KNOWN_COUNTS = "numa_hit numa_miss numa_foreign interleave_hit local_node other_node"

_DIRECTORY = "sys/devices/system/node"
_NODE = re.compile(r"node([0-9]+)")
_LEVEL = re.compile(rb"Node ([0-9]+) ([A-Za-z0-9_]+)(?:\(([A-Za-z0-9_]+)\))?:[ \t]+([0-9]+)( kB)?[ \t]*")
_COUNT = re.compile(rb"([a-z_]+) ([0-9]+)")


def _level(field: str, unit: Unit) -> MetricSpec:
    return MetricSpec(f"node_memory_numa_{field}", Kind.GAUGE, unit, f"{field} of a node's meminfo.", ("node",))


def _count(field: str) -> MetricSpec:
    name = f"node_memory_numa_{field}_total"
    return MetricSpec(name, Kind.COUNTER, Unit.NONE, f"{field} of a node's numastat, in pages.", ("node",))


_SPECS = {(name, 1024): _level(name, Unit.BYTES) for name in _KNOWN_BYTES.split()}
_SPECS |= {(name, 1): _level(name, Unit.NONE) for name in _KNOWN_PAGES.split()}
_COUNTS = {name: _count(name) for name in _KNOWN_COUNTS.split()}


class Field(NamedTuple):
    """One number: what it means, and where its token stands in the text."""

    spec: MetricSpec
    labels: Labels
    at: int
    factor: int


class NumaConfig(NamedTuple):
    single_node: bool = False  # also where one node is all: /proc/meminfo and /proc/vmstat have its numbers


class NumaCollector:
    Config: ClassVar[type] = NumaConfig
    metrics: ClassVar[tuple[MetricSpec, ...]] = (*_SPECS.values(), *_COUNTS.values())
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: NumaConfig) -> None:
        self._host = host
        self._files: list[HostFile] = []
        self._nodes: list[str] = []
        self._shape: Shape | None = None
        self._factors: list[int] = []
        self._layout = EMPTY_LAYOUT
        try:
            self._online = host.record(f"{_DIRECTORY}/online")
        except FileNotFoundError:
            raise Unavailable(f"no /{_DIRECTORY}/online: this kernel is built without CONFIG_NUMA") from None
        if not config.single_node and self._online.read().strip().isdigit():
            raise Unavailable(
                "this host has one memory node: the memory and vmstat collectors have its numbers",
                hint="collectors.numa.single_node = true reads it all the same",
            )
        self._known_online = b""

    def collect(self) -> Reading:
        # One small read tells whether a node came or went; the directory is listed only then.
        online = self._online.read()
        if online != self._known_online:
            self._open()
            self._known_online = online
        try:
            texts = [file.read() for file in self._files]
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
            self._open()  # a node went offline between the two reads
            texts = [file.read() for file in self._files]
        tokens = b"\n".join(texts).split()
        shape = self._shape
        if shape is None or not shape.fits(tokens):
            shape = self._learn(texts, tokens)
        try:
            return Reading(self._layout, list(map(mul, map(int, shape.values(tokens)), self._factors)))
        except ValueError:
            raise ParseError(f"/{_DIRECTORY}", b"\n".join(texts)) from None

    def _open(self) -> None:
        """Open meminfo and numastat of the nodes there are now; one that vanishes meanwhile is left out."""
        self._close_files()
        self._nodes = []
        for name in sorted(self._host.names(_DIRECTORY), key=lambda name: (len(name), name)):
            match = _NODE.fullmatch(name)
            if match is None:
                continue
            try:
                pair = self._pair(f"{_DIRECTORY}/{name}")
            except FileNotFoundError:
                continue
            self._files += pair
            self._nodes.append(match[1])

    def _pair(self, directory: str) -> tuple[HostFile, HostFile]:
        return self._host.record(f"{directory}/meminfo"), self._host.record(f"{directory}/numastat")

    def _learn(self, texts: list[bytes], tokens: list[bytes]) -> Shape:
        fields: list[Field] = []
        start = 0
        for node, meminfo, numastat in zip(self._nodes, texts[::2], texts[1::2], strict=True):
            fields += parse_meminfo(meminfo, node, start)
            start += len(meminfo.split())
            fields += parse_numastat(numastat, node, start)
            start += len(numastat.split())
        # The series of one metric stand together: by metric in the order of its first appearance, then by node.
        order = {field.spec: index for index, field in reversed(list(enumerate(fields)))}
        fields.sort(key=lambda field: (order[field.spec], field.at))
        self._factors = [field.factor for field in fields]
        self._layout = Layout((field.spec, field.labels) for field in fields)
        values = [field.at for field in fields]
        self._shape = Shape(tokens, [at - 1 for at in values], values)  # a name stands before its number
        return self._shape

    def _close_files(self) -> None:
        for file in self._files:
            file.close()
        self._files = []

    def close(self) -> None:
        self._close_files()
        self._online.close()


def parse_meminfo(text: bytes, node: str, start: int = 0) -> list[Field]:
    """The fields of a node's meminfo; `start` is added to the token positions."""
    fields = []
    for line in text.splitlines():
        match = _LEVEL.fullmatch(line)
        if match is None:
            raise ParseError(f"/{_DIRECTORY}/node{node}/meminfo", line)
        _, name, kind, _, unit = match.groups()
        label = (name + (b"_" + kind if kind else b"")).decode()
        factor = 1024 if unit else 1
        spec = _SPECS.get((label, factor))
        if spec is None:
            spec = _SPECS[label, factor] = _level(label, Unit.BYTES if unit else Unit.NONE)
        fields.append(Field(spec, (node,), start + 3, factor))
        start += 5 if unit else 4
    _refuse_twice(fields, f"/{_DIRECTORY}/node{node}/meminfo", text)
    return fields


def parse_numastat(text: bytes, node: str, start: int = 0) -> list[Field]:
    """The fields of a node's numastat; `start` is added to the token positions."""
    fields = []
    for line in text.splitlines():
        match = _COUNT.fullmatch(line)
        if match is None:
            raise ParseError(f"/{_DIRECTORY}/node{node}/numastat", line)
        name = match[1].decode()
        spec = _COUNTS.get(name) or _COUNTS.setdefault(name, _count(name))
        fields.append(Field(spec, (node,), start + 1, 1))
        start += 2
    _refuse_twice(fields, f"/{_DIRECTORY}/node{node}/numastat", text)
    return fields


def _refuse_twice(fields: list[Field], source: str, text: bytes) -> None:
    if len({field.spec for field in fields}) != len(fields):
        raise ParseError(source, text)

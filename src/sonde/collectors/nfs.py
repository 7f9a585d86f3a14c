"""What the NFS client of this host has asked its servers, from /proc/net/rpc/nfs (rpc_proc_show in net/sunrpc/stats.c).

    net 70 70 69 45                      packets, of these UDP, TCP; TCP connections
    rpc 1218785755 374636 1218815394     calls, retransmissions, refreshed credentials
    proc3 22 0 1061909262 48906 …        how many procedures version 3 has, then the calls of each
    proc4 69 98 51 …                     of version 4: the operations of the client's table (fs/nfs/nfs4xdr.c)

Names and labels are node_exporter's. A version that the kernel does not have, and an operation that it is too old for,
are absent; there they are 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from sonde.config import NoKeys
from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.model import EMPTY_LAYOUT, Kind, Labels, Layout, MetricSpec, Reading, Series, Unit
from sonde.shape import Shape


def _spec(name: str, text: str, *labels: str) -> MetricSpec:
    return MetricSpec(f"node_nfs_{name}", Kind.COUNTER, Unit.NONE, text, labels)


PACKETS = _spec("packets_total", "Packets of the NFS client by protocol.", "protocol")
CONNECTIONS = _spec("connections_total", "TCP connections of the NFS client.")
RPCS = _spec("rpcs_total", "Calls made.")
RETRANSMISSIONS = _spec("rpc_retransmissions_total", "Calls that had to be sent again.")
REFRESHES = _spec("rpc_authentication_refreshes_total", "Times credentials were refreshed.")
REQUESTS = _spec("requests_total", "Procedures called.", "proto", "method")

_V2 = (
    "Null GetAttr SetAttr Root Lookup ReadLink Read WrCache Write Create Remove Rename Link SymLink MkDir RmDir "
    "ReadDir FsStat"
)
_V3 = (
    "Null GetAttr SetAttr Lookup Access ReadLink Read Write Create MkDir SymLink MkNod Remove RmDir Rename Link "
    "ReadDir ReadDirPlus FsStat FsInfo PathConf Commit"
)
_V4 = (
    "Null Read Write Commit Open OpenConfirm OpenNoattr OpenDowngrade Close Setattr FsInfo Renew SetClientID "
    "SetClientIDConfirm Lock Lockt Locku Access Getattr Lookup LookupRoot Remove Rename Link Symlink Create "
    "Pathconf StatFs ReadLink ReadDir ServerCaps DelegReturn GetACL SetACL FsLocations ReleaseLockowner Secinfo "
    "FsidPresent ExchangeID CreateSession DestroySession Sequence GetLeaseTime ReclaimComplete LayoutGet "
    "GetDeviceInfo LayoutCommit LayoutReturn SecinfoNoName TestStateID FreeStateID GetDeviceList "
    "BindConnToSession DestroyClientID Seek Allocate DeAllocate LayoutStats Clone"
)
_METHODS = {
    b"proc2": _V2.split(),
    b"proc3": _V3.split(),
    b"proc4": _V4.split(),
}
# The places on its line of what is not counted per procedure.
_FIXED: dict[bytes, tuple[tuple[int, MetricSpec, Labels], ...]] = {
    b"net": ((2, PACKETS, ("udp",)), (3, PACKETS, ("tcp",)), (4, CONNECTIONS, ())),
    b"rpc": ((1, RPCS, ()), (2, RETRANSMISSIONS, ()), (3, REFRESHES, ())),
}
_WIDTHS = {b"net": 5, b"rpc": 4}


class NfsCollector:
    Config: ClassVar[type] = NoKeys
    metrics: ClassVar[tuple[MetricSpec, ...]] = (
        PACKETS,
        CONNECTIONS,
        RPCS,
        RETRANSMISSIONS,
        REFRESHES,
        REQUESTS,
    )
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: NoKeys) -> None:
        self._file = host.record("proc/net/rpc/nfs")
        self._shape: Shape | None = None
        self._layout = EMPTY_LAYOUT

    def collect(self) -> Reading:
        text = self._file.read()
        tokens = text.split()
        if self._shape is None or not self._shape.fits(tokens):
            self._shape, self._layout = learn(text)
        try:
            return Reading(self._layout, [int(token) for token in self._shape.values(tokens)])
        except ValueError:
            raise ParseError("/proc/net/rpc/nfs", text) from None

    def close(self) -> None:
        self._file.close()


def learn(text: bytes) -> tuple[Shape, Layout]:
    """Where the numbers stand, and what they are."""
    names: list[int] = []
    found: list[tuple[int, Series]] = []
    start = 0
    seen: set[bytes] = set()
    for line in text.splitlines():
        tokens = line.split()
        if not tokens or tokens[0] in seen:
            raise ParseError("/proc/net/rpc/nfs", line)
        seen.add(tokens[0])
        names.append(start)
        found += [(start + place, series) for place, series in _line(tokens)]
        if tokens[0] in _METHODS:
            names.append(start + 1)  # the count of procedures
        start += len(tokens)
    if not found:
        raise ParseError("/proc/net/rpc/nfs", text)
    order = {spec: place for place, spec in enumerate(NfsCollector.metrics)}
    found.sort(key=lambda item: (order[item[1][0]], item[0]))
    return Shape(text.split(), names, [place for place, _ in found]), Layout(series for _, series in found)


def _line(tokens: list[bytes]) -> Iterator[tuple[int, Series]]:
    name = tokens[0]
    if name in _FIXED:
        if len(tokens) != _WIDTHS[name]:
            raise ParseError("/proc/net/rpc/nfs", b" ".join(tokens))
        for place, spec, labels in _FIXED[name]:
            yield place, (spec, labels)
    elif name in _METHODS:
        if len(tokens) < 2 or not tokens[1].isdigit() or int(tokens[1]) != len(tokens) - 2:
            raise ParseError("/proc/net/rpc/nfs", b" ".join(tokens))
        # What a newer kernel has at the end has no name in node_exporter.
        for place, method in zip(range(2, len(tokens)), _METHODS[name], strict=False):
            yield place, (REQUESTS, (name[4:].decode(), method))

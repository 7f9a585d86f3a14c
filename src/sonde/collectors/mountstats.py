"""Bytes, events, transports and operations of each NFS mount, from /proc/1/mountstats, else /proc/self/mountstats.

    device nas:/home mounted on /home with fstype nfs4 statvers=1.1
      age:  13968
      events:  52 226 0 0 1 13 398 0 0 331 0 47 0 0 77 0 0 77 0 0 0 0 0 0 0 0 0
      bytes:  1207640230 0 0 0 1210214218 0 295483 0
      xprt:  tcp 832 0 1 0 11 6428 6428 0 12154 0 24 26 5726
      per-op statistics
              READ: 1298 1298 0 207680 1210292152 6 79386 79407 0

See fs/nfs/super.c and iostat.h, net/sunrpc/stats.c and xprtsock.c. Names and labels are node_exporter's. Several
connections to a server (nconnect) are added up. What a transport does not count is absent: UDP has no connections, RDMA
no queues. Off by default, as there: some two hundred series per mount.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from sonde.config import NoKeys
from sonde.errors import ParseError, Unavailable
from sonde.hostfs import HostFS
from sonde.model import EMPTY_LAYOUT, Kind, Labels, Layout, MetricSpec, Reading, Unit, Value

_MOUNT = ("export", "protocol", "mountaddr")


def _spec(name: str, text: str, *labels: str) -> MetricSpec:
    kind = Kind.COUNTER if name.endswith("_total") else Kind.GAUGE
    stem = name.removesuffix("_total")
    unit = next((unit for unit in (Unit.BYTES, Unit.SECONDS) if stem.endswith("_" + unit.value)), Unit.NONE)
    return MetricSpec(f"node_mountstats_nfs_{name}", kind, unit, text, (*_MOUNT, *labels))


AGE = _spec("age_seconds_total", "Time since it was mounted.")
BYTES = (
    _spec("read_bytes_total", "Bytes read by read(2)."),
    _spec("write_bytes_total", "Bytes written by write(2)."),
    _spec("direct_read_bytes_total", "Bytes read with O_DIRECT."),
    _spec("direct_write_bytes_total", "Bytes written with O_DIRECT."),
    _spec("total_read_bytes_total", "Bytes fetched from the server."),
    _spec("total_write_bytes_total", "Bytes sent to the server."),
    _spec("read_pages_total", "Pages read through memory maps."),
    _spec("write_pages_total", "Pages written through memory maps."),
)
# In the order of enum nfs_stat_eventcounters; the nineteenth, congestion, is not counted any more.
_EVENTS = (
    "inode_revalidate dnode_revalidate data_invalidate attribute_invalidate vfs_open vfs_lookup vfs_access "
    "vfs_update_page vfs_read_page vfs_read_pages vfs_write_page vfs_write_pages vfs_getdents vfs_setattr vfs_flush "
    "vfs_fsync vfs_lock vfs_file_release - truncation write_extension silly_rename short_read short_write "
    "jukebox_delay pnfs_read pnfs_write"
)
EVENTS = {
    place: _spec(f"event_{name}_total", f"Events of the client: {name.replace('_', ' ')}.")
    for place, name in enumerate(_EVENTS.split())
    if name != "-"
}
BIND = _spec("transport_bind_total", "Times a connection was made from scratch.")
CONNECT = _spec("transport_connect_total", "Times a connection was made.")
IDLE = _spec("transport_idle_time_seconds", "Time since a request was last sent.")
SENDS = _spec("transport_sends_total", "Requests sent.")
RECEIVES = _spec("transport_receives_total", "Replies received.")
BAD = _spec("transport_bad_transaction_ids_total", "Replies to no known request.")
BACKLOG = _spec("transport_backlog_queue_total", "Requests in the backlog, added up at each request.")
SLOTS = _spec("transport_maximum_rpc_slots", "The most requests that were ever under way at once.")
SENDING = _spec("transport_sending_queue_total", "Requests waiting to be sent, added up at each request.")
PENDING = _spec("transport_pending_queue_total", "Requests waiting for a reply, added up at each request.")
# The columns of an xprt line behind the protocol; None is not given.
_TCP = (None, BIND, CONNECT, None, IDLE, SENDS, RECEIVES, BAD, None, BACKLOG, SLOTS, SENDING, PENDING)
_TRANSPORTS = {
    b"tcp": _TCP,
    b"udp": (None, BIND, SENDS, RECEIVES, BAD, None, BACKLOG, SLOTS, SENDING, PENDING),
    b"rdma": _TCP[:10],  # what follows is of the adapter
}
TRANSPORT = (BIND, CONNECT, IDLE, SENDS, RECEIVES, BAD, BACKLOG, SLOTS, SENDING, PENDING)
OPERATIONS = (
    _spec("operations_requests_total", "Requests made.", "operation"),
    _spec("operations_transmissions_total", "Times a request was sent.", "operation"),
    _spec("operations_major_timeouts_total", "Times a request was not answered in time.", "operation"),
    _spec("operations_sent_bytes_total", "Bytes sent, headers included.", "operation"),
    _spec("operations_received_bytes_total", "Bytes received, headers included.", "operation"),
    _spec("operations_queue_time_seconds_total", "Time waiting to be sent.", "operation"),
    _spec("operations_response_time_seconds_total", "Time from sending to the reply.", "operation"),
    _spec("operations_request_time_seconds_total", "Time from the request to its end.", "operation"),
)
_MILLISECONDS = 5  # the first column of an operation that is in them
_HEAD = re.compile(rb"device (\S+) mounted on (\S+) with fstype nfs4? statvers=\S+")
_ADDRESS = re.compile(rb"(?:^|,)addr=([^,]*)")


class Mount(NamedTuple):
    export: str
    point: str
    protocol: str
    values: dict[tuple[MetricSpec, Labels], Value]  # labels behind those of the mount


class MountstatsCollector:
    Config: ClassVar[type] = NoKeys
    metrics: ClassVar[tuple[MetricSpec, ...]] = (AGE, *BYTES, *EVENTS.values(), *TRANSPORT, *OPERATIONS)
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: NoKeys) -> None:
        self._host = host
        self._process = _process(host)
        self._file = host.iterated(f"proc/{self._process}/mountstats")
        if not _HEAD.search(self._file.read()):
            self._file.close()
            raise Unavailable("no NFS filesystem is mounted", hint='on_unavailable = "retry" waits for one')
        self._keys: object = None
        self._places: list[tuple[Labels, tuple[MetricSpec, Labels]]] = []
        self._layout = EMPTY_LAYOUT
        self._addresses: dict[str, str] = {}
        self._mounted: list[tuple[str, str]] = []

    def collect(self) -> Reading:
        mounts = parse_mountstats(self._file.read())
        mounted = [(mount.export, mount.point) for mount in mounts]
        if mounted != self._mounted:
            self._mounted = mounted
            self._addresses = read_addresses(self._host, self._process)
        unique: dict[Labels, Mount] = {}
        for mount in mounts:  # the same export mounted in two places is one superblock with one set of counters
            unique.setdefault((mount.export, mount.protocol, self._addresses.get(mount.point, "")), mount)
        keys = [(labels, list(mount.values)) for labels, mount in unique.items()]
        if keys != self._keys:
            self._keys = keys
            order = list(_order(unique))
            self._layout = Layout((spec, (*labels, *extra)) for labels, spec, extra in order)
            self._places = [(labels, (spec, extra)) for labels, spec, extra in order]
        return Reading(self._layout, [unique[labels].values[key] for labels, key in self._places])

    def close(self) -> None:
        self._file.close()


def _order(mounts: dict[Labels, Mount]) -> Iterator[tuple[Labels, MetricSpec, Labels]]:
    for wanted in MountstatsCollector.metrics:
        for labels, mount in mounts.items():
            yield from ((labels, spec, extra) for spec, extra in mount.values if spec is wanted)


def _process(host: HostFS) -> str:
    """The host's own mounts, from wherever we look, if we may read them."""
    try:
        host.record("proc/1/mountstats").close()
    except (FileNotFoundError, PermissionError):
        return "self"
    return "1"


def read_addresses(host: HostFS, process: str) -> dict[str, str]:
    """The server's address of each NFS mount point: `addr=` among the options of the superblock in mountinfo."""
    found = {}
    for line in host.read(f"proc/{process}/mountinfo").splitlines():
        left, _, right = line.partition(b" - ")
        fields, rest = left.split(b" "), right.split(b" ")
        if len(fields) > 4 and len(rest) > 2 and rest[0] in (b"nfs", b"nfs4"):
            match = _ADDRESS.search(rest[2])
            found[_text(fields[4])] = _text(match[1]) if match is not None else ""
    return found


def parse_mountstats(text: bytes) -> list[Mount]:
    """The NFS mounts in mountstats; other filesystems have a line and nothing more."""
    mounts = []
    for block in re.split(rb"^(?=device )", text, flags=re.MULTILINE):
        match = _HEAD.match(block)
        if match is not None:
            mounts.append(_mount(_text(match[1]), _text(match[2]), block.split(b"\n")[1:]))
    return mounts


def _mount(export: str, point: str, lines: Sequence[bytes]) -> Mount:
    values: dict[tuple[MetricSpec, Labels], Value] = {}
    protocol = b""
    operations = False
    for line in lines:
        tokens = line.split()
        if not tokens:
            continue
        try:
            if operations:
                values |= _operation(tokens)
            elif tokens[0] == b"age:":
                values[AGE, ()] = int(tokens[1])
            elif tokens[0] == b"bytes:":
                values |= {(spec, ()): int(token) for spec, token in zip(BYTES, tokens[1:], strict=True)}
            elif tokens[0] == b"events:":
                values |= {(spec, ()): int(tokens[place + 1]) for place, spec in EVENTS.items()}
            elif tokens[0] == b"xprt:":
                protocol = protocol or tokens[1]
                _add_transport(values, tokens[1:])
            operations = operations or tokens[0] == b"per-op"
        except (ValueError, IndexError):
            raise ParseError("mountstats", line) from None
    return Mount(export, point, _text(protocol), values)


def _operation(tokens: Sequence[bytes]) -> Iterator[tuple[tuple[MetricSpec, Labels], Value]]:
    name = (_text(tokens[0]).removesuffix(":"),)
    for place, spec in enumerate(OPERATIONS):
        value = int(tokens[place + 1])
        yield (spec, name), value if place < _MILLISECONDS else value / 1000


def _add_transport(values: dict[tuple[MetricSpec, Labels], Value], tokens: Sequence[bytes]) -> None:
    """Several connections count together; the idle time is that of the one used last, the slots of the busiest."""
    columns = _TRANSPORTS.get(tokens[0], ())
    for spec, token in zip(columns, tokens[1:], strict=False):
        if spec is None:
            continue
        value, before = int(token), values.get((spec, ()))
        if not isinstance(before, int):
            values[spec, ()] = value
        elif spec is IDLE:
            values[spec, ()] = min(before, value)
        else:
            values[spec, ()] = max(before, value) if spec is SLOTS else before + value


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")

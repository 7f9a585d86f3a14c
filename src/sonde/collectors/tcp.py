"""What the kernel counts for IP, ICMP, TCP and UDP, from /proc/net/snmp, /proc/net/netstat and /proc/net/snmp6.

    Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens …       snmp and netstat: a line of names, a line of numbers
    Tcp: 1 200 120000 -1 29 …
    Ip6InOctets                     	352                       snmp6: a name and a number per line

The fields are those node_exporter gives by default, untyped as there: some are counters, CurrEstab is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from sonde.errors import ParseError
from sonde.hostfs import HostFile, HostFS
from sonde.model import EMPTY_LAYOUT, Gap, Kind, Layout, MetricSpec, Quality, Reading, Series, Unit
from sonde.shape import Shape, picker

_UDP = ("InDatagrams", "InErrors", "NoPorts", "OutDatagrams", "RcvbufErrors", "SndbufErrors")
_SNMP = {
    "Ip": ("Forwarding",),
    "Icmp": ("InErrors", "InMsgs", "OutMsgs"),
    "Tcp": ("ActiveOpens", "CurrEstab", "InErrs", "InSegs", "OutRsts", "OutSegs", "PassiveOpens", "RetransSegs"),
    "Udp": _UDP,
    "UdpLite": ("InErrors",),
}
_NETSTAT = {
    "TcpExt": (
        "ListenDrops",
        "ListenOverflows",
        "SyncookiesFailed",
        "SyncookiesRecv",
        "SyncookiesSent",
        "TCPSynRetrans",
        "TCPTimeouts",
    ),
    "IpExt": ("InOctets", "OutOctets"),
}
_SNMP6 = {
    "Ip6": ("InOctets", "OutOctets"),
    "Icmp6": ("InErrors", "InMsgs", "OutMsgs"),
    "Udp6": _UDP,
    "UdpLite6": ("InErrors",),
}
Specs = dict[tuple[str, str], MetricSpec]
Pick = Callable[[Any], Any]


def _specs(fields: dict[str, tuple[str, ...]]) -> Specs:
    return {
        (protocol, name): MetricSpec(
            f"node_netstat_{protocol}_{name}", Kind.UNTYPED, Unit.NONE, f"Statistic {protocol}{name}."
        )
        for protocol, names in fields.items()
        for name in names
    }


SNMP = _specs(_SNMP)
NETSTAT = _specs(_NETSTAT)
SNMP6 = _specs(_SNMP6)
QUEUES = MetricSpec(
    "node_udp_queues",
    Kind.GAUGE,
    Unit.BYTES,
    "Number of allocated memory in the kernel for UDP datagrams in bytes.",
    ("queue", "ip"),
)


class TcpConfig(NamedTuple):
    udp_queues: bool = False  # lists every UDP socket of the host at every tick


class TcpCollector:
    Config: ClassVar[type] = TcpConfig
    metrics: ClassVar[tuple[MetricSpec, ...]] = (*SNMP.values(), *NETSTAT.values(), *SNMP6.values(), QUEUES)
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: TcpConfig) -> None:
        self._tables: list[_Paired | _Listed] = [
            _Paired(host.record("proc/net/snmp"), SNMP),
            _Paired(host.record("proc/net/netstat"), NETSTAT),
        ]
        if host.exists("proc/net/snmp6"):  # not with ipv6.disable=1
            self._tables.append(_Listed(host.record("proc/net/snmp6"), SNMP6))
        self._queues: list[tuple[str, HostFile]] = []
        for ip, name in (("v4", "proc/net/udp"), ("v6", "proc/net/udp6")) if config.udp_queues else ():
            if host.exists(name):
                self._queues.append((ip, host.iterated(name)))
        self._found: list[tuple[MetricSpec, ...]] = []
        self._layout = EMPTY_LAYOUT
        self._gaps: tuple[Gap, ...] = ()

    def collect(self) -> Reading:
        tokens: list[bytes] = []
        for table in self._tables:
            tokens += table.tokens()
        try:
            values = [*map(int, tokens)]
        except ValueError:
            raise ParseError("/proc/net/snmp", b" ".join(tokens)) from None
        for _, file in self._queues:
            values += parse_udp_queues(file.read())
        if self._found != [table.found for table in self._tables]:
            self._arrange()
        return Reading(self._layout, values, (), self._gaps)

    def _arrange(self) -> None:
        self._found = [table.found for table in self._tables]
        series: list[Series] = [(spec, ()) for found in self._found for spec in found]
        series += [(QUEUES, (queue, ip)) for ip, _ in self._queues for queue in ("tx", "rx")]
        present = {spec for spec, _ in series} | {QUEUES}
        self._layout = Layout(series)
        self._gaps = tuple(
            Gap(spec, (), Quality.UNSUPPORTED, "this kernel does not count it")
            for spec in self.metrics
            if spec not in present
        )

    def close(self) -> None:
        for table in self._tables:
            table.file.close()
        for _, file in self._queues:
            file.close()


class _Paired:
    """A file of name lines, each followed by a line of numbers; a line nobody wants is never split."""

    __slots__ = ("_heads", "_picks", "_specs", "file", "found")

    def __init__(self, file: HostFile, specs: Specs) -> None:
        self.file = file
        self.found: tuple[MetricSpec, ...] = ()
        self._specs = specs
        self._heads: list[bytes] | None = None
        self._picks: list[tuple[int, int, Pick]] = []

    def tokens(self) -> list[bytes]:
        lines = self.file.read().split(b"\n")
        if lines[:-1:2] != self._heads:  # IcmpMsg gains names as message types are met
            self._learn(lines)
        tokens: list[bytes] = []
        for line, width, pick in self._picks:
            numbers = lines[line].split()
            if len(numbers) != width:
                raise ParseError(self.file.path, lines[line])
            tokens += pick(numbers)
        return tokens

    def _learn(self, lines: list[bytes]) -> None:
        found: list[MetricSpec] = []
        picks: list[tuple[int, int, Pick]] = []
        for index in range(0, len(lines) - 1, 2):
            protocol, names = parse_names(self.file.path, lines[index], lines[index + 1])
            columns = [column for column, name in enumerate(names, start=1) if (protocol, name) in self._specs]
            if columns:
                found += [self._specs[protocol, names[column - 1]] for column in columns]
                picks.append((index + 1, len(names) + 1, picker(columns)))
        if not found or len(set(found)) != len(found):
            raise ParseError(self.file.path, b"\n".join(lines))
        self.found = tuple(found)
        self._picks = picks
        self._heads = lines[:-1:2]


class _Listed:
    """A file with a name and a number on each line."""

    __slots__ = ("_shape", "_specs", "file", "found")

    def __init__(self, file: HostFile, specs: Specs) -> None:
        self.file = file
        self.found: tuple[MetricSpec, ...] = ()
        self._specs = specs
        self._shape: Shape | None = None

    def tokens(self) -> Sequence[bytes]:
        tokens = self.file.read().split()
        shape = self._shape
        if shape is None or not shape.fits(tokens):  # Icmp6InType135 and the like appear when first met
            shape = self._learn(tokens)
        found: Sequence[bytes] = shape.values(tokens)
        return found

    def _learn(self, tokens: list[bytes]) -> Shape:
        names = [name.decode("ascii", "replace") for name in tokens[::2]]
        if len(tokens) % 2 or len(set(names)) != len(names):
            raise ParseError(self.file.path, b" ".join(tokens))
        # `Udp6InErrors` is InErrors of Udp6: the protocol ends with the first 6.
        split = [name.partition("6") for name in names]
        keys = [(protocol + six, name) for protocol, six, name in split]
        wanted = [index for index, key in enumerate(keys) if key in self._specs]
        self.found = tuple(self._specs[keys[index]] for index in wanted)
        self._shape = Shape(tokens, range(0, len(tokens), 2), [2 * index + 1 for index in wanted])
        return self._shape


def parse_names(source: str, names: bytes, numbers: bytes) -> tuple[str, list[str]]:
    """The protocol and its fields from a line of names, checked against its line of numbers."""
    words = names.decode("ascii", "replace").split()
    columns = numbers.split()
    if not words or len(columns) != len(words) or columns[0] != words[0].encode() or not words[0].endswith(":"):
        raise ParseError(source, names)
    return words[0][:-1], words[1:]


def parse_udp_queues(text: bytes) -> tuple[int, int]:
    """Bytes waiting to be sent and to be read, over all sockets: the fifth column, `tx_queue:rx_queue`, hexadecimal."""
    sent = received = 0
    try:
        for line in text.splitlines()[1:]:
            queues = line.split(None, 5)[4]
            sent += int(queues[:8], 16)
            received += int(queues[9:], 16)
    except (ValueError, IndexError):
        raise ParseError("/proc/net/udp", text) from None
    return sent, received

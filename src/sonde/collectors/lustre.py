"""What this node does with Lustre filesystems: the client's statistics, per filesystem and per server target.

    snapshot_time             1523008010.817348638 secs.nsecs
    read_bytes                25673 samples [bytes] 1 3366225 145121869 …       count, unit, least, most, sum, squares
    open                      144 samples [usecs] 3 892 5127 293011             [regs] and no sum before Lustre 2.13

llite/*/stats counts what applications asked of a filesystem, from the cache or not; osc/*/stats and mdc/*/stats what
was asked of a storage or metadata target, a request each. They are in /proc/fs/lustre up to Lustre 2.11 and, since
2.12, in /sys/kernel/debug/lustre, which only root may read (Lustre Operations Manual, on lctl get_param and client
statistics; wiki.lustre.org, Lustre Monitoring and Statistics Guide and Lustre IO Monitoring). An operation appears in
the file with its first call, and so does its series.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import ClassVar, NamedTuple

from sonde.config import NoKeys
from sonde.errors import Denied, ParseError, Unavailable
from sonde.hostfs import HostFile, HostFS
from sonde.model import EMPTY_LAYOUT, Kind, Labels, Layout, MetricSpec, Reading, Series, Unit, Value
from sonde.shape import Shape

_FILESYSTEM = ("filesystem", "superblock")
_TARGET = ("filesystem", "target", "superblock")


def _spec(name: str, unit: Unit, text: str, labels: tuple[str, ...], *more: str) -> MetricSpec:
    return MetricSpec(f"sonde_lustre_client_{name}_total", Kind.COUNTER, unit, text, (*labels, *more))


READ = _spec("read_bytes", Unit.BYTES, "Bytes applications read.", _FILESYSTEM)
WRITTEN = _spec("written_bytes", Unit.BYTES, "Bytes applications wrote.", _FILESYSTEM)
OPERATIONS = _spec("operations", Unit.NONE, "Calls of the filesystem.", _FILESYSTEM, "operation")
SECONDS = _spec("operation_seconds", Unit.SECONDS, "Time in calls of the filesystem.", _FILESYSTEM, "operation")
TARGET_READ = _spec("target_read_bytes", Unit.BYTES, "Bytes fetched from a target.", _TARGET)
TARGET_WRITTEN = _spec("target_written_bytes", Unit.BYTES, "Bytes sent to a target.", _TARGET)
REQUESTS = _spec("target_requests", Unit.NONE, "Requests to a target.", _TARGET, "request")
WAITING = _spec("target_wait_seconds", Unit.SECONDS, "Time requests to a target waited for the reply.", _TARGET)

_BASES = ("proc/fs/lustre", "sys/kernel/debug/lustre")
_RESCAN = 10  # ticks between two looks for mounts that came or went
_MICROSECONDS = 10**6
_TIMED = (b"[usec]", b"[usecs]")
_CLOCKS = (b"snapshot_time", b"start_time", b"elapsed_time")
# lustre-OST0000-osc-ffff88003d1e5800, lustre-ffff88003d1e5800: the last part tells two mounts of a filesystem apart.
_NAMES = {
    "llite": re.compile(r"(?P<filesystem>[^/]+)-(?P<superblock>[0-9a-fA-F]{8,16})"),
    "osc": re.compile(r"(?P<target>(?P<filesystem>.+)-OST[0-9a-fA-F]{4})-osc-(?P<superblock>[0-9a-fA-F]{8,16})"),
    "mdc": re.compile(r"(?P<target>(?P<filesystem>.+)-MDT[0-9a-fA-F]{4})-mdc-(?P<superblock>[0-9a-fA-F]{8,16})"),
}


class Place(NamedTuple):
    """A number in the file: which token, of which metric, and what it is divided by."""

    token: int
    spec: MetricSpec
    labels: Labels  # behind those of the file
    divisor: int


class Statistics:
    """One stats file. `series` and `values` stand in the same order."""

    def __init__(self, file: HostFile, kind: str, labels: Labels) -> None:
        self.file = file
        self._kind = kind
        self._labels = labels
        self._shape: Shape | None = None
        self._seen = b""
        self._divisors: list[int] = []
        self.series: list[Series] = []
        self.values: list[Value] = []

    def read(self) -> bool:
        """Bring the values up to date; True when there are other series than before."""
        text = self.file.read()
        if text == self._seen:
            return False
        tokens = text.split()
        changed = self._shape is None or not self._shape.fits(tokens)
        if self._shape is None or changed:
            self._shape = self._learn(text)
        try:
            numbers = [int(token) for token in self._shape.values(tokens)]
        except ValueError:
            raise ParseError(self.file.path, text) from None
        self.values = [number if by == 1 else number / by for number, by in zip(numbers, self._divisors, strict=True)]
        self._seen = text
        return changed

    def _learn(self, text: bytes) -> Shape:
        places, words = parse_stats(text, self._kind, self.file.path)
        self.series = [(place.spec, (*self._labels, *place.labels)) for place in places]
        self._divisors = [place.divisor for place in places]
        return Shape(text.split(), words, [place.token for place in places])


def parse_stats(text: bytes, kind: str, source: str = "stats") -> tuple[list[Place], list[int]]:
    """The wanted numbers of a stats file, and the tokens that must read the same for them to mean the same."""
    places: list[Place] = []
    words: list[int] = []
    start = 0
    seen: set[bytes] = set()
    lines = text.splitlines()
    timed = {line.split(None, 1)[0] for line in lines if line.strip()}
    for line in lines:
        tokens = line.split()
        if tokens and tokens[0] not in _CLOCKS:
            if len(tokens) < 4 or tokens[2] != b"samples" or not tokens[1].isdigit() or tokens[0] in seen:
                raise ParseError(source, line)
            seen.add(tokens[0])
            words += [start, start + 3]
            places += _line(tokens, start, kind, timed)
        start += len(tokens)
    return places, words


def _line(tokens: Sequence[bytes], start: int, kind: str, timed: Collection[bytes]) -> list[Place]:
    name, unit = tokens[0], tokens[3]
    summed = len(tokens) > 6 and tokens[6].isdigit()
    whole = kind == "llite"
    if name in (b"read_bytes", b"write_bytes") and unit == b"[bytes]":
        specs = (READ, WRITTEN) if whole else (TARGET_READ, TARGET_WRITTEN)
        places = [Place(start + 6, specs[name == b"write_bytes"], (), 1)] if summed else []
        call = name.removesuffix(b"_bytes")
        if call not in timed:  # before Lustre 2.13, and of a target, these lines alone count the calls
            places.append(Place(start + 1, OPERATIONS if whole else REQUESTS, (call.decode(),), 1))
        return places
    if not whole and name == b"req_waittime":
        return [Place(start + 6, WAITING, (), _MICROSECONDS)] if summed else []
    if not whole and unit not in _TIMED:
        return []  # levels: req_qdepth, req_active
    text = (name.decode("utf-8", "backslashreplace"),)
    places = [Place(start + 1, OPERATIONS if whole else REQUESTS, text, 1)]
    if whole and summed and unit in _TIMED:
        places.append(Place(start + 6, SECONDS, text, _MICROSECONDS))
    return places


class LustreCollector:
    Config: ClassVar[type] = NoKeys
    metrics: ClassVar[tuple[MetricSpec, ...]] = (
        READ,
        WRITTEN,
        OPERATIONS,
        SECONDS,
        TARGET_READ,
        TARGET_WRITTEN,
        REQUESTS,
        WAITING,
    )
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: NoKeys) -> None:
        self._host = host
        self._base = find_base(host)
        self._files: dict[str, Statistics] = {}
        self._layout = EMPTY_LAYOUT
        self._order: list[tuple[Statistics, int]] = []
        self._left = 0

    def collect(self) -> Reading:
        changed = False
        if not self._left:
            self._left = _RESCAN
            changed = self._rescan()
        self._left -= 1
        for path in list(self._files):
            try:
                changed |= self._files[path].read()
            except OSError:
                self._files.pop(path).file.close()  # unmounted
                changed = True
        if changed:
            self._arrange()
        return Reading(self._layout, [file.values[at] for file, at in self._order])

    def _rescan(self) -> bool:
        before = len(self._files)
        for kind, pattern in _NAMES.items():
            try:
                names = self._host.names(f"{self._base}/{kind}")
            except FileNotFoundError:
                continue
            for name in names:
                match = pattern.fullmatch(name)
                path = f"{self._base}/{kind}/{name}/stats"
                if match is not None and path not in self._files:
                    labels = _FILESYSTEM if kind == "llite" else _TARGET
                    self._open(path, kind, tuple(match[label] for label in labels))
        return len(self._files) != before

    def _open(self, path: str, kind: str, labels: Labels) -> None:
        try:
            self._files[path] = Statistics(self._host.iterated(path), kind, labels)
        except FileNotFoundError:
            pass  # unmounted since it was listed

    def _arrange(self) -> None:
        found = [(series, file, at) for file in self._files.values() for at, series in enumerate(file.series)]
        rank = {spec: place for place, spec in enumerate(self.metrics)}
        found.sort(key=lambda item: rank[item[0][0]])
        self._layout = Layout(series for series, _, _ in found)
        self._order = [(file, at) for _, file, at in found]

    def close(self) -> None:
        for file in self._files.values():
            file.file.close()


def find_base(host: HostFS) -> str:
    """The directory that has the statistics, or why there is none."""
    for base in _BASES:
        try:
            if host.names(f"{base}/llite"):
                return base
        except FileNotFoundError:
            continue
        except PermissionError:
            if host.exists("sys/fs/lustre"):
                hint = "run the daemon as root; Lustre 2.12 and later have them in debugfs"
                raise Denied("only root may read the statistics of Lustre", hint=hint) from None
    if host.exists("sys/fs/lustre/llite"):
        hint = "mount -t debugfs debugfs /sys/kernel/debug"
        raise Unavailable("Lustre has its statistics in debugfs, which is not mounted", hint=hint)
    raise Unavailable("no Lustre filesystem is mounted")

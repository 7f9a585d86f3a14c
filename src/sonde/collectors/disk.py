"""Reads, writes, discards and flushes of block devices, from /proc/diskstats.

     254       0 vda 31246 8269 2356082 10004 4004 12347 1147608 2437 0 4784 12768 3292 40 74448 305 407 20
     major minor name, then 17 numbers (15 before Linux 5.5, 11 before 4.18): Documentation/admin-guide/iostats.rst

What a device is, its model, serial number and filesystem, is in /run/udev/data/b254:0, as lines `E:ID_MODEL=...`.
The names, labels and units are node_exporter's, and so are the devices left out by default: RAM disks, loop devices,
floppies and partitions.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import ClassVar, NamedTuple

from sonde.errors import ConfigError, ParseError
from sonde.hostfs import HostFS
from sonde.model import EMPTY_LAYOUT, Kind, Labels, Layout, MetricSpec, Reading, Series, Unit, Value

_UDEV = "run/udev/data"
_SECTOR = 512  # bytes, whatever the device says: Documentation/block/stat.rst
_MILLISECONDS = 1000
_UDEV_EVERY = 10  # ticks between two looks whether udev has written
_FIRST = 3  # tokens before the numbers
_SMALL = re.compile(r"[0-9]{1,9}")
_WIDTHS = (14, 18, 20)  # tokens of a line, by kernel version


def _counter(name: str, unit: Unit, meaning: str) -> MetricSpec:
    return MetricSpec(f"node_disk_{name}", Kind.COUNTER, unit, meaning, ("device",))


def _fact(name: str, meaning: str, *labels: str) -> MetricSpec:
    return MetricSpec(f"node_disk_{name}", Kind.GAUGE, Unit.NONE, meaning, ("device", *labels))


# By what one unit of the number is worth, each with its place among the numbers of a line.
COUNTS = (
    (0, _counter("reads_completed_total", Unit.NONE, "Reads completed.")),
    (1, _counter("reads_merged_total", Unit.NONE, "Reads merged with an adjacent one before they were issued.")),
    (4, _counter("writes_completed_total", Unit.NONE, "Writes completed.")),
    (5, _counter("writes_merged_total", Unit.NONE, "Writes merged with an adjacent one before they were issued.")),
    (8, _fact("io_now", "Requests in flight.")),
    (11, _counter("discards_completed_total", Unit.NONE, "Discards completed.")),
    (12, _counter("discards_merged_total", Unit.NONE, "Discards merged with an adjacent one.")),
    (13, _counter("discarded_sectors_total", Unit.NONE, "Sectors of 512 bytes discarded.")),
    (15, _counter("flush_requests_total", Unit.NONE, "Flush requests completed.")),
)
SECTORS = (
    (2, _counter("read_bytes_total", Unit.BYTES, "Bytes read.")),
    (6, _counter("written_bytes_total", Unit.BYTES, "Bytes written.")),
)
TIMES = (
    (3, _counter("read_time_seconds_total", Unit.SECONDS, "Time spent in reads, summed over the reads.")),
    (7, _counter("write_time_seconds_total", Unit.SECONDS, "Time spent in writes, summed over the writes.")),
    (9, _counter("io_time_seconds_total", Unit.SECONDS, "Time in which at least one request was in flight.")),
    (
        10,
        _counter(
            "io_time_weighted_seconds_total",
            Unit.SECONDS,
            "Time in which requests were in flight, multiplied by their number.",
        ),
    ),
    (14, _counter("discard_time_seconds_total", Unit.SECONDS, "Time spent in discards, summed over the discards.")),
    (16, _counter("flush_requests_time_seconds_total", Unit.SECONDS, "Time spent in flushes, summed over them.")),
)
INFO = _fact("info", "What the device is.", "major", "minor", "path", "wwn", "model", "serial", "revision")
FILESYSTEM = _fact("filesystem_info", "The filesystem on the device.", "type", "usage", "uuid", "version")
MAPPER = _fact("device_mapper_info", "The device mapper's device.", "name", "uuid", "vg_name", "lv_name", "lv_layer")
ATA = {
    "ID_ATA_WRITE_CACHE": _fact("ata_write_cache", "Whether the ATA disk has a write cache."),
    "ID_ATA_WRITE_CACHE_ENABLED": _fact("ata_write_cache_enabled", "Whether the ATA disk uses its write cache."),
    "ID_ATA_ROTATION_RATE_RPM": _fact("ata_rotation_rate_rpm", "Rotations per minute of the ATA disk; 0 for an SSD."),
}
_NUMBERS = tuple(spec for _, spec in (*COUNTS, *SECTORS, *TIMES))


class DiskConfig(NamedTuple):
    exclude: str = r"(ram|loop|fd|(h|s|v|xv)d[a-z]|nvme\d+n\d+p)\d+"  # regular expression of names, matched whole


class Device(NamedTuple):
    """One line of diskstats."""

    major: str
    minor: str
    name: str
    numbers: int


class Row(NamedTuple):
    """A line by its first three tokens, and where its numbers go: (place among the numbers, place in the values)."""

    key: list[bytes]
    counts: list[tuple[int, int]]
    sectors: list[tuple[int, int]]
    times: list[tuple[int, int]]


class DiskCollector:
    Config: ClassVar[type] = DiskConfig
    metrics: ClassVar[tuple[MetricSpec, ...]] = (*_NUMBERS, INFO, FILESYSTEM, MAPPER, *ATA.values())
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: DiskConfig) -> None:
        try:
            self._excluded = re.compile(config.exclude)
        except re.error as error:
            raise ConfigError(f"collectors.disk.exclude: {error}") from None
        self._host = host
        self._file = host.iterated("proc/diskstats")
        self._tick = 0
        self._udev_ns = 0
        self._text = b""
        self._lines: list[bytes] = []
        self._rows: list[Row] = []
        self._reading = Reading(EMPTY_LAYOUT, ())

    def collect(self) -> Reading:
        """Most devices of most ticks have done nothing: only lines that changed are taken apart."""
        text = self._file.read()
        if self._tick % _UDEV_EVERY == 0 and self._udev_changed():
            self._lines = []
        self._tick += 1
        if text == self._text and self._lines:
            return self._reading
        lines = text.split(b"\n")
        try:
            if len(lines) != len(self._lines) or not self._update(lines):
                self._learn(text, lines)
        except (ValueError, IndexError, OverflowError):
            self._lines = []
            raise ParseError("/proc/diskstats", text) from None
        self._text = text
        return self._reading

    def _update(self, lines: list[bytes]) -> bool:
        """Put the numbers of changed lines in place; False when a line is of another device than it was."""
        values = list(self._reading.values)
        for line, known, row in zip(lines, self._lines, self._rows, strict=False):
            if line != known:
                tokens = line.split()
                if tokens[:_FIRST] != row.key:
                    return False
                _place(tokens, row, values)
        self._lines = lines
        self._reading = Reading(self._reading.layout, values)
        return True

    def _udev_changed(self) -> bool:
        """Has udev written about any device? It renames a new file into its directory, after the device came."""
        try:
            written_ns = os.stat(self._host.path(_UDEV)).st_mtime_ns
        except OSError:
            written_ns = 0  # no udev here, as in a container: the facts stay empty
        changed = written_ns != self._udev_ns
        self._udev_ns = written_ns
        return changed

    def _learn(self, text: bytes, lines: list[bytes]) -> None:
        """Find the devices and what is known of them; both change when one comes or goes."""
        every = parse_devices(text)
        wanted = [device for device in every if not self._excluded.fullmatch(device.name)]
        series: list[Series] = []
        places: dict[tuple[str, int], int] = {}  # (device, place among its numbers) -> place in the values
        for place, spec in (*COUNTS, *SECTORS, *TIMES):
            for device in wanted:
                if place < device.numbers:
                    places[device.name, place] = len(series)
                    series.append((spec, (device.name,)))
        facts = sorted(self._facts_of(wanted), key=lambda fact: fact[0].name)
        values: list[Value] = [*[0] * len(series), *(value for _, _, value in facts)]
        rows = [_row(device, places) for device in every]
        for line, row in zip(lines, rows, strict=False):
            _place(line.split(), row, values)
        self._rows, self._lines = rows, lines
        self._reading = Reading(Layout([*series, *((spec, labels) for spec, labels, _ in facts)]), values)

    def _facts_of(self, devices: Iterable[Device]) -> list[tuple[MetricSpec, Labels, Value]]:
        facts: list[tuple[MetricSpec, Labels, Value]] = []
        for device in devices:
            try:
                known = parse_udev(self._host.read(f"{_UDEV}/b{device.major}:{device.minor}"))
            except OSError:
                known = {}  # udev has nothing on it, or not yet
            facts += facts_of(device, known)
        return facts

    def close(self) -> None:
        self._file.close()


def _row(device: Device, places: dict[tuple[str, int], int]) -> Row:
    def pairs(group: tuple[tuple[int, MetricSpec], ...]) -> list[tuple[int, int]]:
        return [(_FIRST + place, places[device.name, place]) for place, _ in group if (device.name, place) in places]

    key = [device.major.encode(), device.minor.encode(), os.fsencode(device.name)]
    return Row(key, pairs(COUNTS), pairs(SECTORS), pairs(TIMES))


def _place(tokens: list[bytes], row: Row, values: list[Value]) -> None:
    for source, target in row.counts:
        values[target] = int(tokens[source])
    for source, target in row.sectors:
        values[target] = int(tokens[source]) * _SECTOR
    for source, target in row.times:
        values[target] = int(tokens[source]) / _MILLISECONDS


def parse_devices(text: bytes) -> list[Device]:
    """The devices in the order of their lines."""
    devices = []
    for line in text.splitlines():
        tokens = line.split()
        # A later kernel may add numbers at the end of a line, as 4.18 and 5.5 did.
        if len(tokens) not in _WIDTHS and len(tokens) < _WIDTHS[-1]:
            raise ParseError("/proc/diskstats", line)
        if not (tokens[0].isdigit() and tokens[1].isdigit()):
            raise ParseError("/proc/diskstats", line)
        devices.append(Device(tokens[0].decode(), tokens[1].decode(), os.fsdecode(tokens[2]), len(tokens) - _FIRST))
    if len({device.name for device in devices}) != len(devices):
        raise ParseError("/proc/diskstats", text)
    return devices


def parse_udev(text: bytes) -> dict[str, str]:
    """The properties of a device: the lines `E:NAME=value` of its file in udev's database."""
    lines = text.decode("utf-8", "replace").split("\n")
    pairs = (line[2:].partition("=") for line in lines if line.startswith("E:"))
    return {name: value for name, equals, value in pairs if equals}


def facts_of(device: Device, known: dict[str, str]) -> list[tuple[MetricSpec, Labels, Value]]:
    """What udev knows of a device, as constant series with their values."""

    def text(name: str) -> str:
        return known.get(name, "")

    identity = [text(f"ID_{part}") for part in ("PATH", "WWN", "MODEL", "SERIAL_SHORT", "REVISION")]
    facts: list[tuple[MetricSpec, Labels, Value]] = [(INFO, (device.name, device.major, device.minor, *identity), 1)]
    if text("ID_FS_TYPE"):
        parts = [text(f"ID_FS_{part}") for part in ("TYPE", "USAGE", "UUID", "VERSION")]
        facts.append((FILESYSTEM, (device.name, *parts), 1))
    if text("DM_NAME"):
        parts = [text(f"DM_{part}") for part in ("NAME", "UUID", "VG_NAME", "LV_NAME", "LV_LAYER")]
        facts.append((MAPPER, (device.name, *parts), 1))
    if text("ID_ATA"):
        facts += [
            (spec, (device.name,), int(known[name])) for name, spec in ATA.items() if _SMALL.fullmatch(text(name))
        ]
    return facts

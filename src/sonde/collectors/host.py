"""What this host is and what time it has: uname, os-release, clock, entropy and uptime.

    /proc/uptime                      976.61 1868.42
    /proc/sys/kernel/{ostype,osrelease,version,hostname,domainname,arch}   what uname(2) answers
    /proc/sys/kernel/random/{entropy_avail,poolsize,boot_id}
    /sys/devices/system/clocksource/clocksource0/{available,current}_clocksource     tsc kvm-clock
    /etc/os-release                   VERSION_ID="12" (os-release(5))

What cannot change while the kernel runs is read once. The host name and the clock source can (cloud-init sets the one,
the kernel's watchdog gives up the other); their files are kept open and compared at a microsecond each.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Iterator
from typing import ClassVar

from sonde.config import NoKeys
from sonde.errors import ParseError
from sonde.hostfs import HostFile, HostFS
from sonde.model import EMPTY_LAYOUT, Gap, Kind, Layout, MetricSpec, Quality, Reading, Series, Unit

TIME = MetricSpec(
    "node_time_seconds",
    Kind.GAUGE,
    Unit.SECONDS,
    "System time in seconds since epoch (1970).",
)
ZONE = MetricSpec(
    "node_time_zone_offset_seconds",
    Kind.GAUGE,
    Unit.SECONDS,
    "System time zone offset in seconds.",
    ("time_zone",),
)
UPTIME = MetricSpec(
    "sonde_uptime_seconds",
    Kind.GAUGE,
    Unit.SECONDS,
    "Seconds since the kernel started, time asleep included.",
)
ENTROPY = MetricSpec(
    "node_entropy_available_bits",
    Kind.GAUGE,
    Unit.NONE,
    "Bits of available entropy.",
)
POOL_SIZE = MetricSpec(
    "node_entropy_pool_size_bits",
    Kind.GAUGE,
    Unit.NONE,
    "Bits of entropy pool.",
)
UNAME = MetricSpec(
    "node_uname_info",
    Kind.INFO,
    Unit.NONE,
    "Labeled system information as provided by the uname system call.",
    ("sysname", "release", "version", "machine", "nodename", "domainname"),
)
_OS_LABELS = (
    "build_id",
    "id",
    "id_like",
    "image_id",
    "image_version",
    "name",
    "pretty_name",
    "variant",
    "variant_id",
    "version",
    "version_codename",
    "version_id",
)
OS = MetricSpec(
    "node_os_info",
    Kind.INFO,
    Unit.NONE,
    f"A metric with a constant '1' value labeled by {', '.join(_OS_LABELS)}.",
    _OS_LABELS,
)
OS_VERSION = MetricSpec(
    "node_os_version",
    Kind.GAUGE,
    Unit.NONE,
    "Metric containing the major.minor part of the OS version.",
    ("id", "id_like", "name"),
)
CLOCKS = MetricSpec(
    "node_time_clocksource_available_info",
    Kind.INFO,
    Unit.NONE,
    "Available clocksources read from '/sys/devices/system/clocksource'.",
    ("device", "clocksource"),
)
CLOCK = MetricSpec(
    "node_time_clocksource_current_info",
    Kind.INFO,
    Unit.NONE,
    "Current clocksource read from '/sys/devices/system/clocksource'.",
    ("device", "clocksource"),
)
BOOT = MetricSpec(
    "sonde_boot_info",
    Kind.INFO,
    Unit.NONE,
    "The random id the kernel gave itself when it started.",
    ("boot_id",),
)
_CLOCKSOURCES = "sys/devices/system/clocksource"
_RANDOM = "proc/sys/kernel/random/"
_WATCH_EVERY = 10  # ticks between two looks at names, zone and clock source
_VERSION = re.compile(r"[0-9]+\.?[0-9]*", re.ASCII)

Known = tuple[Series, int | float]


class HostCollector:
    Config: ClassVar[type] = NoKeys
    metrics: ClassVar[tuple[MetricSpec, ...]] = (
        TIME,
        ZONE,
        UPTIME,
        ENTROPY,
        POOL_SIZE,
        UNAME,
        OS,
        OS_VERSION,
        CLOCKS,
        CLOCK,
        BOOT,
    )
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: NoKeys) -> None:
        self._host = host
        self._uptime = host.record("proc/uptime")
        self._entropy = _kept(host, _RANDOM + "entropy_avail")
        self._clocks = [device for device in _clock_devices(host) if host.exists(_clock(device, "current"))]
        names = ["proc/sys/kernel/hostname", "proc/sys/kernel/domainname"]
        names += [_clock(device, "current") for device in self._clocks]
        self._watched = [file for file in (_kept(host, name) for name in names) if file is not None]
        self._unchanging = [*_os_release(host), *_boot(host)]
        self._state: tuple[str, list[bytes]] | None = None
        self._offset = 0
        self._tick = 0
        self._layout = EMPTY_LAYOUT
        self._values: list[int | float] = []
        self._gaps: tuple[Gap, ...] = ()

    def collect(self) -> Reading:
        if self._tick % _WATCH_EVERY == 0:
            self._watch()
        self._tick += 1
        # Milliseconds: finer than the time a scrape takes, and three decimals compress in the archive.
        values = [time.time_ns() // 1_000_000 / 1000, self._offset, parse_uptime(self._uptime.read())]
        if self._entropy is not None:
            values.append(parse_number(self._entropy.path, self._entropy.read()))
        return Reading(self._layout, values + self._values, (), self._gaps)

    def _watch(self) -> None:
        """What can change while the host runs, but rarely does."""
        local = time.localtime()
        self._offset = local.tm_gmtoff
        state = (local.tm_zone, [file.read() for file in self._watched])
        if state != self._state:
            self._arrange(local.tm_zone)
            self._state = state

    def _arrange(self, zone: str) -> None:
        moving: list[Series] = [(TIME, ()), (ZONE, (zone,)), (UPTIME, ())]
        if self._entropy is not None:
            moving.append((ENTROPY, ()))
        known = [*_pool_size(self._host), *_uname(self._host), *self._unchanging, *self._clock_series()]
        self._layout = Layout([*moving, *(series for series, _ in known)])
        self._values = [value for _, value in known]
        present = {spec for spec, _ in self._layout}
        self._gaps = tuple(
            Gap(spec, (), Quality.UNSUPPORTED, "this host does not tell")
            for spec in self.metrics
            if spec not in present
        )

    def _clock_series(self) -> Iterator[Known]:
        for device in self._clocks:
            for name in self._host.text(_clock(device, "available")).split():
                yield (CLOCKS, (device, name)), 1
        for device in self._clocks:
            yield (CLOCK, (device, self._host.text(_clock(device, "current")).strip())), 1

    def close(self) -> None:
        for file in (self._uptime, self._entropy, *self._watched):
            if file is not None:
                file.close()


def _kept(host: HostFS, name: str) -> HostFile | None:
    try:
        return host.record(name)
    except FileNotFoundError:
        return None


def _clock_devices(host: HostFS) -> list[str]:
    try:
        names = host.names(_CLOCKSOURCES)
    except FileNotFoundError:
        return []
    return [name.removeprefix("clocksource") for name in names if name.startswith("clocksource")]


def _clock(device: str, which: str) -> str:
    return f"{_CLOCKSOURCES}/clocksource{device}/{which}_clocksource"


def _uname(host: HostFS) -> Iterator[Known]:
    try:
        ostype, release, version, node, domain = [
            host.text("proc/sys/kernel/" + name)
            for name in ("ostype", "osrelease", "version", "hostname", "domainname")
        ]
    except FileNotFoundError:
        return
    try:
        machine = host.text("proc/sys/kernel/arch")
    except FileNotFoundError:  # the file is there since Linux 6.1
        machine = os.uname().machine
    yield (UNAME, (ostype, release, version, machine, node, domain)), 1


def _pool_size(host: HostFS) -> Iterator[Known]:
    name = _RANDOM + "poolsize"
    if host.exists(name):
        yield (POOL_SIZE, ()), parse_number(name, host.read(name))


def _boot(host: HostFS) -> Iterator[Known]:
    name = _RANDOM + "boot_id"
    if host.exists(name):
        yield (BOOT, (host.text(name),)), 1


def _os_release(host: HostFS) -> Iterator[Known]:
    for name in ("etc/os-release", "usr/lib/os-release"):  # the order of os-release(5)
        if not host.exists(name):
            continue
        fields = parse_os_release(host.text(name))
        yield (OS, tuple(fields.get(label.upper(), "") for label in OS.labels)), 1
        version = os_version(fields.get("VERSION_ID", ""))
        if version is not None:
            yield (OS_VERSION, tuple(fields.get(label.upper(), "") for label in OS_VERSION.labels)), version
        return


def parse_os_release(text: str) -> dict[str, str]:
    """The fields of an os-release file; a line that is not an assignment of the shell's is passed over, as the manual
    asks of readers."""
    fields = {}
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        if not equals or key.startswith("#"):
            continue
        try:
            fields[key] = next(iter(shlex.split(value)), "")
        except ValueError:  # a quotation mark without its partner
            continue
    return fields


def os_version(text: str) -> int | float | None:
    """`22.04` and `12`; None for a distribution that rolls."""
    match = _VERSION.match(text)
    if match is None or len(match[0]) > 15:  # longer is a build number that a float would bend
        return None
    return float(match[0]) if "." in match[0] else int(match[0])


def parse_uptime(text: bytes) -> float:
    try:
        uptime = float(text.split(None, 1)[0])
    except (ValueError, IndexError):
        raise ParseError("/proc/uptime", text) from None
    if not 0 <= uptime < float("inf"):
        raise ParseError("/proc/uptime", text)
    return uptime


def parse_number(source: str, text: bytes) -> int:
    try:
        return int(text)
    except ValueError:
        raise ParseError(source, text) from None

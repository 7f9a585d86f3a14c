"""Pause frames, drops and other counters of network drivers, through the SIOCETHTOOL ioctl (native/ethtool.py).

     tx_prio3_pause: 18          what `ethtool -S` shows; the name becomes node_ethtool_transmitted_prio3_pause
     rx_discards_phy: 0

The names are node_exporter's: what is no letter or digit becomes `_`, rx and tx are spelled out, two statistics that
come out the same are left out. So is what does not match `include`: a large card has thousands, one set per queue.
Asking a driver can mean asking its firmware, under the kernel's lock on all network settings: that is why it is off by
default, and has a thread of its own.
"""

from __future__ import annotations

import errno
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple

from sonde.collectors.network import shown
from sonde.errors import ConfigError, Denied, Unavailable
from sonde.hostfs import HostFS
from sonde.model import EMPTY_LAYOUT, Gap, Kind, Layout, MetricSpec, Quality, Reading, Series, Unit
from sonde.native.ethtool import Driver, Ethtool, Pause
from sonde.shape import picker
from sonde.units import Duration

INFO = MetricSpec(
    "node_ethtool_info",
    Kind.INFO,
    Unit.NONE,
    "The driver of a network device; always 1.",
    ("bus_info", "device", "driver", "expansion_rom_version", "firmware_version", "version"),
)
PAUSE = MetricSpec(
    "sonde_ethtool_pause_enabled",
    Kind.GAUGE,
    Unit.NONE,
    "1 when the device honours (receive) or sends (transmit) pause frames.",
    ("device", "direction"),
)
AUTONEGOTIATED = MetricSpec(
    "sonde_ethtool_pause_autonegotiated",
    Kind.GAUGE,
    Unit.NONE,
    "1 when the use of pause frames is negotiated with the link's other end.",
    ("device",),
)


def metric_name(statistic: str) -> str:
    """The name node_exporter gives a statistic."""
    if statistic in _TOTALS:
        return _TOTALS[statistic]
    name = re.sub(r"_*[^0-9A-Za-z_]+_*", "_", statistic).lower().lstrip("_")
    name = re.sub(r"(^|_)rx(_|$)", r"\1received\2", name)
    return "node_ethtool_" + re.sub(r"(^|_)tx(_|$)", r"\1transmitted\2", name)


_TOTALS = {
    f"{short}_{thing}": f"node_ethtool_{long}_{thing}_total"
    for short, long, things in (
        ("rx", "received", ("bytes", "packets", "errors", "dropped")),
        ("tx", "transmitted", ("bytes", "packets", "errors")),
    )
    for thing in things
}


def _spec(statistic: str) -> MetricSpec:
    name = metric_name(statistic)
    # node_exporter gives them no type: a driver's statistics are counters and levels, and nothing says which.
    unit = Unit.BYTES if name.endswith("bytes") else Unit.NONE
    return MetricSpec(name, Kind.UNTYPED, unit, f"Network interface {statistic}.", ("device",))


# Those of the cards that are in most clusters; others get their metric when a driver names them.
_KNOWN = (
    *_TOTALS,
    *(f"{direction}_prio{priority}_pause" for direction in ("rx", "tx") for priority in range(8)),
    "rx_pause_ctrl_phy",
    "tx_pause_ctrl_phy",
    "tx_pause_storm_warning_events",
    "tx_pause_storm_error_events",
    "rx_discards_phy",
    "tx_discards_phy",
    "rx_prio0_discards",
)


class EthtoolConfig(NamedTuple):
    # Regular expressions, matched whole.
    include: str = r"(?i).*(pause|drop|error|discard).*|(.*\.)?[rt]x_(bytes|packets)(_phy)?"  # statistics
    exclude: str = r"(.*[^a-z])?(queue|ring|q)[-_.]?[0-9]+.*|[rt]x-?[0-9]+[-_.].*|\[[0-9]+\].*"  # by default: per queue
    device_exclude: str = "lo"  # devices that are not asked
    state_every: Duration = Duration(60)  # between two readings of driver versions and pause settings


class Device(NamedTuple):
    """What is known of a device until its driver says something else."""

    label: str
    driver: Driver | None
    pause: Pause | None
    names: list[str]
    wanted: dict[MetricSpec, int]  # places among the names
    gaps: tuple[Gap, ...]


class EthtoolCollector:
    Config: ClassVar[type] = EthtoolConfig
    metrics: ClassVar[tuple[MetricSpec, ...]] = (INFO, PAUSE, AUTONEGOTIATED, *map(_spec, _KNOWN))
    blocks: ClassVar[bool] = True

    def __init__(
        self,
        host: HostFS,
        config: EthtoolConfig,
        ethtool: Ethtool | None = None,
        listed: Callable[[], Iterable[tuple[int, str]]] = socket.if_nameindex,
    ) -> None:
        self._include = _pattern("include", config.include)
        self._exclude = _pattern("exclude", config.exclude)
        self._device_exclude = _pattern("device_exclude", config.device_exclude)
        if ethtool is None:
            check_namespace(host)
        self._ethtool = ethtool or Ethtool()
        self._listed = listed
        self._state_every_ns = config.state_every.ns
        self._state_due_ns = 0
        self._specs: dict[str, MetricSpec] = {spec.name: spec for spec in self.metrics}
        self._devices: dict[str, Device] = {}
        self._present: list[tuple[int, str]] = []
        self._layout = EMPTY_LAYOUT
        self._fixed: list[int] = []
        self._pick: Callable[[Any], Any] = picker(())
        self._gaps: tuple[Gap, ...] = ()

    def collect(self) -> Reading:
        present = [(index, name) for index, name in self._listed() if not self._device_exclude.fullmatch(name)]
        now = time.monotonic_ns()
        if present != self._present or now >= self._state_due_ns:
            self._state_due_ns = now + self._state_every_ns
            self._learn(present)
        flat = self._read()
        if flat is None:  # a device is gone, or has other statistics than before
            self._learn(present)
            flat = self._read()
        if flat is None:
            self._present = []  # still changing: to be learnt anew at the next tick
            return Reading(EMPTY_LAYOUT, (), (), self._gaps)
        return Reading(self._layout, self._pick([*self._fixed, *flat]), (), self._gaps)

    def _read(self) -> list[int] | None:
        flat: list[int] = []
        for name, device in self._devices.items():
            if device.wanted:
                try:
                    values = self._ethtool.values(name, len(device.names))
                except OSError:
                    return None
                if values is None:
                    return None
                flat += values
        return flat

    def _learn(self, present: list[tuple[int, str]]) -> None:
        self._present = present
        self._devices = {}
        for _, name in present:
            try:
                self._devices[name] = self._ask(name)
            except OSError as error:
                if error.errno not in (errno.ENODEV, errno.ENXIO):  # gone since it was listed
                    raise
        self._arrange()

    def _ask(self, name: str) -> Device:
        label = shown(name)
        gaps: list[Gap] = []

        def answer(ask: Callable[[str], Any], spec: MetricSpec) -> Any:
            try:
                return ask(name)
            except OSError as error:
                if error.errno in (errno.ENODEV, errno.ENXIO):
                    raise
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                    quality = Quality.DENIED if error.errno in (errno.EPERM, errno.EACCES) else Quality.BLANK
                    gaps.append(Gap(spec, (), quality, f"{label}: {error.strerror}"))
                return None

        driver = answer(self._ethtool.driver, INFO)
        pause = answer(self._ethtool.pause, PAUSE)
        names = answer(self._ethtool.names, self._specs[_TOTALS["rx_errors"]]) or []
        return Device(label, driver, pause, names, self._wanted(names), tuple(gaps))

    def _wanted(self, names: list[str]) -> dict[MetricSpec, int]:
        chosen = {}
        for place, name in enumerate(names):
            if self._include.fullmatch(name) and not self._exclude.fullmatch(name):
                chosen[place] = metric_name(name)
        often = Counter(chosen.values())
        return {self._spec_of(names[place], name): place for place, name in chosen.items() if often[name] == 1}

    def _spec_of(self, statistic: str, name: str) -> MetricSpec:
        spec = self._specs.get(name)
        if spec is None:
            spec = self._specs[name] = _spec(statistic)
        return spec

    def _arrange(self) -> None:
        devices = list(self._devices.values())
        fixed: list[tuple[Series, int]] = [((INFO, _labels(one, one.driver)), 1) for one in devices if one.driver]
        for place, direction in ((1, "receive"), (2, "transmit")):
            fixed += [((PAUSE, (one.label, direction)), one.pause[place]) for one in devices if one.pause]
        fixed += [((AUTONEGOTIATED, (one.label,)), one.pause.autonegotiated) for one in devices if one.pause]
        series = [one for one, _ in fixed]
        order = list(range(len(fixed)))
        specs = dict.fromkeys(spec for one in devices for spec in one.wanted)
        starts: dict[str, int] = {}
        at = len(fixed)
        for one in devices:
            starts[one.label] = at
            at += len(one.names) if one.wanted else 0
        for spec in sorted(specs, key=lambda spec: spec.name):
            for one in devices:
                if spec in one.wanted:
                    series.append((spec, (one.label,)))
                    order.append(starts[one.label] + one.wanted[spec])
        self._fixed = [value for _, value in fixed]
        self._pick = picker(order)
        if series != list(self._layout):
            self._layout = Layout(series)
        self._gaps = tuple(self._missing(devices))

    def _missing(self, devices: list[Device]) -> Iterable[Gap]:
        for one in devices:
            yield from one.gaps
        silent = [one.label for one in devices if not one.names]
        if silent:
            reason = f"the driver has no statistics: {', '.join(silent)}"
            yield Gap(self._specs[_TOTALS["rx_errors"]], (), Quality.UNSUPPORTED, reason)

    def close(self) -> None:
        self._ethtool.close()


def _labels(device: Device, driver: Driver) -> tuple[str, ...]:
    return (driver.bus, device.label, driver.name, driver.expansion_rom, driver.firmware, driver.version)


def check_namespace(host: HostFS) -> None:
    """The ioctl answers for our own network namespace, whatever tree the host's files are in."""
    if host.root == "/":
        return
    hint = "give the container the host's network (hostNetwork: true, --network=host)"
    try:
        theirs = host.link("proc/1/ns/net")
    except FileNotFoundError:
        raise Unavailable("the drivers of another host cannot be asked", hint=hint) from None
    except PermissionError:
        raise Denied("this user may not see which network namespace the host has", hint=hint) from None
    if theirs != HostFS().link("proc/self/ns/net"):
        raise Unavailable("the daemon is in another network namespace than the host", hint=hint)


def _pattern(key: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(f"collectors.ethtool.{key} is not a regular expression: {error}") from None

"""Network devices: traffic from /proc/net/dev at every tick, state from /sys/class/net every few.

     face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls …
      eth0: 64846730    1668    0    0    0     0          0         0   129020    1127    0    0    0     0 …

    /sys/class/net/eth0/{operstate,carrier,mtu,speed,…}: a small file each (Documentation/ABI/testing/sysfs-class-net)

A device has some twenty such files at 5 µs each, and they rarely change: a device's are read again after `state_every`,
the devices in turn so that no tick pays for all. A device that comes or goes is seen at once in /proc/net/dev.
"""

from __future__ import annotations

import errno
import os
import re
from typing import ClassVar, NamedTuple

from sonde.clock import Clock, SystemClock
from sonde.errors import ConfigError, ParseError
from sonde.hostfs import HostFS
from sonde.model import EMPTY_LAYOUT, Gap, Kind, Layout, MetricSpec, Quality, Reading, Series, Unit
from sonde.shape import Shape
from sonde.units import Duration

_RECEIVED = ("bytes", "packets", "errs", "drop", "fifo", "frame", "compressed", "multicast")
_TRANSMITTED = ("bytes", "packets", "errs", "drop", "fifo", "colls", "carrier", "compressed")
_HEADER = (
    b"Inter-| Receive | Transmit face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop"
    b" fifo colls carrier compressed"
).split()
_FIELDS = 17  # the name and sixteen numbers


def _statistic(name: str) -> MetricSpec:
    unit = Unit.BYTES if name.endswith("_bytes") else Unit.NONE
    text = f"Network device statistic {name}."
    return MetricSpec(f"node_network_{name}_total", Kind.COUNTER, unit, text, ("device",))


def _property(name: str, unit: Unit = Unit.NONE, kind: Kind = Kind.GAUGE) -> MetricSpec:
    return MetricSpec(f"node_network_{name}", kind, unit, f"Network device property: {name}.", ("device",))


COLUMNS = (
    *(_statistic(f"receive_{name}") for name in _RECEIVED),
    *(_statistic(f"transmit_{name}") for name in _TRANSMITTED),
)
NOHANDLER = _statistic("receive_nohandler")  # not in /proc/net/dev
SPEED = _property("speed_bytes", Unit.BYTES)
UP = MetricSpec(
    "node_network_up",
    Kind.GAUGE,
    Unit.NONE,
    "Value is 1 if operstate is 'up', 0 otherwise.",
    ("device",),
)
INFO = MetricSpec(
    "node_network_info",
    Kind.INFO,
    Unit.NONE,
    "Non-numeric data from /sys/class/net/<iface>, value is always 1.",
    ("device", "address", "broadcast", "duplex", "operstate", "ifalias"),
)
ATTRIBUTES = {
    "addr_assign_type": _property("address_assign_type"),
    "carrier": _property("carrier"),
    "carrier_changes": _property("carrier_changes_total", kind=Kind.COUNTER),
    "carrier_down_count": _property("carrier_down_changes_total", kind=Kind.COUNTER),
    "carrier_up_count": _property("carrier_up_changes_total", kind=Kind.COUNTER),
    "dev_id": _property("device_id"),
    "dormant": _property("dormant"),
    "flags": _property("flags"),
    "ifindex": _property("iface_id"),
    "iflink": _property("iface_link"),
    "link_mode": _property("iface_link_mode"),
    "mtu": _property("mtu_bytes", Unit.BYTES),
    "name_assign_type": _property("name_assign_type"),
    "netdev_group": _property("net_dev_group"),
    "speed": SPEED,
    "statistics/rx_nohandler": NOHANDLER,
    "tx_queue_len": _property("transmit_queue_length"),
    "type": _property("protocol_type"),
}
_BYTES_PER_MEGABIT = 125_000
_FILES = ("operstate", "address", "broadcast", "duplex", "ifalias", *ATTRIBUTES)
_CLASS_SPECS = (UP, *ATTRIBUTES.values())
_QUALITIES = {
    errno.EOPNOTSUPP: Quality.UNSUPPORTED,
    errno.EACCES: Quality.DENIED,
    errno.EPERM: Quality.DENIED,
}


class NetworkConfig(NamedTuple):
    exclude: str = "lo"  # devices whose traffic is left out; matched whole
    class_exclude: str = ""  # devices whose state is left out; matched whole
    state_every: Duration = Duration(10)  # between two readings of a device's state; at 0s at every tick


class Device(NamedTuple):
    """What /sys/class/net tells of a device."""

    numbers: dict[MetricSpec, int]
    labels: tuple[str, ...]  # of INFO
    gaps: tuple[Gap, ...]


class NetworkCollector:
    Config: ClassVar[type] = NetworkConfig
    metrics: ClassVar[tuple[MetricSpec, ...]] = (*COLUMNS, *_CLASS_SPECS, INFO)
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: NetworkConfig, clock: Clock | None = None) -> None:
        self._exclude = _pattern("exclude", config.exclude)
        self._class_exclude = _pattern("class_exclude", config.class_exclude)
        self._clock = clock or SystemClock()
        self._state_every_ns = config.state_every.ns
        self._host = host
        self._file = host.iterated("proc/net/dev")
        self._refreshed_ns = 0
        self._turns = 0.0  # devices whose turn it is; the fraction is kept
        self._next = 0  # whose turn comes next, among the names
        self._text = b""
        self._reading = Reading(EMPTY_LAYOUT, ())
        self._shape: Shape | None = None
        self._counted: list[str] = []  # the devices whose traffic is given
        self._names: list[str] = []  # the devices whose state is given, and files among them
        self._devices: dict[str, Device] = {}
        self._layout = EMPTY_LAYOUT
        self._held: list[int] = []  # the numbers of the devices' state, in the order of the layout
        self._gaps: tuple[Gap, ...] = ()

    def collect(self) -> Reading:
        text = self._file.read()
        now = self._clock.monotonic_ns()
        quiet = text == self._text
        # One device's share of the time has not passed: nobody's turn yet.
        if quiet and (now - self._refreshed_ns) * len(self._names) < self._state_every_ns:
            return self._reading
        tokens = text.split()
        shape = self._shape
        changed = shape is None or not shape.fits(tokens)
        if shape is None or changed:
            shape = self._learn(tokens)
        self._refresh(now, changed)
        try:
            values = [*map(int, shape.values(tokens)), *self._held]
        except ValueError:
            raise ParseError("/proc/net/dev", text) from None
        self._text = text
        self._reading = Reading(self._layout, values, (), self._gaps)
        return self._reading

    def _learn(self, tokens: list[bytes]) -> Shape:
        names = parse_devices(tokens)
        first = len(_HEADER)
        at = [(name, first + _FIELDS * row) for row, name in enumerate(names) if not self._exclude.fullmatch(name)]
        self._counted = [name for name, _ in at]
        values = [start + 1 + column for column in range(len(COLUMNS)) for _, start in at]
        self._shape = Shape(tokens, range(first, len(tokens), _FIELDS), values)
        return self._shape

    def _refresh(self, now: int, changed: bool) -> None:
        """Read the state of new devices and of those whose turn it is."""
        count = len(self._names)
        elapsed = now - self._refreshed_ns
        if not changed and elapsed * count < self._state_every_ns:
            return
        self._refreshed_ns = now
        self._turns += count * elapsed / self._state_every_ns if self._state_every_ns else count
        turns = min(int(self._turns), count)
        self._turns = 0.0 if turns == count else self._turns - turns
        if changed or self._next + turns >= count:
            self._names = self._listed()  # once a round: what appears only in /sys is found
        due = {self._names[(self._next + turn) % len(self._names)] for turn in range(turns) if self._names}
        self._next = (self._next + turns) % (len(self._names) or 1)
        fresh: dict[str, Device] = {}
        for name in self._names:
            device = None if name in due else self._devices.get(name)
            device = device or read_device(self._host, name, counted=name in self._counted)
            if device is not None:
                fresh[name] = device
        if changed or fresh != self._devices:
            self._devices = fresh
            self._arrange()

    def _listed(self) -> list[str]:
        try:
            names = self._host.names("sys/class/net")
        except FileNotFoundError:
            return []
        return [name for name in names if not self._class_exclude.fullmatch(name)]

    def _arrange(self) -> None:
        series: list[Series] = [(spec, (shown(name),)) for spec in COLUMNS for name in self._counted]
        state: list[tuple[Series, int]] = [
            ((spec, device.labels[:1]), device.numbers[spec])
            for spec in _CLASS_SPECS
            for device in self._devices.values()
            if spec in device.numbers
        ]
        state += [((INFO, device.labels), 1) for device in self._devices.values()]
        series += [one for one, _ in state]
        if series != list(self._layout):
            self._layout = Layout(series)
        self._held = [value for _, value in state]
        gaps = tuple(gap for device in self._devices.values() for gap in device.gaps)
        if not self._names:
            gaps = (Gap(UP, (), Quality.UNSUPPORTED, "nothing in /sys/class/net"),)
        if gaps != self._gaps:
            self._gaps = gaps

    def close(self) -> None:
        self._file.close()


def _pattern(key: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(f"collectors.network.{key} is not a regular expression: {error}") from None


def parse_devices(tokens: list[bytes]) -> list[str]:
    """The devices of the tokens of /proc/net/dev, in their order."""
    rows = tokens[len(_HEADER) :]
    names = rows[::_FIELDS]
    odd = tokens[: len(_HEADER)] != _HEADER or len(rows) % _FIELDS or len(set(names)) != len(names)
    if odd or not all(name.endswith(b":") for name in names):
        raise ParseError("/proc/net/dev", b" ".join(tokens))
    return [os.fsdecode(name[:-1]) for name in names]


def shown(name: str) -> str:
    """A device's name as a label: the kernel takes any bytes for one but white space, `/` and `:` (dev_valid_name)."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def read_device(host: HostFS, name: str, *, counted: bool) -> Device | None:
    """The state of one device; None when it is gone, or is no device: bonding_masters is a file among them."""
    label = shown(name)
    try:
        found = host.attributes(f"sys/class/net/{name}", _FILES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if isinstance(found["operstate"], OSError):
        return None
    operstate = _word(found["operstate"])
    numbers: dict[MetricSpec, int] = {UP: int(operstate == "up")}
    gaps: list[Gap] = []
    for file, spec in ATTRIBUTES.items():
        value = _number(file, found[file], spec, label)
        if isinstance(value, Gap):
            gaps.append(value)
        elif value is not None and (counted or spec is not NOHANDLER):
            numbers[spec] = value
    words = [_word(found[file]) for file in ("address", "broadcast", "duplex")]
    return Device(numbers, (label, *words, operstate, _word(found["ifalias"])), tuple(gaps))


def _number(file: str, answer: bytes | OSError, spec: MetricSpec, device: str) -> int | Gap | None:
    if isinstance(answer, OSError) and answer.errno in (errno.ENOENT, errno.ENODEV):
        return None  # younger than this kernel, or the device went just now
    if isinstance(answer, OSError):
        # EINVAL is how the kernel says "none": no speed without a link, no carrier while the device is down.
        quality = _QUALITIES.get(answer.errno or 0, Quality.BLANK)
        # carrier_show of net/core/net-sysfs.c refuses for no other reason.
        is_down = file == "carrier" and answer.errno == errno.EINVAL
        return Gap(spec, (device,), quality, "the interface is down" if is_down else f"{file}: {answer.strerror}")
    try:
        value = parse_attribute(file, answer)
    except ParseError as error:
        return Gap(spec, (device,), Quality.BLANK, str(error))
    if spec is not SPEED:
        return value
    if value < 0:  # SPEED_UNKNOWN of include/uapi/linux/ethtool.h
        return Gap(spec, (device,), Quality.BLANK, "the driver does not know the speed")
    return value * _BYTES_PER_MEGABIT


def _word(answer: bytes | OSError) -> str:
    # A label that cannot be read stays empty, as node_exporter's does.
    return "" if isinstance(answer, OSError) else answer.decode("utf-8", "replace").rstrip("\n")


def parse_attribute(source: str, text: bytes) -> int:
    """A number of sysfs: decimal, or hexadecimal with its 0x."""
    try:
        return int(text, 0)
    except ValueError:
        raise ParseError(source, text) from None

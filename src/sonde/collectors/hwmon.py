"""Temperatures, fans, voltages, currents and power of the sensor chips, from /sys/class/hwmon.

    hwmon1/name          nvme
    hwmon1/device        -> ../../nvme0          its last two parts name the chip: nvme_nvme0
    hwmon1/temp1_input   36850                   millidegrees: node_hwmon_temp_celsius{chip="nvme_nvme0",sensor="temp1"}
    hwmon1/temp1_label   Composite               node_hwmon_sensor_label{…,label="Composite"} 1
    hwmon1/temp1_crit    84850                   node_hwmon_temp_crit_celsius
    hwmon4/fan2_input    9120                    node_hwmon_fan_rpm
    hwmon4/power1_average  212000000             microwatts: node_hwmon_power_average_watt

(Documentation/hwmon/sysfs-interface.rst.) Names, labels and units are node_exporter's, its odd ones too:
temp1_crit_alarm is `node_hwmon_temp_crit_alarm_celsius`, 0.001 when raised. Readings and alarms are read at every tick,
limits and labels every `limits_every`. A chip may sit on a slow bus or be a disk that has to be asked, so this
collector has a thread of its own.
"""

from __future__ import annotations

import re
from typing import ClassVar, NamedTuple

from sonde.clock import Clock, SystemClock
from sonde.collectors.sysfs import Arrangement, Findings, Scale, millionths, parse_number, thousandths
from sonde.errors import ConfigError, ParseError, Unavailable
from sonde.hostfs import HostFS
from sonde.model import Gap, Kind, MetricSpec, Quality, Reading, Series, Unit, Value
from sonde.units import Duration

_DIRECTORY = "sys/class/hwmon"
_FILE = re.compile(r"([^0-9]+)([0-9]*)(?:_(.+))?")
_ODD = re.compile("[^a-z0-9:_]")
_LABELS = ("chip", "sensor")
_READINGS = {"", "input", "average", "lowest", "highest", "fault", "alarm", "target"}  # at every tick; so is *_alarm

CHIP = MetricSpec(
    "node_hwmon_chip_names", Kind.GAUGE, Unit.NONE, "The name a chip gives itself; always 1.", ("chip", "chip_name")
)
LABEL = MetricSpec(
    "node_hwmon_sensor_label", Kind.GAUGE, Unit.NONE, "What a sensor measures; always 1.", (*_LABELS, "label")
)


class Measure(NamedTuple):
    """A metric and how the number of the file becomes its value."""

    spec: MetricSpec
    scale: Scale | None = None


def _pcm(number: int) -> Value:
    """Milli-percent as a ratio. node_exporter 1.5 divides by a million, ten times too much."""
    return number / 100_000


_SPECS: dict[str, MetricSpec] = {}  # by name: temp1 and temp1_input of two chips are the same metric


def _gauge(name: str, help: str, unit: Unit = Unit.NONE, kind: Kind = Kind.GAUGE) -> MetricSpec:
    return _SPECS.setdefault(name, MetricSpec(f"node_hwmon_{name}", kind, unit, help, _LABELS))


# Settings of the whole chip: a file without a number in its name.
_OF_CHIP = {
    "beep_enable": Measure(_gauge("beep_enabled", "Whether the chip may beep.")),
    "update_interval": Measure(
        _gauge("update_interval_seconds", "How often the chip measures.", Unit.SECONDS), thousandths
    ),
    "vrm": Measure(_gauge("voltage_regulator_version", "Version of the voltage regulator's specification.")),
}
# By type of sensor: what is appended to the name, the unit and the scale.
_UNITS: dict[str, tuple[str, Unit, Scale]] = {
    "in": ("_volts", Unit.VOLTS, thousandths),
    "cpu": ("_volts", Unit.VOLTS, thousandths),
    "temp": ("_celsius", Unit.CELSIUS, thousandths),
    "curr": ("_amps", Unit.AMPERES, thousandths),
    "energy": ("_joule_total", Unit.JOULES, millionths),
    "power": ("_watt", Unit.WATTS, millionths),
    "humidity": ("", Unit.RATIO, _pcm),
    "fan": ("_rpm", Unit.NONE, int),
}
_PLAIN = {"fault", "alarm"}
_OF_FANS = {"input", "min", "max", "target"}  # in revolutions per minute

# What chips of servers have, for the reference; every other file becomes a metric by the same rules when it is found.
_LIMITS = "input min max lcrit crit alarm min_alarm max_alarm lcrit_alarm crit_alarm"
_KNOWN = {
    "in": f"{_LIMITS} beep",
    "curr": _LIMITS,
    "temp": f"{_LIMITS} max_hyst min_hyst crit_hyst emergency emergency_alarm type offset fault beep",
    "fan": "input min max target div pulses alarm fault beep",
    "power": "input average average_interval accuracy max crit cap cap_max cap_min alarm max_alarm crit_alarm",
    "energy": "input",
    "humidity": "input",
    "intrusion": "alarm beep",
    "cpu": "vid",
}


def clean(text: str) -> str:
    """A name as node_exporter writes it: small letters, and `_` for what has no place in a metric's name."""
    return _ODD.sub("_", text.lower()).strip("_")


def measure(kind: str, element: str, *, bare: bool = False) -> Measure:
    """The metric of a file `<kind><number>_<element>`; `bare` when the sensor also has a file without an element."""
    name = kind + ("" if element in ("", "input") and not (bare and element) else f"_{clean(element)}")
    if element in _PLAIN:
        return Measure(_gauge(name, f"The {kind} sensor's {element}: 1 when raised."))
    if element == "beep":
        return Measure(_gauge(f"{name}_enabled", f"Whether the {kind} sensor may beep."))
    if kind == "power" and element == "accuracy":
        return Measure(_gauge(name, "Accuracy of the power meter, as a ratio.", Unit.RATIO), millionths)
    if kind == "power" and element.startswith("average_interval"):
        return Measure(_gauge(f"{name}_seconds", f"Power meter: {element}.", Unit.SECONDS), thousandths)
    if kind not in _UNITS or (kind, element) == ("temp", "type") or (kind == "fan" and element not in _OF_FANS):
        return Measure(_gauge(name, f"Sensors of type {kind}: {element or 'the setting itself'}."))
    suffix, unit, scale = _UNITS[kind]
    help = f"Sensors of type {kind}: {element or 'input'}."
    return Measure(
        _gauge(name + suffix, help, unit, Kind.COUNTER if kind == "energy" else Kind.GAUGE),
        None if scale is int else scale,
    )


_MEASURES = {(kind, "", False): found for kind, found in _OF_CHIP.items()}
_MEASURES |= {
    (kind, element, False): measure(kind, element) for kind, elements in _KNOWN.items() for element in elements.split()
}
_MEASURES |= {("pwm", element, False): measure("pwm", element) for element in ("", "enable", "mode", "freq")}
_KINDS = {*_KNOWN, *_OF_CHIP, "pwm"}


class HwmonConfig(NamedTuple):
    exclude: str = ""  # chips that are left out, by their label; matched whole
    limits_every: Duration = Duration(60)  # between two readings of limits and labels; at 0s at every tick


class Chip(NamedTuple):
    """What one chip has: the files of each tick by directory, and what was read of the others."""

    files: dict[str, dict[str, tuple[Series, Scale | None]]]
    held: Findings


class HwmonCollector:
    Config: ClassVar[type] = HwmonConfig
    metrics: ClassVar[tuple[MetricSpec, ...]] = (CHIP, LABEL, *_SPECS.values())
    blocks: ClassVar[bool] = True

    def __init__(self, host: HostFS, config: HwmonConfig, clock: Clock | None = None) -> None:
        try:
            self._exclude = re.compile(config.exclude)
        except re.error as error:
            raise ConfigError(f"collectors.hwmon.exclude is not a regular expression: {error}") from None
        self._host = host
        self._clock = clock or SystemClock()
        self._every_ns = config.limits_every.ns
        self._names: list[str] = []
        self._scanned_ns = 0
        self._chips: list[Chip] = []
        self._gaps: list[Gap] = []
        self._arrangement = Arrangement()
        try:
            names = host.names(_DIRECTORY)
        except FileNotFoundError:
            raise Unavailable(f"no /{_DIRECTORY}: this kernel is built without CONFIG_HWMON") from None
        if not names:
            raise Unavailable(
                f"nothing in /{_DIRECTORY}: no driver of a sensor chip is loaded",
                hint="on a physical machine: modprobe coretemp (Intel) or k10temp (AMD); sensors-detect finds others",
            )

    def collect(self) -> Reading:
        names = self._host.names(_DIRECTORY)
        now = self._clock.monotonic_ns()
        if names != self._names or now - self._scanned_ns >= self._every_ns:
            self._scan(names)
            self._scanned_ns = now
        found = Findings()
        found.gaps += self._gaps
        for chip in self._chips:
            found.extend(chip.held)
            for directory, files in chip.files.items():
                self._read(directory, files, found)
        return self._arrangement.reading(found)

    def _read(self, directory: str, files: dict[str, tuple[Series, Scale | None]], found: Findings) -> None:
        try:
            answers = self._host.attributes(directory, files)
        except FileNotFoundError:
            return  # unplugged since it was listed
        for file, answer in answers.items():
            found.take(file, answer, *files[file])

    def _scan(self, names: list[str]) -> None:
        self._chips, self._gaps = [], []
        seen: dict[str, str] = {}
        for name in names:
            directory = f"{_DIRECTORY}/{name}"
            try:
                label = chip_label(self._host, directory)
                if self._exclude.fullmatch(label) and self._exclude.pattern:
                    continue
                if label in seen:
                    reason = f"{name} and {seen[label]} are both called {label}"
                    self._gaps.append(Gap(CHIP, (), Quality.UNSUPPORTED, reason))
                    continue
                self._chips.append(read_chip(self._host, directory, label))
            except (FileNotFoundError, NotADirectoryError):
                continue  # unplugged since it was listed
            seen[label] = name
        self._names = names

    def close(self) -> None:
        """Nothing is kept open."""


def chip_label(host: HostFS, directory: str) -> str:
    """The name of a chip by its place in the machine, which stays when drivers load in another order."""
    try:
        *_, bus, device = host.resolved(f"{directory}/device").split("/")
        parts = [part for part in (clean(bus), clean(device)) if part]
        if parts:
            return "_".join(parts)
    except FileNotFoundError:
        pass  # a virtual chip, or one of a bus without devices
    return chip_name(host, directory) or clean(host.resolved(directory).rpartition("/")[2])


def chip_name(host: HostFS, directory: str) -> str:
    try:
        return clean(host.text(f"{directory}/name"))
    except FileNotFoundError:
        return ""


def read_chip(host: HostFS, directory: str, label: str) -> Chip:
    """Find the files of a chip; read those that are not read at every tick."""
    sensors = sensors_of(host, directory)
    files: dict[str, dict[str, tuple[Series, Scale | None]]] = {}
    held = Findings()
    name = chip_name(host, directory)
    if name:
        held.add((CHIP, (label, name)), 1)
    for (kind, sensor), elements in sensors.items():
        for element, (place, file) in elements.items():
            if element == "label":
                _hold_label(host, f"{place}/{file}", (label, sensor), held)
                continue
            spec, scale = _known(kind, element, bare="" in elements)
            series: Series = (spec, (label, sensor))
            if element in _READINGS or element.endswith("_alarm"):
                files.setdefault(place, {})[file] = (series, scale)
            else:
                _hold_limit(host, place, file, (series, scale), held)
    return Chip(files, held)


Sensors = dict[tuple[str, str], dict[str, tuple[str, str]]]


def sensors_of(host: HostFS, directory: str) -> Sensors:
    """Type and name of each sensor, and its files: element → directory and file.

    Drivers of old put their files into the directory of the device.
    """
    sensors: Sensors = {}
    for place in (directory, f"{directory}/device"):
        if not host.exists(place):
            continue
        for file in host.names(place):
            match = _FILE.fullmatch(file)
            if match is None or match[1] not in _KINDS:
                continue
            kind, number, element = match[1], match[2], match[3] or ""
            # `power` without a number is the directory of the device's power management.
            if bool(number) == (kind in _OF_CHIP):
                continue
            sensors.setdefault((kind, f"{kind}{int(number or 0)}"), {})[element] = (place, file)
    return sensors


def _known(kind: str, element: str, *, bare: bool) -> Measure:
    key = (kind, element, bare and element == "input")
    found = _MEASURES.get(key)
    if found is None:
        found = _MEASURES[key] = measure(kind, element, bare=bare)
    return found


def _hold_label(host: HostFS, path: str, labels: tuple[str, str], held: Findings) -> None:
    try:
        held.add((LABEL, (*labels, host.text(path))), 1)
    except OSError:
        pass  # a label that cannot be read is none


def _hold_limit(host: HostFS, place: str, file: str, wanted: tuple[Series, Scale | None], held: Findings) -> None:
    answer = host.attributes(place, (file,))[file]
    try:
        parse_number(file, b"0" if isinstance(answer, OSError) else answer)
    except ParseError:
        return  # words, such as power1_model_number
    held.take(file, answer, *wanted)

"""Sensors and event log of the baseboard management controller (BMC), asked through /dev/ipmi0.

    record 13: sensor 30h, "CPU Temp", degrees C     sonde_ipmi_temperature_celsius{id="13",name="CPU Temp"} 47
    thresholds 18h: above upper critical             sonde_ipmi_sensor_state{…,type="temperature"} 2
    log: 412 entries, 7600 bytes free                sonde_ipmi_sel_entries 412

native/ipmi.py has the protocol, native/sdr.py the meaning of the records. The names follow those of Prometheus'
ipmi_exporter behind our own prefix. Off by default: a BMC answers some hundred questions a second at best, and keeps a
kernel thread busy meanwhile. The records are read at the first tick, and again when the BMC says they have changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from sonde.collectors.sysfs import Arrangement, Findings
from sonde.errors import Denied, ParseError, Unavailable
from sonde.hostfs import HostFS
from sonde.model import Gap, Kind, MetricSpec, Quality, Reading, Series, Unit

if TYPE_CHECKING:
    from sonde.native.ipmi import Ask, Bmc
    from sonde.native.sdr import Sensor

_ID = ("id", "name")


def _gauge(name: str, help: str, unit: Unit = Unit.NONE, labels: tuple[str, ...] = _ID) -> MetricSpec:
    return MetricSpec(f"sonde_ipmi_{name}", Kind.GAUGE, unit, help, labels)


TEMPERATURE = _gauge("temperature_celsius", "A temperature.", Unit.CELSIUS)
VOLTAGE = _gauge("voltage_volts", "A voltage.", Unit.VOLTS)
CURRENT = _gauge("current_amperes", "A current.", Unit.AMPERES)
POWER = _gauge("power_watts", "A power.", Unit.WATTS)
FAN = _gauge("fan_speed_rpm", "Speed of a fan, in revolutions per minute.")
FAN_RATIO = _gauge("fan_speed_ratio", "Speed of a fan, as a share of its highest.", Unit.RATIO)
OTHER = _gauge(
    "sensor_value", "A sensor with another unit, whose IPMI number is a label.", labels=(*_ID, "type", "unit")
)
STATE = _gauge(
    "sensor_state",
    "Thresholds a sensor is beyond: 0 none, 1 a non-critical one, 2 a critical or non-recoverable one.",
    labels=(*_ID, "type"),
)
ENTRIES = _gauge("sel_entries", "Entries of the system event log.", labels=())
FREE = _gauge("sel_free_bytes", "Free space of the system event log.", Unit.BYTES, labels=())
LOST = _gauge("sel_overflow", "Value is 1 if events were lost because the log was full.", labels=())

_CELSIUS, _FAHRENHEIT, _KELVIN = 1, 2, 3
_UNITS = {
    _CELSIUS: TEMPERATURE,
    _FAHRENHEIT: TEMPERATURE,
    _KELVIN: TEMPERATURE,
    4: VOLTAGE,
    5: CURRENT,
    6: POWER,
    18: FAN,
}
_TYPES = {
    0x01: "temperature",
    0x02: "voltage",
    0x03: "current",
    0x04: "fan",
    0x07: "processor",
    0x08: "power supply",
    0x09: "power unit",
    0x0A: "cooling device",
    0x0B: "other",
    0x0C: "memory",
    0x0D: "drive slot",
}
_FAN = 0x04


class IpmiConfig(NamedTuple):
    device: str = "/dev/ipmi0"  # of the kernel's ipmi_devintf
    thresholds: bool = True  # sonde_ipmi_sensor_state too


class Member(NamedTuple):
    """A sensor and its series."""

    sensor: Sensor
    value: Series
    state: Series


class IpmiCollector:
    Config: ClassVar[type] = IpmiConfig
    metrics: ClassVar[tuple[MetricSpec, ...]] = (
        TEMPERATURE,
        VOLTAGE,
        CURRENT,
        POWER,
        FAN,
        FAN_RATIO,
        OTHER,
        STATE,
        ENTRIES,
        FREE,
        LOST,
    )
    blocks: ClassVar[bool] = True

    def __init__(self, host: HostFS, config: IpmiConfig, ask: Ask | None = None) -> None:
        self._thresholds = config.thresholds
        self._stamp = b""
        self._members: list[Member] = []
        self._gaps: list[Gap] = []
        self._arrangement = Arrangement()
        self._bmc = None if ask else opened(host, config.device)
        self._ask: Ask = ask or self._bmc.ask  # type: ignore[union-attr]

    def collect(self) -> Reading:
        from sonde.native import ipmi

        stamp = ipmi.repository_stamp(self._ask)
        if stamp != self._stamp:
            self._scan()
            self._stamp = stamp
        found = Findings()
        found.gaps += self._gaps
        for member in self._members:
            self._read(member, found)
        self._read_log(found)
        return self._arrangement.reading(found)

    def _read_log(self, found: Findings) -> None:
        from sonde.native import ipmi

        try:
            usage = ipmi.log_usage(self._ask)
        except ipmi.Refused as error:
            found.gaps.append(Gap(ENTRIES, (), Quality.UNSUPPORTED, str(error)))
            return
        for spec, value in zip((ENTRIES, FREE, LOST), usage, strict=True):
            found.add((spec, ()), int(value))

    def _read(self, member: Member, found: Findings) -> None:
        from sonde.native import ipmi, sdr

        try:
            state = ipmi.sensor_state(self._ask, member.sensor)
            if not state.available:
                found.gaps.append(Gap(*member.value, Quality.BLANK, "the BMC has no reading now"))
                return
            value = in_our_unit(member.sensor, sdr.value_of(member.sensor, state.raw))
        except (ipmi.Refused, ParseError) as error:
            found.gaps.append(Gap(*member.value, Quality.BLANK, str(error)))
            return
        found.add(member.value, value)
        if self._thresholds and member.sensor.threshold:
            found.add(member.state, state.severity)

    def _scan(self) -> None:
        """Read the records; those of sensors that give numbers are kept."""
        from sonde.native import ipmi, sdr

        self._members, self._gaps = [], []
        for record in ipmi.records(self._ask):
            if sdr.parse_header(record)[1] != sdr.FULL:
                continue
            try:
                sensor = sdr.parse_sensor(record)
            except ParseError:
                continue  # shorter than its kind: firmware has such
            member = member_of(sensor)
            obstacle = obstacle_of(sensor)
            if obstacle:
                self._gaps.append(Gap(*member.value, Quality.UNSUPPORTED, obstacle))
            else:
                self._members.append(member)

    def close(self) -> None:
        if self._bmc is not None:
            self._bmc.close()


def opened(host: HostFS, device: str) -> Bmc:
    from sonde.native.ipmi import Bmc

    try:
        return Bmc(host.path(device.lstrip("/")))
    except FileNotFoundError:
        hint = "load the driver: modprobe -a ipmi_si ipmi_devintf"
        raise Unavailable(f"no {device}: this machine has no BMC, or its driver is not loaded", hint=hint) from None
    except PermissionError:
        raise Denied(f"this user may not open {device}", hint="run the daemon as root") from None


def obstacle_of(sensor: Sensor) -> str:
    """Why a sensor is not read; empty when it is."""
    from sonde.native import sdr

    if sensor.owner != sdr.BMC:
        return f"the sensor belongs to another controller, {sensor.owner:02x}h"
    return "" if sensor.has_formula else "the record has no formula for the sensor's readings"


def member_of(sensor: Sensor) -> Member:
    labels = (str(sensor.record), sensor.name)
    kind = _TYPES.get(sensor.type, f"{sensor.type:02x}h")
    return Member(sensor, _series(sensor, labels, kind), (STATE, (*labels, kind)))


def _series(sensor: Sensor, labels: tuple[str, str], kind: str) -> Series:
    single = not sensor.rate and not sensor.modifier
    if sensor.percent and sensor.type == _FAN:
        return FAN_RATIO, labels
    if single and not sensor.percent and sensor.unit in _UNITS:
        return _UNITS[sensor.unit], labels
    return OTHER, (*labels, kind, "percent" if sensor.percent else str(sensor.unit))


def in_our_unit(sensor: Sensor, value: float) -> float:
    """Degrees of all kinds in degrees Celsius, the per cent of a fan as a ratio."""
    if sensor.percent:
        return value / 100 if sensor.type == _FAN else value
    if sensor.unit == _FAHRENHEIT:
        return (value - 32) * 5 / 9
    return value - 273.15 if sensor.unit == _KELVIN else value

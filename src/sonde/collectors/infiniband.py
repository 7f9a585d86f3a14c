"""Ports of RDMA devices (InfiniBand, RoCE, iWARP): state, rate and counters, from /sys/class/infiniband.

    mlx5_0/{fw_ver,board_id,hca_type}                     28.39.1002, MT_0000000838, MT4129
    mlx5_0/ports/1/{state,phys_state}                     4: ACTIVE, 5: LinkUp
    mlx5_0/ports/1/rate                                   400 Gb/sec (4X NDR)
    mlx5_0/ports/1/link_layer                             InfiniBand, or Ethernet for RoCE
    mlx5_0/ports/1/counters/port_xmit_data                9123456789         in units of four bytes
    mlx5_0/ports/1/hw_counters/np_cnp_sent                318223             whatever the driver counts

(Documentation/ABI/stable/sysfs-class-infiniband.) What is in `counters` is the InfiniBand specification's and has
node_exporter's names. What is in `hw_counters` is the driver's own, from congestion notifications of RoCE to retries:
each file is a series of `sonde_rdma_hw_counter_total`, by its name. Counters are as the device gives them: several of
`counters` stay at their largest value instead of starting again, and all fall to 0 when a port is reset.

Each file is a question to the firmware, which can hang with it: this collector has a thread of its own.
"""

from __future__ import annotations

import re
from typing import ClassVar, NamedTuple

from sonde.collectors.sysfs import Arrangement, Findings, gap_of
from sonde.config import NoKeys
from sonde.errors import ParseError, Unavailable
from sonde.hostfs import HostFS
from sonde.model import Gap, Kind, Labels, MetricSpec, Quality, Reading, Series, Unit

_DIRECTORY = "sys/class/infiniband"
_PORT = ("device", "port")


def _counter(name: str, help: str, unit: Unit = Unit.NONE) -> MetricSpec:
    return MetricSpec(f"node_infiniband_{name}_total", Kind.COUNTER, unit, help, _PORT)


def _gauge(name: str, help: str, unit: Unit = Unit.NONE) -> MetricSpec:
    return MetricSpec(f"node_infiniband_{name}", Kind.GAUGE, unit, help, _PORT)


INFO = MetricSpec(
    "node_infiniband_info",
    Kind.INFO,
    Unit.NONE,
    "A device, its board and its firmware; always 1.",
    ("device", "board_id", "firmware_version", "hca_type"),
)
PORT_INFO = MetricSpec(
    "sonde_rdma_port_info",
    Kind.INFO,
    Unit.NONE,
    "A port and its link layer, InfiniBand or Ethernet (RoCE, iWARP); always 1.",
    (*_PORT, "link_layer"),
)
STATE = _gauge("state_id", "State of the port: 1 down, 2 initialising, 3 armed, 4 active, 5 active and deferring.")
PHYSICAL = _gauge(
    "physical_state_id",
    "Physical state of the port: 1 sleep, 2 polling, 3 disabled, 4 training, 5 link up, 6 error recovery, 7 phy test.",
)
RATE = _gauge("rate_bytes_per_second", "Signal rate of the port.")
HARDWARE = MetricSpec(
    "sonde_rdma_hw_counter_total",
    Kind.COUNTER,
    Unit.NONE,
    "A counter of the device's driver, by the name of its file in hw_counters.",
    (*_PORT, "counter"),
)

_RECEIVED = "Data received by the port."
_SENT = "Data sent by the port."
COUNTERS = {
    "counters": {
        "VL15_dropped": _counter("vl15_dropped", "Management packets dropped for want of resources."),
        "excessive_buffer_overrun_errors": _counter(
            "excessive_buffer_overrun_errors", "Periods of flow control with a buffer overrun, in a row too long."
        ),
        "link_downed": _counter("link_downed", "How often the link went down for good."),
        "link_error_recovery": _counter("link_error_recovery", "How often the link recovered from an error."),
        "local_link_integrity_errors": _counter(
            "local_link_integrity_errors", "How often local physical errors exceeded their threshold."
        ),
        "multicast_rcv_packets": _counter("multicast_packets_received", "Multicast packets received, bad ones too."),
        "multicast_xmit_packets": _counter("multicast_packets_transmitted", "Multicast packets sent, bad ones too."),
        "port_rcv_constraint_errors": _counter(
            "port_constraint_errors_received", "Packets received and discarded for their constraints."
        ),
        "port_rcv_data": _counter("port_data_received_bytes", _RECEIVED, Unit.BYTES),
        "port_rcv_discards": _counter("port_discards_received", "Packets received and discarded."),
        "port_rcv_errors": _counter("port_errors_received", "Packets received with an error."),
        "port_rcv_packets": _counter("port_packets_received", "Packets received, bad ones too."),
        "port_rcv_remote_physical_errors": _counter(
            "port_receive_remote_physical_errors", "Packets received that another port had marked as bad."
        ),
        "port_rcv_switch_relay_errors": _counter(
            "port_receive_switch_relay_errors", "Packets received that the switch could not forward."
        ),
        "port_xmit_constraint_errors": _counter(
            "port_constraint_errors_transmitted", "Packets not sent for their constraints."
        ),
        "port_xmit_data": _counter("port_data_transmitted_bytes", _SENT, Unit.BYTES),
        "port_xmit_discards": _counter("port_discards_transmitted", "Packets discarded instead of sent."),
        "port_xmit_packets": _counter("port_packets_transmitted", "Packets sent, bad ones too."),
        "port_xmit_wait": _counter("port_transmit_wait", "Ticks in which data waited and none could be sent."),
        "symbol_error": _counter("symbol_error", "Minor errors of the link."),
        "unicast_rcv_packets": _counter("unicast_packets_received", "Unicast packets received, bad ones too."),
        "unicast_xmit_packets": _counter("unicast_packets_transmitted", "Unicast packets sent, bad ones too."),
    },
    # Before Linux 4.5 the counters of 64 bits were here.
    "counters_ext": {
        "port_multicast_rcv_packets": _counter("legacy_multicast_packets_received", "Multicast packets received."),
        "port_multicast_xmit_packets": _counter("legacy_multicast_packets_transmitted", "Multicast packets sent."),
        "port_rcv_data_64": _counter("legacy_data_received_bytes", _RECEIVED, Unit.BYTES),
        "port_rcv_packets_64": _counter("legacy_packets_received", "Packets received."),
        "port_unicast_rcv_packets": _counter("legacy_unicast_packets_received", "Unicast packets received."),
        "port_unicast_xmit_packets": _counter("legacy_unicast_packets_transmitted", "Unicast packets sent."),
        "port_xmit_data_64": _counter("legacy_data_transmitted_bytes", _SENT, Unit.BYTES),
        "port_xmit_packets_64": _counter("legacy_packets_transmitted", "Packets sent."),
    },
}
_NO_COUNTERS = {"lifespan"}  # how many milliseconds the driver keeps the values: a setting among them
_STATE = re.compile(rb"([0-9]{1,4}): [^\n]*\n?")
_GIGABITS = re.compile(rb"([0-9]{1,9}(?:\.[0-9]{1,9})?) Gb/sec[^\n]*\n?")
_BYTES_PER_GIGABIT = 125_000_000


class Port(NamedTuple):
    """One port: its directory, its two numbers, and the files that count."""

    directory: str
    labels: Labels
    counters: dict[str, dict[str, Series]]  # by directory


class InfinibandCollector:
    Config: ClassVar[type] = NoKeys
    metrics: ClassVar[tuple[MetricSpec, ...]] = (
        INFO,
        PORT_INFO,
        STATE,
        PHYSICAL,
        RATE,
        *(spec for specs in COUNTERS.values() for spec in specs.values()),
        HARDWARE,
    )
    blocks: ClassVar[bool] = True

    def __init__(self, host: HostFS, config: NoKeys) -> None:
        self._host = host
        self._names: list[str] = []
        self._held = Findings()  # what does not change while a device is there
        self._ports: list[Port] = []
        self._arrangement = Arrangement()
        try:
            names = host.names(_DIRECTORY)
        except FileNotFoundError:
            raise Unavailable(f"no /{_DIRECTORY}: no driver of an RDMA device is loaded") from None
        if not names:
            raise Unavailable(f"nothing in /{_DIRECTORY}: this machine has no RDMA device")

    def collect(self) -> Reading:
        names = self._host.names(_DIRECTORY)
        if names != self._names:
            self._scan(names)
        found = Findings()
        found.extend(self._held)
        for port in self._ports:
            self._read_state(port, found)
            for directory, files in port.counters.items():
                self._read_counters(directory, files, found)
        return self._arrangement.reading(found)

    def _read_state(self, port: Port, found: Findings) -> None:
        try:
            answers = self._host.attributes(port.directory, ("state", "phys_state", "rate"))
        except FileNotFoundError:
            return  # unplugged since it was listed
        for (file, answer), spec in zip(answers.items(), (STATE, PHYSICAL, RATE), strict=True):
            series: Series = (spec, port.labels)
            if isinstance(answer, OSError):
                gap = gap_of(file, answer, series)
                found.gaps += [gap] if gap else []
                continue
            try:
                found.add(series, parse_rate(answer) if spec is RATE else parse_state(answer))
            except ParseError as error:
                found.gaps.append(Gap(*series, Quality.BLANK, str(error)))

    def _read_counters(self, directory: str, files: dict[str, Series], found: Findings) -> None:
        try:
            answers = self._host.attributes(directory, files)
        except FileNotFoundError:
            return  # unplugged since it was listed
        for file, answer in answers.items():
            series = files[file]
            found.take(file, answer, series, _words_of_four if series[0].unit is Unit.BYTES else None)

    def _scan(self, names: list[str]) -> None:
        """Find the ports of the devices, and what each counts."""
        self._held, self._ports = Findings(), []
        for name in names:
            try:
                self._scan_device(name)
            except (FileNotFoundError, NotADirectoryError):
                continue  # unplugged since it was listed
        self._names = names

    def _scan_device(self, name: str) -> None:
        directory = f"{_DIRECTORY}/{name}"
        ports = self._host.names(f"{directory}/ports")
        facts = self._host.attributes(directory, ("board_id", "fw_ver", "hca_type"))
        self._held.add((INFO, (name, *map(_word, facts.values()))), 1)
        for number in sorted(filter(str.isdigit, ports), key=int):
            self._scan_port(f"{directory}/ports/{number}", (name, number))

    def _scan_port(self, directory: str, labels: Labels) -> None:
        layer = _word(self._host.attributes(directory, ("link_layer",))["link_layer"])
        if layer:
            self._held.add((PORT_INFO, (*labels, layer)), 1)
        counters: dict[str, dict[str, Series]] = {}
        for folder, specs in COUNTERS.items():
            files = set(self._listed(f"{directory}/{folder}"))
            counters[f"{directory}/{folder}"] = {file: (spec, labels) for file, spec in specs.items() if file in files}
        counters[f"{directory}/hw_counters"] = {
            file: (HARDWARE, (*labels, file))
            for file in self._listed(f"{directory}/hw_counters")
            if file not in _NO_COUNTERS
        }
        self._ports.append(Port(directory, labels, {path: files for path, files in counters.items() if files}))

    def _listed(self, directory: str) -> list[str]:
        try:
            return self._host.names(directory)
        except FileNotFoundError:
            return []  # rdma_rxe has hw_counters only, old drivers have none

    def close(self) -> None:
        """Nothing is kept open."""


def _words_of_four(number: int) -> int:
    """The specification counts data in units of 32 bits."""
    return number * 4


def _word(answer: bytes | OSError) -> str:
    # A label that cannot be read stays empty, as node_exporter's does.
    return "" if isinstance(answer, OSError) else answer.decode("utf-8", "replace").strip()


def parse_state(text: bytes) -> int:
    """`4: ACTIVE`."""
    match = _STATE.fullmatch(text)
    if match is None:
        raise ParseError("state", text)
    return int(match[1])


def parse_rate(text: bytes) -> int:
    """`100 Gb/sec (4X EDR)` in bytes per second."""
    match = _GIGABITS.fullmatch(text)
    if match is None:
        raise ParseError("rate", text)
    return round(float(match[1]) * _BYTES_PER_GIGABIT)

"""What metrics are called in OTLP: the OpenTelemetry semantic conventions 1.44, as rules by our own names.

    node_network_receive_bytes_total{device="eth0"}
    → system.network.io{network.interface.name="eth0", network.io.direction="receive"}, By

https://opentelemetry.io/docs/specs/semconv/system/ has the conventions; tests/unit/sinks/test_otlp_names.py holds every
name, unit and instrument here against the published package of them. A metric that no convention covers has no rule:
it keeps its name, and its labels are its attributes. docs/adr/0017 says what was left out and why.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from sonde.model import Kind

SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
# Attributes that the conventions declare as whole numbers.
INTEGERS = frozenset({"cpu.logical_number", "process.pid"})
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Instrument(enum.Enum):
    """What OpenTelemetry calls the kind of a metric."""

    COUNTER = "counter"
    UPDOWN = "updowncounter"  # a sum over its attributes makes sense, and it can fall
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


# Of a metric whose rule does not say; all other kinds are gauges: an info is one of 1, and of an untyped one nobody
# has said that it only rises.
INSTRUMENTS = {Kind.COUNTER: Instrument.COUNTER, Kind.HISTOGRAM: Instrument.HISTOGRAM}


class Rule(NamedTuple):
    """How a metric of ours appears. Several rules may name one OTLP metric: their points stand together in it."""

    name: str
    unit: str  # UCUM; a thing that is counted in braces: {packet}
    scale: float = 1  # what the value is multiplied with; 1 leaves an int an int, 1.0 makes a double of it
    attributes: Mapping[str, str] = _NOTHING  # on every point
    labels: Mapping[str, str] = _NOTHING  # the attribute a label becomes; a label that is not here keeps its name
    instrument: Instrument | None = None  # none: as the metric's kind
    minus: tuple[str, ...] = ()  # metrics that are subtracted, the series with the same labels; if it is there
    values: Mapping[str, str] = _NOTHING  # what a label's value is called; one that is not here stays


Rules = Mapping[str, Sequence[Rule]]  # an empty sequence leaves the metric out

_UPDOWN, _COUNTER = Instrument.UPDOWN, Instrument.COUNTER
_DEVICE = {"device": "system.device"}
_INTERFACE = {"device": "network.interface.name"}
_FILESYSTEM = {
    "device": "system.device",
    "mountpoint": "system.filesystem.mountpoint",
    "fstype": "system.filesystem.type",
}
_PROCESS = {"pid": "process.pid", "comm": "process.title", "mode": "cpu.mode"}
_RAPL = {"path": "hw.id"}


def _memory(name: str) -> str:
    return f"node_memory_{name}_bytes"


def _state(subject: str, state: str) -> Mapping[str, str]:
    return {f"system.{subject}.state": state}


def _disk(name: str, unit: str, direction: str) -> tuple[Rule, ...]:
    return (Rule(f"system.disk.{name}", unit, attributes={"disk.io.direction": direction}, labels=_DEVICE),)


def _network(name: str, unit: str, direction: str, labels: Mapping[str, str] = _INTERFACE) -> tuple[Rule, ...]:
    return (Rule(f"system.network.{name}", unit, attributes={"network.io.direction": direction}, labels=labels),)


def _memory_usage(state: str, *minus: str) -> Rule:
    return Rule("system.memory.usage", "By", attributes=_state("memory", state), instrument=_UPDOWN, minus=tuple(minus))


def _paging_usage(state: str, *minus: str) -> Rule:
    return Rule("system.paging.usage", "By", attributes=_state("paging", state), instrument=_UPDOWN, minus=minus)


def _hugepages(name: str, unit: str = "{page}") -> Rule:
    return Rule(f"system.memory.linux.hugepages.{name}", unit, instrument=_UPDOWN)


def _hugepages_usage(state: str, *minus: str) -> Rule:
    return _hugepages("usage")._replace(attributes=_state("memory.linux.hugepages", state), minus=minus)


def _slab(state: str) -> tuple[Rule, ...]:
    attributes = _state("memory.linux.slab", state)
    return (Rule("system.memory.linux.slab.usage", "By", attributes=attributes, instrument=_UPDOWN),)


def _filesystem_usage(state: str, *minus: str) -> Rule:
    attributes = _state("filesystem", state)
    return Rule(
        "system.filesystem.usage", "By", attributes=attributes, labels=_FILESYSTEM, instrument=_UPDOWN, minus=minus
    )


def _faults(type_: str, *minus: str) -> tuple[Rule, ...]:
    attributes = {"system.paging.fault.type": type_}
    return (Rule("system.paging.faults", "{fault}", attributes=attributes, instrument=_COUNTER, minus=minus),)


def _swapped(direction: str) -> tuple[Rule, ...]:
    attributes = {"system.paging.direction": direction}
    return (Rule("system.paging.operations", "{operation}", attributes=attributes, instrument=_COUNTER),)


def _process_io(direction: str) -> tuple[Rule, ...]:
    return (Rule("process.disk.io", "By", attributes={"disk.io.direction": direction}, labels=_PROCESS),)


def _energy(type_: str) -> tuple[Rule, ...]:
    return (Rule("hw.energy", "J", attributes={"hw.type": type_}, labels=_RAPL),)


RULES: Rules = {
    "node_cpu_seconds_total": (
        Rule(
            "system.cpu.time",
            "s",
            labels={"cpu": "cpu.logical_number", "mode": "cpu.mode"},
            values={"irq": "interrupt"},
        ),
    ),
    "node_forks_total": (Rule("system.process.created", "{process}"),),
    "sonde_uptime_seconds": (Rule("system.uptime", "s", 1.0),),
    # What is used: the conventions say MemTotal less MemAvailable.
    _memory("MemTotal"): (
        Rule("system.memory.limit", "By", instrument=_UPDOWN),
        _memory_usage("used", _memory("MemAvailable")),
    ),
    _memory("MemFree"): (_memory_usage("free"),),
    _memory("Buffers"): (_memory_usage("buffers"),),
    _memory("Cached"): (_memory_usage("cached"),),
    _memory("MemAvailable"): (Rule("system.memory.linux.available", "By", instrument=_UPDOWN),),
    _memory("Shmem"): (Rule("system.memory.linux.shared", "By", instrument=_UPDOWN),),
    _memory("SReclaimable"): _slab("reclaimable"),
    _memory("SUnreclaim"): _slab("unreclaimable"),
    _memory("Hugepagesize"): (_hugepages("page_size", "By"),),
    "node_memory_HugePages_Total": (_hugepages("limit"), _hugepages_usage("used", "node_memory_HugePages_Free")),
    "node_memory_HugePages_Free": (_hugepages_usage("free"),),
    "node_memory_HugePages_Rsvd": (_hugepages("reserved"),),
    "node_memory_HugePages_Surp": (_hugepages("surplus"),),
    _memory("SwapTotal"): (_paging_usage("used", _memory("SwapFree")),),
    _memory("SwapFree"): (_paging_usage("free"),),
    # /proc/vmstat counts these since boot, whatever type node_exporter gives them; pgfault contains the major ones.
    "node_vmstat_pgfault": _faults("minor", "node_vmstat_pgmajfault"),
    "node_vmstat_pgmajfault": _faults("major"),
    "node_vmstat_pswpin": _swapped("in"),
    "node_vmstat_pswpout": _swapped("out"),
    "node_disk_read_bytes_total": _disk("io", "By", "read"),
    "node_disk_written_bytes_total": _disk("io", "By", "write"),
    "node_disk_reads_completed_total": _disk("operations", "{operation}", "read"),
    "node_disk_writes_completed_total": _disk("operations", "{operation}", "write"),
    "node_disk_reads_merged_total": _disk("merged", "{operation}", "read"),
    "node_disk_writes_merged_total": _disk("merged", "{operation}", "write"),
    "node_disk_read_time_seconds_total": _disk("operation_time", "s", "read"),
    "node_disk_write_time_seconds_total": _disk("operation_time", "s", "write"),
    "node_disk_io_time_seconds_total": (Rule("system.disk.io_time", "s", labels=_DEVICE),),
    # free of the conventions is what users may take; with what root keeps and what is used it makes the size.
    "node_filesystem_size_bytes": (
        Rule("system.filesystem.limit", "By", labels=_FILESYSTEM, instrument=_UPDOWN),
        _filesystem_usage("used", "node_filesystem_free_bytes"),
    ),
    "node_filesystem_free_bytes": (_filesystem_usage("reserved", "node_filesystem_avail_bytes"),),
    "node_filesystem_avail_bytes": (_filesystem_usage("free"),),
    "node_network_receive_bytes_total": _network("io", "By", "receive"),
    "node_network_transmit_bytes_total": _network("io", "By", "transmit"),
    "node_network_receive_packets_total": _network("packet.count", "{packet}", "receive", _DEVICE),
    "node_network_transmit_packets_total": _network("packet.count", "{packet}", "transmit", _DEVICE),
    "node_network_receive_errs_total": _network("errors", "{error}", "receive"),
    "node_network_transmit_errs_total": _network("errors", "{error}", "transmit"),
    "node_network_receive_drop_total": _network("packet.dropped", "{packet}", "receive"),
    "node_network_transmit_drop_total": _network("packet.dropped", "{packet}", "transmit"),
    "node_rapl_package_joules_total": _energy("cpu"),
    "node_rapl_dram_joules_total": _energy("memory"),
    "sonde_process_cpu_seconds_total": (Rule("process.cpu.time", "s", labels=_PROCESS),),
    "sonde_process_threads": (Rule("process.thread.count", "{thread}", labels=_PROCESS, instrument=_UPDOWN),),
    "sonde_process_memory_rss_bytes": (Rule("process.memory.usage", "By", labels=_PROCESS, instrument=_UPDOWN),),
    "sonde_process_read_bytes_total": _process_io("read"),
    "sonde_process_written_bytes_total": _process_io("write"),
}

"""Packets taken from the network cards per CPU, from /proc/net/softnet_stat.

000006bf 00000000 00000000 00000000 … 00000001 00000000 00000000
processed, dropped, times squeezed, … and as the 13th the CPU; 32-bit numbers in hexadecimal
(softnet_seq_show in net/core/net-procfs.c; the CPU is there since Linux 5.10)
"""

from __future__ import annotations

from struct import Struct
from typing import ClassVar

from sonde.config import NoKeys
from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.model import EMPTY_LAYOUT, Kind, Layout, MetricSpec, Reading, Unit

PROCESSED = MetricSpec(
    "node_softnet_processed_total",
    Kind.COUNTER,
    Unit.NONE,
    "Number of processed packets.",
    ("cpu",),
)
DROPPED = MetricSpec(
    "node_softnet_dropped_total",
    Kind.COUNTER,
    Unit.NONE,
    "Number of dropped packets.",
    ("cpu",),
)
SQUEEZED = MetricSpec(
    "node_softnet_times_squeezed_total",
    Kind.COUNTER,
    Unit.NONE,
    "Number of times processing packets ran out of quota.",
    ("cpu",),
)
_CPU = 12  # the column
_LEAST = 9  # columns of the oldest kernels


class SoftnetCollector:
    Config: ClassVar[type] = NoKeys
    metrics: ClassVar[tuple[MetricSpec, ...]] = (PROCESSED, DROPPED, SQUEEZED)
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: NoKeys) -> None:
        self._file = host.iterated("proc/net/softnet_stat")
        self._cpus: tuple[int, ...] = ()
        self._layout = EMPTY_LAYOUT

    def collect(self) -> Reading:
        cpus, counts = parse_softnet(self._file.read())
        if cpus != self._cpus:  # at first, and when a CPU went off or on line
            labels = [(str(cpu),) for cpu in cpus]
            self._layout = Layout((spec, label) for spec in self.metrics for label in labels)
            self._cpus = cpus
        return Reading(self._layout, counts)

    def close(self) -> None:
        self._file.close()


def parse_softnet(text: bytes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The CPUs; and the processed packets of each, the dropped of each, the times squeezed of each."""
    # Every number has eight digits and fromhex skips white space, so the whole table is two calls in C:
    # at 192 CPUs splitting it into tokens would make 2,880 objects to throw away.
    try:
        data = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        raise ParseError("/proc/net/softnet_stat", text) from None
    rows = text.count(b"\n")
    columns = len(data) // (4 * rows) if rows else 0
    if columns < _LEAST or len(text) != rows * columns * 9:  # eight digits and what separates them
        raise ParseError("/proc/net/softnet_stat", text)
    numbers = Struct(f">{rows * columns}I").unpack(data)
    # Rows are numbered where the kernel does not tell the CPU; they differ when a CPU is off line.
    cpus = numbers[_CPU::columns] if columns > _CPU else tuple(range(rows))
    if len(set(cpus)) != rows:
        raise ParseError("/proc/net/softnet_stat", text)
    return cpus, numbers[0::columns] + numbers[1::columns] + numbers[2::columns]

"""CPU time by mode, per CPU, from the cpuN lines of /proc/stat.

    cpu0 397 0 297 21407 6 0 4 27 0 0
         user nice system idle iowait irq softirq steal guest guest_nice, in USER_HZ (proc_stat(5))

node_exporter's names, labels and units. `guest` is contained in `user` and `guest_nice` in `nice`, there and here.
"""

from __future__ import annotations

import os
from typing import ClassVar

from sonde.config import NoKeys
from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.model import EMPTY_LAYOUT, Kind, Layout, MetricSpec, Reading, Series, Unit
from sonde.shape import Shape

SECONDS = MetricSpec(
    "node_cpu_seconds_total",
    Kind.COUNTER,
    Unit.SECONDS,
    "Seconds the CPUs spent in each mode.",
    ("cpu", "mode"),
)
GUEST = MetricSpec(
    "node_cpu_guest_seconds_total",
    Kind.COUNTER,
    Unit.SECONDS,
    "Seconds the CPUs spent in guests (VMs) for each mode.",
    ("cpu", "mode"),
)
MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
GUEST_MODES = ("user", "nice")
_FIELDS = 11  # the name and ten numbers; guest_nice is there since 2.6.33


class CpuCollector:
    Config: ClassVar[type] = NoKeys
    metrics: ClassVar[tuple[MetricSpec, ...]] = (SECONDS, GUEST)
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: NoKeys) -> None:
        self._file = host.record("proc/stat")
        self._hertz = os.sysconf("SC_CLK_TCK")
        self._shape: Shape | None = None
        self._layout = EMPTY_LAYOUT

    def collect(self) -> Reading:
        text = self._file.read()
        # The cpu lines come first (fs/proc/stat.c); the long intr line after them is not ours.
        tokens = text[: text.find(b"intr")].split()
        shape = self._shape
        if shape is None or not shape.fits(tokens):
            shape = self._learn(tokens)
        hertz = self._hertz
        try:
            return Reading(self._layout, [int(token) / hertz for token in shape.values(tokens)])
        except ValueError:
            raise ParseError("/proc/stat", text) from None

    def _learn(self, tokens: list[bytes]) -> Shape:
        """Find the CPUs; they come and go with hotplug."""
        names = list(range(0, len(tokens), _FIELDS))
        cpus = parse_cpus(tokens)
        at = [(index * _FIELDS, cpu) for index, cpu in enumerate(cpus, start=1)]
        series: list[Series] = [(SECONDS, (cpu, mode)) for _, cpu in at for mode in MODES]
        series += [(GUEST, (cpu, mode)) for _, cpu in at for mode in GUEST_MODES]
        values = [start + 1 + mode for start, _ in at for mode in range(len(MODES))]
        values += [start + 1 + len(MODES) + mode for start, _ in at for mode in range(len(GUEST_MODES))]
        self._layout = Layout(series)
        self._shape = Shape(tokens, names, values)
        return self._shape

    def close(self) -> None:
        self._file.close()


def parse_cpus(tokens: list[bytes]) -> list[str]:
    """The CPU numbers of the tokens of the cpu lines, total line first."""
    names = tokens[::_FIELDS]
    if len(tokens) % _FIELDS or len(names) < 2 or names[0] != b"cpu":
        raise ParseError("/proc/stat", b" ".join(tokens))
    if not all(name.startswith(b"cpu") and name[3:].isdigit() for name in names[1:]):
        raise ParseError("/proc/stat", b" ".join(names))
    if len(set(names)) != len(names):
        raise ParseError("/proc/stat", b" ".join(names))
    return [name[3:].decode() for name in names[1:]]

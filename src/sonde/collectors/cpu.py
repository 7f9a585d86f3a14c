"""CPU time by mode, interrupts, context switches, forks and boot time, from /proc/stat, read once.

    cpu  5361 0 1726 142437 324 0 52 252 0 0         all CPUs: the sum, not emitted
    cpu0 1222 0 676 73012 35 0 9 122 0 0             user nice system idle iowait irq softirq steal guest guest_nice,
                                                     in USER_HZ (proc_stat(5))
    intr 135072 0 0 15 ...                           the sum, then one number per interrupt line: thousands
    ctxt 249113
    btime 1794778917
    processes 5513
    procs_running 1
    procs_blocked 0
    softirq 79302 0 14611 ...

The names, labels and units of node_exporter's `cpu` and `stat`. `guest` is contained in `user` and `guest_nice` in
`nice`, there and here. All counters are as the kernel has them: iowait and idle can step back (proc_stat(5)).
"""

from __future__ import annotations

import os
from math import isfinite
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
INTERRUPTS = MetricSpec("node_intr_total", Kind.COUNTER, Unit.NONE, "Interrupts serviced since boot.")
SWITCHES = MetricSpec("node_context_switches_total", Kind.COUNTER, Unit.NONE, "Context switches since boot.")
BOOT = MetricSpec("node_boot_time_seconds", Kind.GAUGE, Unit.SECONDS, "When the host booted, since the epoch.")
FORKS = MetricSpec("node_forks_total", Kind.COUNTER, Unit.NONE, "Processes and threads created since boot.")
RUNNING = MetricSpec("node_procs_running", Kind.GAUGE, Unit.NONE, "Threads that run or are ready to.")
BLOCKED = MetricSpec("node_procs_blocked", Kind.GAUGE, Unit.NONE, "Processes that wait for I/O to complete.")
HOST_WIDE = (INTERRUPTS, SWITCHES, BOOT, FORKS, RUNNING, BLOCKED)

MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
GUEST_MODES = ("user", "nice")
_FIELDS = 11  # the name and ten numbers; guest_nice is there since 2.6.33
_TAIL = [b"ctxt", b"btime", b"processes", b"procs_running", b"procs_blocked"]  # in this order: fs/proc/stat.c
_NUMBER = 24  # more bytes than a 64-bit number and the space after it have


class CpuCollector:
    Config: ClassVar[type] = NoKeys
    metrics: ClassVar[tuple[MetricSpec, ...]] = (SECONDS, GUEST, *HOST_WIDE)
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: NoKeys) -> None:
        self._file = host.record("proc/stat")
        self._hertz = float(os.sysconf("SC_CLK_TCK"))
        self._shape: Shape | None = None
        self._layout = EMPTY_LAYOUT

    def collect(self) -> Reading:
        text = self._file.read()
        # The cpu lines come first; what follows them, the long intr line, is never split.
        end = text.find(b"\nintr ")
        tokens = text[:end].split()
        shape = self._shape
        if shape is None or not shape.fits(tokens):
            shape = self._learn(tokens)
        hertz = self._hertz
        try:
            # float() is exact below 2**53 ticks, and takes two thirds of the time int() does: it is per CPU and mode.
            values: list[float] = [float(token) / hertz for token in shape.values(tokens)]
        except ValueError:
            raise ParseError("/proc/stat", text) from None
        if not isfinite(sum(values)):
            raise ParseError("/proc/stat", text)
        return Reading(self._layout, [*values, *parse_host_wide(text, end)])

    def _learn(self, tokens: list[bytes]) -> Shape:
        """Find the CPUs; they come and go with hotplug."""
        names = list(range(0, len(tokens), _FIELDS))
        cpus = parse_cpus(tokens)
        at = [(index * _FIELDS, cpu) for index, cpu in enumerate(cpus, start=1)]
        series: list[Series] = [(SECONDS, (cpu, mode)) for _, cpu in at for mode in MODES]
        series += [(GUEST, (cpu, mode)) for _, cpu in at for mode in GUEST_MODES]
        series += [(spec, ()) for spec in HOST_WIDE]
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


def parse_host_wide(text: bytes, start: int) -> list[int]:
    """The numbers of HOST_WIDE; `start` is where the newline before `intr` stands."""
    tail = text[text.find(b"\nctxt ", start) :].split(None, 2 * len(_TAIL))
    if start < 0 or tail[0 : 2 * len(_TAIL) : 2] != _TAIL:
        raise ParseError("/proc/stat", text[max(start, 0) :])
    first = start + len(b"\nintr ")
    try:
        return [int(text[first : first + _NUMBER].split(None, 1)[0]), *map(int, tail[1 : 2 * len(_TAIL) : 2])]
    except (ValueError, IndexError):
        raise ParseError("/proc/stat", text[start:]) from None

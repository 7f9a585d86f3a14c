"""Time spent waiting for CPU, I/O and memory, from /proc/pressure/{cpu,io,memory} (PSI, Linux 4.20).

    some avg10=0.00 avg60=0.04 avg300=0.17 total=2859903      at least one task waited
    full avg10=0.00 avg60=0.03 avg300=0.16 total=2730696      all tasks waited at the same time

`total` is in microseconds (Documentation/accounting/psi.rst). node_exporter's names: `some` is waiting, `full` is
stalled. For the whole system there is no `full` of cpu: the kernel writes 0 there for compatibility.
"""

from __future__ import annotations

import errno
from typing import ClassVar

from sonde.config import NoKeys
from sonde.errors import ParseError, Unavailable
from sonde.hostfs import HostFile, HostFS
from sonde.model import Kind, Layout, MetricSpec, Reading, Unit


def _spec(resource: str, state: str, meaning: str) -> MetricSpec:
    return MetricSpec(f"node_pressure_{resource}_{state}_seconds_total", Kind.COUNTER, Unit.SECONDS, meaning)


CPU_WAITING = _spec("cpu", "waiting", "Time in which at least one task waited for a CPU.")
IO_WAITING = _spec("io", "waiting", "Time in which at least one task waited for I/O.")
IO_STALLED = _spec("io", "stalled", "Time in which no task could run because all waited for I/O.")
MEMORY_WAITING = _spec("memory", "waiting", "Time in which at least one task waited for memory.")
MEMORY_STALLED = _spec("memory", "stalled", "Time in which no task could run because all waited for memory.")
SPECS = (CPU_WAITING, IO_WAITING, IO_STALLED, MEMORY_WAITING, MEMORY_STALLED)
LAYOUT = Layout((spec, ()) for spec in SPECS)
RESOURCES = ("cpu", "io", "memory")

_MICROSECONDS = 1_000_000
_ENABLE = "needs a kernel with CONFIG_PSI=y; where it is off by default, boot with psi=1 on the kernel command line"


class PressureCollector:
    Config: ClassVar[type] = NoKeys
    metrics: ClassVar[tuple[MetricSpec, ...]] = SPECS
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: NoKeys) -> None:
        self._cpu, self._io, self._memory = [_opened(host, resource) for resource in RESOURCES]

    def collect(self) -> Reading:
        cpu = parse_waiting(self._cpu.read())
        io = parse_waiting_and_stalled(self._io.read())
        memory = parse_waiting_and_stalled(self._memory.read())
        return Reading(LAYOUT, (cpu, *io, *memory))

    def close(self) -> None:
        for file in (self._cpu, self._io, self._memory):
            file.close()


def _opened(host: HostFS, resource: str) -> HostFile:
    """Open a file and read it once: with psi=0 some kernels offer files that answer EOPNOTSUPP."""
    name = f"proc/pressure/{resource}"
    try:
        file = host.record(name)
    except FileNotFoundError:
        raise Unavailable(f"no /{name}: this kernel does not account pressure", hint=_ENABLE) from None
    try:
        file.read()
    except OSError as error:
        file.close()
        if error.errno == errno.EOPNOTSUPP:
            raise Unavailable(f"/{name}: pressure accounting is switched off (psi=0)", hint=_ENABLE) from None
        raise
    return file


def parse_waiting(text: bytes) -> float:
    """Seconds of `some`."""
    return _seconds(text, text.split(None, 5), b"some")


def parse_waiting_and_stalled(text: bytes) -> tuple[float, float]:
    """Seconds of `some` and of `full`."""
    tokens = text.split()
    return _seconds(text, tokens, b"some"), _seconds(text, tokens[5:], b"full")


def _seconds(text: bytes, line: list[bytes], state: bytes) -> float:
    try:
        if line[0] != state or line[4][:6] != b"total=":
            raise ParseError("/proc/pressure", text)
        return int(line[4][6:]) / _MICROSECONDS
    except (IndexError, ValueError, OverflowError):
        raise ParseError("/proc/pressure", text) from None

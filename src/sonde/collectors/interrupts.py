"""Interrupts by line and CPU, from /proc/interrupts.

               CPU0       CPU1
     24:          1          0  IO-APIC   5-edge      ACPI:Ged      a number: controller, then trigger and devices
    LOC:    1003921     991834   Local timer interrupts            a name: its meaning
    TLB:      31847      32203   TLB shootdowns
    ERR:          0                                                counted for the host, not per CPU

Off by default: a node with 192 CPUs has some 500 lines, which make 96,000 series under node_exporter's name. With
`per_cpu = false` a line is one series, the sum over the CPUs; `types` keeps chosen lines only.

Every count of the kernel has 32 bits and starts again at 0 beyond them; it is passed on as it is, in sums too. A line
whose bytes have not changed since the last tick is not parsed again: most devices are quiet, whatever the CPUs do.
"""

from __future__ import annotations

from itertools import chain
from typing import ClassVar, NamedTuple

from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.model import EMPTY_LAYOUT, Kind, Labels, Layout, MetricSpec, Reading, Unit

PER_CPU = MetricSpec(
    "node_interrupts_total",
    Kind.COUNTER,
    Unit.NONE,
    "Interrupts by line and CPU.",
    ("cpu", "type", "info", "devices"),
)
SUMS = MetricSpec(
    "sonde_interrupts_total",
    Kind.COUNTER,
    Unit.NONE,
    "Interrupts by line, all CPUs together.",
    ("type", "info", "devices"),
)

_SOURCE = "/proc/interrupts"
_PAGE = 4096


class InterruptsConfig(NamedTuple):
    per_cpu: bool = True  # false: one series per line, sonde_interrupts_total, instead of one per line and CPU
    types: tuple[str, ...] = ()  # only these lines, such as "TLB", "RES", "24"; empty: all


class Line:
    """One line: what it is, and what it said last."""

    __slots__ = ("_columns", "_end", "_start", "_summed", "_text", "labels", "per_cpu", "values")

    def __init__(self, text: bytes, cpus: int, *, summed: bool) -> None:
        name, colon, rest = text.partition(b":")
        if not colon:
            raise ParseError(_SOURCE, text)
        words = rest.split()
        # ERR and MIS have one count for the whole host, and no description.
        self.per_cpu = len(words) > cpus
        self._columns = cpus if self.per_cpu else min(1, len(words))
        self._summed = summed
        self._start = name + colon
        # What stands behind the last count, with the blanks before it: it says the same from tick to tick.
        self._end = rest.split(None, self._columns)[-1] if len(words) > self._columns else b""
        self.labels = labels_of(name, words[self._columns :])
        self._text = b""
        self.values: list[int] = []
        if not self.read(text):
            raise ParseError(_SOURCE, text)

    @property
    def counts(self) -> bool:
        return self._columns > 0

    def read(self, text: bytes) -> bool:
        """Take the numbers of a text; False when it is another line."""
        if text == self._text:
            return True
        if not (text.startswith(self._start) and text.endswith(self._end)):
            return False
        counts = text[len(self._start) : len(text) - len(self._end)]
        zeros = 0
        if self._summed:
            # An interrupt of a device goes to one CPU of many: dropping the zeros halves the time on 192 CPUs.
            zeros = counts.count(b" 0 ")
            counts = counts.replace(b" 0 ", b" ")
        try:
            values = [*map(int, counts.split())]
        except ValueError:
            return False
        if len(values) + zeros != self._columns:
            return False
        self._text, self.values = text, [sum(values)] if self._summed else values
        return True


class InterruptsCollector:
    Config: ClassVar[type] = InterruptsConfig
    metrics: ClassVar[tuple[MetricSpec, ...]] = (PER_CPU, SUMS)
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: InterruptsConfig) -> None:
        self._per_cpu = config.per_cpu
        self._types = frozenset(config.types)
        self._file = host.iterated("proc/interrupts", line=_PAGE)
        self._header = b""
        self._names: list[bytes] = []
        self._wanted: list[int] = []  # where the wanted lines stand
        self._lines: list[Line] = []
        self._layout = EMPTY_LAYOUT

    def collect(self) -> Reading:
        texts = self._file.read().split(b"\n")
        if not self._known(texts):
            self._learn(texts)
        return Reading(self._layout, [*chain.from_iterable([line.values for line in self._lines])])

    def _known(self, texts: list[bytes]) -> bool:
        """Are these the lines of the last tick? Then their numbers are taken."""
        if texts[0] != self._header or len(texts) != len(self._names):
            return False
        for at, line in zip(self._wanted, self._lines, strict=True):
            if not line.read(texts[at]):
                return False
        # A line of a type that was not wanted may have become another one.
        return not self._types or [text.partition(b":")[0] for text in texts] == self._names

    def _learn(self, texts: list[bytes]) -> None:
        """Find the lines; they come and go with devices, the columns with CPUs."""
        cpus = parse_cpus(texts[0])
        lines = [(at, Line(text, len(cpus), summed=not self._per_cpu)) for at, text in enumerate(texts) if at and text]
        lines = [(at, line) for at, line in lines if self._emitted(line)]
        types = [line.labels[0] for _, line in lines]
        if len(set(types)) != len(types):
            raise ParseError(_SOURCE, b"\n".join(texts))
        if self._per_cpu:
            self._layout = Layout((PER_CPU, (cpu, *line.labels)) for _, line in lines for cpu in cpus)
        else:
            self._layout = Layout((SUMS, line.labels) for _, line in lines)
        self._header = texts[0]
        self._names = [text.partition(b":")[0] for text in texts]
        self._wanted = [at for at, _ in lines]
        self._lines = [line for _, line in lines]

    def _emitted(self, line: Line) -> bool:
        if self._types and line.labels[0] not in self._types:
            return False
        return line.counts and (line.per_cpu or not self._per_cpu)

    def close(self) -> None:
        self._file.close()


def parse_cpus(header: bytes) -> list[str]:
    """The numbers of the CPUs that are on line: the columns."""
    names = header.split()
    if not names or len(set(names)) != len(names):
        raise ParseError(_SOURCE, header)
    if not all(name.startswith(b"CPU") and name[3:].isdigit() for name in names):
        raise ParseError(_SOURCE, header)
    return [name[3:].decode() for name in names]


def labels_of(name: bytes, description: list[bytes]) -> Labels:
    """Type, info and devices, as node_exporter takes them apart."""
    words = [word.decode("utf-8", "backslashreplace") for word in description]
    kind = name.strip().decode("utf-8", "backslashreplace")
    if kind.isdigit():
        return kind, "".join(words[:1]), " ".join(words[1:])
    return kind, " ".join(words), ""

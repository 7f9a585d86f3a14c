"""Paging, swapping and out-of-memory kills, from /proc/vmstat: a line `pgfault 1690397` each, about 190 of them.

Only the lines whose names match `fields` are metrics, by default those node_exporter takes. As there they are untyped:
the file mixes counters (pgfault) with levels (nr_free_pages) and does not say which is which.
"""

from __future__ import annotations

import re
from typing import ClassVar, NamedTuple

from sonde.errors import ConfigError, ParseError
from sonde.hostfs import HostFS
from sonde.model import EMPTY_LAYOUT, Kind, Layout, MetricSpec, Reading, Unit

_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")


def _spec(field: str) -> MetricSpec:
    return MetricSpec(f"node_vmstat_{field}", Kind.UNTYPED, Unit.NONE, f"{field} of /proc/vmstat, proc_vmstat(5).")


_KNOWN = ("pgpgin", "pgpgout", "pswpin", "pswpout", "pgfault", "pgmajfault", "oom_kill")
_SPECS = {name: _spec(name) for name in _KNOWN}


class VmstatConfig(NamedTuple):
    fields: str = r"(oom_kill|pgpg|pswp|pg.*fault).*"  # regular expression of field names, matched whole


class VmstatCollector:
    Config: ClassVar[type] = VmstatConfig
    metrics: ClassVar[tuple[MetricSpec, ...]] = tuple(_SPECS.values())
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: VmstatConfig) -> None:
        try:
            self._wanted = re.compile(config.fields)
        except re.error as error:
            raise ConfigError(f"collectors.vmstat.fields: {error}") from None
        self._file = host.iterated("proc/vmstat")
        self._marks: list[bytes] = []
        self._lines = 0
        self._layout = EMPTY_LAYOUT

    def collect(self) -> Reading:
        text = self._file.read()
        if text.count(b"\n") != self._lines:
            self._learn(text)
        try:
            return Reading(self._layout, self._values(text))
        except ValueError:
            self._lines = 0  # other names on as many lines: to be learnt anew
            raise ParseError("/proc/vmstat", text) from None

    def _values(self, text: bytes) -> list[int]:
        """A search for each wanted field, in their order, which makes no object of the other hundred and fifty."""
        values = []
        end = 0
        for mark in self._marks:
            start = text.index(mark, end) + len(mark)
            end = text.index(b"\n", start)
            values.append(int(text[start:end]))
        return values

    def _learn(self, text: bytes) -> None:
        names = [name for name in parse_names(text) if self._wanted.fullmatch(name)]
        self._layout = Layout((_spec_of(name), ()) for name in names)
        # The newline before tells pgfault from a name that ends so; the very first line has none.
        self._marks = [b"\n" + name.encode() + b" " for name in names]
        if names and text.startswith(self._marks[0][1:]):
            self._marks[0] = self._marks[0][1:]
        self._lines = text.count(b"\n")

    def close(self) -> None:
        self._file.close()


def parse_names(text: bytes) -> list[str]:
    """The name of each line, in order."""
    names = []
    for line in text.splitlines():
        pair = line.split()
        if len(pair) != 2 or not _NAME.fullmatch(pair[0]):
            raise ParseError("/proc/vmstat", line)
        names.append(pair[0].decode())
    if not names or len(set(names)) != len(names):
        raise ParseError("/proc/vmstat", text)
    return names


def _spec_of(field: str) -> MetricSpec:
    return _SPECS.get(field) or _SPECS.setdefault(field, _spec(field))

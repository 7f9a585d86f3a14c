"""Load averages, from /proc/loadavg: `0.03 0.07 0.03 2/85 2118`."""

from __future__ import annotations

from typing import ClassVar

from sonde.config import NoKeys
from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.model import Kind, Layout, MetricSpec, Reading, Unit

LOAD1 = MetricSpec("node_load1", Kind.GAUGE, Unit.NONE, "1m load average.")
LOAD5 = MetricSpec("node_load5", Kind.GAUGE, Unit.NONE, "5m load average.")
LOAD15 = MetricSpec("node_load15", Kind.GAUGE, Unit.NONE, "15m load average.")
LAYOUT = Layout([(LOAD1, ()), (LOAD5, ()), (LOAD15, ())])


class LoadCollector:
    Config: ClassVar[type] = NoKeys
    metrics: ClassVar[tuple[MetricSpec, ...]] = (LOAD1, LOAD5, LOAD15)
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: NoKeys) -> None:
        self._file = host.record("proc/loadavg")

    def collect(self) -> Reading:
        return Reading(LAYOUT, parse_load(self._file.read()))

    def close(self) -> None:
        self._file.close()


def parse_load(text: bytes) -> tuple[float, float, float]:
    try:
        one, five, fifteen = map(float, text.split(None, 3)[:3])
    except ValueError:
        raise ParseError("/proc/loadavg", text) from None
    if not 0 <= one + five + fifteen < float("inf"):
        raise ParseError("/proc/loadavg", text)
    return one, five, fifteen

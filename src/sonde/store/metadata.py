"""Kind and unit of a server's metrics, from /api/v1/metadata or, where that is silent, from their names.

    {"node_load1": [{"type": "gauge", "help": "1m load average.", "unit": ""}],
     "node_cpu_seconds": [{"type": "counter", "help": "Seconds the CPUs spent in each mode.", "unit": ""}]}

Prometheus knows a family scraped as OpenMetrics without the `_total` its series have, and a histogram by its own name
only. VictoriaMetrics 1.79 answers with nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sonde.model import Unit

_PARTS = ("_bucket", "_count", "_sum")
_UNITS = frozenset(unit.value for unit in Unit if unit.value)
_KINDS = {"gaugehistogram": "gauge", "stateset": "gauge", "summary": "gauge", "unknown": "untyped", "": "untyped"}
_COUNTING = ("histogram", "summary")  # families whose _bucket, _count and _sum only ever grow


class Family(NamedTuple):
    kind: str
    unit: str


class Metadata:
    """What is known of metrics by name. Odd entries are as good as none."""

    def __init__(self, told: object = None) -> None:
        self._told: Mapping[str, Any] = told if isinstance(told, Mapping) else {}

    def family(self, metric: str) -> Family:
        kind, unit = self._entry(metric)
        if kind:
            return Family(_KINDS.get(kind, kind), unit or unit_of(metric))
        for end in ("_total", "_info", *_PARTS):
            stem = metric.removesuffix(end)
            kind, unit = self._entry(stem) if stem != metric else ("", "")
            if kind in _COUNTING and end in _PARTS:
                return Family("counter", unit or unit_of(stem))
            if kind == {"_total": "counter", "_info": "info"}.get(end, "none"):
                return Family(kind, unit or unit_of(stem))
        return Family(_kind_of(metric), unit_of(metric))

    def is_histogram(self, metric: str) -> bool:
        return self._entry(metric)[0] in _COUNTING

    def _entry(self, name: str) -> tuple[str, str]:
        entries = self._told.get(name)
        first = entries[0] if isinstance(entries, list) and entries else None
        if not isinstance(first, Mapping):
            return "", ""
        return str(first.get("type", "")), str(first.get("unit", ""))


def _kind_of(metric: str) -> str:
    """By the conventions of names; without one nobody knows whether it is a counter."""
    if metric.endswith(("_total", "_bucket")):
        return "counter"
    return "info" if metric.endswith("_info") else "untyped"


def unit_of(metric: str) -> str:
    """`bytes` of node_network_receive_bytes_total: the last word, once what says the kind is off."""
    for end in ("_total", *_PARTS):
        metric = metric.removesuffix(end)
    last = metric.rpartition("_")[2]
    return last if last in _UNITS else ""

"""Frames in the mix a node has, for the sinks that send them somewhere: names, labels and values made up.

Half of the series are large counters, a fifth hundredths of seconds, the rest ratios and constants; 40 % of the values
differ from one tick to the next. Every counter only rises.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from sonde.clock import NS
from sonde.model import Frame, Kind, Layout, MetricSpec, Series, Unit

_FROM_NS = 1_800_000_000 * NS
_CHANGED = 0.4
_PER_METRIC = 20  # series
_SOURCES = 10
# Kind, unit and label names, ten metrics in turn; those with a rule of the OpenTelemetry conventions first.
_METRICS = [
    ("node_network_receive_bytes_total", Kind.COUNTER, Unit.BYTES, ("device",)),
    ("node_network_transmit_bytes_total", Kind.COUNTER, Unit.BYTES, ("device",)),
    ("node_cpu_seconds_total", Kind.COUNTER, Unit.SECONDS, ("cpu", "mode")),
    ("node_disk_read_bytes_total", Kind.COUNTER, Unit.BYTES, ("device",)),
    ("sonde_made_up_{}_total", Kind.COUNTER, Unit.NONE, ("device", "queue")),
    ("sonde_made_up_{}_bytes_total", Kind.COUNTER, Unit.BYTES, ("device", "queue")),
    ("sonde_made_up_{}_seconds_total", Kind.COUNTER, Unit.SECONDS, ("job_id", "scheduler")),
    ("sonde_made_up_{}_ratio", Kind.GAUGE, Unit.RATIO, ("device",)),
    ("sonde_made_up_{}_bytes", Kind.GAUGE, Unit.BYTES, ("job_id", "scheduler")),
    ("sonde_made_up_{}", Kind.GAUGE, Unit.NONE, ("device",)),
]


def layouts_of(series: int) -> list[Layout]:
    """The layouts of ten sources with this many series in all."""
    taken: set[str] = set()
    columns: list[list[Series]] = [[] for _ in range(_SOURCES)]
    for metric in range(series // _PER_METRIC):
        pattern, kind, unit, labels = _METRICS[metric % len(_METRICS)]
        name = pattern.format(metric)
        if name in taken:
            name = f"sonde_made_up_{metric}_again_total"
        taken.add(name)
        spec = MetricSpec(name, kind, unit, "A metric made up to be measured with.", labels)
        points = [(spec, (str(number), "something")[: len(labels)]) for number in range(_PER_METRIC)]
        columns[metric % _SOURCES] += points
    return [Layout(column) for column in columns if column]


def ticks_of(series: int) -> Iterator[list[Frame]]:
    """The frames of one tick after the other, without end."""
    chance = random.Random(1)  # the same values in every run
    layouts = layouts_of(series)
    values = [[_first(spec, chance) for spec, _ in layout] for layout in layouts]
    tick = 0
    while True:
        for layout, column in zip(layouts, values, strict=True):
            for index in chance.sample(range(len(column)), round(_CHANGED * len(column))):
                column[index] = _next(layout[index][0], column[index], chance)
        yield [
            Frame(f"source{number}", _FROM_NS + tick * NS, 0, NS, layout, tuple(column))
            for number, (layout, column) in enumerate(zip(layouts, values, strict=True))
        ]
        tick += 1


def frames_of(series: int) -> list[Frame]:
    """The frames of the first tick."""
    return next(ticks_of(series))


def _first(spec: MetricSpec, chance: random.Random) -> float:
    if spec.unit is Unit.SECONDS:
        return chance.randrange(10**9) / 100
    return chance.random() if spec.unit is Unit.RATIO else chance.randrange(10**12)


def _next(spec: MetricSpec, value: float, chance: random.Random) -> float:
    if spec.kind is not Kind.COUNTER:
        return _first(spec, chance)
    return round(value + 0.01, 2) if isinstance(value, float) else value + chance.randrange(1, 10**6)

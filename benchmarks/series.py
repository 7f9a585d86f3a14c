"""2,000 series as a node has them, and a process that pushes them through a sink once a second.

The values are made up in the mix a node has: half of them large counters, a fifth hundredths of seconds, the rest
constants and ratios.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

from sonde.clock import NS
from sonde.model import Frame, Kind, Layout, MetricSpec, Sink, Unit
from sonde.pipeline.outlet import Outlet

SERIES = 2000
SPECS = [
    MetricSpec(f"node_metric_{n}_total", Kind.COUNTER, Unit.BYTES, "Some help text.", ("device", "mode"))
    for n in range(100)
]
LAYOUT = Layout((spec, (f"eth{d}", "something")) for spec in SPECS for d in range(SERIES // len(SPECS)))
_random = random.Random(1)  # the same values in every run


def value(index: int) -> float:
    kind = index % 10
    if kind < 5:
        return _random.randrange(10**12)
    if kind < 7:
        return _random.randrange(10**9) / 100
    return (0, _random.random(), float(_random.randrange(10**9)))[kind - 7]


def versions(share: float, count: int = 20) -> list[list[float]]:
    """Values of successive ticks, of which this share changes from one to the next."""
    current = [value(index) for index in range(SERIES)]
    ticks = []
    for _ in range(count):
        for index in _random.sample(range(SERIES), round(share * SERIES)):
            current[index] = value(index)
        ticks.append([number + 0 for number in current])  # equal numbers, other objects: as a parser gives them
    return ticks


def frames() -> Iterator[Frame]:
    """A frame of now, whenever one is asked for; a third of its values differ from the last one's."""
    for values in cycle(versions(0.3)):
        # Other objects every time, so that frames in a queue take the memory they would take.
        yield Frame("bench", time.time_ns(), 0, NS, LAYOUT, [number + 0 for number in values])


def push(sink: Sink, *, limit: int, status: Path | None = None) -> None:
    """Offer a frame per second to a sink, as the daemon does, until SIGTERM; then flush.

    The `status` file then has, several times a second, what has become of the frames.
    """
    outlet = Outlet("bench", sink, limit=limit)
    outlet.pace(NS, NS // 20)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    outlet.start()
    offered = 0
    due = time.monotonic()
    for frame in frames():
        outlet.offer([frame])
        offered += 1
        due += 1.0
        while (left := due - time.monotonic()) > 0 and not ended.wait(min(left, 0.1) if status else left):
            if status:
                _tell(status, outlet, offered)
        if ended.is_set():
            break
    outlet.stop(2.0)
    if status:
        _tell(status, outlet, offered)


def _tell(status: Path, outlet: Outlet, offered: int) -> None:
    told = {name: getattr(outlet, name) for name in ("delivered", "dropped", "rejected", "depth", "error")}
    new = status.with_suffix(".new")
    new.write_text(json.dumps({**told, "offered": offered}))
    os.replace(new, status)

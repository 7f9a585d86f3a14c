"""What is found out about one node: figures, devices, curves. The subjects (cpu.py, memory.py, …) fill it in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sonde.jobs.figures.table import DEVICE, NODE, PLOTS
from sonde.jobs.tracks import Curve, Plotter, Readings
from sonde.store.query import Points


class Device(NamedTuple):
    kind: str  # disk, filesystem, network, infiniband, accelerator
    name: str
    figures: Mapping[str, float | None]


class Counter(NamedTuple):
    """An event of the processor or the kernel. `running` is the share of the time it was counted: the value is scaled
    up from it to the whole time.
    """

    name: str
    scope: str  # system, job or tree
    value: float
    running: float | None


class Process(NamedTuple):
    host: str
    pid: str
    comm: str
    rank: str  # empty: none
    cpu_seconds: float | None
    memory_peak: float | None


class Sheet:
    """Refuses names that the tables do not have: a misspelt figure would never be missed."""

    def __init__(self, readings: Readings, plotter: Plotter) -> None:
        self.readings = readings
        self._plotter = plotter
        self.figures: dict[str, float | None] = dict.fromkeys(NODE)
        self.curves: dict[str, Curve] = {}
        self.devices: list[Device] = []
        self.counters: list[Counter] = []
        self.processes: list[Process] = []

    def put(self, **figures: float | None) -> None:
        for name, value in figures.items():
            if name not in NODE:
                raise KeyError(name)
            self.figures[name] = value

    def draw(self, plot: str, points: Points | None) -> None:
        if plot not in PLOTS:
            raise KeyError(plot)
        if points is None or not points.values:
            return
        curve = self._plotter.curve(points)
        if not curve.empty:
            self.curves[plot] = curve

    def device(self, kind: str, name: str, **figures: float | None) -> None:
        for figure in figures:
            if figure not in DEVICE:
                raise KeyError(figure)
        self.devices.append(Device(kind, name, {**dict.fromkeys(DEVICE), **figures}))

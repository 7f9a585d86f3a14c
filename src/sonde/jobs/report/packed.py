"""Curves as the page carries them: 16 bits a value, compressed, as base64 text.

A value is 1 + round((value - low) / (high - low) * 65534) of its plot; 0 is a cell without a value. That is exact to
a 65,000th of the plot's height, finer than any screen. The low bytes of all values stand first, then the high bytes:
neighbours are alike, and zlib likes it so.
"""

from __future__ import annotations

import base64
import zlib
from array import array
from collections.abc import Sequence
from typing import Any

from sonde.jobs.figures.table import PLOTS
from sonde.jobs.summary import Summary
from sonde.jobs.tracks import Cells, Curve

_STEPS = 65534


def packed_plots(summary: Summary) -> dict[str, Any]:
    """What the page's script needs to draw."""
    numbers = array("H")
    plots = [_packed(summary, name, numbers) for name in summary.plots]
    data = numbers.tobytes()
    if array("H", [1]).tobytes()[0] != 1:
        numbers.byteswap()
        data = numbers.tobytes()
    values = base64.b64encode(zlib.compress(data[0::2] + data[1::2], 6)).decode()
    grid = summary.grid
    return {
        "start_ms": grid.start_ns / 1e6,
        "width_ms": grid.width_ns / 1e6,
        "count": grid.cells,
        "hosts": [node.host for node in summary.nodes],
        "plots": plots,
        "values": values,
    }


def _packed(summary: Summary, name: str, numbers: array[int]) -> dict[str, Any]:
    curves = [(place, node.curves[name]) for place, node in enumerate(summary.nodes) if name in node.curves]
    low = min(min(_there(curve.least)) for _, curve in curves)
    high = max(max(_there(curve.most)) for _, curve in curves)
    alone = all(curve.least == curve.most for _, curve in curves)
    begin = len(numbers)
    for _, curve in curves:
        for column in _columns(curve, alone):
            numbers.extend(_scaled(column, low, high))
    plot = PLOTS[name]
    return {
        "name": name,
        "unit": plot.unit,
        "over": plot.over,
        "low": low,
        "high": high,
        "parts": 1 if alone else 3,
        "begin": begin,
        "hosts": [place for place, _ in curves],
    }


def _columns(curve: Curve, alone: bool) -> Sequence[Cells]:
    return (curve.mean,) if alone else (curve.least, curve.mean, curve.most)


def _there(column: Cells) -> list[float]:
    return [value for value in column if value is not None]


def _scaled(column: Cells, low: float, high: float) -> list[int]:
    factor = _STEPS / (high - low) if high > low else 0.0
    return [0 if value is None else 1 + min(_STEPS, round((value - low) * factor)) for value in column]

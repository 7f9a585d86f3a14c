"""Pictures of the curves, by matplotlib: NAME_per_node.png has a line per node, NAME_all_nodes.png their sum or mean.

A cell without a value is a hole in the line. Figures are made without pyplot: it keeps every figure in a global list.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sonde.clock import iso
from sonde.jobs.figures.table import PLOTS
from sonde.jobs.summary import Summary
from sonde.jobs.tracks import Cells, combined

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _HEIGHT, _DPI = 7.1, 3.0, 200  # 18 cm, as perfmon's
_AXES = (0.1, 0.25, 0.83, 0.65)  # room for ticks, times and a legend: constrained layout took half of the time
_FEW_NODES = 12  # that a legend can name
_UNITS = {"bytes": "B", "bytes/s": "B/s", "hertz": "Hz", "watts": "W", "1/s": "/s", "cores": "CPUs"}


def write_plots(
    summary: Summary, directory: str, form: str, progress: Callable[[float], None] | None = None
) -> list[str]:
    """Two pictures for each plot; gives their paths."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    os.makedirs(directory, exist_ok=True)
    written = []
    for number, name in enumerate(summary.plots):
        if progress is not None:
            progress(number / len(summary.plots))
        for suffix, draw in (("per_node", draw_per_node), ("all_nodes", draw_all_nodes)):
            figure = Figure(figsize=(_WIDTH, _HEIGHT))
            (FigureCanvasSVG if form == "svg" else FigureCanvasAgg)(figure)
            draw(figure.add_axes(_AXES), summary, name)
            path = os.path.join(directory, f"{name}_{suffix}.{form}")
            figure.savefig(path, dpi=_DPI, metadata={"Date": None} if form == "svg" else None)
            written.append(path)
    return written


def draw_per_node(axes: Axes, summary: Summary, name: str) -> None:
    minutes = _minutes(summary)
    rows = [(node.host, node.curves[name].mean) for node in summary.nodes if name in node.curves]
    many = len(rows) > _FEW_NODES
    for place, (host, values) in enumerate(rows):
        # Hundreds of thousands of points are a picture in a document, not paths.
        axes.plot(
            minutes,
            _holes(values),
            color=_colour(place, len(rows)),
            linewidth=0.6 if many else 1.0,
            label=host,
            rasterized=many,
        )
    if 1 < len(rows) <= _FEW_NODES:
        axes.legend(fontsize=6, ncols=min(6, len(rows)), loc="upper center", bbox_to_anchor=(0.5, -0.2), frameon=False)
    told = f"{len(rows)} nodes" if len(rows) != 1 else rows[0][0]
    _dress(axes, summary, name, f"{PLOTS[name].title} ({told})", [values for _, values in rows])


def draw_all_nodes(axes: Axes, summary: Summary, name: str) -> None:
    from matplotlib.ticker import MaxNLocator

    plot = PLOTS[name]
    curves = [node.curves[name] for node in summary.nodes if name in node.curves]
    values, counts = combined(curves, plot.over)
    minutes = _minutes(summary)
    axes.plot(minutes, _holes(values), color="#0b57d0", linewidth=1.0)
    if min(counts) < len(curves):
        # Where nodes have no values, a sum is of fewer: that must be seen beside it.
        beside = axes.twinx()
        beside.step(minutes, counts, where="post", color="#999999", linewidth=0.7)
        beside.set_ylim(0, len(curves) * 1.05)
        beside.set_ylabel("nodes", fontsize=6, color="#777777")
        beside.tick_params(labelsize=6, colors="#777777")
        beside.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    _dress(axes, summary, name, f"{plot.title}, {plot.over} of {len(curves)} nodes", [values])


def _minutes(summary: Summary) -> list[float]:
    return [second / 60 for second in summary.grid.seconds]


def _holes(values: Cells) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def _colour(place: int, count: int) -> Any:
    from matplotlib import colormaps

    return colormaps["tab10"](place % 10) if count <= 10 else colormaps["turbo"](0.05 + 0.9 * place / (count - 1))


def _dress(axes: Axes, summary: Summary, name: str, title: str, columns: Sequence[Cells]) -> None:
    from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator, MultipleLocator, PercentFormatter

    unit = PLOTS[name].unit
    axes.set_title(title, fontsize=8, loc="left")
    axes.set_xlabel(f"minutes since {iso(summary.grid.start_ns, digits=0)}", fontsize=6)
    axes.tick_params(labelsize=6)
    axes.grid(visible=True, linewidth=0.3, alpha=0.6)
    axes.set_xlim(0, max(summary.grid.seconds[-1] / 60, 1e-3))
    most = max((value for values in columns for value in values if value is not None), default=1.0)
    if unit != "hertz":
        axes.set_ylim(0, most * 1.08 or 1.0)
    axes.yaxis.set_major_locator(MultipleLocator(_binary_step(most)) if unit.startswith("bytes") else MaxNLocator(4))
    axes.yaxis.set_major_formatter(
        PercentFormatter(1.0)
        if unit == "ratio"
        else FuncFormatter(_binary(unit))
        if unit.startswith("bytes")
        else EngFormatter(_UNITS.get(unit, ""))
    )


def _binary_step(most: float) -> float:
    """A power of two that divides the height into two to four parts: 16 GiB, not 14.9."""
    return float(2 ** max(0, math.ceil(math.log2(most / 4)))) if most >= 8 else 2.0


def _binary(unit: str) -> Callable[[float, int], str]:
    from sonde.units import human_bytes

    suffix = unit.removeprefix("bytes")
    return lambda value, _: human_bytes(value) + suffix

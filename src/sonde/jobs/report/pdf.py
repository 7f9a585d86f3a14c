"""The report as a document in A4, by matplotlib: verdict and findings first, then the plots, together and per node.

Every page has the job in its head (Job ID | User | # Nodes | Date) and its number below. A page is begun only when
there is something to put on it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sonde.clock import iso
from sonde.jobs.figures.table import NODE
from sonde.jobs.report import Report
from sonde.jobs.report.hardware import differences
from sonde.jobs.report.html import figure as figure_text
from sonde.jobs.report.plots import draw_all_nodes, draw_per_node
from sonde.jobs.report.text import absent
from sonde.jobs.rules import where
from sonde.jobs.summary import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_A4 = (8.27, 11.69)
_LEFT, _RIGHT, _TOP, _BOTTOM = 0.08, 0.95, 0.9, 0.06
_LINE = 0.0155  # height of a line of text of 9 points
_ROWS = 4  # plots of a page
_WIDTH = 118  # characters of a line, about
_COLOURS = {"critical": "#b3261e", "warning": "#9a6700", "advice": "#1a7f37", "note": "#57606a"}
_FIGURES = (
    "duration", "cpu_used", "cpu_granted", "cpu_used_share", "memory_used_peak", "memory_used_share", "cpu_seconds",
    "read_bytes", "written_bytes", "network_received", "network_sent", "energy", "energy_estimated",
)  # fmt: skip


class Line(NamedTuple):
    text: str
    size: float = 9
    colour: str = "black"
    weight: str = "normal"
    indent: float = 0.0
    above: float = 0.0  # lines left free before it


def write_pdf(report: Report, path: str, progress: Callable[[float], None] | None = None) -> None:
    from matplotlib.backends.backend_pdf import PdfPages

    title = f"Report of job {report.summary.name}"
    with PdfPages(path, metadata={"Title": title, "Creator": "sonde", "CreationDate": None}) as document:
        for number, page in enumerate(_pages(report, progress), 1):
            _frame(page, report.summary, number)
            document.savefig(page)


def _pages(report: Report, progress: Callable[[float], None] | None) -> Iterator[Figure]:
    yield from _text_pages(list(_lines(report)))
    names = report.summary.plots
    for begin in range(0, len(names), _ROWS):
        if progress is not None:
            progress(begin / len(names))
        yield _plot_page(report.summary, names[begin : begin + _ROWS])
    closing = list(_closing(report))
    if closing:
        yield from _text_pages(closing)


def _page() -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    page = Figure(figsize=_A4)
    FigureCanvasAgg(page)
    return page


def _frame(page: Figure, summary: Summary, number: int) -> None:
    job = summary.job
    cells = (
        ("Job ID", summary.name),
        ("User", str(job.get("user") or "–")),
        ("# Nodes", str(len(summary.nodes))),
        ("Date", iso(summary.grid.start_ns, digits=0)),
    )
    from matplotlib.patches import Rectangle

    width = (_RIGHT - _LEFT) / len(cells)
    for place, (name, text) in enumerate(cells):
        left = _LEFT + place * width
        page.add_artist(Rectangle((left, 0.935), width, 0.035, fill=False, linewidth=0.6, transform=page.transFigure))
        page.text(left + 0.008, 0.9525, name, fontsize=7, weight="bold", va="center")
        page.text(left + 0.075, 0.9525, text[:26], fontsize=7.5, va="center")
    page.text(0.5, 0.025, f"{number}", fontsize=8, ha="center")
    page.text(_RIGHT, 0.025, "sonde report", fontsize=7, ha="right", color="#777777")


def _text_pages(lines: Sequence[Line]) -> Iterator[Figure]:
    page, height = _page(), _TOP
    for line in lines:
        step = _LINE * line.size / 9
        if height - line.above * _LINE - step < _BOTTOM:
            yield page
            page, height = _page(), _TOP
        height -= line.above * _LINE + step
        page.text(
            _LEFT + line.indent,
            height,
            line.text,
            fontsize=line.size,
            color=line.colour,
            weight=line.weight,
            va="bottom",
        )
    yield page


def _wrapped(text: str, line: Line) -> Iterator[Line]:
    width = int(_WIDTH * 9 / line.size * (1 - line.indent) * (0.82 if line.weight == "bold" else 1))
    for place, part in enumerate(textwrap.wrap(text, width)):
        yield line._replace(text=part, above=0 if place else line.above)


def _lines(report: Report) -> Iterator[Line]:
    colour = _COLOURS.get(report.judgement.worst, _COLOURS["advice"])
    yield from _wrapped(report.verdict, Line("", 13, colour, "bold"))
    for finding in report.judgement.findings:
        place = where(finding)
        head = Line("", 9, _COLOURS[finding.severity], "bold", above=0.6)
        yield head._replace(text=finding.severity.upper(), size=7)
        yield from _wrapped(f"{place}: {finding.text}" if place else finding.text, Line(""))
        yield from _wrapped(f"→ {finding.advice}", Line("", colour="#444444", indent=0.015))
    yield Line("Figures", 11, weight="bold", above=1.2)
    for name in _FIGURES:
        value = report.summary.figures[name]
        if value is not None:
            yield Line(f"{figure_text(name, value, NODE[name].unit):>12}   {NODE[name].meaning}", 8)
    if report.summary.missing:
        yield from _wrapped(
            f"Left no values: {', '.join(report.summary.missing)}", Line("", colour=_COLOURS["critical"])
        )


def _plot_page(summary: Summary, names: Sequence[str]) -> Figure:
    page = _page()
    grid = page.add_gridspec(
        _ROWS, 2, left=_LEFT + 0.03, right=_RIGHT - 0.02, top=_TOP, bottom=_BOTTOM + 0.03, hspace=0.75, wspace=0.45
    )
    for row, name in enumerate(names):
        draw_all_nodes(page.add_subplot(grid[row, 0]), summary, name)
        draw_per_node(page.add_subplot(grid[row, 1]), summary, name)
    return page


def _closing(report: Report) -> Iterator[Line]:
    summary = report.summary
    if summary.processes:
        yield Line("Processes, by CPU time", 11, weight="bold", above=0.5)
        for one in summary.processes:
            rank = f"rank {one.rank}" if one.rank else ""
            times = (
                f"{figure_text('', one.cpu_seconds, 'seconds')}, {figure_text('', one.memory_peak, 'bytes')} at most"
            )
            yield Line(f"{one.host}  {one.pid}  {one.comm}  {rank}  {times}", 8)
    counters = [(node.host, counter) for node in summary.nodes for counter in node.counters]
    if counters:
        yield Line("Counters, and the share of the time they were counted", 11, weight="bold", above=1.2)
        for host, counter in counters[:200]:
            share = figure_text("", counter.running, "ratio")
            yield Line(f"{host}  {counter.scope}  {counter.name}  {counter.value:,.0f}  {share}", 8)
    differing = differences([node for node in summary.nodes if node.context])
    if differing:
        yield Line("The nodes differ", 11, weight="bold", above=1.2)
        for name, value, hosts in differing:
            yield from _wrapped(f"{name}: {value} ({hosts})", Line("", 8))
    if summary.absences:
        yield Line("Not seen", 11, weight="bold", above=1.2)
        for absence in summary.absences:
            yield from _wrapped(absent(absence, len(summary.nodes)), Line("", 8))

"""The numbers of a recording: per node, per device and over all nodes, with what was not measured and why.

    summarise(recording).figures["cpu_used"]            of the job: summed over the nodes
    summarise(recording).nodes[3].figures["cpu_used"]   of one node

figures/table.py has all names, with units and meanings. A figure that was not measured is None, never 0. What the
report, the rules and the comparison know, they know from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from sonde.clock import NS
from sonde.errors import ReadError, StoreError, Unavailable
from sonde.jobs.absences import Absence, absences_of, merged, unreadable
from sonde.jobs.figures import cpu, energy, memory, network, process, storage
from sonde.jobs.figures.sheet import Counter, Device, Process, Sheet
from sonde.jobs.figures.table import JOB, NODE
from sonde.jobs.recording import About, Node, Recording
from sonde.jobs.tracks import Curve, Grid, Plotter, Readings, ratio

_SUBJECTS = (cpu, memory, storage, network, energy, process)
NAMES = tuple(name for subject in _SUBJECTS for name in subject.NAMES)
# Three values per cell, node and plot: with 64 nodes and 20 plots that is what a page of some megabytes can hold.
_CELLS_OF_ALL = 40_000
_MOST_CELLS, _FEWEST_CELLS = 900, 120
_CRASH = "crash"  # ended by `sonde record recover`, long after nobody wrote any more
_TOP = 20  # processes of the whole job

_OVER: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": sum,
    "max": max,
    "min": min,
    "mean": lambda values: sum(values) / len(values),
}


class NodeSummary(NamedTuple):
    host: str
    about: About
    figures: Mapping[str, float | None]
    devices: Sequence[Device] = ()
    curves: Mapping[str, Curve] = {}
    counters: Sequence[Counter] = ()
    processes: Sequence[Process] = ()
    absences: Sequence[Absence] = ()
    first_ns: int | None = None  # of its values, on the gatherer's clock
    last_ns: int | None = None
    context: Mapping[str, Any] | None = None


class Summary(NamedTuple):
    name: str
    job: Mapping[str, Any]
    missing: Sequence[str]
    grid: Grid
    nodes: Sequence[NodeSummary]
    figures: Mapping[str, float | None]
    absences: Sequence[Absence]
    processes: Sequence[Process]  # of all nodes, by CPU time

    @property
    def plots(self) -> list[str]:
        """The names of the plots at least one node has a curve for, in the order of the table."""
        from sonde.jobs.figures.table import PLOTS

        return [name for name in PLOTS if any(name in node.curves for node in self.nodes)]


def summarise(recording: Recording, progress: Callable[[float, str], None] | None = None) -> Summary:
    """Everything about a recording. A node that cannot be read is there without figures, and says why."""
    grid = grid_of(recording)
    nodes = []
    for number, node in enumerate(recording.nodes):
        if progress is not None:
            progress(number / len(recording.nodes), node.host)
        nodes.append(summarise_node(node, grid))
    return _whole(recording, grid, nodes)


def grid_of(recording: Recording) -> Grid:
    spans = [span for node in recording.nodes if (span := _span(node)) is not None]
    begin = min((first for first, _ in spans), default=0)
    end = max((last for _, last in spans), default=begin)
    cells = min(_MOST_CELLS, max(_FEWEST_CELLS, _CELLS_OF_ALL // max(1, len(recording.nodes))))
    period = min((node.about.period_ns for node in recording.nodes), default=NS)
    width = max(period, -(-(end - begin + 1) // cells))
    return Grid(begin, width, max(1, -(-(end - begin + 1) // width)))


def _span(node: Node) -> tuple[int, int] | None:
    try:
        with node.archive() as reader:
            span = reader.span()
    except (Unavailable, StoreError):
        return None
    return (span.start_ns - node.about.offset_ns, span.end_ns - node.about.offset_ns) if span else None


def summarise_node(node: Node, grid: Grid) -> NodeSummary:
    try:
        readings = Readings(node, NAMES, process.FAMILIES)
    except (Unavailable, StoreError) as error:
        return NodeSummary(node.host, node.about, dict.fromkeys(NODE), absences=[unreadable(node.host, error)])
    sheet = Sheet(readings, Plotter(grid))
    _recorded(sheet)
    for subject in _SUBJECTS:
        subject.measure(sheet)
    first, last = readings.span() or (None, None)
    absences = absences_of(sheet, NAMES)
    try:
        context = node.context()
    except ReadError as error:
        context = None
        absences.append(Absence("hardware and software", str(error), "", (node.host,)))
    return NodeSummary(
        node.host,
        node.about,
        sheet.figures,
        sheet.devices,
        sheet.curves,
        sheet.counters,
        sheet.processes,
        absences,
        first,
        last,
        context,
    )


def _recorded(sheet: Sheet) -> None:
    """How well it was recorded."""
    about, span = sheet.readings.about, sheet.readings.span()
    clock = about.clock
    open_end = about.ended_ns is None and not sheet.readings.running
    sheet.put(
        interrupted=float(open_end or about.ended_by == _CRASH),
        exit_code=about.exit_code,
        clock_offset=abs(clock["offset_ns"]) / NS if clock else None,
        clock_bound=clock["bound_ns"] / NS if clock and "bound_ns" in clock else None,
    )
    if span is not None:
        gap, lost = _gaps(sheet.readings)
        sheet.put(duration=(span[1] - span[0]) / NS, sampling_gap=gap, sampling_lost_share=lost)


def _gaps(readings: Readings) -> tuple[float | None, float | None]:
    """The longest time between two values of the series that has most, and the share of its values that is missing."""
    fullest = max(
        (points for name in readings.names for points in readings.of(name)),
        key=lambda one: len(one.times),
        default=None,
    )
    if fullest is None or len(fullest.times) < 2:
        return None, None
    expected = round((fullest.times[-1] - fullest.times[0]) / fullest.period_ns) + 1
    longest = max(later - earlier for earlier, later in pairwise(fullest.times))
    return longest / NS, max(0.0, 1 - len(fullest.times) / expected)


def _whole(recording: Recording, grid: Grid, nodes: Sequence[NodeSummary]) -> Summary:
    end = max((node.last_ns for node in nodes if node.last_ns is not None), default=None)
    nodes = [_silent(node, end) for node in nodes]
    processes = sorted((one for node in nodes for one in node.processes), key=lambda one: -(one.cpu_seconds or 0.0))
    by_memory = sorted(processes, key=lambda one: -(one.memory_peak or 0.0))
    figures = {name: _over(nodes, name) for name, figure in NODE.items() if figure.over}
    figures |= _of_job(recording, nodes, processes)
    return Summary(
        recording.name,
        dict(recording.job or {}),
        recording.missing,
        grid,
        nodes,
        figures,
        merged([absence for node in nodes for absence in node.absences]),
        list(dict.fromkeys([*processes[:_TOP], *by_memory[: _TOP // 2]])),
    )


def _silent(node: NodeSummary, end_ns: int | None) -> NodeSummary:
    if node.last_ns is None or end_ns is None:
        return node
    return node._replace(figures={**node.figures, "silent": (end_ns - node.last_ns) / NS})


def _over(nodes: Sequence[NodeSummary], name: str) -> float | None:
    known = [value for node in nodes if (value := node.figures[name]) is not None]
    return _OVER[NODE[name].over](known) if known else None


def _of_job(
    recording: Recording, nodes: Sequence[NodeSummary], processes: Sequence[Process]
) -> dict[str, float | None]:
    asked = next((node.about.asked for node in nodes if node.about.asked), None) or {}
    walltime = asked.get("seconds") or (recording.job or {}).get("walltime_seconds")
    ranks: dict[str, float] = {}
    for process_ in processes:
        if process_.rank and process_.cpu_seconds is not None:
            ranks[process_.rank] = ranks.get(process_.rank, 0.0) + process_.cpu_seconds
    found: dict[str, float | None] = {
        "nodes": len([node for node in nodes if node.last_ns is not None]),
        "nodes_missing": len(recording.missing),
        "cpu_asked_per_node": _largest(nodes, "cpu_asked"),
        "memory_asked_per_node": _largest(nodes, "memory_asked"),
        "walltime_asked": walltime,
        "walltime_used_share": ratio(_over(nodes, "duration"), walltime),
        "cpu_imbalance": imbalance([node.figures["cpu_seconds"] for node in nodes]),
        "memory_imbalance": imbalance([node.figures["memory_used_peak"] for node in nodes]),
        "ranks": len(ranks) or None,
        "rank_imbalance": imbalance(list(ranks.values())),
    }
    assert found.keys() == JOB.keys()  # noqa: S101 - the tables are the contract of the rules
    return found


def _largest(nodes: Sequence[NodeSummary], name: str) -> float | None:
    return max((value for node in nodes if (value := node.figures[name]) is not None), default=None)


def imbalance(values: Sequence[float | None]) -> float | None:
    """What the mean is below the largest, of the largest: 0 when all are alike, towards 1 when one has it all."""
    known = [value for value in values if value is not None]
    if len(known) < 2 or max(known) <= 0:
        return None
    return 1 - sum(known) / len(known) / max(known)

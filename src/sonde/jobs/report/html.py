"""The report as one page that works offline: verdict, findings, plots to zoom into, nodes, processes, hardware.

The page fetches nothing: style and script are in it (page.css, page.js), the numbers too (packed.py). Without a script
it still has every table. Everything that came from a recording is escaped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from sonde.clock import iso
from sonde.jobs.figures.table import DEVICE, NODE, PLOTS
from sonde.jobs.report import Report
from sonde.jobs.report.hardware import differences, facts
from sonde.jobs.report.packed import packed_plots
from sonde.jobs.report.text import absent
from sonde.jobs.rules import Finding, shown, where
from sonde.jobs.summary import Summary
from sonde.jobs.tracks import Curve
from sonde.units import human_joules

_HERE = os.path.dirname(__file__)
# The figures on top, with how they are written.
_NUMBERS = (
    ("duration", "ran for"),
    ("cpu_used", "CPUs used"),
    ("cpu_used_share", "of those granted"),
    ("memory_used_peak", "memory, largest node"),
    ("memory_used_share", "of what was granted"),
    ("cpu_seconds", "CPU time"),
    ("read_bytes", "read"),
    ("written_bytes", "written"),
    ("network_received", "received"),
    ("network_sent", "sent"),
    ("energy", "energy"),
    ("energy_estimated", "energy, estimated"),
)
_NODE_COLUMNS = (
    "cpu_used",
    "cpu_used_share",
    "memory_used_peak",
    "memory_used_share",
    "host_iowait_share",
    "host_steal_share",
    "read_bytes",
    "written_bytes",
    "network_received",
    "network_sent",
    "energy",
)
_FORMS = {"bytes": "bytes", "bytes/s": "rate", "ratio": "percent", "seconds": "seconds", "cores": "cores"}


def write_page(report: Report, path: str) -> None:
    text = page(report)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def page(report: Report) -> str:
    summary = report.summary
    parts = [
        _head(summary),
        f'<h1 class="{report.judgement.worst or "advice"}">{escape(report.verdict)}</h1>',
        *_findings(report),
        _numbers(summary),
        *_plots(summary),
        *_nodes(summary),
        *_devices(summary),
        *_processes(summary),
        *_counters(summary),
        *_hardware(summary),
        *_not_seen(report),
        f"<script>{_file('page.js')}</script></body></html>",
    ]
    return "\n".join(parts)


def _file(name: str) -> str:
    with open(os.path.join(_HERE, name), encoding="utf-8") as file:
        return file.read()


def _head(summary: Summary) -> str:
    job = summary.job
    title = f"Report of job {summary.name}" if job else f"Report of {summary.name}"
    told = [f"Job {summary.name}" if job else summary.name]
    told += [
        f"{label} {job[key]}"
        for key, label in (("name", "name"), ("user", "user"), ("partition", "partition"))
        if job.get(key)
    ]
    told += [
        "1 node" if len(summary.nodes) == 1 else f"{len(summary.nodes)} nodes",
        iso(summary.grid.start_ns, digits=0),
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_file('page.css')}</style></head>\n"
        f"<body><header><span>{escape(' · '.join(map(str, told)))}</span>"
        '<button id="theme" type="button">light / dark</button></header>'
    )


def _findings(report: Report) -> Iterable[str]:
    if not report.judgement.findings:
        return
    yield "<h2>Findings</h2>"
    for finding in report.judgement.findings:
        place = where(finding)
        yield (
            f'<div class="finding {finding.severity}"><span class="level">{finding.severity}</span>'
            f"<p>{escape(f'{place}: {finding.text}' if place else finding.text)}</p>"
            f'<p class="advice-text">{escape(finding.advice)}</p>{_places(finding)}</div>'
        )


def _places(finding: Finding) -> str:
    if len(finding.places) < 3:
        return ""
    names = ", ".join(map(str, finding.places))
    return f"<details><summary>{len(finding.places)} places</summary>{escape(names)}</details>"


def figure(name: str, value: float | None, unit: str) -> str:
    """A figure with its unit; a dash for what was not measured."""
    if value is None:
        return "–"
    if unit == "joules":
        return human_joules(value)
    suffix = {"watts": " W", "1/s": "/s", "hertz": " Hz", "celsius": " °C"}.get(unit, "")
    return shown(value, _FORMS.get(unit, "count")) + suffix


def _numbers(summary: Summary) -> str:
    rows = [
        f"<div><dt>{label}</dt><dd>{escape(figure(name, value, NODE[name].unit))}</dd></div>"
        for name, label in _NUMBERS
        if (value := summary.figures[name]) is not None
    ]
    return f'<h2>Figures</h2><dl class="numbers">{"".join(rows)}</dl>'


def _plots(summary: Summary) -> Iterable[str]:
    if not summary.plots:
        return
    yield (
        '<h2>Plots</h2><p id="no-plots">The plots need a script; the tables below each have the figures.</p>'
        '<div class="controls"><button id="over" type="button" aria-pressed="false">show all nodes together</button>'
        '<button id="whole" type="button">whole time</button><button id="every" type="button">every node</button>'
        '<button id="none" type="button">none</button>'
        '<input id="filter" type="search" placeholder="nodes with…" aria-label="show nodes whose name has">'
        '<div class="hosts" id="hosts" role="group" aria-label="nodes"></div></div>'
        "<p>Drag across a plot to zoom, double-click or Escape for the whole time; arrows, + and - when it has the"
        " focus. All nodes are on one clock; a hole is a time without values.</p>"
        '<div class="plots">'
    )
    for name in summary.plots:
        yield _plot(summary, name)
    yield "</div>"
    data = json.dumps(packed_plots(summary), separators=(",", ":")).replace("<", "\\u003c")
    yield f'<script type="application/json" id="plots-data">{data}</script>'


def _plot(summary: Summary, name: str) -> str:
    plot = PLOTS[name]
    rows = [(node.host, node.curves[name]) for node in summary.nodes if name in node.curves]
    cells = [[host, *[figure(name, value, plot.unit) for value in spread(curve)]] for host, curve in rows]
    told = f"{plot.title}, {len(rows)} of {len(summary.nodes)} nodes"
    values = _table(("node", "least", "mean", "most"), cells, numbers=(1, 2, 3))
    return (
        f'<section class="plot" id="plot-{name}"><h3>{escape(plot.title)}</h3>'
        f'<canvas role="img" tabindex="0" aria-label="{escape(told)}"></canvas>'
        f"<details><summary>as a table</summary>{values}</details></section>"
    )


def spread(curve: Curve) -> tuple[float, float, float]:
    """Least, mean and most over the whole time."""
    means = [value for value in curve.mean if value is not None]
    least = min(value for value in curve.least if value is not None)
    return least, sum(means) / len(means), max(value for value in curve.most if value is not None)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = ()) -> str:
    def cell(tag: str, column: int, text: str) -> str:
        return f"<{tag}{' class=n' if column in numbers else ''}>{text}</{tag}>"

    head = "".join(cell("th", column, escape(text)) for column, text in enumerate(header))
    body = "".join(
        "<tr>" + "".join(cell("td", column, escape(str(text))) for column, text in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _nodes(summary: Summary) -> Iterable[str]:
    columns = [name for name in _NODE_COLUMNS if any(node.figures[name] is not None for node in summary.nodes)]
    ordered = sorted(summary.nodes, key=lambda node: node.figures["cpu_used_share"] or 0.0)
    rows = [[node.host, *[figure(name, node.figures[name], NODE[name].unit) for name in columns]] for node in ordered]
    header = ["node", *[name.replace("_", " ") for name in columns]]
    yield f"<h2>Nodes</h2>{_table(header, rows, numbers=range(1, len(header)))}"
    if summary.missing:
        yield f"<p class=critical>Left no values: {escape(', '.join(summary.missing))}</p>"


def _devices(summary: Summary) -> Iterable[str]:
    rows: list[list[str]] = []
    for node in summary.nodes:
        for device in node.devices:
            told = [
                f"{name.replace('_', ' ')} {_device_figure(name, value)}"
                for name, value in device.figures.items()
                if value is not None
            ]
            rows.append([node.host, device.kind, device.name, ", ".join(told)])
    if rows:
        table = _table(("node", "kind", "device", "figures"), rows)
        yield f"<h2>Devices</h2><details><summary>{len(rows)} devices</summary>{table}</details>"


def _device_figure(name: str, value: float) -> str:
    return figure(name, value, DEVICE[name].unit)


def _processes(summary: Summary) -> Iterable[str]:
    if not summary.processes:
        return
    rows = [
        [
            one.host,
            one.pid,
            one.comm,
            one.rank,
            figure("", one.cpu_seconds, "seconds"),
            figure("", one.memory_peak, "bytes"),
        ]
        for one in summary.processes
    ]
    header = ("node", "pid", "command", "rank", "CPU time", "peak memory")
    yield f"<h2>Processes</h2>{_table(header, rows, numbers=(1, 4, 5))}"


def _counters(summary: Summary) -> Iterable[str]:
    rows = [
        [node.host, counter.scope, counter.name, f"{counter.value:,.0f}", figure("", counter.running, "ratio")]
        for node in summary.nodes
        for counter in node.counters
    ]
    if rows:
        told = "Counted for a share of the time, and scaled up to all of it; 100 % is exact."
        header = ("node", "of", "counter", "value", "share of the time it was counted")
        yield f"<h2>Counters</h2><p>{told}</p>{_table(header, rows, numbers=(3, 4))}"


def _hardware(summary: Summary) -> Iterable[str]:
    known = [node for node in summary.nodes if node.context]
    if not known:
        return
    yield "<h2>Hardware and software</h2>"
    differing = differences(known)
    if differing:
        yield f"<h3>The nodes differ</h3>{_table(('what', 'value', 'nodes'), differing)}"
    elif len(known) > 1:
        yield f"<p>The {len(known)} nodes are alike.</p>"
    rows: list[list[Any]] = [[name, text] for name, text in facts(known[0])]
    yield f"<details><summary>{escape(known[0].host)}</summary>{_table(('what', 'value'), rows)}</details>"


def _not_seen(report: Report) -> Iterable[str]:
    absences, unjudged = report.summary.absences, report.judgement.unjudged
    if absences:
        items = "".join(f"<li>{escape(absent(absence, len(report.summary.nodes)))}</li>" for absence in absences)
        yield f"<h2>Not seen</h2><ul>{items}</ul>"
    if unjudged:
        yield f"<p>Rules that could not be judged for want of values: {escape(', '.join(unjudged))}.</p>"

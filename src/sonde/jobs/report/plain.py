"""The report as plain objects, for --json and for the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sonde.clock import iso
from sonde.jobs.report import Report
from sonde.jobs.rules import Finding
from sonde.jobs.summary import NodeSummary


def as_object(report: Report) -> dict[str, Any]:
    summary = report.summary
    return {
        "name": summary.name,
        "verdict": report.verdict,
        "job": dict(summary.job),
        "missing": list(summary.missing),
        "findings": [finding_object(finding) for finding in report.judgement.findings],
        "unjudged": list(report.judgement.unjudged),
        "figures": dict(summary.figures),
        "nodes": [_node(node) for node in summary.nodes],
        "processes": [process._asdict() for process in summary.processes],
        "not_seen": [absence._asdict() for absence in summary.absences],
    }


def finding_object(finding: Finding) -> dict[str, Any]:
    return {**finding._asdict(), "places": [place._asdict() for place in finding.places]}


def _node(node: NodeSummary) -> dict[str, Any]:
    return {
        "host": node.host,
        "first": moment(node.first_ns),
        "last": moment(node.last_ns),
        "figures": dict(node.figures),
        "devices": [device._asdict() for device in node.devices],
        "counters": [counter._asdict() for counter in node.counters],
    }


def moment(time_ns: int | None) -> str | None:
    return None if time_ns is None else iso(time_ns)


def flat(value: Any, prefix: str = "") -> dict[str, str]:
    """A tree as dotted names: what context.json says, in two columns."""
    if isinstance(value, Mapping):
        return {name: text for key, item in value.items() for name, text in flat(item, f"{prefix}{key}.").items()}
    if isinstance(value, list | tuple):
        if all(not isinstance(item, Mapping | list | tuple) for item in value):
            return {prefix.rstrip("."): ", ".join(map(str, value))}
        return {
            name: text for place, item in enumerate(value) for name, text in flat(item, f"{prefix}{place}.").items()
        }
    return {prefix.rstrip("."): "" if value is None else str(value)}

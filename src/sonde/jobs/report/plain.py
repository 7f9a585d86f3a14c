"""The report as plain objects, for --json and for the page."""

from __future__ import annotations

from typing import Any

from sonde.clock import iso
from sonde.jobs.report import Report
from sonde.jobs.report.hardware import differences
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
        "differences": [
            {"subject": subject, "value": value, "nodes": nodes} for subject, value, nodes in differences(summary.nodes)
        ],
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

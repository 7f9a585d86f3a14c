"""What an export says about itself: the job, the nodes, the columns with their units, the gaps and the notes.

Formats of several tables hold it in themselves. Beside the others stands a file: `4711.csv`, `4711.csv.about.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sonde.clock import iso
from sonde.jobs.export.choice import Gap
from sonde.jobs.export.table import Table
from sonde.jobs.recording import Node, Recording, write_json
from sonde.version import VERSION


def description(table: Table) -> dict[str, Any]:
    """Plain JSON."""
    return {
        **head(table.recording),
        "columns": [
            {
                "name": field.name,
                "metric": field.series.metric,
                "labels": dict(field.series.labels),
                "kind": field.series.kind,
                "unit": field.series.unit,
            }
            for field in table.fields
        ],
        "gaps": [gap_row(gap) for gap in table.gaps],
        "notes": [{"host": host, "text": text} for host, text in table.notes],
    }


def head(recording: Recording) -> dict[str, Any]:
    return {
        "recording": recording.name,
        "job": dict(recording.job) if recording.job else None,
        "nodes": [node_row(node) for node in recording.nodes],
        "written_by": f"sonde {VERSION}",
    }


def node_row(node: Node) -> dict[str, Any]:
    about = node.about
    return {
        "host": about.host,
        "begun": _moment(about.begun_ns - about.offset_ns),
        "ended": None if about.ended_ns is None else _moment(about.ended_ns - about.offset_ns),
        "ended_by": about.ended_by,
        "exit_code": about.exit_code,
        "period_ns": about.period_ns,
        "clock": dict(about.clock) if about.clock else None,
        "labels": dict(about.labels),
    }


def gap_row(gap: Gap) -> dict[str, Any]:
    ended = None if gap.to_ns is None else _moment(gap.to_ns)
    told = {"host": gap.host, "from": _moment(gap.from_ns), "to": ended, "metric": gap.metric}
    return {**told, "labels": list(gap.labels), "quality": gap.quality, "reason": gap.reason}


def identity(recording: Recording) -> str:
    """What tells two recordings of one name apart: job ids repeat, and directories are called `run`."""
    begun_ns = min(node.about.begun_ns - node.about.offset_ns for node in recording.nodes)
    return f"{recording.name} {iso(begun_ns, digits=9)}"


def write_beside(path: str, told: Mapping[str, Any]) -> str:
    """Write the description beside a file that cannot hold it; gives its path."""
    beside = f"{path}.about.json"
    write_json(beside, told)
    return beside


def _moment(time_ns: int) -> str:
    return iso(time_ns, digits=9)

"""What the daemon collects, where it sends it, and what fails.

Exit code 0 when everything works, 1 when a collector or sink fails, hangs or is stale, 3 when no daemon answers.
"""

from __future__ import annotations

import argparse
import json
from itertools import islice
from typing import Any

from sonde.cli.connection import add_connection, call
from sonde.cli.terminal import label_text, paint, table
from sonde.units import Duration, human_bytes, human_seconds

_REASONS = 8  # lines for one metric
_COLOUR = {"ok": "green", "failing": "red", "hung": "red", "stale": "yellow"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("--json", action="store_true", help="print the daemon's reply")


def run(args: argparse.Namespace) -> int:
    reply = call(args, "daemon.status")
    if args.json:
        print(json.dumps(reply, indent=2))
    else:
        print(render(reply))
    return 0 if all(item["state"] == "ok" for item in reply["collectors"] + reply["sinks"]) else 1


def render(reply: dict[str, Any]) -> str:
    """The reply of daemon.status for people."""
    share = reply["cpu_seconds"] / max(reply["uptime_seconds"], 1e-9)
    parts = [
        f"sonde {reply['build']} on {reply['host']}, pid {reply['pid']}, up {human_seconds(reply['uptime_seconds'])}",
        f"{reply['series']} series, {share:.2%} of a CPU, {human_bytes(reply['resident_bytes'])} resident"
        f", configuration: {reply['config']}",
        *table([[name, address] for name, address in reply["addresses"].items()]).splitlines(),
        "",
        _collectors(reply["collectors"]),
    ]
    if reply["sinks"]:
        parts += ["", _sinks(reply["sinks"])]
    if reply["absent"]:
        parts += ["", paint("not here", "bold")]
        parts += [f"  {absent['name']}: {_reason(absent)}" for absent in reply["absent"]]
    gaps = _gaps(reply["collectors"])
    if gaps:
        parts += ["", paint("missing or qualified values", "bold"), *gaps]
    return "\n".join(parts)


def _gaps(items: list[dict[str, Any]]) -> list[str]:
    """A line per metric, quality and reason: mostly one for all series of a metric, and never too many."""
    grouped: dict[tuple[str, str, str], dict[str, list[dict[str, Any]]]] = {}
    for item in items:
        for gap in item["gaps"]:
            reasons = grouped.setdefault((item["name"], gap["metric"], gap["quality"]), {})
            reasons.setdefault(gap["reason"], []).append(gap)
    lines = []
    for (name, metric, quality), reasons in grouped.items():
        for reason, gaps in islice(reasons.items(), _REASONS):
            where = label_text(gaps[0]["labels"].items()) if len(gaps) == 1 else f" ({len(gaps)} series)"
            lines.append(f"  {name}: {metric}{where} {quality}: {reason}")
        more = sum(len(gaps) for gaps in islice(reasons.values(), _REASONS, None))
        if more:
            lines.append(f"  {name}: {metric} ({more} more series) {quality}: other reasons, see --json")
    return lines


def _reason(absent: dict[str, Any]) -> str:
    return f"{'denied: ' if absent['denied'] else ''}{absent['reason']}"


def _collectors(items: list[dict[str, Any]]) -> str:
    rows = []
    for item in items:
        note = item["error"] or (
            f"no answer for {human_seconds(item['running_seconds'])}" if item["state"] == "hung" else ""
        )
        rows.append(
            [
                item["name"],
                item["state"],
                str(Duration(item["period_seconds"])),
                human_seconds(item["took_seconds"]),
                str(item["ticks"]),
                str(item["failures"]),
                str(item["skipped"]),
                note,
            ]
        )
    header = ("collector", "state", "period", "took", "ticks", "failed", "skipped", "")
    return _tinted(table(rows, header=header, right=(2, 3, 4, 5, 6)), items)


def _sinks(items: list[dict[str, Any]]) -> str:
    rows = [
        [
            item["name"],
            item["state"],
            str(item["queued"]),
            str(item["delivered"]),
            str(item["dropped"]),
            str(item["rejected"]),
            item["error"],
        ]
        for item in items
    ]
    header = ("sink", "state", "queued", "delivered", "dropped", "rejected", "")
    return _tinted(table(rows, header=header, right=(2, 3, 4, 5)), items)


def _tinted(text: str, items: list[dict[str, Any]]) -> str:
    """Colour the state column after the widths are settled: escapes would count as characters."""
    head, *lines = text.split("\n")
    tinted = [
        line.replace(f" {item['state']} ", f" {paint(item['state'], _COLOUR[item['state']])} ", 1)
        for line, item in zip(lines, items, strict=True)
    ]
    return "\n".join([head, *tinted])

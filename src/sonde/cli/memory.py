"""Proportional and unique memory of processes (PSS, USS), read now.

  sonde memory 812 813        these processes
  sonde memory --tree 812     this process and all its descendants

The kernel walks the page tables for it, about 10 ms per GB while the process may have to wait: so it is read when you
ask and never by the daemon's ticks. PSS shares a page among those who map it; USS counts only what nobody else maps.
"""

from __future__ import annotations

import argparse
import json

from sonde.cli.terminal import table
from sonde.clock import iso
from sonde.collectors.process import PSS, USS, measure_memory
from sonde.errors import Unavailable
from sonde.hostfs import HostFS
from sonde.model import Quality, Reading
from sonde.units import human_bytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", nargs="+", type=int, help="process ids")
    parser.add_argument("--tree", action="store_true", help="with all their descendants")
    parser.add_argument("--json", action="store_true", help="print a list of objects")


def run(args: argparse.Namespace) -> int:
    host = HostFS()
    pids = [pid for root in args.pid for pid in (descendants(host, root) if args.tree else [root])]
    rows = rows_of(measure_memory(host, pids))
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        print(render(host, rows))
    read = [row for row in rows if row["pss_bytes"] is not None]
    if not read:
        raise Unavailable("none of these processes could be read", hint="the reasons are above; root may read all")
    return 0 if len(read) == len(rows) else 1


def descendants(host: HostFS, root: int) -> list[int]:
    """A process and everything below it, from /proc/PID/task/TID/children; what ends meanwhile is left out."""
    found = [root]
    for pid in found:
        try:
            for task in host.names(f"proc/{pid}/task"):
                found += map(int, host.read(f"proc/{pid}/task/{task}/children").split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def rows_of(reading: Reading) -> list[dict[str, object]]:
    values = {(spec, labels[0]): value for (spec, labels), value in zip(reading.layout, reading.values, strict=True)}
    rows: dict[str, dict[str, object]] = {}
    for gap in reading.gaps:
        pid = gap.labels[0]
        read = gap.quality is Quality.STALE
        rows[pid] = {
            "pid": int(pid),
            "pss_bytes": values.get((PSS, pid)),
            "uss_bytes": values.get((USS, pid)),
            "time": iso(gap.time_ns) if read else None,
            "problem": None if read else f"{gap.quality.value}: {gap.reason}",
        }
    return list(rows.values())


def render(host: HostFS, rows: list[dict[str, object]]) -> str:
    lines = [
        [
            str(row["pid"]),
            _name(host, row["pid"]),
            _size(row["pss_bytes"]),
            _size(row["uss_bytes"]),
            str(row["time"] or row["problem"]),
        ]
        for row in rows
    ]
    read = [row for row in rows if row["pss_bytes"] is not None]
    if len(read) > 1:
        sums = [sum(int(str(row[key])) for row in read) for key in ("pss_bytes", "uss_bytes")]
        lines.append(["", f"{len(read)} processes", *map(_size, sums), ""])
    return table(lines, header=("pid", "command", "PSS", "USS", "read at"), right=(0, 2, 3))


def _name(host: HostFS, pid: object) -> str:
    try:
        return host.text(f"proc/{pid}/comm")
    except OSError:
        return ""


def _size(count: object) -> str:
    return "-" if count is None else human_bytes(float(str(count)))

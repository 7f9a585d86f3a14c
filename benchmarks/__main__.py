"""`make bench`: measure every bar, print the table, keep the figures as JSON.

python -m benchmarks [NAME...]     only these; without a name all of them (about 30 minutes, 10 of them the soak)
python -m benchmarks [NAME...]     only these; without a name all of them (about 25 minutes, 10 of them the soak)
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from pathlib import Path

from benchmarks.harness import interpreter

BENCHMARKS = (
    "frame_model",
    "start",
    "exposition",
    "remote_write",
    "otlp",
    "archive",
    "processes",
    "fanout",
    "ipc",
    "packages",
    "record",
    "trigger",
    "merge",
    "report",
    "floor",
    "daemon",
    "soak",
)


def main(names: list[str]) -> int:
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        print(
            f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}", file=sys.stderr
        )
        return 2
    print(interpreter())
    rows = []
    for name in names or BENCHMARKS:
        print(f"… {name}", file=sys.stderr, flush=True)
        rows += [{"benchmark": name, **row} for row in import_module(f"benchmarks.{name}").measure()]
    print(table(rows))
    keep(rows, Path(__file__).parent / "results.json", complete=not names)
    return 0 if all(row["met"] for row in rows) else 1


def table(rows: list[dict[str, object]]) -> str:
    lines = ["", f"{'measure':<72} {'figure':>12} {'bar':>12}  met"]
    for row in rows:
        figure, bar = f"{row['value']:.3g} {row['unit']}", f"{row['bar']:.3g} {row['unit']}"
        lines.append(f"{row['name']!s:<72} {figure:>12} {bar:>12}  {'yes' if row['met'] else 'NO'}")
        if row.get("detail"):
            lines.append(f"    {row['detail']}")
    return "\n".join(lines)


def keep(rows: list[dict[str, object]], path: Path, *, complete: bool) -> None:
    """Write the figures; a partial run replaces only what it measured."""
    kept: list[dict[str, object]] = []
    if path.exists() and not complete:
        measured = {row["benchmark"] for row in rows}
        kept = [row for row in json.loads(path.read_text())["rows"] if row["benchmark"] not in measured]
    written = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "interpreter": interpreter(),
        "rows": kept + rows,
    }
    path.write_text(json.dumps(written, indent=2) + "\n")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

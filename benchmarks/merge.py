"""How long it takes to merge the traces of four ranks of 50 MB each, to summarise one, and in how much memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import Row

TRACE = Path(__file__).parents[1] / "tests" / "fixtures" / "traces" / "profiler-rank-0.json"
SIZE = 50_000_000
RANKS = 4
MEASURED = """
import sys, time
from sonde.tracing.merge import Part, merge
from sonde.tracing.summary import summarise
paths, target = sys.argv[2:], sys.argv[1]
if target:
    events = merge([Part(path, rank, "n1", 0, rank * 1000) for rank, path in enumerate(paths)], target)
else:
    events = summarise(paths[0]).events
peak = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]
print(time.process_time(), int(peak) / 1e3, events)
"""


def measure() -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "rank.json")
        _write(path)
        rows = _rows("summarise a trace of 50 MB", "", [path], SIZE)
        rows += _rows("merge 4 traces of 50 MB", os.path.join(directory, "m.json"), [path] * RANKS, RANKS * SIZE)
        rows += _rows("… compressed", os.path.join(directory, "m.json.gz"), [path] * RANKS, RANKS * SIZE)
    return [row.as_dict() for row in rows]


def _rows(name: str, target: str, paths: list[str], size: int) -> list[Row]:
    words = [sys.executable, "-c", MEASURED, target, *paths]
    ended = subprocess.run(words, check=True, capture_output=True, text=True)
    seconds, peak, events = map(float, ended.stdout.split())
    detail = f"{size / 1e6 / seconds:.0f} MB/s of CPU time, {events:.0f} events"
    return [
        Row(f"{name}, CPU per 100 MB", seconds * 1e8 / size, "s", 5.0, detail),
        Row(f"{name}, peak of memory", peak, "MB", 150.0),
    ]


def _write(path: str) -> None:
    """A real trace whose events are there again and again."""
    head, _, rest = TRACE.read_text(encoding="utf-8").partition('"traceEvents": [')
    body, _, tail = rest.rpartition("\n  ],")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'{head}"traceEvents": [{body}')
        for _ in range(SIZE // len(body)):
            file.write("," + body)
        file.write("\n  ]," + tail)


if __name__ == "__main__":
    print(measure())

"""What the report of a job of 64 nodes, an hour at 1 Hz, costs: page and document together, and the text alone."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from tests.recordings import simulate

from benchmarks.harness import Row

NODES, HOURS = 64, 1.0
MEASURED = """
import sys, time
from sonde.cli.main import main
code = main(["report", *sys.argv[1:]])
peak = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]
print("MEASURED", time.process_time(), int(peak) / 1e3)
raise SystemExit(code)
"""


def measure() -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as directory:
        recording = os.path.join(directory, "recording")
        simulate(recording, NODES, HOURS)
        page, document = (os.path.join(directory, name) for name in ("report.html", "report.pdf"))
        seconds, peak = _run(recording, "--html", page, "--pdf", document)
        size = os.path.getsize(page) / 1e6
        text_seconds, text_peak = _run(recording)
    name = f"report of {NODES} nodes × {HOURS:g} h × 1 Hz"
    rows = [
        Row(f"{name}: HTML and PDF, CPU", seconds, "s", 20.0),
        Row("… peak of memory", peak, "MB", 600.0),
        Row("… size of the page", size, "MB", 10.0),
        Row(f"{name}: text alone, CPU", text_seconds, "s", 20.0, f"{text_peak:.0f} MB at most"),
    ]
    return [row.as_dict() for row in rows]


def _run(*words: str) -> tuple[float, float]:
    ended = subprocess.run([sys.executable, "-c", MEASURED, *words], check=True, capture_output=True, text=True)
    seconds, peak = ended.stdout.rpartition("MEASURED")[2].split()
    return float(seconds), float(peak)


if __name__ == "__main__":
    print(measure())

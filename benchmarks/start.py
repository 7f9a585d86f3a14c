"""How quickly `sonde --help` answers, against an interpreter that does nothing."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

from benchmarks.harness import Row, medians


def child_cpu_ms(command: list[str]) -> float:
    """CPU milliseconds of one run, user and system."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def measure() -> list[dict[str, object]]:
    sonde = [str(Path(sys.executable).with_name("sonde")), "--help"]
    bare = [sys.executable, "-c", "pass"]
    rounds = [(child_cpu_ms(sonde), child_cpu_ms(bare), child_cpu_ms(bare)) for _ in range(25)]
    helped, nothing, again = medians(list(zip(*rounds, strict=True)))
    detail = f"{helped:.1f} ms against {nothing:.1f} ms; A/A {again / nothing:.2f}"
    return [Row("sonde --help / python -c pass, CPU", helped / nothing, "×", 4.0, detail).as_dict()]


if __name__ == "__main__":
    print(measure())

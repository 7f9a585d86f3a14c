"""Signals need a process without other threads: signals_alone.py has the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ALONE = Path(__file__).with_name("signals_alone.py")


def test_signals_are_taken_one_at_a_time_and_passed_on(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--basetemp={tmp_path}/alone",
        str(ALONE),
    ]
    done = subprocess.run(
        command, cwd=ALONE.parents[3], capture_output=True, text=True, timeout=100, env={**os.environ, "CI": ""}
    )

    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout

"""`srun sonde run` on a real Slurm: the step ends with the task, and keeps the job's name."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.integration.conftest import Slurm

SONDE = str(Path(sys.executable).with_name("sonde"))


def test_a_step_under_sonde_run_ends_with_its_tasks_and_leaves_nothing(slurm: Callable[..., Slurm]) -> None:
    cluster = slurm()
    program = 'echo "$SLURM_PROCID ${SONDE_JOB_ID:-slurm} $SONDE_DAEMON"'
    with tempfile.TemporaryDirectory(prefix="xdg") as runtime:
        variables = f"--export=ALL,XDG_RUNTIME_DIR={runtime},SONDE_DAEMON=unix:{runtime}/nobody"
        command = ["srun", "-N", "1", "-n", "2", variables, SONDE, "run", "--tag", "mine", "--", "sh", "-c", program]
        begun = time.monotonic()
        said = sorted(line.split() for line in cluster.run(*command).splitlines())
        took = time.monotonic() - begun
        # Slurm may have killed the daemons before they were done: then whoever looks next removes the rest.
        environ = {**os.environ, "XDG_RUNTIME_DIR": runtime}
        environ.pop("SONDE_DAEMON", None)
        until = time.monotonic() + 10
        while os.listdir(f"{runtime}/sonde/run") and time.monotonic() < until:
            subprocess.run([SONDE, "processes"], env=environ, capture_output=True, timeout=30)

        assert [line[:2] for line in said] == [["0", "slurm"], ["1", "slurm"]]
        assert said[0][2] != said[1][2]  # a daemon for each task
        assert took < 10
        assert os.listdir(f"{runtime}/sonde/run") == []

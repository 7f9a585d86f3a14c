"""`sonde record` beside jobs of a real Slurm: one extra task per node, as perfmon's scripts have it."""

from __future__ import annotations

import os
import pwd
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.conftest import Slurm

from sonde.jobs.recording import Recording, open_recording
from sonde.store.query import parse_selector

SONDE = str(Path(sys.executable).with_name("sonde"))
BURN = f"{sys.executable} -c \"import time; e = time.process_time() + 2\nwhile time.process_time() < e: pass\""
BESIDE = f"srun -n $SLURM_JOB_NUM_NODES --ntasks-per-node 1 {SONDE} record -i 200ms --linger 1s"


def submitted(cluster: Slurm, folder: Path, script: str, *options: str) -> str:
    """Run a batch script to its end; what it has printed."""
    path = folder / "job.sh"
    path.write_text("#!/bin/bash\n" + script)
    path.chmod(0o755)
    cluster.run("sbatch", "--wait", "--exclusive", f"--chdir={folder}", "--output=out", *options, str(path), check=False)
    return (folder / "out").read_text()


def the_recording(folder: Path) -> Recording:
    (path,) = folder.glob("sonde-*")
    return open_recording(str(path))


def last(recording: Recording, node: int, selector: str) -> float:
    """The sum of the newest values of all series that match."""
    with recording.nodes[node].archive() as archive:
        return float(sum(points.values[-1] for points in archive.read(parse_selector(selector), 0, 2**62)))


def test_one_extra_task_per_node_records_the_job_and_ends_with_it(slurm: Callable[..., Slurm], tmp_path: Path) -> None:
    cluster = slurm()
    begun = time.monotonic()
    said = submitted(cluster, tmp_path, f"{BESIDE} &\nsrun -n 2 {BURN}\necho done\nwait\necho over\n", "-N2", "-n2")
    took = time.monotonic() - begun
    recording = the_recording(tmp_path)

    assert said.split() == ["done", "over"], said
    assert took < 25
    assert [node.host for node in recording.nodes] == ["n1", "n2"]
    assert recording.missing == []
    assert {node.about.ended_by for node in recording.nodes} == {"job"}
    assert last(recording, 0, "sonde_job_cpu_seconds_total") == pytest.approx(4, rel=0.25)  # of both nodes: one machine

"""`sonde record` of a job that has cgroups: the kernel's own accounts beside what was recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.integration.test_jobs import JOB, NUMBER, PATIENCE, Cgroups, Spawn, cgroups, spawn  # noqa: F401 - fixtures

from sonde.jobs.recording import Node, open_recording
from sonde.store.query import parse_selector

SONDE = str(Path(sys.executable).with_name("sonde"))
CHILDREN = """
import subprocess, time
time.sleep(0.5)
for _ in range(1000): subprocess.run(["/bin/true"])
time.sleep(0.5)
"""


def recorder(folder: Path) -> subprocess.Popen[bytes]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SONDE_"))}
    command = [SONDE, "record", "-i", "200ms", "--job", str(NUMBER), "--linger", "1s", "-o", str(folder / "r")]
    return subprocess.Popen(command, env=environ)


def finished(folder: Path, process: subprocess.Popen[bytes]) -> Node:
    assert process.wait(PATIENCE) == 0
    (node,) = open_recording(str(folder / "r")).nodes
    return node


def test_a_thousand_short_children_are_within_two_percent_of_the_cgroup(
    tmp_path: Path,
    cgroups: Cgroups,  # noqa: F811
    spawn: Spawn,  # noqa: F811
) -> None:
    process = recorder(tmp_path)
    spawn(CHILDREN).wait(PATIENCE)
    node = finished(tmp_path, process)
    with node.archive() as archive:
        found = archive.read(parse_selector("sonde_job_cpu_seconds_total"), 0, 2**62)

    usage = int(cgroups.read("cpuacct", "cpuacct.usage")) / 1e9
    assert sum(points.values[-1] for points in found) == pytest.approx(usage, rel=0.02)
    assert node.about.job is not None
    assert (node.about.job["scheduler"], node.about.ended_by) == ("slurm", "job")


def test_a_job_that_runs_out_of_memory_is_recorded_to_its_end(
    tmp_path: Path,
    cgroups: Cgroups,  # noqa: F811
    spawn: Spawn,  # noqa: F811
) -> None:
    (cgroups.points["memory"] / JOB / cgroups.step / "memory.limit_in_bytes").write_text(str(48 << 20))
    process = recorder(tmp_path)
    victim = spawn("import time; time.sleep(2); bytearray(200 << 20)")
    survivor = spawn("import time; time.sleep(3.5)")
    code = victim.wait(PATIENCE)
    survivor.wait(PATIENCE)
    ended_ns = time.time_ns()
    node = finished(tmp_path, process)
    with node.archive() as archive:
        events = archive.events(0, 2**62)
        kills = archive.read(parse_selector("sonde_job_oom_kills_total"), 0, 2**62)

    assert code == -9
    assert [json.loads(row.attrs)["kills"] for row in events if row.name == "oom.kill"] == [1]
    assert kills[0].values[-1] == 1
    assert node.about.ended_ns is not None
    assert abs(node.about.ended_ns - ended_ns) < 2e9

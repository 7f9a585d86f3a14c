"""`sonde record` beside jobs of a real Slurm: one extra task per node, as perfmon's scripts have it."""

from __future__ import annotations

import os
import pwd
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.conftest import Slurm
from tests.publicly import public_sonde

from sonde.cli.compat import link
from sonde.cli.main import COMMANDS
from sonde.jobs.recording import Recording, open_recording
from sonde.store.query import parse_selector

SONDE = str(Path(sys.executable).with_name("sonde"))
BESIDE = f"srun -n $SLURM_JOB_NUM_NODES --ntasks-per-node 1 {SONDE} record -i 200ms --linger 1s"
# A program that burns a second and says what it took.
BURN = """import resource, time
until = time.process_time() + 1
while time.process_time() < until: pass
spent = resource.getrusage(resource.RUSAGE_SELF)
print("spent", spent.ru_utime + spent.ru_stime)
"""


@pytest.fixture
def cluster(slurm: Callable[..., Slurm], monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """Steps share the CPUs of their job, as they did when perfmon's scripts were written (before Slurm 20.11)."""
    running = slurm()
    monkeypatch.setitem(running.environ, "SLURM_OVERLAP", "1")
    return running


@pytest.fixture
def place(cluster: Slurm) -> Iterator[Path]:
    """A directory that everybody may write to, with the program in it."""
    with tempfile.TemporaryDirectory(prefix="job-") as folder:
        os.chmod(folder, 0o777)
        Path(folder, "burn.py").write_text(BURN)
        yield Path(folder)
        cluster.wait_until_idle()


def submit(cluster: Slurm, place: Path, script: str, *options: str) -> str:
    """The number of a job that has been handed in."""
    path = place / "job.sh"
    path.write_text("#!/bin/bash\n" + script)
    words = ["sbatch", "--parsable", "--exclusive", f"--chdir={place}", "--output=out", *options, str(path)]
    return cluster.run(*words).strip()


def wait_for_end(cluster: Slurm, job: str) -> None:
    cluster.wait_for(lambda: not cluster.run("squeue", "-h", "-j", job, check=False).strip())


def run(cluster: Slurm, place: Path, script: str, *options: str) -> str:
    """Run a job to its end; what it has printed."""
    wait_for_end(cluster, submit(cluster, place, script, *options))
    return (place / "out").read_text()


def the_recording(place: Path) -> Recording:
    found = list(place.glob("sonde-*"))
    assert len(found) == 1, (place / "out").read_text()
    return open_recording(str(found[0]))


def last(recording: Recording, selector: str) -> float:
    """The sum of the newest values of all series that match, on the first node."""
    with recording.nodes[0].archive() as archive:
        return float(sum(points.values[-1] for points in archive.read(parse_selector(selector), 0, 2**62)))


def largest(recording: Recording, selector: str) -> float:
    with recording.nodes[0].archive() as archive:
        found = archive.read(parse_selector(selector), 0, 2**62)
    return float(max(value for points in found for value in points.values))


def test_one_extra_task_per_node_records_the_job_and_ends_with_it(cluster: Slurm, place: Path) -> None:
    script = f"{BESIDE} &\nsrun -n 2 {sys.executable} burn.py\necho work is done\nwait\necho script is over\n"
    said = run(cluster, place, script, "-N2", "-n2", "--mem=600", "--time=5")
    recording = the_recording(place)
    spent = sum(float(line.split()[1]) for line in said.splitlines() if line.startswith("spent"))
    about = recording.nodes[0].about

    assert said.splitlines()[-2:] == ["work is done", "script is over"], said
    assert [node.host for node in recording.nodes] == ["n1", "n2"]
    assert recording.missing == []
    assert {node.about.ended_by for node in recording.nodes} == {"job"}
    assert last(recording, "sonde_job_cpu_seconds_total") == pytest.approx(spent, rel=0.3)  # with srun and the shell
    assert about.job is not None
    assert (about.job["scheduler"], about.job["nodes"]) == ("slurm", ["n1", "n2"])
    assert about.asked is not None
    assert (about.asked["cpus"], about.asked["memory_bytes"]) == (8, 600 * 2**20)


def test_a_script_that_says_finished_ends_what_would_go_on(cluster: Slurm, place: Path) -> None:
    """Also where nobody has set USER, of which perfmon dies."""
    left = "unset USER LOGNAME; sleep 100 &"  # as a dask scheduler that nobody stops
    script = f"{left}\n{BESIDE} &\nMON=$!\nsleep 2\necho FINISHED > .ipc-$SLURM_JOB_ID\nwait $MON\necho over\nkill %1\n"
    said = run(cluster, place, script, "-N1", "-n1")

    assert "over" in said
    assert the_recording(place).nodes[0].about.ended_by == "ipc"


def test_each_member_of_an_array_has_a_recording_of_its_own(cluster: Slurm, place: Path) -> None:
    script = f"{SONDE} record -i 200ms -- sleep 1.$SLURM_ARRAY_TASK_ID\n"
    job = submit(cluster, place, script, "-N1", "-n1", "--array=1-2")
    wait_for_end(cluster, job)
    recordings = sorted(path.name for path in place.glob("sonde-*"))

    assert recordings == [f"sonde-{job}_1", f"sonde-{job}_2"]
    for name in recordings:
        (node,) = open_recording(str(place / name)).nodes
        assert node.about.job is not None
        assert (node.about.job["id"], node.about.ended_by) == (name.removeprefix("sonde-"), "command")


def test_a_wrapped_command_of_several_tasks_is_recorded_once_per_node(cluster: Slurm, place: Path) -> None:
    said = run(cluster, place, f"srun -n 3 {SONDE} record -i 200ms -- sh -c 'sleep 1; echo task'\n", "-N1", "-n3")
    recording = the_recording(place)

    assert said.count("task") == 3, said
    assert said.count("without being recorded") == 2
    assert len(recording.nodes) == 1
    assert largest(recording, "sonde_job_processes") >= 3


def test_scancel_ends_the_recording_in_order(cluster: Slurm, place: Path) -> None:
    job = submit(cluster, place, f"{BESIDE} &\nsrun sleep 100\nwait\n", "-N1", "-n1")
    cluster.wait_for(lambda: list(place.glob("sonde-*/*/archive.db")))
    time.sleep(1)
    cluster.run("scancel", job)
    wait_for_end(cluster, job)
    about = the_recording(place).nodes[0].about

    assert about.ended_by == "signal"
    assert about.ended_ns is not None


def test_an_ordinary_user_records_a_job(cluster: Slurm, place: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    with public_sonde() as command:
        script = f"srun {shlex.join([*command, 'record', '-i', '200ms', '--linger', '1s'])} &\nsrun sleep 1.5\nwait\n"
        said = run(
            cluster, place, script, "-N1", "-n1", f"--uid={nobody.pw_uid}", "--export=PATH,SLURM_CONF,SLURM_OVERLAP"
        )
    node = the_recording(place).nodes[0]

    assert node.about.uid == nobody.pw_uid, said
    assert node.about.ended_by == "job"
    assert largest(the_recording(place), "sonde_job_processes") >= 1


def test_perfmons_command_line_records_silently_and_leaves_its_files(cluster: Slurm, place: Path) -> None:
    link(str(place / "bin"), ["perfmon"], force=False)
    options = "-i 1 -d metrics -p $SLURM_JOB_ID -e csv --name matmul -v"
    script = f"srun {place}/bin/perfmon {options} &\nMON=$!\nsrun sleep 2\nwait $MON\necho over\n"
    job = submit(cluster, place, script, "-N1", "-n1")
    wait_for_end(cluster, job)
    said = (place / "out").read_text().splitlines()
    base = place / "metrics" / job
    recording = open_recording(str(base / f"sonde-{job}"))

    assert said[-1] == "over"
    assert not [line for line in said if "sonde" in line], said
    assert recording.nodes[0].about.labels == {"name": "matmul"}
    assert recording.nodes[0].about.ended_by == "job"
    assert (place / "metrics" / f".ipc-{job}").read_text() == "INPROGRESS\n"
    assert f"n1 records job {job} every 1 s" in (base / "ska_sdp_monitoring_metrics_n1.log").read_text()
    assert "sampling_freq: 1.0" in (base / "configs/n1_run_config.yml").read_text()
    if "export" in COMMANDS:
        assert (base / "metrics/cpu_metrics.json").exists()
        assert (base / "cpu_metrics.csv").exists()


def test_the_example_script_runs_on_two_nodes(cluster: Slurm, place: Path) -> None:
    """With srun in the place of mpirun: Slurm's own stand-in for that knows other options."""
    examples = Path(__file__).parents[2] / "examples"
    (place / "matmul.py").write_bytes((examples / "matmul.py").read_bytes())
    script = (examples / "slurm.sh").read_text().replace("\nmpirun -np", "\nsrun -n").removeprefix("#!/bin/bash\n")
    path = f"export PATH={Path(SONDE).parent}:$PATH WORK_DIR={place}\n"
    said = run(cluster, place, path + script, "-N2", "-n2")
    recording = the_recording(place)

    assert said.count("rank ") == 2, said
    assert [node.host for node in recording.nodes] == ["n1", "n2"]
    assert {node.about.ended_by for node in recording.nodes} == {"job"}
    assert last(recording, "sonde_job_cpu_seconds_total") > 1

"""Slurm's cgroup paths, environment and squeue."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.errors import ParseError, ReadError, TimedOut, Unavailable
from sonde.schedulers import slurm
from sonde.schedulers.job import Job, JobId
from sonde.schedulers.slurm import SlurmScheduler

SLURM = SlurmScheduler()


@pytest.mark.parametrize(
    ("path", "uid", "job", "step", "task", "directory"),
    [
        ("/slurm/uid_1000/job_77/step_0/task_1", 1000, "77", "0", "1", "/slurm/uid_1000/job_77"),
        ("/slurm_n1/uid_0/job_1/step_batch", 0, "1", "batch", "", "/slurm_n1/uid_0/job_1"),
        ("/slurm/uid_0/job_5/step_extern/task_0/sub", 0, "5", "extern", "0", "/slurm/uid_0/job_5"),
        ("/slurm/uid_0/job_5", 0, "5", "", "", "/slurm/uid_0/job_5"),
        (
            "/system.slice/slurmstepd.scope/job_77/step_0/user/task_0",
            *(None, "77", "0", "0", "/system.slice/slurmstepd.scope/job_77"),
        ),
        (
            "/system.slice/n2_slurmstepd.scope/job_8/step_interactive/slurm",
            *(None, "8", "interactive", "", "/system.slice/n2_slurmstepd.scope/job_8"),
        ),
        (
            "/system.slice/slurmstepd.scope/job_8/step_0/user/task_special",
            *(None, "8", "0", "special", "/system.slice/slurmstepd.scope/job_8"),
        ),
    ],
)
def test_both_cgroup_layouts_are_understood(
    path: str, uid: int | None, job: str, step: str, task: str, directory: str
) -> None:
    expected = Job(JobId("slurm", job), raw_id=job, uid=uid, step=step, task=task, cgroup=directory)

    assert SLURM.job_from_cgroup(path) == expected


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/user.slice", "/slurm", "/slurm/uid_0", "/slurm/uid_x/job_1", "/slurm/uid_0/job_", "/job_7"),
        *("/user.slice/job_99", "/slurmx/uid_0/job_1", "/system.slice/slurmd.service", "/slurm/uid_0/job_1x"),
        *("/slurm/uid_0/job_99999999999", "/system.slice/slurmstepd.scope/system"),
    ],
)
def test_other_cgroups_are_nobodys(path: str) -> None:
    assert SLURM.job_from_cgroup(path) is None


@given(st.text(alphabet="/slurm_uid0job7stepask.co\n\x00é", max_size=60))
def test_any_path_is_a_job_or_none(path: str) -> None:
    job = SLURM.job_from_cgroup(path)

    assert job is None or (job.id.text.isdigit() and path.startswith(job.cgroup))


def test_a_member_of_an_array_has_the_arrays_id_and_keeps_its_number() -> None:
    environ = {"SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_ARRAY_JOB_ID": "76", "SLURM_ARRAY_TASK_ID": "4"}

    job = SLURM.job_from_environ(environ)

    assert job is not None
    assert (job.id, job.raw_id, job.key) == (JobId("slurm", "76_4"), "77", JobId("slurm", "77"))


def test_the_environment_tells_user_name_partition_account_and_nodes() -> None:
    environ = {
        "SLURM_JOB_ID": "5",
        "SLURMD_NODENAME": "n1",
        "SLURM_STEP_ID": "0",
        "SLURM_JOB_USER": "ada",
        "SLURM_JOB_UID": "1000",
        "SLURM_JOB_NAME": "train",
        "SLURM_JOB_PARTITION": "gpu",
        "SLURM_JOB_ACCOUNT": "physics",
        "SLURM_JOB_NODELIST": "n[1-2]",
    }

    assert SLURM.job_from_environ(environ) == Job(
        JobId("slurm", "5"),
        raw_id="5",
        user="ada",
        uid=1000,
        step="0",
        name="train",
        partition="gpu",
        account="physics",
        nodes=("n1", "n2"),
    )


@pytest.mark.parametrize(("variable", "step"), [(None, "batch"), ("4294967292", "extern"), ("3", "3")])
def test_the_step_of_an_environment(variable: str | None, step: str) -> None:
    environ = {"SLURM_JOB_ID": "5", "SLURM_PROCID": "0"}
    if variable is not None:
        environ["SLURM_STEP_ID"] = variable

    job = SLURM.job_from_environ(environ)

    assert job is not None
    assert job.step == step


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"SLURM_JOB_ID": "5"},  # a shell of salloc on the login node
        {"SLURM_JOB_ID": "", "SLURM_PROCID": "0"},
        {"SLURM_JOB_ID": "../5", "SLURM_PROCID": "0"},
        {"SLURM_JOB_ID": "٥", "SLURM_PROCID": "0"},
    ],
)
def test_an_environment_that_is_not_of_a_task_here_is_nobodys(environ: dict[str, str]) -> None:
    assert SLURM.job_from_environ(environ) is None


def test_a_node_list_that_makes_no_sense_does_not_lose_the_job() -> None:
    job = SLURM.job_from_environ({"SLURM_JOB_ID": "5", "SLURM_PROCID": "0", "SLURM_JOB_NODELIST": "n[2-"})

    assert job is not None
    assert job.nodes == ()


def program(directory: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = directory / "squeue"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")


def test_squeue_tells_what_runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, """echo "$@" >"$0.asked"; echo '76_4|77|ada|1000|gpu|(null)|n[1-2]|a|b'""", monkeypatch)
    monkeypatch.setenv("SLURMD_NODENAME", "n1")

    jobs = SLURM.running_here()

    expected = Job(JobId("slurm", "76_4"), "77", "ada", 1000, name="a|b", partition="gpu", nodes=("n1", "n2"))
    assert jobs == [expected]
    assert "--nodelist=n1" in (tmp_path / "squeue.asked").read_text()


def test_a_job_is_described_by_squeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "echo '76_4|77|ada|1000|gpu|physics|n1|train'", monkeypatch)

    job = SLURM.describe(Job(JobId("slurm", "77"), raw_id="77", step="0"))

    assert (job.id.text, job.step, job.user, job.account) == ("76_4", "0", "ada", "physics")


def test_a_job_squeue_has_forgotten_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "exit 0", monkeypatch)
    job = Job(JobId("slurm", "77"), raw_id="77")

    assert SLURM.describe(job) == job


@pytest.mark.parametrize(
    ("text", "error"),
    [("echo no controller >&2; exit 1", ReadError), ("sleep 30 & wait", TimedOut), ("echo nonsense", ParseError)],
)
def test_a_squeue_that_fails_hangs_or_babbles_is_an_error(
    text: str, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, text, monkeypatch)
    monkeypatch.setattr(slurm, "_TIMEOUT", 0.5)

    with pytest.raises(error):
        SLURM.running_here()


def test_without_squeue_it_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(Unavailable, match="squeue"):
        SLURM.running_here()

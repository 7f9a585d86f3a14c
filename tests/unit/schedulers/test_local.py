"""Groups of processes without a batch system."""

from __future__ import annotations

import pytest

from sonde.schedulers.job import JobId
from sonde.schedulers.local import LocalScheduler

LOCAL = LocalScheduler()


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({"SONDE_JOB_ID": "tune-3", "TORCHELASTIC_RUN_ID": "x"}, "tune-3"),
        ({"SONDE_TAG": "nightly"}, "nightly"),
        ({"TORCHELASTIC_RUN_ID": "6f1c", "RANK": "0"}, "6f1c"),
        ({"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}, "localhost:29500"),
        ({"PMIX_NAMESPACE": "prterun-host-4711@1"}, "prterun-host-4711@1"),
        ({"OMPI_MCA_ess_base_jobid": "1234567681"}, "1234567681"),
    ],
)
def test_the_launcher_or_the_user_names_the_job(environ: dict[str, str], text: str) -> None:
    job = LOCAL.job_from_environ(environ)

    assert job is not None
    assert job.id == job.key == JobId("local", text)


@pytest.mark.parametrize("environ", [{}, {"RANK": "0"}, {"SONDE_JOB_ID": ""}, {"TORCHELASTIC_RUN_ID": "none"}])
def test_an_unnamed_process_is_in_no_job(environ: dict[str, str]) -> None:
    assert LOCAL.job_from_environ(environ) is None


def test_no_cgroup_is_a_local_job_and_nobody_keeps_a_list() -> None:
    assert LOCAL.job_from_cgroup("/slurm/uid_0/job_1") is None
    assert LOCAL.running_here() == ()

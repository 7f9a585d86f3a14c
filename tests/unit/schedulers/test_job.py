"""Ranks and environments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.schedulers.job import Job, JobId, Rank, parse_environ, rank_from_environ


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        ({}, Rank()),
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}, Rank(3, 1, 8)),
        ({"SLURM_PROCID": "2", "SLURM_LOCALID": "0", "SLURM_NTASKS": "4", "OMPI_COMM_WORLD_RANK": "9"}, Rank(2, 0, 4)),
        ({"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "PMI_RANK": "7"}, Rank(5, 1, None)),
        ({"PMI_RANK": "7", "PMI_SIZE": "16"}, Rank(7, None, 16)),
        ({"PMIX_RANK": "3", "PBS_TASKNUM": "1", "PBS_NODENUM": "0"}, Rank(3, None, None)),
        ({"PALS_RANKID": "9", "PALS_LOCAL_RANKID": "1", "PBS_TASKNUM": "2"}, Rank(9, 1, None)),
        ({"PBS_TASKNUM": "1", "PBS_NODENUM": "0"}, Rank()),
        ({"RANK": "x", "SLURM_PROCID": "2"}, Rank(2, None, None)),
        ({"RANK": "-1"}, Rank()),
        ({"RANK": "٣"}, Rank()),
    ],
)
def test_the_rank_comes_from_the_innermost_launcher(environ: dict[str, str], rank: Rank) -> None:
    assert rank_from_environ(environ) == rank


def test_an_environment_is_split_at_its_nul_bytes() -> None:
    assert parse_environ(b"A=1\0B=x=y\0\0junk\0=z\0A=2\0C=\xff\0") == {"A": "1", "B": "x=y", "C": "�"}


@given(st.binary(max_size=200))
def test_any_bytes_are_an_environment(data: bytes) -> None:
    environ = parse_environ(data)

    assert all(name and "=" not in name for name in environ)
    assert all(text.encode() is not None for pair in environ.items() for text in pair)


def test_a_job_is_completed_by_what_another_source_knows() -> None:
    by_cgroup = Job(JobId("slurm", "77"), raw_id="77", uid=1000, step="0", cgroup="/slurm/uid_1000/job_77")
    by_environ = Job(JobId("slurm", "76_4"), raw_id="77", user="ada", step="batch", name="train")

    job = by_cgroup.completed(by_environ)

    assert (job.id.text, job.user, job.uid, job.step, job.name) == ("76_4", "ada", 1000, "0", "train")
    assert job.key == by_cgroup.key == by_environ.key


@pytest.mark.parametrize(
    ("host", "runs"), [("n1", True), ("n1.example", True), ("n2", True), ("n", False), ("n11", False)]
)
def test_a_node_is_known_with_and_without_its_domain(host: str, runs: bool) -> None:
    job = Job(JobId("pbs", "1.pbs"), nodes=("n1", "n2.example"))

    assert job.runs_on(host) is runs

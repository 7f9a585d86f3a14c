"""Which processes belong to which job."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.schedulers.discovery import Discovery, parse_stat
from sonde.schedulers.job import JobId, Rank, Scheduler
from sonde.schedulers.local import LocalScheduler
from sonde.schedulers.slurm import SlurmScheduler

SCHEDULERS: tuple[Scheduler, ...] = (SlurmScheduler(), LocalScheduler())


def discovered(host: HostFS) -> Discovery:
    discovery = Discovery(host, SCHEDULERS)
    discovery.scan()
    discovery.close()
    return discovery


class HostOfAnother(HostFS):
    """A host on which this user may read no environment."""

    __slots__ = ()

    def read(self, name: str) -> bytes:
        if name.endswith("/environ"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        return super().read(name)


def test_a_job_under_cgroup_v1_is_found_with_its_processes(captured: Callable[[str], HostFS]) -> None:
    jobs = discovered(captured("slurm_v1")).jobs

    found = jobs[JobId("slurm", "77")]
    assert list(jobs) == [JobId("slurm", "77")]
    assert set(found.processes) == {90, 100, 110, 111, 120, 121}
    assert (found.job.id.text, found.job.user, found.job.uid, found.job.name) == ("76_4", "ada", 1000, "train")
    assert found.job.nodes == ("n1", "n2")
    directory = "/slurm/uid_1000/job_77"
    assert found.cgroups == dict.fromkeys(("cpu", "cpuacct", "memory", "freezer"), directory)
    assert f"{directory}/step_0/task_1" in found.leaves


def test_a_rank_is_the_first_process_of_its_step_and_a_batch_script_is_none(captured: Callable[[str], HostFS]) -> None:
    found = discovered(captured("slurm_v1")).jobs[JobId("slurm", "77")]

    assert [(process.pid, process.step, process.task, process.rank) for process in found.ranks()] == [
        (110, "0", "0", Rank(0, 0, 4)),
        (111, "0", "1", Rank(1, 1, 4)),
    ]


def test_torchrun_in_a_batch_script_under_cgroup_v2_has_ranks(captured: Callable[[str], HostFS]) -> None:
    jobs = discovered(captured("slurm_v2")).jobs

    found = jobs[JobId("slurm", "88")]
    assert list(jobs) == [JobId("slurm", "88")]
    assert [(process.pid, process.rank) for process in found.ranks()] == [(310, Rank(0, 0, 2)), (311, Rank(1, 1, 2))]


def test_without_any_environment_the_cgroup_still_tells_the_job(scratch: Callable[[str], HostFS]) -> None:
    host = HostOfAnother(scratch("slurm_v1").root)

    discovery = discovered(host)

    assert discovery.jobs[JobId("slurm", "77")].job.id.text == "77"
    assert discovery.denied == 2  # init and sshd: they may be in a job or not


def test_processes_that_end_leave_and_the_last_takes_the_job_along(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("slurm_v2")
    discovery = Discovery(host, SCHEDULERS)
    discovery.scan()
    shutil.rmtree(host.path("proc/311"))
    discovery.scan()
    left = set(discovery.jobs[JobId("slurm", "88")].processes)
    for pid in (300, 301, 310):
        shutil.rmtree(host.path(f"proc/{pid}"))
    discovery.scan()
    discovery.close()

    assert left == {300, 301, 310}
    assert discovery.jobs == {}


def test_a_process_seen_before_it_was_moved_into_its_cgroup_gets_a_second_look(
    scratch: Callable[[str], HostFS],
) -> None:
    host = scratch("slurm_v1")
    path = Path(host.path("proc/110/cgroup"))
    inside = path.read_bytes()
    path.write_bytes(b"4:memory:/\n0::/\n")
    Path(host.path("proc/110/environ")).write_bytes(b"")
    discovery = Discovery(host, SCHEDULERS)
    discovery.scan()
    first = set(discovery.jobs[JobId("slurm", "77")].processes)
    path.write_bytes(inside)
    discovery.scan()
    discovery.close()

    assert 110 not in first
    assert 110 in discovery.jobs[JobId("slurm", "77")].processes


def test_an_environment_cannot_put_a_process_into_a_job_its_cgroup_denies(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("slurm_v1")
    Path(host.path("proc/110/environ")).write_bytes(b"SLURM_JOB_ID=5\0SLURM_PROCID=0\0SLURM_JOB_USER=eve\0")

    jobs = discovered(host).jobs

    assert list(jobs) == [JobId("slurm", "77")]
    assert jobs[JobId("slurm", "77")].job.user == "ada"


def test_more_new_processes_than_fit_in_a_scan_are_left_for_the_next(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("slurm_v2")
    for pid in range(1000, 1600):
        shutil.copytree(host.path("proc/310"), host.path(f"proc/{pid}"))
    discovery = Discovery(host, SCHEDULERS)
    discovery.scan()
    first = len(discovery.jobs[JobId("slurm", "88")].processes)
    unfinished = discovery.disturbed()
    discovery.scan()
    discovery.close()

    assert first < 604
    assert unfinished
    assert len(discovery.jobs[JobId("slurm", "88")].processes) == 604
    assert not discovery.disturbed()


@given(cgroup=st.binary(max_size=80), environ=st.binary(max_size=80))
def test_malformed_bytes_of_one_process_concern_only_that_process(
    cgroup: bytes, environ: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("host")
    (root / "proc/5").mkdir(parents=True)
    (root / "proc/stat").write_text("processes 1\n")
    (root / "proc/5/cgroup").write_bytes(cgroup)
    (root / "proc/5/environ").write_bytes(b"SONDE_JOB_ID=" + environ)
    (root / "proc/5/stat").write_text("5 (x) S 1 5 5 0 -1 0 1 0 0 0 1 1 0 0 20 0 1 0 77 0 0\n")
    (root / "proc/6").mkdir()
    (root / "proc/6/cgroup").write_text("0::/slurm/uid_0/job_9\n")
    (root / "proc/6/environ").write_bytes(b"")
    (root / "proc/6/stat").write_text("6 (x) S 1 5 5 0 -1 0 1 0 0 0 1 1 0 0 20 0 1 0 77 0 0\n")

    jobs = discovered(HostFS(str(root))).jobs

    assert set(jobs[JobId("slurm", "9")].processes) == {6}


@given(st.binary(max_size=100))
def test_any_bytes_are_a_start_time_or_a_parse_error(text: bytes) -> None:
    try:
        parse_stat(text)
    except ParseError:
        pass

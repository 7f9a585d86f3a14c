"""Which processes a recording is about, and whether they work."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sonde.errors import Unavailable
from sonde.hostfs import HostFS
from sonde.jobs.follow import Followed, Presence, about_job, check_alive, find, node_name, with_nodes
from sonde.schedulers.job import Job, JobId

Started = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def started() -> Iterator[Started]:
    """Processes of a job that is named after this test; ended by their ids."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(*words: str, **more: str) -> subprocess.Popen[bytes]:
        environ = {**os.environ, "SONDE_JOB_ID": NAME, **more}
        processes.append(subprocess.Popen(words, env=environ, stdin=subprocess.DEVNULL))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


NAME = f"follow-{os.getpid()}"


@pytest.fixture
def presence() -> Iterator[Presence]:
    found = Presence(HostFS(), Followed(Job(JobId("local", NAME))), {})
    yield found
    found.close()


def test_there_is_work_as_long_as_a_process_of_the_job_runs(presence: Presence, started: Started) -> None:
    before = presence.works()
    process = started("sleep", "60")
    during = presence.works()
    process.kill()
    process.wait()
    after = presence.works()

    assert (before, during, after) == (False, True, False)
    assert presence.seen
    assert presence.job is not None
    assert presence.job.id == JobId("local", NAME)


def test_another_takes_the_place_of_one_that_has_ended(presence: Presence, started: Started) -> None:
    first = started("sleep", "60")
    presence.works()
    started("sleep", "60")
    first.kill()
    first.wait()

    assert presence.works()


def test_a_zombie_does_not_work(presence: Presence, started: Started) -> None:
    process = started("sleep", "60")
    presence.works()
    process.kill()
    until = time.monotonic() + 10
    while Path(f"/proc/{process.pid}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < until

    assert not presence.works()


def test_a_main_thread_that_has_ended_before_the_others_works(presence: Presence, started: Started) -> None:
    code = "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start()\n"
    leave = "time.sleep(0.5); ctypes.CDLL(None).syscall(60, 0)"  # exit(2) of this thread only, on x86-64
    process = started(sys.executable, "-c", code + leave)
    until = time.monotonic() + 10
    while not presence.works():  # its environment goes with the main thread
        assert time.monotonic() < until
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < until
        time.sleep(0.02)

    assert presence.works()


def test_what_the_recorder_writes_to_ends_with_it(started: Started) -> None:
    """`sonde record | tee log &` in a script: the tee is of the job, and waits for us."""
    reading, writing = os.pipe()
    kept = os.dup(2)
    tee = subprocess.Popen(["cat"], env={**os.environ, "SONDE_JOB_ID": NAME}, stdin=reading, stdout=subprocess.DEVNULL)
    os.dup2(writing, 2)
    try:
        presence = Presence(HostFS(), Followed(Job(JobId("local", NAME))), {})
        alone = presence.works()
        started("sleep", "60")
        together = presence.works()
        presence.close()
    finally:
        os.dup2(kept, 2)
        for descriptor in (kept, reading, writing):
            os.close(descriptor)
        tee.kill()
        tee.wait()

    assert (alone, together) == (False, True)


def test_given_processes_are_followed_under_a_name() -> None:
    followed = find(HostFS(), {}, pids=[os.getppid()], name="pid-7")

    assert (followed.job.id, followed.pids) == (JobId("local", "pid-7"), (os.getppid(),))
    assert followed.table()["pids"] == [str(os.getppid())]
    assert followed.table()["without_pids"] == [str(os.getpid())]


def test_a_command_is_named_by_its_user_or_by_us() -> None:
    assert find(HostFS(), {}, command=7, name="sh-7").job.id.text == "sh-7"
    assert find(HostFS(), {"SONDE_JOB_ID": "tune"}, command=7, name="sh-7").job.id.text == "tune"


def test_a_job_of_that_number_is_looked_for_whosever_it_is() -> None:
    followed = find(HostFS(), {}, job_id="77")

    assert followed.scope().jobs == {"77"}
    assert followed.schedulers == []


def test_without_a_job_there_is_nothing_to_follow() -> None:
    with pytest.raises(Unavailable, match="no job"):
        find(HostFS(), {})


def test_the_launchers_own_name_is_no_job() -> None:
    with pytest.raises(Unavailable):
        find(HostFS(), {"PMIX_NAMESPACE": "prte-1"})


def test_a_process_that_has_ended_is_named() -> None:
    with pytest.raises(Unavailable, match="no process 999999999"):
        check_alive(HostFS(), [999999999])


def test_a_node_of_slurm_goes_by_its_own_name() -> None:
    assert node_name({"SLURMD_NODENAME": "n3"}) == "n3"
    assert node_name({}) == os.uname().nodename


def test_the_hosts_of_a_pbs_job_are_read_from_the_copy_of_its_node_file(tmp_path: Path) -> None:
    (tmp_path / "nodefile").write_text("n1\nn1\nn2\n")
    environ = {"PBS_JOBID": "5.pbs", "PBS_NODEFILE_LOCAL": str(tmp_path / "nodefile")}
    job = with_nodes(Job(JobId("pbs", "5.pbs")), environ)

    assert job.nodes == ("n1", "n2")
    assert about_job(job)["nodes"] == ["n1", "n2"]


def test_a_step_of_its_own_does_not_count_as_the_jobs_work() -> None:
    followed = Followed(Job(JobId("slurm", "77"), raw_id="77"), own_step="1")

    assert followed.scope().without_steps == {"1"}
    assert followed.table()["without_steps"] == ["1"]

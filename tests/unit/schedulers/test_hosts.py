"""The hosts a user means."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.errors import ReadError, TimedOut, Unavailable, UsageError
from sonde.schedulers import slurm
from sonde.schedulers.hosts import batch_systems, hosts_of, seconds_left

FIXTURES = Path(__file__).parents[2] / "fixtures"
NOBODY: dict[str, str] = {}


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is all of PATH but for the system's own programs."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    return directory


def install(directory: Path, name: str, text: str) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n[1-4],x", ("n1", "n2", "n3", "n4", "x")),
        ("n1,n1", ("n1",)),
        ("10.0.0.1", ("10.0.0.1",)),
        ("4u12", ("4u12",)),
        (" login1.example ", ("login1.example",)),
    ],
)
def test_a_list_is_itself(text: str, hosts: tuple[str, ...], commands: Path) -> None:
    assert hosts_of(text, environ=NOBODY) == hosts


def test_a_node_file_names_each_host_once(tmp_path: Path) -> None:
    path = tmp_path / "machines"
    path.write_text("n1\nn1\n# the big ones\nn2 slots=8\nn3:8\ngpu[1-2]\n\n")

    assert hosts_of(f"@{path}") == ("n1", "n2", "n3", "gpu1", "gpu2")


def test_slurm_is_asked_for_its_jobs(commands: Path) -> None:
    install(commands, "squeue", "echo '76_4|77|ada|1000|gpu|physics|n[1-2]|train'")

    assert hosts_of("76_4", environ=NOBODY) == ("n1", "n2")


def test_pbs_is_asked_for_its_jobs(commands: Path) -> None:
    install(commands, "qstat", f"cat {FIXTURES}/pbs/qstat-f.json")

    assert hosts_of("123.pbs", environ=NOBODY)[:2] == ("n01", "n02")


def test_oar_is_asked_for_its_jobs_and_the_others_that_are_not_there_do_not_matter(commands: Path) -> None:
    install(commands, "oarstat", f"cat {FIXTURES}/oar/oarstat-job.json")

    assert hosts_of("1", environ=NOBODY) == ("n1",)


def test_slurms_own_qstat_does_not_make_its_jobs_ambiguous(commands: Path) -> None:
    install(commands, "squeue", "echo '1|1|root|0|main|(null)|n[1-2]|train'")
    install(commands, "qstat", f'[ "$1" = -f ] && cat {FIXTURES}/pbs/qstat-f-slurm-torque.txt')

    assert hosts_of("1", environ=NOBODY) == ("n1", "n2")


def test_a_number_two_batch_systems_know_needs_the_name_of_one(commands: Path) -> None:
    install(commands, "squeue", "echo '1|1|root|0|main|(null)|n[7-8]|train'")
    install(commands, "oarstat", f"cat {FIXTURES}/oar/oarstat-job.json")

    with pytest.raises(UsageError, match="slurm and oar both have a job 1"):
        hosts_of("1", environ=NOBODY)
    assert hosts_of("1", "oar", environ=NOBODY) == ("n1",)
    assert hosts_of("1", "slurm", environ=NOBODY) == ("n7", "n8")


def test_in_the_job_itself_nobody_is_asked(commands: Path, tmp_path: Path) -> None:
    path = tmp_path / "nodes"
    path.write_text("n1\nn1\nn2\n")
    own = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_JOB_NODELIST": "n[3-4]"}

    assert hosts_of("9.pbs", environ={"PBS_JOBID": "9.pbs", "PBS_NODEFILE": str(path)}) == ("n1", "n2")
    assert hosts_of("9", environ={"PBS_JOBID": "9.pbs", "PBS_NODEFILE": str(path)}) == ("n1", "n2")
    assert hosts_of("5", environ={"OAR_JOB_ID": "5", "OAR_NODEFILE": str(path)}) == ("n1", "n2")
    assert hosts_of("7", environ=own) == ("n3", "n4")


def test_where_pbs_has_no_node_file_the_copy_is_read(commands: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    path.write_text("n1\nn2\n")
    environ = {"PBS_JOBID": "9.pbs", "PBS_NODEFILE": "/var/spool/pbs/aux/9.pbs", "PBS_NODEFILE_LOCAL": str(path)}

    assert hosts_of("9.pbs", environ=environ) == ("n1", "n2")


def test_a_job_that_nobody_knows_says_who_was_asked(commands: Path) -> None:
    install(commands, "squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    install(commands, "oarstat", "exit 0")

    with pytest.raises(Unavailable) as raised:
        hosts_of("77", environ=NOBODY)
    message = str(raised.value)
    assert "Invalid job id" in message
    assert "qstat: No such file" in message
    assert "oar does not know it" in message
    assert "@FILE" in raised.value.hint


def test_a_job_that_waits_has_no_hosts(commands: Path) -> None:
    install(commands, "qstat", f"cat {FIXTURES}/pbs/qstat-f.json | sed '/123.pbs/,/124\\[4/s/exec_/xxxx_/'")

    with pytest.raises(Unavailable, match="no hosts"):
        hosts_of("123.pbs", environ=NOBODY)


def test_a_batch_system_that_does_not_answer_is_an_error_of_its_own(
    commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(commands, "squeue", "sleep 30 & wait")
    monkeypatch.setattr(slurm, "_TIMEOUT", 0.3)

    with pytest.raises(TimedOut):
        hosts_of("77", "slurm", environ=NOBODY)


@pytest.mark.parametrize("text", ["", "n[1-", "n1,,n2", "@/no/such/file", "@/dev/null", "124[].pbs"])
def test_what_names_nothing_is_a_usage_error(text: str, commands: Path) -> None:
    with pytest.raises(UsageError):
        hosts_of(text, environ=NOBODY)


@given(st.text(alphabet="n19[]-,_.x \t\n", max_size=12))
def test_any_text_is_hosts_or_one_of_our_errors(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "/nonexistent")
        try:
            hosts = hosts_of(text, environ=NOBODY)
        except (UsageError, Unavailable, ReadError):
            return
    assert hosts


@pytest.mark.parametrize(
    ("told", "seconds"),
    [("2:03", 123), ("1-02:03:04", 93784), ("UNLIMITED", None), ("NOT_SET", None), ("INVALID", None), ("", None)],
)
def test_slurm_tells_how_long_a_job_may_still_run(told: str, seconds: int | None, commands: Path) -> None:
    install(commands, "squeue", f"echo '{told}'")

    assert seconds_left("77_3") == seconds


def test_pbs_tells_how_much_of_the_walltime_was_used(commands: Path) -> None:
    install(commands, "qstat", f"cat {FIXTURES}/pbs/qstat-f.txt")

    assert seconds_left("123.pbs") == 100 * 3600 - (55 * 60 + 31)


def test_oar_tells_when_a_job_has_begun(commands: Path) -> None:
    begun = round(time.time()) - 100
    install(commands, "oarstat", f"""echo '{{"1": {{"walltime": 600, "startTime": {begun}}}}}'""")

    assert 498 <= (seconds_left("1") or 0) <= 500


def test_the_local_time_of_a_server_tells_nothing(commands: Path) -> None:
    install(commands, "oarstat", f"cat {FIXTURES}/oar/oarstat-job.txt")

    assert seconds_left("1") is None


def test_without_a_batch_system_nothing_is_known_of_a_jobs_end(commands: Path) -> None:
    assert seconds_left("77") is None
    assert seconds_left("tune-3") is None


def test_a_name_of_its_users_own_is_no_batch_job() -> None:
    assert batch_systems("tune-3") == ()
    assert batch_systems("77") == ("slurm", "pbs", "oar")

"""PBS' cgroup paths, environment and qstat."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.errors import ParseError, ReadError, TimedOut, Unavailable
from sonde.schedulers import pbs
from sonde.schedulers.job import Job, JobId
from sonde.schedulers.pbs import PbsScheduler, parse_qstat

PBS = PbsScheduler()
LISTINGS = Path(__file__).parents[2] / "fixtures/pbs"


@pytest.mark.parametrize(
    ("path", "job", "directory"),
    [
        ("/pbs_jobs.service/jobid/123.pbs", "123.pbs", "/pbs_jobs.service/jobid/123.pbs"),
        ("/pbs_jobs.service/jobid/123[4].pbs/sub/x", "123[4].pbs", "/pbs_jobs.service/jobid/123[4].pbs"),
        ("/site.service/jobid/7.head.example", "7.head.example", "/site.service/jobid/7.head.example"),
        ("/pbs_jobs.service/jobs/123.pbs-1", "123.pbs-1", "/pbs_jobs.service/jobs/123.pbs-1"),
        ("/torque/9-3.head/R0.t0", "9-3.head", "/torque/9-3.head"),
        ("/pbs_jobs.slice/pbs_jobs-5.pbs.slice/x", "5.pbs", "/pbs_jobs.slice/pbs_jobs-5.pbs.slice"),
        (
            r"/pbs.slice/pbs-5\x5b3\x5d.pbs\x2d1.slice",
            *("5[3].pbs-1", r"/pbs.slice/pbs-5\x5b3\x5d.pbs\x2d1.slice"),
        ),
    ],
)
def test_the_cgroup_layouts_are_understood(path: str, job: str, directory: str) -> None:
    assert PBS.job_from_cgroup(path) == Job(JobId("pbs", job), raw_id=job, cgroup=directory)


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/pbs_jobs.service", "/pbs_jobs.service/jobid", "/pbs_jobs.service/jobid/5", "/pbs_jobs.service/sleep"),
        *("/system.slice/pbs.service", "/torque", "/torque/x.y", "/user.slice/user-5.slice", "/x.service/jobs/a.b"),
        *("/pbs_jobs.service/jobid/124[].pbs", "/pbs_jobs.service/jobid/٥.pbs", "/pbs.slice/other-5.pbs.slice"),
    ],
)
def test_other_cgroups_are_nobodys(path: str) -> None:
    assert PBS.job_from_cgroup(path) is None


@given(st.text(alphabet="/pbs_jo.ervicd5[]\\x2dltqu\n\x00é-", max_size=60))
def test_any_path_is_a_job_or_none(path: str) -> None:
    job = PBS.job_from_cgroup(path)

    assert job is None or (pbs.ID.fullmatch(job.id.text) and path.startswith(job.cgroup))


def test_the_environment_tells_user_name_queue_account_and_task() -> None:
    environ = {
        "PBS_JOBID": "123[4].pbs",
        "PBS_ARRAY_INDEX": "4",
        "PBS_JOBNAME": "train",
        "PBS_QUEUE": "gpu",
        "PBS_ACCOUNT": "physics",
        "PBS_TASKNUM": "1",
        "PBS_O_LOGNAME": "ada_at_home",
        "LOGNAME": "ada",
        "PBS_NODEFILE": "/var/spool/pbs/aux/123[4].pbs",
    }

    assert PBS.job_from_environ(environ) == Job(
        JobId("pbs", "123[4].pbs"),
        raw_id="123[4].pbs",
        user="ada",
        task="1",
        name="train",
        partition="gpu",
        account="physics",
    )


@pytest.mark.parametrize("text", ["", "77", "123.", "../5.pbs", "5.pbs/../x", "٥.pbs", "124[].pbs"])
def test_an_id_that_is_not_of_a_running_job_is_nobodys(text: str) -> None:
    assert PBS.job_from_environ({"PBS_JOBID": text}) is None


@pytest.mark.parametrize(
    ("exec_host", "exec_vnode", "hosts"),
    [
        ("n1/0*8+n2/0*8", "", ("n1", "n2")),
        ("n1/0+n1/1+n2/0", "(n9:ncpus=1)", ("n1", "n2")),
        ("n1/0-7,9+n2/0-7", "", ("n1", "n2")),
        ("", "(n1[0]:ncpus=8:mem=1kb+n1[1]:ncpus=8)+(n2:ncpus=8)", ("n1", "n2")),
        ("", "", ()),
    ],
)
def test_hosts_are_named_once_each(exec_host: str, exec_vnode: str, hosts: tuple[str, ...]) -> None:
    assert pbs.hosts(exec_host, exec_vnode) == hosts


@pytest.mark.parametrize("name", ["qstat-f.json", "qstat-f.txt"])
def test_both_forms_of_qstat_tell_the_same(name: str) -> None:
    jobs = {text: PBS.parse_job(text, found) for text, found in parse_qstat((LISTINGS / name).read_text()).items()}

    assert jobs["123.pbs"] == Job(
        JobId("pbs", "123.pbs"),
        raw_id="123.pbs",
        user="ada",
        name="train",
        partition="gpu",
        account="physics",
        nodes=tuple(f"n0{number}" for number in range(1, 10)),
        walltime_seconds=360_000,
    )
    assert (jobs["124[4].pbs"].account, jobs["124[4].pbs"].nodes) == ("lenses", ("n01",))
    assert (jobs["125.pbs"].account, jobs["125.pbs"].nodes) == ("", ())


def test_torque_is_understood() -> None:
    found = parse_qstat((LISTINGS / "qstat-f-torque.txt").read_text())

    job = PBS.parse_job("9.head.example", found["9.head.example"])
    assert (job.user, job.nodes, job.walltime_seconds) == ("ada", ("n1", "n2"), 3600)


def program(directory: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = directory / "qstat"
    path.write_text(f'#!/bin/sh\necho "$@" >>"$0.asked"\n{text}\n')
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")


def this_node_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((kernel.sysname, name, *tuple(kernel)[2:])))


def test_the_jobs_here_are_those_that_run_on_this_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, f"cat {LISTINGS}/qstat-f.json", monkeypatch)
    this_node_is("n01.example", monkeypatch)

    jobs = PBS.running_here()

    assert [job.id.text for job in jobs] == ["123.pbs", "124[4].pbs"]
    assert (tmp_path / "qstat.asked").read_text() == "-t -f -F json\n"


def test_without_json_the_text_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, f'case "$*" in *-F*) exit 2;; *) cat {LISTINGS}/qstat-f.txt;; esac', monkeypatch)
    this_node_is("n01", monkeypatch)

    assert [job.id.text for job in PBS.running_here()] == ["123.pbs", "124[4].pbs"]


def test_json_that_a_variable_has_broken_is_made_up_for_by_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = """echo '{"Jobs": {"123.pbs": {"Variable_List": {"A": "tab	"} } }}'"""
    program(tmp_path, f'case "$*" in *-F*) {broken};; *) cat {LISTINGS}/qstat-f.txt;; esac', monkeypatch)

    assert PBS.describe(Job(JobId("pbs", "123.pbs"))).user == "ada"


def test_jobs_of_slurms_own_qstat_are_not_of_pbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, f'[ "$*" = -f ] && cat {LISTINGS}/qstat-f-slurm-torque.txt', monkeypatch)
    this_node_is("n1", monkeypatch)

    assert PBS.running_here() == []


def test_a_job_is_described_by_qstat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, f"cat {LISTINGS}/qstat-f.json", monkeypatch)

    job = PBS.describe(Job(JobId("pbs", "123.pbs"), raw_id="123.pbs", task="1", name="own"))

    assert (job.name, job.task, job.user, job.walltime_seconds) == ("own", "1", "ada", 360_000)
    assert (tmp_path / "qstat.asked").read_text() == "-t -f -F json 123.pbs\n"


@pytest.mark.parametrize(
    "complaint",
    ["qstat: Unknown Job Id 77.pbs", "qstat: 77.pbs Job has finished, use -x or -H to obtain historical information"],
)
def test_a_job_qstat_has_forgotten_stays_as_it_was(
    complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, f"echo '{complaint}' >&2; exit 153", monkeypatch)
    job = Job(JobId("pbs", "77.pbs"), raw_id="77.pbs")

    assert PBS.describe(job) == job


@pytest.mark.parametrize(
    ("text", "error"),
    [("echo cannot connect to server >&2; exit 15", ReadError), ("sleep 30 & wait", TimedOut), ("echo x", ParseError)],
)
def test_a_qstat_that_fails_hangs_or_babbles_is_an_error(
    text: str, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, text, monkeypatch)
    monkeypatch.setattr(pbs, "_TIMEOUT", 0.5)

    with pytest.raises(error):
        PBS.running_here()


def test_without_qstat_it_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(Unavailable, match="qstat"):
        PBS.running_here()

"""OAR's cgroup paths, environment and oarstat, as recorded from OAR 2.5.9."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.errors import ParseError, ReadError, TimedOut, Unavailable
from sonde.schedulers import oar
from sonde.schedulers.cgroupfs import parse_membership
from sonde.schedulers.job import Job, JobId, parse_environ
from sonde.schedulers.oar import OarScheduler, parse_oarstat

OAR = OarScheduler()
RECORDED = Path(__file__).parents[2] / "fixtures/oar"


def test_the_recorded_cgroup_names_user_and_job() -> None:
    found = {name: OAR.job_from_cgroup(path) for name, path in parse_membership((RECORDED / "cgroup").read_bytes())}

    job = Job(JobId("oar", "1"), raw_id="1", user="ada", cgroup="/oar/ada_1")
    controllers = {name for name, job in found.items() if job is not None}
    assert controllers == {"freezer", "devices", "cpuset", "cpuacct", "cpu"}  # and not memory
    assert found["cpuset"] == job


def test_the_recorded_environment_tells_what_oarsub_was_told() -> None:
    environ = parse_environ((RECORDED / "environ").read_bytes())

    assert OAR.job_from_environ(environ) == Job(
        JobId("oar", "1"), raw_id="1", user="ada", name="train", account="physics", walltime_seconds=600
    )


@pytest.mark.parametrize(
    ("path", "job", "user", "uid"),
    [
        ("/oar/ada_lovelace_42/sub", "42", "ada_lovelace", None),
        ("/oardocker/node1/oar/ada_7", "7", "ada", None),
        ("/oar.slice/oar-u1000.slice/oar-u1000-j7.slice/run.scope", "7", "", 1000),
    ],
)
def test_other_layouts_are_understood(path: str, job: str, user: str, uid: int | None) -> None:
    found = OAR.job_from_cgroup(path)

    assert found is not None
    assert (found.id.text, found.user, found.uid) == (job, user, uid)
    assert path.startswith(found.cgroup)


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/oar", "/oar/ada", "/oar/ada_", "/oar/_5", "/oar/ada_x", "/x/oar/ada_5", "/oar/ada_99999999999"),
        *("/oar.slice/oar-u1000.slice", "/oar.slice/oar-u1000.slice/oar-u1001-j7.slice", "/oar/ada_٥"),
    ],
)
def test_other_cgroups_are_nobodys(path: str) -> None:
    assert OAR.job_from_cgroup(path) is None


@given(st.text(alphabet="/oar_ada5.slice-uj\n\x00é", max_size=60))
def test_any_path_is_a_job_or_none(path: str) -> None:
    job = OAR.job_from_cgroup(path)

    assert job is None or (job.id.text.isdigit() and path.startswith(job.cgroup))


def test_a_member_of_an_array_has_its_own_id() -> None:
    job = OAR.job_from_environ({"OAR_JOB_ID": "4", "OAR_ARRAY_ID": "2", "OAR_ARRAY_INDEX": "3"})

    assert job is not None
    assert job.id == job.key == JobId("oar", "4")


@pytest.mark.parametrize("text", ["", "x", "../5", "٥"])
def test_an_environment_without_a_number_is_nobodys(text: str) -> None:
    assert OAR.job_from_environ({"OAR_JOB_ID": text}) is None


@pytest.mark.parametrize("name", ["oarstat-job.json", "oarstat-job.txt"])
def test_both_forms_of_oarstat_tell_the_same(name: str) -> None:
    (found,) = parse_oarstat((RECORDED / name).read_text()).items()

    assert OAR.parse_job(*found) == Job(
        JobId("oar", "1"),
        raw_id="1",
        user="ada",
        name="train",
        partition="default",
        account="physics",
        nodes=("n1",),
        walltime_seconds=600,
    )


def program(directory: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = directory / "oarstat"
    path.write_text(f'#!/bin/sh\necho "$@" >>"$0.asked"\n{text}\n')
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")


@pytest.mark.parametrize(
    "text",
    [
        f"cat {RECORDED}/oarstat-running.json",
        f'case "$*" in *-J*) exit 2;; *) cat {RECORDED}/oarstat-running.txt;; esac',
    ],
)
@pytest.mark.parametrize(("node", "jobs"), [("n1", ["1"]), ("n1.example", ["1"]), ("n2", [])])
def test_the_jobs_here_are_those_that_run_on_this_node(
    text: str, node: str, jobs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, text, monkeypatch)
    kernel = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((kernel.sysname, node, *tuple(kernel)[2:])))

    assert [job.id.text for job in OAR.running_here()] == jobs


def test_a_job_is_described_by_oarstat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, f"cat {RECORDED}/oarstat-job.json", monkeypatch)

    job = OAR.describe(Job(JobId("oar", "1"), raw_id="1", uid=1000))

    assert (job.uid, job.name, job.partition, job.nodes) == (1000, "train", "default", ("n1",))
    assert (tmp_path / "oarstat.asked").read_text() == "-J -f -j 1\n"


def test_a_job_oarstat_says_nothing_about_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "exit 0", monkeypatch)
    job = Job(JobId("oar", "999"), raw_id="999")

    assert OAR.describe(job) == job


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("echo no database >&2; exit 1", ReadError),
        ("sleep 30 & wait", TimedOut),
        ("echo nonsense", ParseError),
        ("""echo '{"x": {"state": "Running", "assigned_network_address": []}}'""", ParseError),
        ("""echo '{"1": []}'""", ParseError),
    ],
)
def test_an_oarstat_that_fails_hangs_or_babbles_is_an_error(
    text: str, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, text, monkeypatch)
    monkeypatch.setattr(oar, "_TIMEOUT", 0.5)

    with pytest.raises(error):
        OAR.running_here()


def test_without_oarstat_it_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(Unavailable, match="oarstat"):
        OAR.running_here()

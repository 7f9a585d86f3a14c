"""A job of a real OAR 2.5: found by cgroup, environment and oarstat, and accounted for by a daemon on its node."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from tests.e2e.conftest import RunningDaemon
from tests.oar.conftest import Cluster

from sonde.schedulers.cgroupfs import parse_membership
from sonde.schedulers.job import Job, JobId, parse_environ
from sonde.schedulers.oar import OarScheduler

pytestmark = pytest.mark.long

SCRIPT = """#!/bin/sh
i=0; while [ $i -lt 500000 ]; do i=$((i+1)); done
RANK=0 WORLD_SIZE=1 sleep 600 &
echo $$ >pid
touch ready
wait
"""
OPTIONS = "-n train -l /resource_id=2,walltime=0:10:00 --project physics"
FOUND = """
from sonde.schedulers.hosts import hosts_of
from sonde.schedulers.job import Job, JobId
from sonde.schedulers.oar import OarScheduler
oar = OarScheduler()
result = [
    [job._asdict() for job in oar.running_here()],
    oar.describe(Job(JobId("oar", "JOB"), raw_id="JOB"))._asdict(),
    hosts_of("JOB"),
    oar.describe(Job(JobId("oar", "999"), raw_id="999"))._asdict(),
]
"""
PAGE = """
import urllib.request
with urllib.request.urlopen("URL", timeout=10) as reply:
    result = reply.read().decode()
"""


@pytest.fixture(scope="module")
def job(oar: Cluster) -> str:
    return oar.submit(SCRIPT, OPTIONS)


def test_the_cgroup_and_the_environment_of_a_job_tell_who_it_is(oar: Cluster, job: str) -> None:
    pid = oar.run("cat", "/home/ada/pid").strip()
    pairs = parse_membership(oar.run("cat", f"/proc/{pid}/cgroup").encode())
    environ = parse_environ(oar.run("cat", f"/proc/{pid}/environ").encode())

    scheduler = OarScheduler()
    inside = {name: scheduler.job_from_cgroup(path) for name, path in pairs}
    assert inside["cpuset"] == Job(JobId("oar", job), raw_id=job, user="ada", cgroup=f"/oar/ada_{job}")
    assert scheduler.job_from_environ(environ) == Job(
        JobId("oar", job), raw_id=job, user="ada", name="train", account="physics", walltime_seconds=600
    )
    assert environ["OAR_CPUSET"] == f"/oar/ada_{job}"


def test_oarstat_tells_what_runs_here_and_where_a_job_runs(oar: Cluster, job: str) -> None:
    here, described, hosts, unknown = oar.python(FOUND.replace("JOB", job))

    assert [found["id"] for found in here] == [["oar", job]]
    for found in (here[0], described):
        assert (found["user"], found["name"], found["account"]) == ("ada", "train", "physics")
        assert (found["partition"], found["nodes"], found["walltime_seconds"]) == ("default", ["n1"], 600)
    assert hosts == ["n1"]
    assert (unknown["user"], unknown["nodes"]) == ("", [])


def series(page: str, name: str) -> dict[str, float]:
    return {labels: float(value) for labels, value in re.findall(rf"^{name}\{{(.*)\}} (\S+)$", page, re.MULTILINE)}


def test_a_daemon_on_the_node_exports_the_job_and_its_end(
    oar: Cluster, job: str, daemon: Callable[..., RunningDaemon]
) -> None:
    running = daemon(wrapper=oar.inside)
    url = running.metrics_url

    def page() -> str:
        return str(oar.python(PAGE.replace("URL", url)))

    running.wait_for(lambda: series(page(), "sonde_job_info"))
    text = page()
    usage = int(oar.run("cat", f"/sys/fs/cgroup/cpuacct/oar/ada_{job}/cpuacct.usage")) / 1e9
    uid = oar.run("id", "-u", "ada").strip()
    cpu = series(text, "sonde_job_cpu_seconds_total")

    (info,) = series(text, "sonde_job_info")
    assert f'job_id="{job}",scheduler="oar",user="ada",uid="{uid}",name="train"' in info
    assert 'account="physics",nodes="n1"' in info
    assert usage > 0.3
    assert sum(cpu.values()) == pytest.approx(usage, abs=0.1)
    (rank,) = series(text, "sonde_job_rank_info")
    assert 'rank="0"' in rank
    # oarexec, its helper, the script and the rank; OAR makes no memory cgroup, so memory is that of the processes.
    assert series(text, "sonde_job_processes") == {f'job_id="{job}",scheduler="oar"': 4}
    assert series(text, "sonde_job_memory_rss_bytes").popitem()[1] > 1 << 20

    oar.run("oardel", job)
    running.wait_for(lambda: not series(page(), "sonde_job_info"), seconds=60)
    deadline = time.monotonic() + 30
    while "Terminated" not in (said := oar.run("oarstat", "-s", "-j", job)) and "Error" not in said:
        assert time.monotonic() < deadline, said
        time.sleep(0.5)

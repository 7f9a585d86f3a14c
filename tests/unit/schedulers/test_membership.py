"""The job of one process, asked without a scan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sonde.hostfs import HostFS
from sonde.registry import SCHEDULERS, load
from sonde.schedulers.discovery import Discovery
from sonde.schedulers.job import JobId, Rank, Scheduler
from sonde.schedulers.membership import Membership, Sight

PBS_JOB = JobId("pbs", "5.pbs")


def everybody() -> list[Scheduler]:
    return [load(SCHEDULERS, name)() for name in SCHEDULERS]


@pytest.mark.parametrize(
    ("name", "sandboxes"),  # a pod's pause process has no relative that would tell; a scan sees the others of the pod
    [("slurm_v1", set()), ("slurm_v2", set()), ("kube_systemd", {400, 500}), ("kube_cgroupfs", set())],
)
def test_one_process_is_told_what_a_scan_would_tell(
    name: str, sandboxes: set[int], captured: Callable[[str], HostFS]
) -> None:
    host = captured(name)
    discovery = Discovery(host, everybody())
    discovery.scan()
    discovery.scan()
    discovery.close()
    scanned = {pid: (key, one.rank) for key, found in discovery.jobs.items() for pid, one in found.processes.items()}
    asked = {}
    for pid in map(int, filter(str.isdigit, host.names("proc"))):
        sight = Membership(host, everybody()).ask(pid)  # a new one each time: nothing is known from the others
        if sight.job is not None:
            asked[pid] = (sight.job.key, sight.rank)

    assert scanned.keys() == asked.keys()
    assert {pid for pid in asked if asked[pid] != scanned[pid]} == sandboxes


class Node:
    def __init__(self, root: Path) -> None:
        self._root = root
        self.host = HostFS(str(root))

    def add(self, pid: int, *, session: int, parent: int = 1, environ: str = "", cgroup: str = "/") -> None:
        folder = self._root / f"proc/{pid}"
        folder.mkdir(parents=True)
        (folder / "cgroup").write_text(f"0::{cgroup}\n")
        (folder / "environ").write_text(environ)
        (folder / "stat").write_text(f"{pid} (x) S {parent} 5 {session} 0 -1 0 1 0 0 0 1 1 0 0 20 0 1 0 77 0 0\n")

    def job(self, pid: int) -> JobId | None:
        job = Membership(self.host, everybody()).ask(pid).job
        return job.key if job is not None else None


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_process_that_says_nothing_belongs_to_the_job_of_its_sessions_leader(node: Node) -> None:
    node.add(50, session=50, environ="PBS_JOBID=5.pbs\0PBS_TASKNUM=1\0")
    node.add(51, session=50, parent=50)
    node.add(52, session=52, parent=50)  # left the session

    assert (node.job(51), node.job(52)) == (PBS_JOB, None)


def test_an_ancestor_in_the_session_speaks_for_a_leader_that_has_ended(node: Node) -> None:
    node.add(61, session=60, environ="PBS_JOBID=5.pbs\0")
    node.add(62, session=60, parent=61)
    node.add(63, session=60, parent=62)
    node.add(80, session=80, environ="PBS_JOBID=5.pbs\0")
    node.add(81, session=70, parent=80)  # of another session than its parent

    assert (node.job(63), node.job(81)) == (PBS_JOB, None)


def test_a_variable_exported_in_a_login_session_does_not_make_a_job_of_it(node: Node) -> None:
    node.add(30, session=30)
    node.add(31, session=30, parent=30, environ="PBS_JOBID=5.pbs\0")
    node.add(32, session=30, parent=31)

    assert (node.job(31), node.job(32)) == (PBS_JOB, None)


def test_an_ancestor_tells_what_a_pod_is_a_pod_of(node: Node) -> None:
    pod = "1f2e3d4c-0000-1111-2222-333344445555"
    cgroup = f"/kubepods/burstable/pod{pod}/{'6b' * 32}"
    named = "KUBERNETES_SERVICE_HOST=10.96.0.1\0POD_NAMESPACE=ml\0JOB_NAME=train\0"
    node.add(400, session=400, cgroup=cgroup, environ=named)
    node.add(401, session=400, parent=400, cgroup=cgroup, environ="RANK=3\0")
    node.add(402, session=402, parent=1, cgroup=cgroup)  # entered from outside

    assert node.job(401) == JobId("kubernetes", "ml/train")
    assert node.job(402) == JobId("kubernetes", pod)


def test_a_rank_is_told_without_a_job_and_by_which_variable(node: Node) -> None:
    node.add(50, session=50, environ="OMPI_COMM_WORLD_RANK=3\0PATH=/bin\0")
    sight = Membership(node.host, everybody()).ask(50)

    assert (sight.job, sight.rank, sight.ranked_by) == (None, Rank(3), "OMPI_COMM_WORLD_RANK")


def test_nothing_is_known_of_a_process_that_is_gone_or_makes_no_sense(node: Node) -> None:
    node.add(50, session=50, cgroup="no path")
    rule = Membership(node.host, everybody())

    assert rule.ask(50) == rule.ask(51) == Sight(None, {}, [])

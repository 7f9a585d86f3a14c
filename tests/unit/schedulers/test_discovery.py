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
from sonde.procstat import parse_stat
from sonde.registry import SCHEDULERS as SCHEDULERS_BY_NAME
from sonde.registry import load
from sonde.schedulers.discovery import Discovery, Scope, denial
from sonde.schedulers.job import Job, JobId, Rank, Scheduler
from sonde.schedulers.local import LocalScheduler
from sonde.schedulers.oar import OarScheduler
from sonde.schedulers.pbs import PbsScheduler
from sonde.schedulers.slurm import SlurmScheduler

SCHEDULERS: tuple[Scheduler, ...] = (SlurmScheduler(), PbsScheduler(), OarScheduler(), LocalScheduler())
PBS_JOB = JobId("pbs", "5.pbs")


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


def test_hidden_environments_are_counted_in_words() -> None:
    assert denial(1).startswith("the environment of 1 process may not be read: ")
    assert denial(2).startswith("the environment of 2 processes may not be read: ")


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


class Node:
    """A host whose processes are written one by one."""

    def __init__(self, root: Path) -> None:
        self.host = HostFS(str(root))
        self._root = root
        (root / "proc").mkdir()
        (root / "proc/stat").write_text("processes 1\n")

    def add(
        self,
        pid: int,
        *,
        session: int,
        environ: bytes = b"",
        cgroup: str = "0::/\n",
        uid: int = 1001,
        parent: int = 1,
        start: int = 77,
    ) -> None:
        directory = self._root / "proc" / str(pid)
        directory.mkdir()
        (directory / "cgroup").write_text(cgroup)
        (directory / "environ").write_bytes(environ)
        (directory / "stat").write_text(
            f"{pid} (x) S {parent} 5 {session} 0 -1 0 1 0 0 0 1 1 0 0 20 0 1 0 {start} 0 0\n"
        )
        (directory / "status").write_text(f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")

    def remove(self, pid: int) -> None:
        shutil.rmtree(self._root / "proc" / str(pid))

    def write(self, path: str, text: str) -> None:
        (self._root / path).parent.mkdir(parents=True, exist_ok=True)
        (self._root / path).write_text(text)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_process_without_its_environment_belongs_to_the_job_of_its_session(node: Node) -> None:
    node.add(50, session=50, environ=b"PBS_JOBID=5.pbs\0PBS_TASKNUM=1\0")
    node.add(51, session=50)  # cleared its environment
    node.add(52, session=52)  # left the session
    node.add(40, session=50)  # looked at before the leader

    discovery = Discovery(node.host, SCHEDULERS)
    discovery.scan()
    first = set(discovery.jobs[PBS_JOB].processes)
    discovery.scan()
    discovery.close()

    assert first == {50, 51}
    assert set(discovery.jobs[PBS_JOB].processes) == {40, 50, 51}


def test_a_variable_exported_in_a_login_session_does_not_make_a_job_of_it(node: Node) -> None:
    node.add(30, session=30)  # the login shell
    node.add(31, session=30, environ=b"PBS_JOBID=5.pbs\0")
    node.add(32, session=30)

    discovery = Discovery(node.host, SCHEDULERS)
    discovery.scan()
    discovery.scan()
    discovery.close()

    assert set(discovery.jobs[PBS_JOB].processes) == {31}


def test_a_member_speaks_for_a_leader_that_has_ended(node: Node) -> None:
    node.add(61, session=60, environ=b"PBS_JOBID=5.pbs\0")
    node.add(62, session=60)

    assert set(discovered(node.host).jobs[PBS_JOB].processes) == {61, 62}


def test_the_id_of_a_session_that_ended_is_free_for_another(node: Node) -> None:
    node.add(50, session=50, environ=b"PBS_JOBID=5.pbs\0")
    node.add(70, session=70, environ=b"PBS_JOBID=5.pbs\0")
    discovery = Discovery(node.host, SCHEDULERS)
    discovery.scan()
    node.remove(50)
    discovery.scan()
    node.add(50, session=50)
    node.add(51, session=50)
    discovery.scan()
    discovery.scan()
    discovery.close()

    assert set(discovery.jobs[PBS_JOB].processes) == {70}


def test_sessions_are_not_asked_about_where_the_batch_system_has_cgroups(node: Node) -> None:
    node.add(50, session=50, cgroup="3:cpuset:/oar/ada_1\n")
    node.add(51, session=50)

    assert set(discovered(node.host).jobs[JobId("oar", "1")].processes) == {50}


def test_a_process_joined_by_its_session_is_no_longer_denied(node: Node) -> None:
    node.add(50, session=50, cgroup="1:cpu:/pbs_jobs.service/jobid/5.pbs\n")
    node.add(51, session=50)
    node.add(52, session=52)

    discovery = discovered(HostOfAnother(node.host.root))

    assert set(discovery.jobs[PBS_JOB].processes) == {50, 51}
    assert discovery.denied == 1


@pytest.mark.parametrize(
    ("environ", "path", "key"),
    [
        (b"PBS_JOBID=5.pbs\0PBS_NODEFILE=/etc/secret\0", "var/spool/pbs/aux/5.pbs", PBS_JOB),
        (b"OAR_JOB_ID=1\0OAR_NODEFILE=/etc/secret\0", "var/lib/oar/1", JobId("oar", "1")),
    ],
)
def test_the_nodes_come_from_the_batch_systems_file_and_not_from_the_path_in_an_environment(
    environ: bytes, path: str, key: JobId, node: Node
) -> None:
    node.write("etc/secret", "password\n")
    node.add(50, session=50, environ=environ)
    without = discovered(node.host).jobs[key].job.nodes
    node.write(path, "n1\nn1\nn2\n")

    assert without == ()
    assert discovered(node.host).jobs[key].job.nodes == ("n1", "n2")


@pytest.mark.parametrize("uids", [(105, 1001, 1002), (1001, 105, 1002)])
def test_a_helper_of_the_batch_system_is_not_taken_for_the_user(uids: tuple[int, ...], node: Node) -> None:
    for number, uid in enumerate(uids):
        node.add(50 + number, session=50, cgroup="3:cpuset:/oar/ada_1\n", uid=uid)

    assert discovered(node.host).jobs[JobId("oar", "1")].job.uid == 1001


def test_the_batch_systems_word_on_the_user_outranks_its_processes(node: Node) -> None:
    node.add(50, session=50, cgroup="0::/system.slice/slurmstepd.scope/job_8/step_0/slurm\n", uid=0)
    told = b"SLURM_JOB_ID=8\0SLURM_PROCID=0\0SLURM_JOB_UID=1003\0"
    node.add(51, session=51, cgroup="0::/system.slice/slurmstepd.scope/job_8/step_0/user/task_0\n", environ=told)
    node.add(52, session=51, cgroup="0::/system.slice/slurmstepd.scope/job_8/step_0/user/task_0\n", uid=1001)

    assert discovered(node.host).jobs[JobId("slurm", "8")].job.uid == 1003


@given(st.binary(max_size=100))
def test_any_bytes_are_a_session_and_a_start_time_or_a_parse_error(text: bytes) -> None:
    try:
        parse_stat(text)
    except ParseError:
        pass


ALL: tuple[str, ...] = ("slurm", "kubernetes", "local")


def everybody() -> list[Scheduler]:
    return [load(SCHEDULERS_BY_NAME, name)() for name in ALL]


def kube(host: HostFS) -> Discovery:
    discovery = Discovery(host, everybody())
    discovery.scan()
    discovery.close()
    return discovery


def test_the_registry_asks_batch_systems_before_kubernetes_and_that_before_launchers() -> None:
    names = [name for name in SCHEDULERS_BY_NAME if name in ALL]

    assert names == list(ALL)


def test_the_pods_of_a_training_job_are_one_job(captured: Callable[[str], HostFS]) -> None:
    jobs = kube(captured("kube_systemd")).jobs

    train = jobs[JobId("kubernetes", "ml/train")]
    assert set(train.processes) == {400, 410, 411, 412, 500, 510, 511}  # the sandboxes of both pods too
    assert set(train.parts) == {"1f2e3d4c-5b6a-4789-8abc-def012345678", "2a3b4c5d-6e7f-4801-9abc-0123456789ab"}
    assert (train.job.id.text, train.job.partition, train.job.account) == ("train", "gpu-queue", "ml")
    assert [process.rank.global_rank for process in train.ranks()] == [0, 1, 2, 3]
    assert len(jobs) == 2


def test_a_pod_nobody_names_a_job_for_is_a_job(captured: Callable[[str], HostFS]) -> None:
    systemd, cgroupfs = kube(captured("kube_systemd")).jobs, kube(captured("kube_cgroupfs")).jobs

    coredns = systemd[JobId("kubernetes", "3c4d5e6f-7081-4923-aabc-abcdef012345")]
    static = cgroupfs[JobId("kubernetes", "0123456789abcdef0123456789abcdef")]
    assert (coredns.job.id.text, coredns.job.account) == ("coredns-5d78c9869d-x7k2p", "kube-system")
    assert static.job.id.text == "0123456789abcdef0123456789abcdef"
    assert JobId("kubernetes", "research/sweep") in cgroupfs


def test_jobs_of_one_name_in_two_namespaces_are_two(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("kube_systemd")
    for folder in ("pods", "containers"):
        for path in Path(host.path(f"var/log/{folder}")).iterdir():
            path.rename(path.with_name(path.name.replace("ml_train-master-0", "other_train-master-0")))
    jobs = kube(host).jobs

    assert {key.text for key in jobs} >= {"ml/train", "other/train"}


def test_a_pod_cannot_join_a_job_of_another_namespace(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("kube_systemd")
    environ = Path(host.path("proc/600/environ"))  # a pod of kube-system, as the kubelet's logs know
    environ.write_bytes(environ.read_bytes() + b"JOB_NAME=train\0POD_NAMESPACE=ml\0")
    jobs = kube(host).jobs

    assert 600 not in jobs[JobId("kubernetes", "ml/train")].processes
    assert set(jobs[JobId("kubernetes", "kube-system/train")].processes) == {600}


def test_a_slurm_job_in_a_pod_is_slurms(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("kube_systemd")
    environ = Path(host.path("proc/510/environ"))
    environ.write_bytes(environ.read_bytes() + b"SLURM_JOB_ID=88\0SLURM_PROCID=0\0")
    cgroup = Path(host.path("proc/511/cgroup"))
    cgroup.write_text(cgroup.read_text().rstrip() + "/system.slice/slurmstepd.scope/job_89/step_0/user/task_0\n")
    jobs = kube(host).jobs

    by_environment, by_cgroup = jobs[JobId("slurm", "88")], jobs[JobId("slurm", "89")]
    assert (set(by_environment.processes), by_environment.cgroups) == ({510}, {})  # the pod's cgroup is not the job's
    assert set(by_cgroup.processes) == {511}
    assert by_cgroup.cgroups[""].endswith("slurmstepd.scope/job_89")


def test_a_launcher_in_a_pod_does_not_take_the_process_from_the_pod(captured: Callable[[str], HostFS]) -> None:
    jobs = kube(captured("kube_systemd")).jobs

    assert {key.scheduler for key in jobs} == {"kubernetes"}  # torchrun's variables are in it


MINE = Job(JobId("local", "mine"))


def scanned(node: Node, scope: Scope) -> Discovery:
    discovery = Discovery(node.host, SCHEDULERS, scope)
    discovery.scan()
    discovery.scan()
    discovery.close()
    return discovery


def test_a_job_is_made_of_a_given_process_and_all_that_descends_from_it(node: Node) -> None:
    node.add(50, session=10)
    node.add(51, session=10, parent=50)
    node.add(52, session=10, parent=51, environ=b"PMIX_NAMESPACE=prte-1\0")  # what mpirun calls its own
    node.add(53, session=10)
    node.add(54, session=10, environ=b"SONDE_JOB_ID=mine\0")  # detached itself
    found = scanned(node, Scope(jobs=frozenset(("mine",)), roots={50: MINE}))

    assert set(found.jobs) == {MINE.key}
    assert set(found.jobs[MINE.key].processes) == {50, 51, 52, 54}


def test_a_daemon_that_detached_before_it_was_seen_is_known_by_its_session(node: Node) -> None:
    node.add(50, session=50)
    node.add(51, session=50)  # its parent has ended
    found = scanned(node, Scope(roots={50: MINE}))

    assert set(found.jobs[MINE.key].processes) == {50, 51}


def test_the_id_of_a_root_that_has_ended_is_free_for_another(node: Node) -> None:
    node.add(50, session=10)
    node.add(51, session=10, parent=50)
    discovery = Discovery(node.host, SCHEDULERS, Scope(roots={50: MINE}))
    discovery.scan()
    node.remove(50)
    node.write("proc/stat", "processes 2\n")
    discovery.scan()
    node.add(50, session=10, start=99)
    node.write("proc/stat", "processes 3\n")
    discovery.scan()
    discovery.close()

    assert set(discovery.jobs[MINE.key].processes) == {51}


def test_an_orphan_stays_when_all_ids_are_presented_once_more(node: Node) -> None:
    node.add(50, session=10)
    node.add(51, session=10, parent=50)
    discovery = Discovery(node.host, SCHEDULERS, Scope(roots={50: MINE}))
    discovery.scan()
    node.remove(50)
    node.remove(51)
    node.add(51, session=10, parent=1)
    node.write("proc/stat", "processes 100000\n")  # half of the ids were given out since
    discovery.scan()
    discovery.close()

    assert set(discovery.jobs[MINE.key].processes) == {51}


def test_only_the_jobs_asked_for_are_found_and_of_these_not_every_process(node: Node) -> None:
    step = b"SLURM_JOB_ID=9\0SLURM_PROCID=0\0SLURM_STEP_ID="
    node.add(60, session=60, environ=step + b"0\0")
    node.add(61, session=61, environ=step + b"1\0")  # the step of whoever watches
    node.add(62, session=62, environ=step + b"0\0")
    node.add(63, session=63, environ=b"SLURM_JOB_ID=10\0SLURM_PROCID=0\0")
    scope = Scope(jobs=frozenset(("9",)), without_pids=frozenset((62,)), without_steps=frozenset(("1",)))
    found = scanned(node, scope)

    assert {key: set(job.processes) for key, job in found.jobs.items()} == {JobId("slurm", "9"): {60}}


def test_a_member_of_an_array_is_asked_for_by_either_id(node: Node) -> None:
    array = b"SLURM_JOB_ID=78\0SLURM_PROCID=0\0SLURM_ARRAY_JOB_ID=77\0SLURM_ARRAY_TASK_ID=3\0"
    node.add(60, session=60, environ=array)

    assert scanned(node, Scope(jobs=frozenset(("77_3",)))).jobs
    assert scanned(node, Scope(jobs=frozenset(("78",)))).jobs
    assert not scanned(node, Scope(jobs=frozenset(("77",)))).jobs

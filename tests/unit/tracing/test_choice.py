"""Which processes a request means, and which of them are not there."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.errors import RpcError
from sonde.ipc.endpoint import Sender
from sonde.ipc.processes import Process
from sonde.schedulers.job import Job, JobId
from sonde.tracing.choice import FORKED, Choice, Missing, chosen, meant, missing, parse_choice

if TYPE_CHECKING:
    from tests.unit.tracing.conftest import Scene, Tree

ALL = Choice((), "", (), all=True)
NOT_SET = "KINETO_USE_DAEMON is not set"
STEP = "/system.slice/slurmstepd.scope/job_77/step_0/user/task_0"


def by_job(text: str, *ranks: int) -> Choice:
    return Choice((), text, ranks, all=False)


def by_pid(*pids: int) -> Choice:
    return Choice(pids, "", (), all=False)


def registered(*pids: int) -> list[Process]:
    return [Process(Sender(pid, 1000, 1000, "there"), 0) for pid in pids]


def pids(processes: list[Process]) -> list[int]:
    return [process.pid for process in processes]


def reasons(found: list[Missing]) -> dict[int, str]:
    return {one.pid: one.reason for one in found}


@pytest.mark.parametrize(
    ("request_", "choice"),
    [
        ({"pids": [812, 5]}, by_pid(812, 5)),
        ({"job": "123_4", "ranks": [0, 3]}, by_job("123_4", 0, 3)),
        ({"all": True, "ranks": [0], "pids": [], "job": ""}, Choice((), "", (0,), all=True)),
        ({"pids": None, "job": "x", "all": None}, by_job("x")),
    ],
)
def test_a_choice_is_read(request_: dict[str, Any], choice: Choice) -> None:
    assert parse_choice(request_) == choice


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"ranks": [1]},
        {"all": False},
        {"pids": "812"},
        {"pids": ["812"]},
        {"pids": [0]},
        {"pids": [True]},
        {"pids": [2**31]},
        {"pids": [1] * 70_000},
        {"job": 77},
        {"job": "x" * 257},
        {"all": 1},
        {"all": True, "ranks": [-1]},
        {"all": True, "ranks": {"0": 1}},
    ],
)
def test_a_choice_of_nothing_or_of_the_wrong_kind_is_refused(request_: dict[str, Any]) -> None:
    with pytest.raises(RpcError) as caught:
        parse_choice(request_)

    assert caught.value.code == "bad-request"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("pids", "job", "ranks", "all"), json_values)))
@settings(max_examples=200)
def test_any_request_is_a_choice_or_refused(request_: dict[str, Any]) -> None:
    try:
        choice = parse_choice(request_)
    except RpcError:
        return

    assert choice.pids or choice.job or choice.all


ARRAY = [Job(JobId("slurm", f"76_{member}"), raw) for member, raw in ((1, "77"), (4, "76"))]


@pytest.mark.parametrize(
    ("text", "jobs", "found"),
    [
        ("76_4", ARRAY, "76"),
        ("77", ARRAY, "77"),
        ("76", ARRAY[:1], "77"),  # the only member here
        ("5", [Job(JobId("pbs", "5.server"))], "5.server"),
        ("5", [Job(JobId("pbs", "5[4].server"))], "5[4].server"),
        ("tune-3", [Job(JobId("local", "tune-3"))], "tune-3"),
        ("tune", [Job(JobId("local", "tune-3"))], ""),
        ("7", ARRAY, ""),
        ("", ARRAY, ""),
    ],
)
def test_a_job_is_named_by_its_id_its_number_or_the_number_of_its_array(text: str, jobs: list[Job], found: str) -> None:
    assert [key.text for key in meant(text, jobs)] == ([found] if found else [])


def test_a_number_that_could_be_several_jobs_is_not_guessed_at() -> None:
    with pytest.raises(RpcError, match="76 may be one of several jobs here: 76_1, 76_4"):
        meant("76", ARRAY)


def test_a_name_in_two_namespaces_is_not_guessed_at() -> None:
    jobs = [Job(JobId("kubernetes", "train"), f"{space}/train") for space in ("ml", "web")]
    with pytest.raises(RpcError, match="ml/train, web/train"):
        meant("train", jobs)

    assert meant("ml/train", jobs) == {JobId("kubernetes", "ml/train")}


def test_a_pid_means_the_process_and_all_below_it_by_the_kernels_word(scene: Scene) -> None:
    first, second = scene.trainee(), scene.trainee()
    first.poll(3, 0, first.pid, second.pid)  # it claims the other for its parent
    second.poll()

    def choose(*numbers: int) -> list[int]:
        return pids(chosen(scene.processes, by_pid(*numbers), scene.host))

    assert choose(first.pid) == [first.pid]
    assert choose(second.pid) == [second.pid]
    assert choose(os.getpid()) == [first.pid, second.pid]
    assert choose(first.pid, 2**30) == [first.pid]


def test_the_name_a_process_has_in_its_container_does_not_choose_it(scene: Scene) -> None:
    trainee = scene.trainee()
    trainee.poll(3, 0, 5)

    assert chosen(scene.processes, by_pid(5), scene.host) == []


def test_a_job_and_its_ranks_choose_real_processes(scene: Scene) -> None:
    ranks = [scene.trainee({"SONDE_JOB_ID": "tune-3", "RANK": str(rank)}) for rank in range(3)]
    other = scene.trainee({"SONDE_JOB_ID": "tune-4", "RANK": "0"})
    for trainee in (*ranks, other):
        trainee.poll()

    def choose(choice: Choice) -> list[int]:
        return pids(chosen(scene.processes, choice, scene.host))

    assert choose(by_job("tune-3")) == [trainee.pid for trainee in ranks]
    assert choose(by_job("tune-3", 0, 2)) == [ranks[0].pid, ranks[2].pid]
    assert choose(Choice((), "", (0,), all=True)) == [ranks[0].pid, other.pid]
    assert choose(Choice((other.pid,), "tune-3", (1,), all=False)) == [ranks[1].pid, other.pid]
    assert choose(by_job("tune")) == []


def test_the_job_of_a_datagram_counts_where_nothing_else_tells(scene: Scene) -> None:
    trainee = scene.trainee()
    trainee.poll(3, 77)

    assert pids(chosen(scene.processes, by_job("77"), scene.host)) == [trainee.pid]


def srun_torchrun(tree: Tree) -> None:
    """Node 1 of `srun torchrun`: the launcher is task 1, its children are ranks 2 and 3."""
    tree.add(90, command="slurmstepd: [77.0]", torch=False, cgroup="/system.slice/slurmstepd.scope/job_77/step_0/slurm")
    task = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1"}
    tree.add(100, 90, command="bash run.sh", torch=False, cgroup=STEP, environ=task)
    tree.add(101, 100, command="python torchrun", cgroup=STEP, environ=task)
    tree.add(110, 101, cgroup=STEP, environ={**task, "RANK": "2"})
    tree.add(111, 101, cgroup=STEP, environ={**task, "RANK": "3"})
    tree.add(120, 110, base=110, cgroup=STEP, environ={**task, "RANK": "2"})  # a data loader's worker
    tree.add(130, 100, command="nvidia-smi dmon", torch=False, cgroup=STEP, environ=task)


def test_a_launcher_gives_way_to_its_ranks(tree: Tree) -> None:
    srun_torchrun(tree)
    here = registered(101, 110, 111)

    assert pids(chosen(here, by_job("77"), tree.host)) == [110, 111]
    assert pids(chosen(here, ALL, tree.host)) == [110, 111]
    assert pids(chosen(here, by_pid(101), tree.host)) == [110, 111]
    assert pids(chosen(here, by_job("77", 1), tree.host)) == []  # the number of the launcher's task is no rank
    assert pids(chosen(registered(101), by_job("77"), tree.host)) == [101]


def test_of_a_job_only_the_ranks_are_missing(tree: Tree) -> None:
    srun_torchrun(tree)

    assert missing(tree.host, by_job("77"), registered(101)) == [
        Missing(110, 2, "python train.py", NOT_SET),
        Missing(111, 3, "python train.py", NOT_SET),
    ]
    assert reasons(missing(tree.host, by_job("77"), registered(110))) == {111: NOT_SET}
    assert reasons(missing(tree.host, by_job("77", 3), [])) == {111: NOT_SET}
    assert missing(tree.host, by_job("77"), registered(110, 111)) == []
    assert missing(tree.host, by_job("78"), []) == []


def test_a_rank_below_a_shell_that_has_no_torch_yet_is_the_interpreter(tree: Tree) -> None:
    task = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "KINETO_USE_DAEMON": "1"}
    tree.add(100, command="bash run.sh", torch=False, cgroup=STEP, environ=task)
    tree.add(101, 100, torch=False, cgroup=STEP, environ=task)
    tree.add(102, 101, command="git status", torch=False, cgroup=STEP, environ=task)

    assert missing(tree.host, by_job("77"), []) == [Missing(101, 0, "python train.py", "no torch in it (yet)")]


def test_a_process_without_a_rank_is_missing_when_it_has_torch(tree: Tree) -> None:
    tree.add(100)
    tree.add(101, 100, base=100)
    tree.add(102, command="bash", torch=False)
    tree.add(103, state="Z")

    assert reasons(missing(tree.host, ALL, [])) == {100: NOT_SET}
    assert missing(tree.host, ALL, registered(100)) == []  # its child of fork is its own matter


def test_a_named_process_is_told_about_whatever_it_is(tree: Tree) -> None:
    tree.add(100)
    tree.add(101, 100, base=100)
    tree.add(102, command="bash", torch=False)

    assert reasons(missing(tree.host, by_pid(101, 102, 5), registered(100))) == {
        101: FORKED,
        102: "no torch in it (yet)",
    }
    assert missing(tree.host, by_pid(1), registered(100)) == []


def test_only_the_processes_of_a_user_are_looked_at_for_that_user(tree: Tree) -> None:
    tree.add(100)

    assert missing(tree.host, ALL, [], uid=os.getuid() + 1) == []
    assert reasons(missing(tree.host, ALL, [], uid=os.getuid())) == {100: NOT_SET}


def test_real_processes_are_missing_for_what_is_wrong_with_them(scene: Scene) -> None:
    job = {"SONDE_JOB_ID": scene.address}
    daemon = {**job, "KINETO_USE_DAEMON": "1"}
    good, unset = scene.trainee(daemon), scene.trainee(job)
    good.poll()
    stopped, young = scene.trainee(daemon), scene.trainee(daemon)
    stopped.signal(signal.SIGSTOP)
    elsewhere = scene.trainee({**daemon, "KINETO_IPC_SOCKET_DIR": "/nowhere"})
    good.fork()
    found = reasons(missing(scene.host, by_job(scene.address), scene.processes))

    assert found == {
        unset.pid: NOT_SET,
        stopped.pid: f"stopped (state T): it can be asked once it goes on (kill -CONT {stopped.pid})",
        young.pid: "it has just started and not asked yet",
        elsewhere.pid: "KINETO_IPC_SOCKET_DIR is /nowhere: this daemon listens at @dynolog",
    }

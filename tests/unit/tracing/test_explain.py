"""Whether a process can be traced, and why not."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest
from tests.lacking import lacking

from sonde.hostfs import HostFS
from sonde.ipc.endpoint import Sender
from sonde.ipc.processes import Process
from sonde.tracing.explain import Check, Explanation, explain

if TYPE_CHECKING:
    from tests.unit.tracing.conftest import Scene, Tree

ON = {"KINETO_USE_DAEMON": "1"}
ABSTRACT = ("@dynolog",)


def check(found: Explanation, name: str) -> Check:
    return next(check for check in found.checks if check.name == name)


def bad(found: Explanation) -> list[str]:
    return [check.name for check in found.checks if check.state == "bad"]


def of(
    tree: Tree, pid: int, *registered: Process, uid: int | None = 1000, addresses: Sequence[str] | None = ABSTRACT
) -> Explanation:
    return explain(tree.host, pid, registered, uid=uid, addresses=addresses)


def polled(pid: int, *, ago: float = 0.5, period: float = 5.0) -> Process:
    now = time.monotonic_ns()
    process = Process(Sender(pid, 1000, 1000, "there"), now - 100 * 10**9)
    process.polls, process.kinds, process.poll_ns = 20, 3, int(period * 1e9)
    process.polled_ns = now - int(ago * 1e9)
    process.names = (pid,)
    return process


def test_a_process_that_polls_can_be_traced(scene: Scene) -> None:
    trainee = scene.trainee(ON)
    trainee.poll()
    found = explain(scene.host, trainee.pid, scene.processes, uid=os.getuid(), addresses=ABSTRACT)

    assert (found.registered, found.traceable, found.verdict) == (True, True, f"{trainee.pid} can be traced")
    assert bad(found) == []
    assert [check.name for check in found.checks] == [
        *("exists", "user", "running", "framework", "switch", "socket", "network"),
        *("registered", "polls", "profiler", "gpu", "pid"),
    ]
    assert check(found, "registered").detail == "for 0 s, 1 poll"
    assert found.reply()["checks"][0]["name"] == "exists"


def test_a_stopped_process_cannot_and_is_told_how_to_go_on(scene: Scene) -> None:
    trainee = scene.trainee(ON)
    trainee.poll()
    trainee.signal(signal.SIGSTOP)
    until = time.monotonic() + 5
    while b") T" not in scene.host.read(f"proc/{trainee.pid}/stat"):
        assert time.monotonic() < until
        time.sleep(0.01)
    found = explain(scene.host, trainee.pid, scene.processes, uid=os.getuid(), addresses=ABSTRACT)

    assert (found.traceable, found.verdict) == (False, f"{trainee.pid} cannot be traced: it is stopped (state T)")
    assert check(found, "running").hint == f"kill -CONT {trainee.pid}"


def test_a_child_of_fork_is_told_its_parent(scene: Scene) -> None:
    trainee = scene.trainee(ON)
    trainee.poll()
    child = trainee.fork()
    found = explain(scene.host, child, scene.processes, uid=os.getuid(), addresses=ABSTRACT)

    assert found.verdict == f"{child} cannot be traced: it is a child of fork: libkineto does not poll there"
    assert str(trainee.pid) in check(found, "fork").hint
    assert check(found, "registered").detail == "it has not asked"


def test_a_process_in_another_network_namespace_is_told_the_way_out(scene: Scene) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        lacking("needs root and unshare(1) for a network namespace")
    inside = scene.trainee(ON, wrapper=["unshare", "--net"])
    found = explain(scene.host, inside.pid, (), uid=0, addresses=ABSTRACT)

    assert bad(found) == ["socket", "network", "registered"]
    assert check(found, "network").hint == "set KINETO_IPC_SOCKET_DIR"


def test_a_process_in_a_pid_namespace_is_told_its_other_name(scene: Scene) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        lacking("needs root and unshare(1) for a pid namespace")
    outer = scene.trainee(ON, wrapper=["unshare", "--pid", "--fork", "--kill-child"])
    outer.poll(3, 0, 1)
    (process,) = scene.processes
    found = explain(scene.host, process.pid, scene.processes, uid=0, addresses=ABSTRACT)
    inner = explain(scene.host, 1, scene.processes, uid=0, addresses=ABSTRACT)
    unheard = explain(scene.host, process.pid, (), uid=0, addresses=ABSTRACT)

    assert found.traceable
    assert check(found, "pid").detail == check(unheard, "pid").detail == "it calls itself 1: so are its files called"
    assert not inner.registered  # our own pid 1 is another


@pytest.mark.parametrize(
    ("environ", "torch", "addresses", "name", "detail"),
    [
        (ON, False, ABSTRACT, "framework", "no torch in it (yet)"),
        ({}, True, ABSTRACT, "switch", "KINETO_USE_DAEMON is not set"),
        (ON, True, (), "socket", "tracing is switched off in the daemon"),
        (
            {**ON, "KINETO_IPC_SOCKET_DIR": "/x"},
            True,
            ABSTRACT,
            "socket",
            "KINETO_IPC_SOCKET_DIR is /x: this daemon listens at @dynolog",
        ),
        (ON, True, ABSTRACT, "registered", "it has not asked: is it registered with another daemon, or blocked?"),
    ],
)
def test_what_is_wrong_is_the_verdict(
    environ: dict[str, str], torch: bool, addresses: Sequence[str], name: str, detail: str, tree: Tree
) -> None:
    tree.add(812, torch=torch, environ=environ)
    found = of(tree, 812, addresses=addresses)

    assert bad(found)[0] == name
    assert (found.traceable, found.verdict) == (False, f"812 cannot be traced: {detail}")


def test_an_empty_variable_costs_the_steps_only(tree: Tree) -> None:
    tree.add(812, environ={"KINETO_USE_DAEMON": ""})
    found = of(tree, 812, polled(812))

    assert (found.traceable, found.verdict) == (True, "812 can be traced for a duration, not for steps")
    assert check(found, "switch").detail == "KINETO_USE_DAEMON is set but empty: steps would be ignored"


def test_a_process_that_has_fallen_silent_is_noticed(tree: Tree) -> None:
    tree.add(812, environ=ON)
    tree.add(813, state="D", environ=ON)
    found, waiting = of(tree, 812, polled(812, ago=16)), of(tree, 813, polled(813, ago=200))

    assert found.verdict == "812 cannot be traced: it last asked 16 s ago, every 5.0 s before"
    assert "frozen" in check(found, "polls").hint
    assert check(waiting, "polls").detail == "it last asked 3 min ago, every 5.0 s before"
    assert "file system" in check(waiting, "polls").hint
    assert of(tree, 812, polled(812, ago=14)).traceable


def test_a_process_that_is_busy_says_with_what(tree: Tree) -> None:
    tree.add(812, environ=ON)
    profiling, waiting, tracing = polled(812), polled(812), polled(812)
    profiling.kinds = 1
    waiting.offer = lambda asked: ""
    tracing.session = "t1"
    details = [check(of(tree, 812, process), "profiler").detail for process in (profiling, waiting, tracing)]

    assert details == [
        "a profiler of its own runs in it",
        "a request waits for its next poll already",
        "it is in the trace t1",
    ]


@pytest.mark.parametrize(
    ("uid", "state", "traceable"), [(1000, "ok", True), (0, "ok", True), (7, "bad", False), (None, "bad", False)]
)
def test_a_process_of_another_user_cannot_be_traced(uid: int | None, state: str, traceable: bool, tree: Tree) -> None:
    tree.add(812, environ=ON)
    found = of(tree, 812, polled(812), uid=uid)

    assert (check(found, "user").state, found.traceable) == (state, traceable)


@pytest.mark.parametrize(("owner", "hint"), [(3999999, "ask as 3999999, or as root"), (0, "ask as root")])
def test_who_may_trace_it_is_named_once(owner: int, hint: str, tree: Tree) -> None:
    tree.add(812, environ=ON)
    (tree.root / "proc/812/status").write_text(f"Name:\tpython\nUid:\t{owner}\t{owner}\t{owner}\t{owner}\n")
    found = of(tree, 812, polled(812), uid=7)

    assert check(found, "user").hint == hint


def test_a_process_that_is_not_there_is_said_so_and_its_other_name_is_known(tree: Tree) -> None:
    tree.add(900, state="Z")
    container, hidden = polled(812), polled(0)
    container.names, hidden.names = (5,), (6,)

    assert of(tree, 7).verdict == "7 cannot be traced: there is no process 7 on this host"
    assert of(tree, 900).verdict == "900 cannot be traced: 900 has ended"
    assert of(tree, 5, container).checks[0].hint == "the one that calls itself 5 is 812 on this host"
    assert "cannot be seen from here" in of(tree, 6, hidden).verdict


def test_without_a_daemon_proc_alone_is_looked_at(tree: Tree) -> None:
    tree.add(812, environ=ON)
    tree.add(813)
    good, flawed = of(tree, 812, addresses=None), of(tree, 813, addresses=None)

    assert (good.registered, good.traceable, good.verdict) == (None, False, "812 cannot be traced: no daemon answers")
    assert check(good, "registered").state == "unknown"
    assert flawed.verdict == "813 cannot be traced: KINETO_USE_DAEMON is not set"


def test_what_may_not_be_read_is_unknown_not_bad(tree: Tree) -> None:
    tree.add(812)
    for name in ("environ", "maps", "ns/net"):
        (tree.root / "proc/812" / name).unlink()
    found = of(tree, 812)
    unknown = [check.name for check in found.checks if check.state == "unknown"]

    assert unknown == ["framework", "switch", "socket", "network", "gpu"]
    assert bad(found) == ["registered"]


def test_this_very_process_is_explained() -> None:
    found = explain(HostFS(), os.getpid(), (), uid=os.getuid(), addresses=ABSTRACT)

    assert bad(found)[0] == "framework"

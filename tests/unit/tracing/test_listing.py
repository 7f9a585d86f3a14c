"""The processes as a reply shows them."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from sonde.ipc.endpoint import Sender
from sonde.ipc.processes import Process
from sonde.rpc.peer import UNKNOWN, Peer
from sonde.tracing.identity import user_name
from sonde.tracing.listing import listed, state_of

if TYPE_CHECKING:
    from tests.unit.tracing.conftest import Scene, Tree

ROOT = Peer(0, 1, "unix")


def test_a_process_is_listed_with_all_the_contract_says(scene: Scene) -> None:
    environ = {"SONDE_JOB_ID": "tune-3", "RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}
    trainee = scene.trainee(environ)
    trainee.poll(3, 77, 5)
    (first,) = listed(scene.processes, scene.host, ROOT)
    time.sleep(0.05)
    trainee.poll(3, 77, 5)
    (second,) = listed(scene.processes, scene.host, ROOT)

    ago, command = first.pop("polled_seconds_ago"), first.pop("command")
    assert 0 <= ago < 5
    assert " -c import ctypes" in command
    assert first == {
        "pid": trainee.pid,
        "own_pid": 5,
        "uid": os.getuid(),
        "user": user_name(os.getuid()),
        "job": {"scheduler": "local", "id": "tune-3", "raw_id": ""},
        "job_id": 77,
        "rank": 3,
        "local_rank": 1,
        "world_size": 8,
        "launcher": False,
        "framework": "pytorch",
        "gpu": False,
        "step": None,
        "polls": 1,
        "poll_seconds": None,
        "accepts": True,
        "waiting": False,
        "session": None,
        "state": "idle",
        "may_trace": True,
    }
    assert second["polls"] == 2
    assert 0.05 <= second["poll_seconds"] < 5


def test_jobs_and_ranks_come_in_their_order_and_a_launcher_has_no_rank(tree: Tree) -> None:
    task = {"SLURM_JOB_ID": "77", "SLURM_PROCID": "1"}
    tree.add(90, environ=task)
    tree.add(91, 90, environ={**task, "RANK": "10"})
    tree.add(92, 90, environ={**task, "RANK": "9"})
    tree.add(80)
    here = [Process(Sender(pid, 1000, 1000, "there"), 0) for pid in (91, 90, 92, 80)]
    found = listed(here, tree.host, ROOT)

    assert [(one["pid"], one["rank"], one["launcher"]) for one in found] == [
        (80, None, False),
        (92, 9, False),
        (91, 10, False),
        (90, None, True),
    ]


def test_a_caller_may_trace_its_own_and_a_stranger_nothing(tree: Tree) -> None:
    tree.add(80)
    process = Process(Sender(80, 1000, 1000, "there"), 0)
    may = [listed([process], tree.host, peer)[0]["may_trace"] for peer in (Peer(1000, 1, ""), Peer(7, 1, ""), UNKNOWN)]

    assert may == [True, False, False]


def test_the_state_says_what_a_request_would_meet() -> None:
    process = Process(Sender(80, 1000, 1000, "there"), 0)
    states = [state_of(process)]
    process.polls, process.kinds = 1, 1
    states.append(state_of(process))
    process.session = "t1"
    states.append(state_of(process))
    process.offer = lambda asked: ""
    states.append(state_of(process))

    assert states == ["idle", "profiling", "tracing", "waiting"]

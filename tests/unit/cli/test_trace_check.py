"""What is said of hosts, processes and ranks before anything is armed."""

from __future__ import annotations

from typing import Any

import pytest

from sonde.cli.trace_check import Lack, census, expected_ranks, lacks, name_of, remarks, shortened
from sonde.cli.trace_hosts import Node
from sonde.errors import RpcError, TimedOut


def process(pid: int, rank: int | None = None, world: int | None = None, **fields: Any) -> dict[str, Any]:
    job = {"scheduler": "slurm", "id": "77", "raw_id": "77"}
    known = {"pid": pid, "own_pid": pid, "rank": rank, "world_size": world, "job": job, "user": "ada"}
    return {**known, "accepts": True, "waiting": False, "may_trace": True, **fields}


def node(name: str, *found: dict[str, Any], missing: tuple[dict[str, Any], ...] = ()) -> Node:
    made = Node(name, f"{name}:1778")
    made.ipc, made.found, made.missing = ["@dynolog"], list(found), list(missing)
    return made


def test_a_rank_below_the_world_size_that_nobody_has_is_missing() -> None:
    nodes = [node("n1", process(1, 0, 4), process(2, 1, 4)), node("n2", process(3, 3, 4))]

    assert lacks(nodes, (), True) == [Lack("", 2, None, "no process found on any host")]


def test_a_rank_whose_process_is_known_is_missing_once() -> None:
    missing = {"pid": 9, "rank": 1, "command": "python", "reason": "KINETO_USE_DAEMON is not set"}

    assert lacks([node("n1", process(1, 0, 2), missing=(missing,))], (), True) == [
        Lack("n1", 1, 9, "KINETO_USE_DAEMON is not set")
    ]


def test_what_another_daemon_of_the_same_host_has_is_not_missing() -> None:
    missing = {"pid": 9, "rank": 0, "command": "python", "reason": "it speaks to another daemon"}

    assert lacks([node("n1", missing=(missing,)), node("n1", process(9, 0, 1))], (), True) == []


def test_what_two_daemons_of_a_host_miss_is_missing_once() -> None:
    missing = {"pid": 9, "rank": 3, "command": "python", "reason": "KINETO_USE_DAEMON is not set"}
    nodes = [node("n1", process(1, 0), missing=(missing,)), node("n1", process(2, 1), missing=(missing,))]

    assert len(lacks(nodes, (), True)) == 1
    assert census(nodes) == "2 processes on 1 host, ranks 0-1, job 77"


def test_who_did_not_ask_for_a_whole_job_misses_no_ranks() -> None:
    assert lacks([node("n1", process(1, 0, 4))], (), False) == []


def test_only_chosen_ranks_are_missed() -> None:
    assert [lack.rank for lack in lacks([node("n1", process(1, 0, 8))], (0, 5, 9), True)] == [5, 9]


def test_the_world_is_as_large_as_the_largest_says() -> None:
    assert expected_ranks([process(1), process(2, 0, 3)], ()) == {0, 1, 2}
    assert expected_ranks([process(1)], ()) == set()
    assert expected_ranks([process(2, 0, 3)], (7,)) == {7}


def test_a_dynolog_may_have_any_rank() -> None:
    foreign = Node("n2", "n2:1778")
    foreign.foreign = "0.6.0"

    assert lacks([node("n1", process(1, 0, 4)), foreign], (), True) == []


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"accepts": False}, "rank 3 (n1, pid 812): a torch.profiler session is active, the request waits"),
        ({"waiting": True}, "rank 3 (n1, pid 812): another request waits for its next poll already"),
        ({"may_trace": False}, "rank 3 (n1, pid 812): belongs to ada, and only that user and root may trace it"),
        ({"may_trace": False, "user": "root"}, "rank 3 (n1, pid 812): belongs to root, and only root may trace it"),
    ],
)
def test_what_a_process_waits_for_is_said(fields: dict[str, Any], line: str) -> None:
    assert remarks([node("n1", process(812, 3, **fields))], "no process") == [line]


def test_each_host_that_gives_nothing_has_its_own_reason() -> None:
    off, empty, dead, old, foreign = (node(f"n{number}") for number in range(1, 6))
    off.ipc = []
    dead.error = TimedOut("n3:1778 did not answer within 5 s")
    old.error = RpcError("unknown-function", "there is no function 'trace.check'")
    foreign.foreign = "0.6.0"

    assert remarks([off, empty, dead, old, foreign], "no process of job 77") == [
        "n1: daemon up, IPC off: start sonde daemon without --no-tracing, and without enabled = false in [tracing]",
        "n2: daemon up, no process of job 77 has registered there",
        "n3: n3:1778 did not answer within 5 s",
        "n4: the daemon on n4:1778 is too old to know sessions of traces",
        "n5: a dynolog daemon (0.6.0): it can be armed, but not followed",
    ]


def test_ranks_that_are_nowhere_share_a_line_and_others_do_not() -> None:
    nowhere = [Lack("", rank, None, "no process found on any host") for rank in (4, 5, 7)]
    here = [Lack("n1", rank, 100 + rank, "not registered") for rank in (1, 2)]

    assert shortened([*here, *nowhere]) == [
        "rank 1 (n1, pid 101): not registered",
        "rank 2 (n1, pid 102): not registered",
        "ranks 4-5,7: no process found on any host",
    ]


def test_very_many_that_lack_for_one_reason_share_a_line() -> None:
    assert shortened([Lack("n1", rank, rank, "not registered") for rank in range(40)]) == ["ranks 0-39: not registered"]
    assert shortened([Lack("n1", None, 9, "no")] * 40) == ["40 processes: no"]


def test_what_was_found_is_one_line() -> None:
    nodes = [node("n1", process(1, 0), process(2, 1)), node("n2", process(3, 2)), node("n3")]

    assert census(nodes) == "3 processes on 2 hosts, ranks 0-2, job 77"
    assert census([node("n1", process(1, 4))]) == "1 process on 1 host, rank 4, job 77"
    assert census([node("n1", process(1, None, job=None))]) == "1 process on 1 host"


@pytest.mark.parametrize(
    ("rank", "pid", "host", "name"),
    [
        (5, 812, "n3", "rank 5 (n3, pid 812)"),
        (5, None, "", "rank 5"),
        (None, 812, "n3", "pid 812 on n3"),
        (None, None, "n3", "n3"),
        (None, None, "", "?"),
    ],
)
def test_a_name_has_what_is_known(rank: int | None, pid: int | None, host: str, name: str) -> None:
    assert name_of(rank, pid, host) == name

"""How far each rank has come, as lines."""

from __future__ import annotations

from typing import Any

from sonde.cli.trace_follow import Change
from sonde.cli.trace_hosts import Node
from sonde.cli.trace_progress import lines_of, told
from sonde.errors import Unavailable
from sonde.rpc.clocks import Offset

NOW_NS = 10**18


def target(rank: int | None, state: str, pid: int = 812, **fields: Any) -> dict[str, Any]:
    return {"pid": pid, "own_pid": pid, "rank": rank, "state": state, "reason": "", "start_ns": None, **fields}


def node(name: str, *targets: dict[str, Any]) -> Node:
    made = Node(name, f"{name}:1778")
    made.session = {"targets": list(targets)}
    return made


def test_few_ranks_have_a_line_each_in_their_order() -> None:
    ahead = node("n1", target(1, "delivered", start_ns=NOW_NS + 3_800_000_000), target(0, "started", pid=4711))
    ahead.offset = Offset(2_000_000_000, 1, 1)  # its clock, and so its start
    waiting = node("n20", target(2, "requested", reason="a profiler runs in it"))

    assert lines_of([ahead, waiting], NOW_NS, 80) == [
        "rank 0  n1   4711  started",
        "rank 1  n1   812   delivered  starts in 1.8 s",
        "rank 2  n20  812   requested  a profiler runs in it",
    ]


def test_a_recording_of_a_duration_says_how_long_it_still_takes() -> None:
    begun = NOW_NS - 600_000_000
    going = node("n1", target(0, "started", start_ns=begun + 2 * 10**9), target(1, "started", start_ns=begun - 10**10))
    going.offset = Offset(2_000_000_000, 1, 1)
    steps = node("n2", target(2, "started", start_ns=begun))
    assert going.session
    assert steps.session
    going.session["config"] = {"duration_ms": 2000}
    steps.session["config"] = {"duration_ms": 500, "steps": 5}

    assert lines_of([going, steps], NOW_NS, 80) == [
        "rank 0  n1  812  started  1.4 s left",
        "rank 1  n1  812  started  writes its file",
        "rank 2  n2  812  started",
    ]


def test_many_ranks_are_counted() -> None:
    nodes = [node(f"n{rank}", target(rank, "started" if rank % 3 else "written")) for rank in range(30)]

    assert lines_of(nodes, NOW_NS, 80) == ["20 started, 10 written"]


def test_lines_are_not_wider_than_the_terminal() -> None:
    assert lines_of([node("n1", target(0, "failed", reason="x" * 200))], NOW_NS, 40)[0][-1] == "x"
    assert len(lines_of([node("n1", target(0, "failed", reason="x" * 200))], NOW_NS, 40)[0]) == 39


def test_a_host_without_news_says_so() -> None:
    silent = node("n1", target(0, "started"))
    silent.error = Unavailable("gone")

    assert lines_of([silent], NOW_NS, 80) == ["rank 0  n1  812  started  no news: gone"]
    assert told(Change(silent, None)) == "n1: given up: gone"


def test_a_change_is_a_sentence() -> None:
    assert told(Change(node("n1"), target(0, "failed", reason="it ended"))) == "rank 0 (n1, pid 812): failed (it ended)"

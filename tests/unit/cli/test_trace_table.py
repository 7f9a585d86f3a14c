"""Verdicts, skews, the table and the exit code."""

from __future__ import annotations

from typing import Any

import pytest

from sonde.cli.trace_check import Lack
from sonde.cli.trace_gather import Gathered, Key
from sonde.cli.trace_hosts import Node
from sonde.cli.trace_table import Row, exit_code, expected, rendered, rows_of, skewed
from sonde.errors import TimedOut, Unavailable
from sonde.rpc.clocks import Offset
from sonde.tracing.summary import Summary


def target(state: str, pid: int = 812, rank: int | None = 0, **fields: Any) -> dict[str, Any]:
    known = {"pid": pid, "own_pid": pid, "rank": rank, "state": state, "reason": "", "path": "/tmp/t.json"}
    return {**known, "size": 1000, **fields}


def node(*targets: dict[str, Any], name: str = "n1") -> Node:
    made = Node(name, f"{name}:1778")
    made.session = {"session": "s", "state": "done", "version": 3, "targets": list(targets)}
    return made


def gathered(first_ns: int | None = 10**18, operators: int = 5, error: str = "") -> Gathered:
    return Gathered("rank-0.json.gz", 2000, 300, "ab", Summary(9, operators, first_ns, first_ns, 0, ""), error)


@pytest.mark.parametrize(
    ("state", "reason", "verdict", "late"),
    [
        ("failed", "the process has ended", "failed: the process has ended", False),
        ("timed-out", "no file", "timed out: no file", True),
        ("cancelled", "", "cancelled", False),
        ("refused", "not yours", "refused: not yours", False),
        ("written", "", "written", False),
    ],
)
def test_the_end_of_a_target_is_its_verdict(state: str, reason: str, verdict: str, late: bool) -> None:
    (row,) = rows_of([node(target(state, reason=reason))], {}, [])

    assert (row.verdict, row.ok, row.late) == (verdict, False, late)


def test_what_is_gathered_is_good_and_has_its_figures() -> None:
    (row,) = rows_of([node(target("written"))], {("n1:1778", 812, 812): gathered()}, [])

    assert (row.verdict, row.ok, row.size, row.events, row.operators, row.skew_ns) == ("ok", True, 2000, 9, 5, 0)


@pytest.mark.parametrize(
    ("fields", "operators", "verdict"),
    [
        ({"late_ns": 290_000_000}, 5, "ok: began 290.0 ms late, it had not polled in time"),
        ({"reason": "moved"}, 5, "ok: moved"),
        ({}, 0, "ok: no operator was recorded"),
    ],
)
def test_a_blemish_is_told(fields: dict[str, Any], operators: int, verdict: str) -> None:
    key = ("n1:1778", 812, 812)
    (row,) = rows_of([node(target("written", **fields))], {key: gathered(operators=operators)}, [])

    assert (row.verdict, row.ok) == (verdict, True)


@pytest.mark.parametrize(
    ("asked", "there", "verdict"),
    [
        ({"memory": True, "shapes": True}, {"shapes"}, "ok: PyTorch recorded no allocations"),
        ({"memory": True, "flops": True}, set(), "ok: PyTorch recorded no allocations, no floating-point operations"),
        ({"stacks": True, "modules": True, "memory": False}, {"stacks", "modules"}, "ok"),
    ],
)
def test_what_was_asked_for_and_is_not_there_is_told(asked: dict[str, Any], there: set[str], verdict: str) -> None:
    one = node(target("written"))
    assert one.session is not None
    one.session["config"] = asked
    file = gathered()
    assert file.summary is not None
    file = file._replace(summary=file.summary._replace(contents=frozenset(there)))
    (row,) = rows_of([one], {("n1:1778", 812, 812): file}, [])

    assert (row.verdict, row.ok) == (verdict, True)


@pytest.mark.parametrize(
    ("asked", "found", "verdict"),
    [
        ({"steps": 5}, 5, "ok"),
        ({"steps": 5}, 4, "ok"),  # the step in which it begins or ends
        ({"steps": 5}, 9, "ok"),  # made while PyTorch stopped to record
        ({"steps": 5}, 3, "recorded 3 optimizer steps instead of 5"),
        ({"steps": 1}, 0, "recorded no optimizer step instead of 1"),
        ({"steps": 5, "activities": ["cpu_op"]}, 0, "ok"),  # annotations were not wanted
        ({"steps": 0}, 0, "ok"),
    ],
)
def test_a_trace_of_fewer_steps_than_were_asked_for_is_not_ok(asked: dict[str, Any], found: int, verdict: str) -> None:
    one = node(target("written"))
    assert one.session is not None
    one.session["config"] = asked
    there = gathered()
    assert there.summary is not None
    there = there._replace(summary=there.summary._replace(optimizer_steps=found))
    (row,) = rows_of([one], {("n1:1778", 812, 812): there}, [])

    assert row.verdict == verdict
    assert row.ok == (verdict == "ok")
    assert row.file == "rank-0.json.gz"


def test_ranks_that_cannot_have_recorded_the_same_steps_are_told_of() -> None:
    ranks = [target("written", pid=812 + rank, rank=rank) for rank in range(3)]
    one = node(*ranks)
    assert one.session is not None
    one.session["config"] = {"steps": 2, "round_up": 50}
    second = 10**9
    summaries = [Summary(9, 5, first, first + second // 10, 0, "", 2) for first in (second, second // 2, second + 1)]
    files: dict[Key, Gathered] = {
        ("n1:1778", 812 + rank, 812 + rank): Gathered("f", summary=one) for rank, one in enumerate(summaries)
    }
    rows = rows_of([one], files, [])
    one.session["config"] = {"duration_ms": 500}
    durations = rows_of([one], files, [])

    assert [row.verdict.partition(" than")[0] for row in rows] == ["ok: other steps", "ok", "ok: other steps"]
    assert exit_code(rows) == 0
    assert [row.verdict for row in durations] == ["ok"] * 3


def test_a_file_that_did_not_come_is_a_failure() -> None:
    key = ("n1:1778", 812, 812)
    (row,) = rows_of([node(target("written"))], {key: Gathered(error="not gathered: the checksum is wrong")}, [])

    assert (row.verdict, row.ok) == ("not gathered: the checksum is wrong", False)


def test_a_host_that_fell_silent_says_how_far_it_was_known() -> None:
    silent = node(target("delivered"))
    silent.error = TimedOut("n1:1778 did not answer within 10 s")
    (row,) = rows_of([silent], {}, [])

    assert row.verdict == "delivered, then no news: n1:1778 did not answer within 10 s"


def test_skews_are_by_our_clock() -> None:
    first, second = node(target("written", rank=0)), node(target("written", rank=1), name="n2")
    second.offset = Offset(3_000_000_000, 100, 8)
    files: dict[Key, Gathered] = {
        ("n1:1778", 812, 812): gathered(10**18),
        ("n2:1778", 812, 812): gathered(10**18 + 3_002_000_000),
    }
    rows = rows_of([first, second], files, [])

    assert [row.skew_ns for row in rows] == [0, 2_000_000]
    assert skewed([Row(0, "n1", 1, "ok")])[0].skew_ns is None


def test_rows_are_in_the_order_of_ranks_with_what_lacks_among_them() -> None:
    dead = Node("n9", "n9:1778")
    dead.error = Unavailable("nothing answers on n9:1778: refused")
    lacking = [Lack("", 1, None, "no process found on any host"), Lack("n1", 0, 7, "not registered")]
    rows = rows_of([dead, node(target("written", rank=2))], {}, lacking)

    assert [(row.rank, row.host) for row in rows] == [(0, "n1"), (1, ""), (2, "n1"), (None, "n9")]
    assert rows[0].verdict == "not traced: not registered"


def test_a_process_that_was_found_and_not_armed_has_a_row() -> None:
    found: dict[str, Any] = {"pid": 5, "own_pid": 5, "rank": 3, "user": "ada", "may_trace": True}
    refused, limited = Node("n1", "n1:1778"), node(target("written"))
    refused.found, refused.error = [found], Unavailable("it stopped")
    limited.found = [{**found, "pid": 6}, {**found, "pid": 7, "may_trace": False}]

    assert [row.verdict for row in rows_of([refused], {}, [])] == ["not armed: it stopped"]
    assert [row.verdict for row in rows_of([limited], {}, [])][1:] == [
        "not armed: it has gone, or there are more than --limit",
        "not armed: belongs to ada",
    ]


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([], 3),
        ([Row(0, "n1", 1, "ok", ok=True)], 0),
        ([Row(0, "n1", 1, "ok", ok=True), Row(1, "n1", 1, "timed out", late=True)], 4),
        ([Row(0, "n1", 1, "failed"), Row(1, "n1", 1, "timed out", late=True)], 1),
    ],
)
def test_the_exit_code_tells_the_kind_of_failure(rows: list[Row], code: int) -> None:
    assert exit_code(rows) == code


def test_ranks_that_are_nowhere_are_one_row_of_the_table() -> None:
    good = Row(0, "n1", 812, "ok", ok=True, file="rank-0_n1_812.json.gz", size=99999, events=9, skew_ns=2_000_000)
    rows = [good._replace(stored=2048)]
    rows += [Row(rank, "", None, "not traced: no process found on any host") for rank in (1, 2, 3)]

    assert rendered(rows).splitlines() == [
        "rank  host  pid  file                      size  events  start skew  verdict",
        "   0  n1    812  rank-0_n1_812.json.gz  2.0 KiB       9      2.0 ms  ok",
        " 1-3                                                                 not traced: no process found on any host",
    ]


def test_a_host_that_could_not_be_asked_is_not_counted_beside_its_ranks() -> None:
    rank, dead, nowhere = Row(0, "n1", 812, "ok", ok=True), Row(None, "n2", None, "silent"), Row(1, "", None, "nowhere")

    assert expected([rank, dead]) == 2
    assert expected([rank, dead, nowhere]) == 2
    assert expected([rank, nowhere]) == 2

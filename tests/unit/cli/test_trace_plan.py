"""From the command line to what is asked of the hosts, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from sonde.cli.main import parser_of
from sonde.cli.trace_hosts import Node
from sonde.cli.trace_plan import Plan, decided, plan_of, refuse_harm, refuse_outlasting
from sonde.errors import Denied, UsageError


def plan(*words: str) -> Plan:
    return plan_of(parser_of("trace")[0].parse_args(words))


def process(pid: int, job: str = "", uid: int = 1000, **fields: Any) -> dict[str, Any]:
    known = {"pid": pid, "own_pid": pid, "uid": uid, "user": "ada", "rank": None, "command": "python", "gpu": False}
    return {**known, "job": {"id": job} if job else None, "may_trace": True, **fields}


def node(*found: dict[str, Any]) -> Node:
    made = Node("n1", "n1:1778")
    made.found = list(found)
    return made


def test_the_defaults_are_half_a_second_of_what_is_here() -> None:
    made = plan()

    assert made.choice == {"all": True}
    assert not made.chosen
    assert made.recording["duration_ms"] == 500
    assert made.recording["warmup_seconds"] is None
    assert "directory" not in made.recording


def test_choices_are_passed_on() -> None:
    made = plan("--pid", "8", "--pid", "9", "--job", "77", "--rank", "0,2-3")

    assert made.choice == {"pids": [8, 9], "job": "77", "ranks": [0, 2, 3]}
    assert made.is_named
    assert not plan("--all").is_named


def test_everything_that_can_be_recorded_is_passed_on() -> None:
    flags = ("--shapes", "--memory", "--stacks", "--flops", "--modules")
    made = plan(*flags, "--activities", "cpu_op,kernel", "--warmup", "2s")

    kept = ("shapes", "memory", "snapshot", "stacks", "flops", "modules", "activities", "warmup_seconds")
    assert [made.recording[key] for key in kept] == [True, True, False, True, True, True, ["cpu_op", "kernel"], 2]
    assert made.seconds == 0.5


def test_modules_are_recorded_with_the_stacks_they_are_in() -> None:
    made = plan("--modules")

    assert (made.recording["modules"], made.recording["stacks"], made.options.stacks) == (True, True, True)
    assert not plan("--shapes").options.stacks


def test_steps_have_no_duration_and_one_beginning() -> None:
    assert plan("--steps", "10").recording["round_up"] == 1
    assert plan("--steps", "10", "--round-up", "100").recording["round_up"] == 100
    at_step = plan("--steps", "10", "--at-step", "0").recording
    assert (at_step["at_step"], "round_up" in at_step, "duration_ms" in at_step) == (0, False, False)
    assert plan("--steps", "10").seconds == 0.0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--at-step 5", "say at which step to begin"),
        ("--round-up 5", "say at which step to begin"),
        ("--steps 0", "records nothing"),
        ("--steps 5 --round-up 0", "a multiple of a number from 1"),
        ("--warmup 500ms", "whole seconds"),
        ("--directory here", "not an absolute path"),
        ("--directory /a=b", "an equals sign"),
        ("--directory /a#b", "a number sign"),
        ("--memory-snapshot --steps 5", "not over steps"),
    ],
)
def test_what_libkineto_would_misread_is_refused(words: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        plan(*words.split())


@pytest.mark.parametrize("words", ["--duration 1s --steps 5", "--activities cpu_ops", "--rank x", "--max-size 2"])
def test_what_makes_no_sense_is_a_usage_error(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        plan(*words.split())

    assert ended.value.code == 2


def test_the_only_job_of_a_user_is_chosen_and_others_are_left_alone() -> None:
    here = node(process(1, "77"), process(2, "77"), process(3, "78", uid=1001))
    here.missing = [{"pid": 9, "rank": None, "command": "python", "reason": "not registered"}]
    made = decided(plan("--rank", "0"), [here], 1000)

    assert made.choice == {"job": "77", "ranks": [0]}
    assert [one["pid"] for one in here.found] == [1, 2]
    assert here.missing == []


def test_the_only_process_without_a_job_is_chosen_by_its_pid() -> None:
    assert decided(plan(), [node(process(4))], 1000).choice == {"pids": [4]}


def test_what_the_user_chose_stays() -> None:
    made = plan("--all")

    assert decided(made, [node(process(1, "77"), process(2, "78"))], 1000) is made


def test_two_processes_without_a_job_are_a_question() -> None:
    with pytest.raises(UsageError, match=r"more than one job here: pid 4 of ada \(python\); pid 5") as raised:
        decided(plan(), [node(process(4), process(5))], 1000)

    assert raised.value.hint == "say which: --pid 4, or --all"


def test_processes_of_others_are_not_chosen_without_being_named() -> None:
    with pytest.raises(UsageError, match=r"no process of yours is here: job 77 of ada \(1 process\)"):
        decided(plan(), [node(process(4, "77", uid=1001))], 1000)


def test_very_many_jobs_are_not_all_listed() -> None:
    with pytest.raises(UsageError, match="and 12 more"):
        decided(plan(), [node(*(process(pid, str(pid)) for pid in range(20)))], 1000)


def test_where_nothing_is_nothing_is_decided() -> None:
    here = node()
    here.missing = [{"pid": 9}]

    assert decided(plan(), [here], 1000).choice == {"all": True}
    assert here.missing == [{"pid": 9}]


@pytest.mark.parametrize(("gpu", "why"), [(False, "has no GPU"), (None, "is not known to have a GPU")])
def test_a_memory_snapshot_needs_a_gpu_in_every_process(gpu: bool | None, why: str) -> None:
    nodes = [node(process(4, gpu=True), process(5, gpu=gpu))]

    with pytest.raises(UsageError, match=f"pid 5 on n1 {why}"):
        refuse_harm(plan("--memory-snapshot"), nodes)
    refuse_harm(plan("--memory-snapshot"), [node(process(4, gpu=True))])
    refuse_harm(plan(), nodes)


def test_processes_of_others_alone_are_denied() -> None:
    with pytest.raises(Denied, match="all that was found belongs to ada"):
        refuse_harm(plan(), [node(process(4, may_trace=False))])


def test_a_job_that_ends_too_soon_is_not_traced() -> None:
    refuse_outlasting(30.0, None, "77")
    refuse_outlasting(30.0, 31, "77")
    with pytest.raises(UsageError, match="job 77 ends in 20 s, and this trace may need 30 s"):
        refuse_outlasting(30.0, 20, "77")

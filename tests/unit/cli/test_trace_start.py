"""When all ranks begin."""

from __future__ import annotations

from typing import Any

import pytest

from sonde.cli.trace_hosts import Node
from sonde.cli.trace_plan import Plan
from sonde.cli.trace_start import LEAD, earliest, next_poll, session_in, start_of, warmup_of
from sonde.tracing.kineto import Options

NOW_NS = 1_800_000_000 * 10**9


def process(period: float | None, ago: float | None = 0.0, gpu: bool | None = False) -> dict[str, Any]:
    return {"poll_seconds": period, "polled_seconds_ago": ago, "gpu": gpu}


def node(*found: dict[str, Any]) -> Node:
    made = Node("n1", "n1:1778")
    made.found = list(found)
    return made


def plan(**options: Any) -> Plan:
    return Plan({}, {}, Options("/tmp/t.json", **options), True, False)


@pytest.mark.parametrize(
    ("period", "ago", "elapsed", "seconds"),
    [
        (5.0, 1.0, (0.0, 0.0), 4.25),  # and a twentieth of the period, for a process that is busy
        (5.0, 1.0, (1.0, 1.0), 3.25),
        (5.0, 4.7, (0.0, 0.0), 5.55),  # it polls before it can be armed: the one after
        (5.0, 4.9, (0.3, 0.3), 5.05),  # it has polled since it was looked at
        (5.0, 1.0, (0.2, 1.0), 4.05),  # the daemon may have looked at any time in between
        (5.0, 4.0, (0.2, 2.0), 5.25),  # and it may have polled in between
        (1.0, 0.2, (0.0, 0.0), 0.85),
        (5.0, 12.0, (0.0, 0.0), 3.25),  # it has missed two
        (None, None, (0.0, 0.0), 5.0),
        (2.0, None, (0.0, 0.0), 2.0),
    ],
)
def test_the_next_poll_is_known_from_the_last(
    period: float | None, ago: float | None, elapsed: tuple[float, float], seconds: float
) -> None:
    assert next_poll(process(period, ago), *elapsed) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("gpu", "asked", "seconds"), [(False, None, 0), (True, None, 5), (None, None, 5), (True, 2, 2), (False, 0, 0)]
)
def test_only_what_has_no_gpu_needs_no_warm_up(gpu: bool | None, asked: int | None, seconds: float) -> None:
    assert warmup_of(process(1.0, 0.0, gpu), asked) == seconds


def test_the_slowest_decides_for_all() -> None:
    nodes = [node(process(1.0, 0.0)), node(process(None, None)), node(process(1.0, 0.0, gpu=True))]

    assert earliest(nodes[:1], None, 0.0) == pytest.approx(1.05 + LEAD)
    assert earliest(nodes[:2], None, 0.0) == pytest.approx(5.0 + LEAD)
    assert earliest(nodes, None, 0.0) == pytest.approx(1.05 + 5.0 + LEAD)
    assert earliest([], None, 0.0) == 0.0


def test_who_may_not_be_traced_is_not_waited_for() -> None:
    assert earliest([node({**process(60.0), "may_trace": False}, process(1.0))], None, 0.0) == pytest.approx(
        1.05 + LEAD
    )


def test_time_since_a_host_answered_counts() -> None:
    waited = node(process(5.0, 0.0))
    waited.asked, waited.answered = 100.0, 101.0

    assert earliest([waited], None, 102.0) == pytest.approx(4.25 + LEAD)


def test_one_process_is_left_to_its_daemon_unless_it_shall_wait() -> None:
    alone = [node(process(1.0))]

    assert start_of(alone, plan(), now=0.0, now_ns=NOW_NS, delay=0.0) == 0
    assert start_of(alone, plan(), now=0.0, now_ns=NOW_NS, delay=2.0) == NOW_NS + 4_250_000_000


def test_several_have_one_start_and_steps_have_none() -> None:
    both = [node(process(1.0)), node(process(5.0, 1.0))]

    assert start_of(both, plan(), now=0.0, now_ns=NOW_NS, delay=0.0) == NOW_NS + 5_450_000_000
    assert start_of(both, plan(steps=3), now=0.0, now_ns=NOW_NS, delay=0.0) == 0


def test_a_session_is_found_in_either_form_of_a_reply() -> None:
    session = {"session": "a", "targets": []}

    assert session_in(session) is session
    assert session_in({"session": session, "missing": []}) is session


def test_a_node_without_an_offset_is_taken_for_right() -> None:
    assert Node("n1", "n1:1778").offset_ns == 0

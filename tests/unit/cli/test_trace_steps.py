"""The same steps on every rank."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sonde.cli.trace_steps import Begun, another, in_step, step_ns

MS = 10**6
S = 10**9


def begun(*first_ms: float, steps: int = 10, step_ms: float = 10) -> list[Begun]:
    return [Begun(round(first * MS), round((first + steps * step_ms) * MS)) for first in first_ms]


def test_ranks_that_began_within_half_the_distance_of_multiples_are_in_step() -> None:
    assert in_step(begun(5000, 5003), 10, 100)
    assert not in_step(begun(5000, 6000), 10, 100)
    assert not in_step(begun(5000, 5010), 10, 1)


def test_a_step_takes_what_the_ranks_in_the_middle_needed() -> None:
    assert step_ns([*begun(0, 0), Begun(0, 10**12)], 10) == 10 * MS


def test_multiples_that_come_faster_than_polls_are_moved_apart() -> None:
    found = another(begun(5000, 5010), 10, 1, poll_seconds=1.0, now_ns=7 * S)

    assert found == (200, 0)  # 2 s of steps of 10 ms


def test_the_next_try_is_told_right_after_a_multiple() -> None:
    found = another(begun(5000, 8000), 10, 300, poll_seconds=1.0, now_ns=9 * S)

    assert found.round_up == 300
    assert found.not_before_ns == round(11.3 * S)  # multiples at 5, 8, 11, 14 s


@given(
    st.floats(0.5, 2000),
    st.floats(0.5, 10),
    st.integers(0, 5),
    st.floats(0, 1),
    st.floats(0, 60),
)
def test_whoever_is_told_within_a_poll_period_meets_the_same_multiple(
    step_ms: float, poll: float, apart: int, at: float, later: float
) -> None:
    """Of true multiples at k * interval, none lies between the first telling and a poll period after it."""
    round_up = max(1, -(-2.001 * poll * 1000 // step_ms))  # times are whole nanoseconds: not just the periods needed
    interval = round_up * step_ms * MS
    ranks = [Begun(round(k * interval), round(k * interval + 5 * step_ms * MS)) for k in (7, 8 + apart)]
    now = ranks[1].last_ns + later * S
    found = another(ranks, 5, int(round_up), poll, round(now))

    assert found.round_up == round_up
    assert found.not_before_ns >= now
    assert found.not_before_ns - now < 1.1 * interval + 2 * S
    told = [found.not_before_ns, found.not_before_ns + at * poll * S, found.not_before_ns + poll * S]
    assert len({int(moment // interval) for moment in told}) == 1

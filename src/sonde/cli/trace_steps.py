"""The same steps on every rank: whether they were, and how to come to it when they were not.

libkineto begins at the next multiple of a number of steps, counted from when it is told. Ranks are told at their polls,
up to a poll period apart, so a multiple may come in between: the one rank begins there, the other at the next. Nothing
tells us which step a process is at; but where they have begun tells when multiples come, and how fast. So another try
is told to everybody right after a multiple, with the next one further away than the last poll:

    told      |  a  b        c  |                    multiples N apart, at least two poll periods
    multiple  *                         *            a, b and c begin at the same
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from sonde.clock import NS

TRIES = 3
_PERIODS = 2  # poll periods between two multiples
_AFTER = 0.1  # of that, how long after a multiple the telling begins: when it comes is only about known
_ARMING = 1.0  # seconds until all hosts have a request


class Begun(NamedTuple):
    """A rank's trace: when its first operator began and its last one ended, by our clock."""

    first_ns: int
    last_ns: int


class Next(NamedTuple):
    """Another try."""

    round_up: int
    not_before_ns: int  # by our clock; 0: at once


def step_ns(begun: Sequence[Begun], steps: int) -> float:
    """How long a step takes: the middle of what the ranks needed for theirs."""
    each = sorted((one.last_ns - one.first_ns) / steps for one in begun)
    return max(1.0, each[len(each) // 2])


def in_step(begun: Sequence[Begun], steps: int, round_up: int) -> bool:
    """Did all begin at the same multiple? Ranks of one training wait for one another: they cannot be far apart."""
    first = [one.first_ns for one in begun]
    return max(first) - min(first) < round_up * step_ns(begun, steps) / 2


def another(begun: Sequence[Begun], steps: int, round_up: int, poll_seconds: float, now_ns: int) -> Next:
    """What to ask for next, from where the ranks began at multiples of `round_up`."""
    step = step_ns(begun, steps)
    wanted = _PERIODS * poll_seconds * NS
    if round_up * step < wanted:
        # A multiple of the multiple: when it comes is not known yet.
        return Next(round_up * math.ceil(wanted / (round_up * step)), 0)
    first = [one.first_ns for one in begun]
    between = max(first) - min(first)
    # Over several multiples their distance is known better than from a few steps.
    interval = between / max(1, round(between / (round_up * step)))
    passed = math.floor((now_ns + _ARMING * NS - max(first)) / interval) + 1
    return Next(round_up, round(max(first) + (passed + _AFTER) * interval))

"""What changed from one run to another, told apart from noise.

Two runs of the same program on the same machine differ too. Of each measure the noise within both runs is estimated
(noise.py) and the noise between runs is added: measured, when there are further runs like the first; else assumed. A
change counts when it is beyond that noise, with the chance of even one false finding per comparison kept below
`level` (Holm), and when it is large enough to matter. docs/adr/0032 has the reasons, and how often it is wrong.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sonde.jobs.measures import DURATION, Better, Measure, Measured
from sonde.jobs.noise import FEWEST, estimate, halves_differ, holm, quantile, shape_error, two_sided, welch

LEVEL = 0.05  # of one comparison as a whole
PRIMARY = 0.8  # the share of it for what a run is judged by first: its duration, its steps, what was asked for
MARGIN = 0.02  # smaller changes are not worth a word
RUN_NOISE = 0.01  # assumed: how much like runs differ, one standard deviation
FEWEST_RUNS = 3  # like A, itself included, from which the noise between runs can be learned
_BLIND = 0.10  # when even such a change could hide in the noise, nothing can be told
_LEAST_NOISE = 0.001  # between runs: three that happen to agree to the last digit prove nothing


class Verdict(enum.Enum):
    WORSE = "worse"
    BETTER = "better"
    CHANGED = "changed"  # of what is neither good nor bad
    SAME = "no difference"
    UNCLEAR = "cannot tell"


class Change(NamedTuple):
    """One measure of both runs."""

    measure: Measure
    a: float
    b: float
    change: float  # relative: 0.05 is 5 % more
    low: float  # the interval that holds the true change with a confidence of 1 - level, of all measures together
    high: float
    chance: float  # of a change this large, were there none
    verdict: Verdict
    reason: str = ""  # of what cannot be told, and what else to know

    @property
    def seen(self) -> float:
        """The smallest change that would have been noticed."""
        return math.expm1((math.log1p(self.high) - math.log1p(self.low)) / 2) if self.low > -1 else math.inf


class Comparison(NamedTuple):
    changes: list[Change]  # worst first
    lacking: list[str]  # measures that only one of the runs has
    level: float
    margin: float
    run_noise: float | None  # assumed; None: measured
    runs: int  # like A, itself included

    @property
    def verdict(self) -> Verdict:
        found = {change.verdict for change in self.changes}
        for verdict in (Verdict.WORSE, Verdict.BETTER, Verdict.CHANGED):
            if verdict in found:
                return verdict
        telling = [change for change in self.changes if change.measure.primary] or self.changes
        unclear = all(change.verdict is Verdict.UNCLEAR for change in telling)
        return Verdict.UNCLEAR if unclear else Verdict.SAME


Run = Mapping[str, Measured]
_LASTING = ("total", "work")  # those with the noise of the duration on top
Part = tuple[float, float]  # an error and its degrees of freedom


class _Tested(NamedTuple):
    measure: Measure
    a: float
    b: float
    shift: float  # logarithm of the ratio
    error: float
    freedom: float
    reason: str


def compare(
    a: Run,
    b: Run,
    again: Sequence[Run] = (),
    *,
    level: float = LEVEL,
    margin: float = MARGIN,
    run_noise: float = RUN_NOISE,
) -> Comparison:
    """What changed from `a` to `b`; `again` are further runs like `a`, from which the noise between runs is learned."""
    changes: list[Change] = []
    tested: list[_Tested] = []
    pace = _pace(a, b, run_noise)
    for name in (name for name in a if name in b):
        one, other = a[name], b[name]
        if max(one.value, other.value) < one.measure.floor:
            continue  # nothing to speak of in either
        like = [run[name].value for run in again if name in run]
        answer = _test(*_as_work(one, other, a, b), like, run_noise, pace if one.measure.how in _LASTING else ())
        if isinstance(answer, str):
            changes.append(_unclear(one, other, answer))
        else:
            tested.append(answer)
    for primary, share in ((True, PRIMARY), (False, 1 - PRIMARY)):
        changes += _judged([item for item in tested if item.measure.primary is primary], level * share, margin)
    lacking = sorted(name for name in a.keys() ^ b.keys())
    noise = None if again else run_noise
    return Comparison(sorted(changes, key=_badness), lacking, level, margin, noise, 1 + len(again))


def _pace(a: Run, b: Run, run_noise: float) -> Sequence[Part]:
    """The noise of how long the runs took: what a total over the run has on top of that of its rate."""
    one, other = a.get(DURATION.name), b.get(DURATION.name)
    if one is None or other is None:
        return ()
    parts = [(run_noise * math.sqrt(2), math.inf), (one.resolution, math.inf), (other.resolution, math.inf)]
    within = _within(one, other)
    return parts if within is None else [*parts, within]


def _as_work(one: Measured, other: Measured, a: Run, b: Run) -> tuple[Measured, Measured]:
    """CPU time as what it costs to do the work, where it does not go with how long that took.

    A job that has to share its CPUs takes longer and uses as much of them: on a machine with twice as many tasks as
    CPUs, five like runs took 29 to 49 s and 18.7 to 19.4 s of CPU time. How its use of them wavered says nothing then.
    """
    if (
        one.measure.how != "work"
        or DURATION.name not in a
        or DURATION.name not in b
        or min(one.value, other.value) <= 0
    ):
        return one, other
    lasted = math.log(b[DURATION.name].value / a[DURATION.name].value)
    if abs(math.log(other.value / one.value) - lasted) <= 2 * MARGIN:
        return one, other
    return one._replace(course=None), other._replace(course=None)


def _test(
    one: Measured, other: Measured, like: Sequence[float], run_noise: float, pace: Sequence[Part]
) -> _Tested | str:
    """The change and its error; or why there is none to be had."""
    floor = one.measure.floor
    a, b = max(one.value, floor), max(other.value, floor)
    notes = "; ".join(filter(None, (_unsteady("A", one), _unsteady("B", other))))
    if len(like) >= FEWEST_RUNS - 1:
        a, between = _between([a, *[max(value, floor) for value in like]])
        return _Tested(one.measure, a, b, math.log(b / a), *between, notes)
    if one.course is None:
        pace = pace[:1]
    parts = [*pace, (run_noise * math.sqrt(2), math.inf), (one.resolution, math.inf), (other.resolution, math.inf)]
    within = _within(one, other)
    if within is None:
        return f"too short: {FEWEST} values of each run are needed"
    parts.append(within)
    return _Tested(one.measure, a, b, math.log(b / a), *welch(parts), notes)


def _within(one: Measured, other: Measured) -> Part | None:
    """The noise within both runs; None when it cannot be told. Next to nothing in one of them has none of its own."""
    if one.course is None or other.course is None:
        return (0.0, math.inf)
    if min(one.value, other.value) > one.measure.floor:
        return shape_error(one.course, other.course)
    alone = estimate(one.course if one.value > other.value else other.course)
    return None if alone is None else (alone.error / alone.mean, alone.freedom)


def _unsteady(side: str, run: Measured) -> str:
    """A run against itself."""
    drift = halves_differ(run.course) if run.course is not None else None
    if drift is None or abs(drift) < _BLIND:
        return ""
    return f"{side} was not steady: {drift:+.0%} from its first half to its second"


def _between(values: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """The usual value of like runs, and the error of one more against it."""
    logs = [math.log(value) for value in values]
    centre = sum(logs) / len(logs)
    scatter = math.sqrt(sum((value - centre) ** 2 for value in logs) / (len(logs) - 1))
    return math.exp(centre), (max(scatter, _LEAST_NOISE) * math.sqrt(1 + 1 / len(logs)), len(logs) - 1)


def _judged(tested: Sequence[_Tested], level: float, margin: float) -> list[Change]:
    chances = [_chance(item) for item in tested]
    return [
        _change(item, chance, step, significant, margin)
        for item, chance, (significant, step) in zip(tested, chances, holm(chances, level), strict=True)
    ]


def _chance(item: _Tested) -> float:
    if item.error == 0:
        return 1.0 if item.shift == 0 else 0.0
    return two_sided(item.shift / item.error, item.freedom)


def _change(item: _Tested, chance: float, level: float, significant: bool, margin: float) -> Change:
    half = quantile(level, item.freedom) * item.error
    change, low, high = (_grown(shift) for shift in (item.shift, item.shift - half, item.shift + half))
    verdict, reason = Verdict.SAME, item.reason
    if significant and abs(change) >= margin:
        verdict = _direction(item.measure.better, change)
    elif not significant and _grown(half) > _BLIND:
        verdict = Verdict.UNCLEAR
        reason = "; ".join(filter(None, (f"too noisy: only a change beyond {_grown(half):.0%} would show", reason)))
    return Change(item.measure, item.a, item.b, change, low, high, chance, verdict, reason)


def _grown(shift: float) -> float:
    return math.expm1(min(shift, 50.0))


def _direction(better: Better, change: float) -> Verdict:
    if better is Better.NEITHER:
        return Verdict.CHANGED
    return Verdict.BETTER if (change < 0) == (better is Better.LESS) else Verdict.WORSE


def _unclear(one: Measured, other: Measured, reason: str) -> Change:
    change = other.value / one.value - 1 if one.value > 0 else math.inf
    return Change(one.measure, one.value, other.value, change, -1.0, math.inf, 1.0, Verdict.UNCLEAR, reason)


_RANKS = {Verdict.WORSE: 0, Verdict.BETTER: 1, Verdict.CHANGED: 2, Verdict.UNCLEAR: 3, Verdict.SAME: 4}


def _badness(change: Change) -> tuple[int, bool, float]:
    return (_RANKS[change.verdict], not change.measure.primary, -abs(change.change))

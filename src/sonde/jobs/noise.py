"""How sure one can be of a mean over time, and of a difference between two: batch means, Student's t, Holm.

Neighbouring seconds of a job resemble each other, so a thousand of them are not a thousand independent readings. The
series is cut into blocks long enough that their means do not resemble each other any more; how much those scatter is
the noise (Law and Kelton, Simulation Modeling and Analysis, batch means). docs/adr/0032 has what this was tested with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Series = NDArray[np.float64]

FEWEST = 32  # values: eight blocks of four
_BLOCKS = (64, 32, 16, 8)
_SMALLEST_BLOCK = 4
_NORMAL = 1e4  # degrees of freedom beyond which Student's t is the normal distribution to three digits
_MOST_CORRELATED = 0.95  # of neighbouring blocks; beyond it is a trend, and the inflation would have no bound


class Estimate(NamedTuple):
    """A mean and how far off it may be."""

    mean: float
    error: float  # standard error
    freedom: float  # degrees of freedom of the error


def estimate(series: Series) -> Estimate | None:
    """The mean of a series and its standard error; None when it is too short to tell its noise."""
    known = series[np.isfinite(series)]
    if len(known) < FEWEST:
        return None
    error, freedom = _scatter(lambda count: _blocks(known, count), len(known))
    return Estimate(float(known.mean()), error, freedom)


def shape_error(a: Series, b: Series) -> tuple[float, float] | None:
    """By how much, relative to each other, the means of two courses may be off, and the degrees of freedom.

    Both are cut into as many parts, so that loading is set against loading and a checkpoint against a checkpoint: what
    is alike in both is no noise. None when one of them is too short.
    """
    one, other = a[np.isfinite(a)], b[np.isfinite(b)]
    if min(len(one), len(other)) < FEWEST:
        return None
    means = float(one.mean()), float(other.mean())
    if min(means) <= 0:
        return None

    def difference(count: int) -> Series:
        return _blocks(other, count) / means[1] - _blocks(one, count) / means[0]

    return _scatter(difference, min(len(one), len(other)))


def _blocks(series: Series, count: int) -> Series:
    """The means of so many parts of nearly the same length."""
    edges = np.linspace(0, len(series), count + 1).astype(np.intp)
    return np.asarray(np.add.reduceat(series, edges[:-1]) / np.diff(edges), np.float64)


def _scatter(blocks_of: Callable[[int], Series], length: int) -> tuple[float, float]:
    """Standard error of the mean and its degrees of freedom.

    These are of the shortest blocks that do not resemble each other; the error is the largest that any of the block
    lengths gives. Wandering that takes minutes shows in long blocks only: with short ones alone, 28 of 200 pairs of
    like runs were found to differ, with the largest 12.
    """
    error, freedom = 0.0, 0
    for count in _BLOCKS:
        if length // count < _SMALLEST_BLOCK:
            continue
        blocks = blocks_of(count)
        likeness = correlation(blocks)
        error = max(error, _error(blocks, likeness))
        if not freedom and (likeness <= 1 / math.sqrt(count) or count == _BLOCKS[-1]):
            freedom = count - 1
    return error, freedom


def _error(blocks: Series, likeness: float) -> float:
    count = len(blocks)
    # Few blocks look less alike than they are, by (1+3r)/n (Marriott and Pope, Biometrika 41, 1954); and likeness makes
    # fewer independent ones of them: of an autoregressive series, n(1-r)/(1+r).
    alike = min(max(likeness + (1 + 3 * likeness) / count, 0.0), _MOST_CORRELATED)
    return float(blocks.std(ddof=1)) / math.sqrt(count) * math.sqrt((1 + alike) / (1 - alike))


def correlation(blocks: Series) -> float:
    """Of each block with the next; 0 when all are the same."""
    off = blocks - blocks.mean()
    scatter = float(off @ off)
    return float(off[:-1] @ off[1:]) / scatter if scatter > 0 else 0.0


def halves_differ(series: Series) -> float | None:
    """A run against itself: the relative change from its first to its second half when it is beyond the noise of both.

    None when there is none to be seen: the run was steady.
    """
    middle = len(series) // 2
    first, second = estimate(series[:middle]), estimate(series[middle:])
    if first is None or second is None or first.mean <= 0 or second.mean <= 0:
        return None
    error = math.hypot(first.error / first.mean, second.error / second.mean)
    change = math.log(second.mean / first.mean)
    if error == 0 or two_sided(change / error, min(first.freedom, second.freedom)) > 0.01:
        return None
    return math.expm1(change)


def welch(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Error and degrees of freedom of a sum of independent ones, each with its own (Satterthwaite)."""
    variance = sum(error**2 for error, _ in parts)
    spread = sum(error**4 / freedom for error, freedom in parts if math.isfinite(freedom) and error > 0)
    return math.sqrt(variance), variance**2 / spread if spread else math.inf


def holm(chances: Sequence[float], level: float) -> list[tuple[bool, float]]:
    """Which of several are significant, so that the chance of even one false one stays below `level`.

    With each comes the level it was held against, which is that of an interval that agrees with the answer.
    """
    order = sorted(range(len(chances)), key=chances.__getitem__)
    found = [(False, level)] * len(chances)
    going = True
    step = level
    for place, number in enumerate(order):
        if going:
            step = level / (len(chances) - place)
            going = chances[number] <= step
        found[number] = (going, step)
    return found


def two_sided(t: float, freedom: float) -> float:
    """The chance of Student's t being further from 0 than this."""
    if freedom > _NORMAL:
        return math.erfc(abs(t) / math.sqrt(2))
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def quantile(chance: float, freedom: float) -> float:
    """The t that is exceeded, on both sides together, with this chance."""
    low, high = 0.0, 1.0
    while two_sided(high, freedom) > chance and high < 1e6:
        low, high = high, high * 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided(middle, freedom) > chance else (low, middle)
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function (NIST Digital Library of Mathematical Functions, 8.17)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on this side only: 8.17.4
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    return front * _fraction(a, b, x)


def _fraction(a: float, b: float, x: float) -> float:
    """8.17.22, from its end to its beginning; where it is used it converges within the square root of a."""
    value = 1.0
    for n in range(30 + 2 * int(math.sqrt(max(a, b))), 0, -1):
        m = n // 2
        if n % 2:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        value = 1 + d / value
    return 1 / value

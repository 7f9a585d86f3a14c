"""Runs of a job that are made up: noise as jobs have it, of a known size, with a known slowdown or none.

A training job does a fixed number of steps. Its pace wanders (each second resembles the ones before it), dips while it
writes checkpoints, rises while it warms up, and has outliers; a run as a whole is some tenths of a percent faster or
slower than the next one of its kind.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sonde.jobs.measures import DURATION, MEASURES, Measured

BY_NAME = {measure.name: measure for measure in MEASURES}


class Noise(NamedTuple):
    scatter: float = 0.05  # of the seconds of a course around its mean
    memory: float = 5.0  # seconds until the course has forgotten half of a deviation
    outliers: float = 0.01  # share of seconds that are far off
    between: float = 0.007  # of runs among each other
    checkpoint: int = 300  # seconds from one to the next


def course(chance: np.random.Generator, seconds: int, noise: Noise) -> NDArray[np.float64]:
    """Around 1, a value per second."""
    keep = 0.5 ** (1 / noise.memory)
    shocks = chance.normal(0, noise.scatter * np.sqrt(1 - keep**2), seconds)
    shocks[0] /= np.sqrt(1 - keep**2)
    # Each second keeps a share of the one before: shocks folded with what is left of them.
    size = 2 * seconds
    fading = keep ** np.arange(seconds)
    wander = np.fft.irfft(np.fft.rfft(shocks, size) * np.fft.rfft(fading, size), size)[:seconds]
    values = 1 + wander
    values *= np.where(chance.random(seconds) < noise.outliers, chance.uniform(0.1, 3.0, seconds), 1)
    phase = (np.arange(seconds) + chance.integers(0, 5)) % noise.checkpoint
    values *= np.where(phase < 10, 0.3, 1)
    values[:30] *= np.linspace(0.2, 1, 30)[: len(values[:30])]
    return np.maximum(values, 0.0)


def run(
    chance: np.random.Generator,
    seconds: int = 1800,
    noise: Noise | None = None,
    slowdown: float = 0.0,
    *,
    spinning: bool = False,
) -> dict[str, Measured]:
    """A run whose work takes `seconds`, or that much longer. What it uses per second stays the same."""
    noise = noise or Noise()

    def off() -> float:
        return float(np.exp(chance.normal(0, noise.between)))

    pace = course(chance, int(seconds * 1.5 + 100), noise) * off() / (1 + slowdown)
    work = float(course(np.random.default_rng(0), seconds, Noise(0.0, outliers=0.0)).sum())
    lasted = int(np.searchsorted(np.cumsum(pace), work)) + 1
    steps = pace[:lasted]

    def used(name: str, per_second: float) -> Measured:
        # What a job uses goes with its pace, half of it.
        rates = (course(chance, lasted, noise) + steps / steps.mean()) / 2 * per_second * off()
        return Measured(BY_NAME[name], float(rates.sum()), rates)

    def level(name: str, usual: float) -> Measured:
        values = course(chance, lasted, noise) * usual * off()
        return Measured(BY_NAME[name], float(values.mean()), values)

    # CPU time goes with the work that is done; or, when all wait for each other in a loop, with the time it takes.
    rates = (np.ones(lasted) if spinning else steps * (1 + slowdown)) * 14.0 * off()
    rates *= 1 + chance.normal(0, 0.02, lasted)
    cpu = Measured(BY_NAME["CPU time"], float(rates.sum()), rates)
    step = 0.25 * (1 + slowdown) * off()
    step_times = step * (1 + 0.3 * (course(chance, lasted, noise) - 1))
    found = [
        Measured(DURATION, float(lasted), steps, 1 / lasted),
        Measured(BY_NAME["step time"], float(np.average(step_times, weights=steps + 1e-9)), step_times),
        cpu,
        level("memory", 40 * 2.0**30),
        Measured(BY_NAME["memory peak"], 48 * 2.0**30 * off(), None),
        Measured(BY_NAME["read"], 300 * 2.0**30 * off(), None),
        Measured(BY_NAME["written"], 20 * 2.0**30 * off(), None),
        used("received", 3e8),
        used("sent", 3e8),
        used("energy", 450.0),
        level("waiting for CPU", 0.2),
        level("waiting for I/O", 0.1),
        level("CPU steal", 0.003),
    ]
    return {one.measure.name: one for one in found}

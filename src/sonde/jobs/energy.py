"""Energy over a time: from the counters of RAPL, or an estimate from CPU time where those may not be read.

    energy_uj                       118204331092    microjoules; starts again at 0 after max_energy_range_uj
    max_energy_range_uj             262143328850
    constraint_0_name               long_term       of a package: what it may take for long, its TDP
    constraint_0_max_power_uw       205000000

(Documentation/power/powercap/powercap.rst.) Since Linux 5.10 energy_uj is readable by root only; everybody may read the
limits. So a user gets an estimate, marked as one: the TDP of all packages times the share of CPU time used. It knows
nothing of idle power, turbo, vector units or memory, and is nothing at all where no TDP is told: a virtual machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from sonde.errors import ParseError
from sonde.hostfs import HostFS

_ZONES = "sys/class/powercap"
_PACKAGE = re.compile(r"intel-rapl:[0-9]+")  # not the second interface to the same packages, intel-rapl-mmio
_CONSTRAINTS = 4  # no zone has more
_MICRO = 1_000_000


class Energy(NamedTuple):
    joules: float
    seconds: float  # that it covers
    estimated: bool = False


def joules_between(readings_uj: Sequence[int], range_uj: int) -> float:
    """What was used from the first reading of a counter to the last, wraps included.

    Between two readings at most one wrap is assumed: a package at 350 W wraps every 12 minutes. Each is right to the
    one unit of the register (at most 61 µJ) that the range leaves out, as in collectors/power.py.
    """
    if range_uj <= 0 or any(not 0 <= reading <= range_uj for reading in readings_uj):
        raise ParseError("energy_uj", list(readings_uj)[:4], f"not within 0 and {range_uj}")
    steps = [after - before for before, after in pairwise(readings_uj)]
    return sum(step if step >= 0 else step + range_uj for step in steps) / _MICRO


def used(times_ns: Sequence[int], joules: Sequence[float]) -> Energy | None:
    """What a recorded counter that only rises has gained. None of fewer than two values.

    A value below the one before is of another recorder, which began anew: what was used between the two is not known,
    and neither its time nor its energy is counted.
    """
    if len(joules) < 2:
        return None
    gained, covered_ns = 0.0, 0
    for index in range(1, len(joules)):
        step = joules[index] - joules[index - 1]
        if step >= 0:
            gained += step
            covered_ns += times_ns[index] - times_ns[index - 1]
    return Energy(gained, covered_ns / 1e9)


def read_tdp_watts(host: HostFS) -> float | None:
    """What all packages together may take for long; None where nothing tells it."""
    try:
        zones = [name for name in host.names(_ZONES) if _PACKAGE.fullmatch(name)]
    except FileNotFoundError:
        return None
    limits = [_limit(host, f"{_ZONES}/{zone}") for zone in zones]
    known = [limit for limit in limits if limit is not None]
    return sum(known) / _MICRO if known and len(known) == len(limits) else None


def _limit(host: HostFS, zone: str) -> int | None:
    for number in range(_CONSTRAINTS):
        try:
            if host.text(f"{zone}/constraint_{number}_name").strip() == "long_term":
                limit = int(host.text(f"{zone}/constraint_{number}_max_power_uw"))
                return limit if limit > 0 else None
        except (OSError, ValueError):
            return None
    return None


def estimated(cpu_seconds: float, seconds: float, cpus: int, tdp_watts: float | None) -> Energy | None:
    """TDP times the share of all CPU time that was used; None where the TDP is not known."""
    if tdp_watts is None or cpus < 1 or seconds <= 0 or cpu_seconds < 0:
        return None
    return Energy(tdp_watts * min(cpu_seconds / cpus, seconds), seconds, estimated=True)

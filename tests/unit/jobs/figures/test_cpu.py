from __future__ import annotations

import pytest

from sonde.clock import NS
from sonde.jobs.figures.cpu import idle_stretches
from sonde.store.form import Series
from sonde.store.query import Points


def used(*pairs: tuple[float, float]) -> Points:
    return Points(Series("x", "gauge", "", ()), NS, [round(t * NS) for t, _ in pairs], [value for _, value in pairs])


@pytest.mark.parametrize(
    ("pairs", "longest", "all_of_it"),
    [
        ([(0, 1.0), (1, 1.0), (2, 1.0)], 0, 0),
        ([(0, 1.0), (1, 0.0), (2, 0.0), (3, 1.0), (4, 0.0)], 2, 3),
        ([(0, 0.0), (1, 0.049), (2, 0.05)], 1, 1),
        ([(0, 0.0), (1, 0.0), (60, 0.0), (61, 0.0)], 1, 2),  # nobody knows what was in the gap
    ],
)
def test_idle_time_is_added_up_between_values(
    pairs: list[tuple[float, float]], longest: float, all_of_it: float
) -> None:
    assert idle_stretches(used(*pairs)) == (longest, all_of_it)

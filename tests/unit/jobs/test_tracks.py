from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.clock import NS
from sonde.jobs.tracks import Curve, Grid, Plotter, combined, increase, mean, rate, total
from sonde.store.form import Series
from sonde.store.query import Points


def points(values: list[float], *, seconds: list[float] | None = None, period: float = 1.0) -> Points:
    times = seconds if seconds is not None else [place * period for place in range(len(values))]
    return Points(Series("x", "counter", "", ()), round(period * NS), [round(time * NS) for time in times], values)


def test_a_counter_that_was_reset_has_counted_from_zero_since() -> None:
    counted = points([100, 150, 10, 60])

    rates = rate(counted)

    assert increase(counted) == 50 + 10 + 50
    assert rates is not None
    assert rates.values == [50, 10, 50]


def test_one_value_alone_says_nothing() -> None:
    assert increase(points([5])) is None
    assert rate(points([5])) is None
    assert mean(None) is None


def test_no_rate_spans_a_gap() -> None:
    rates = rate(points([0, 1, 2, 50, 51], seconds=[0, 1, 2, 10, 11]))

    assert rates is not None
    assert [time / NS for time in rates.times] == [1, 2, 11]
    assert rates.values == [1, 1, 1]


def test_one_missed_value_is_bridged() -> None:
    rates = rate(points([0, 2, 3], seconds=[0, 2, 3]))

    assert rates is not None
    assert rates.values == [1, 1]


def test_series_are_added_by_time_not_by_index() -> None:
    early, late = points([1, 1, 1], seconds=[0, 1, 2]), points([10, 10, 10], seconds=[2, 3, 4])

    summed = total([early, late])

    assert dict(zip([time / NS for time in summed.times], summed.values, strict=True))[2.0] == 11
    assert summed.values[0] == 1
    assert summed.values[-1] == 10


class TestACurve:
    def test_has_least_mean_and_most_of_each_cell(self) -> None:
        curve = Plotter(Grid(0, 2 * NS, 2)).curve(points([1, 3, 5, 9]))

        assert curve == Curve([1, 5], [2, 7], [3, 9])

    def test_has_a_hole_where_there_is_no_value(self) -> None:
        curve = Plotter(Grid(0, NS, 6)).curve(points([1, 2, 3], seconds=[0, 1, 5]))

        assert curve.mean == [1, 2, None, None, None, 3]

    def test_of_a_slow_series_has_no_holes_between_its_values(self) -> None:
        curve = Plotter(Grid(0, NS, 10)).curve(points([1, 2], seconds=[0, 5], period=5))

        assert curve.mean == [1, 1, 1, 1, 1, 2, None, None, None, None]

    def test_begins_where_the_node_begins(self) -> None:
        curve = Plotter(Grid(0, NS, 5)).curve(points([7, 8], seconds=[3, 4]))

        assert curve.mean == [None, None, None, 7, 8]

    def test_leaves_out_what_is_before_or_behind_the_grid(self) -> None:
        curve = Plotter(Grid(2 * NS, NS, 2)).curve(points([1, 2, 3, 4, 5]))

        assert curve.mean == [3, 4]

    @settings(max_examples=100, deadline=None)
    @given(
        st.lists(st.integers(0, 200), min_size=1, max_size=60, unique=True).map(sorted),
        st.integers(1, 30),
    )
    def test_has_every_value_in_its_cell(self, seconds: list[int], width: int) -> None:
        values = [float(second) for second in seconds]
        grid = Grid(0, width * NS, 200 // width + 1)

        curve = Plotter(grid).curve(points(values, seconds=list(map(float, seconds))))

        for second in seconds:
            low, high = curve.least[second // width], curve.most[second // width]
            assert low is not None
            assert high is not None
            assert low <= second <= high


@pytest.mark.parametrize(("how", "expected"), [("sum", [1.0, 4.0, None]), ("mean", [1.0, 2.0, None])])
def test_nodes_are_combined_where_they_have_values(how: str, expected: list[float | None]) -> None:
    one, other = [1.0, 1.0, None], [None, 3.0, None]

    values, counts = combined([Curve(one, one, one), Curve(other, other, other)], how)

    assert (values, counts) == (expected, [1, 2, 0])

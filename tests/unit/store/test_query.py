from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.clock import NS
from sonde.errors import UsageError
from sonde.model import Histogram
from sonde.store import query
from sonde.store.form import Series
from sonde.store.query import Matcher, Points, Selector, Span, parse_selector

COUNTER = Series("bytes_total", "counter", "bytes", (("device", "eth0"), ("zone", "a")))
GAUGE = Series("load", "gauge", "", ())


def points(values: list[float], *, series: Series = COUNTER, step: int = NS, first: int = 0) -> Points:
    return Points(series, step, [first + n * step for n in range(len(values))], list(values))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node_load1", Selector("node_load1")),
        ("node_*", Selector("node_*")),
        (" up { } ", Selector("up")),
        ('x{a="1"}', Selector("x", (Matcher("a", "=", "1"),))),
        ('x{a="1", b!="2",c=~"3|4" , d!~"",}', Selector("x", tuple(Matcher(*m) for m in (
            ("a", "=", "1"), ("b", "!=", "2"), ("c", "=~", "3|4"), ("d", "!~", ""))))),
        (r'x{a="q\"{},\\n"}', Selector("x", (Matcher("a", "=", 'q"{},\\n'),))),
        (r'x{a=~"eth\d+"}', Selector("x", (Matcher("a", "=~", r"eth\d+"),))),
    ],
)  # fmt: skip
def test_a_selection_reads_like_promql(text: str, expected: Selector) -> None:
    assert parse_selector(text) == expected


@pytest.mark.parametrize("text", ["", "{}", "a b", "x{", "x{a}", "x{a=1}", 'x{a="1" b="2"}', 'x{a=~"("}', "9x"])
def test_what_is_no_selection_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_selector(text)


@given(st.text(max_size=40))
@settings(max_examples=200)
def test_any_text_is_a_selection_or_a_usage_error(text: str) -> None:
    try:
        parse_selector(text)
    except UsageError:
        pass


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ('bytes_total{device="eth0"}', True),
        ('bytes_*{device!="eth0"}', False),
        ('*{device=~"eth."}', True),
        ('*{device=~"eth"}', False),  # the whole value
        ('*{device!~"eth1|eth2"}', True),
        ('*{other=""}', True),  # a label that is not there is empty
        ('*{other!=""}', False),
        ("bytes", False),
    ],
)
def test_matchers_compare_whole_values(text: str, matches: bool) -> None:
    assert parse_selector(text).matches(COUNTER) is matches


def test_a_rate_is_the_increase_per_second() -> None:
    found = query.rate(points([100, 300, 300, 450], step=2 * NS), max_gap_ns=10 * NS)

    assert found.times == [2 * NS, 4 * NS, 6 * NS]
    assert found.values == [100.0, 0.0, 75.0]
    assert found.series.unit == "bytes/s"


def test_a_counter_that_was_reset_counts_from_zero() -> None:
    found = query.rate(points([1000, 1010, 4, 14]), max_gap_ns=10 * NS)

    assert found.values == [10.0, 4.0, 10.0]


def test_a_long_gap_is_not_bridged() -> None:
    gap = Points(COUNTER, NS, [0, NS, 100 * NS, 101 * NS], [0, 5, 1000, 1001])

    assert query.rate(gap, max_gap_ns=5 * NS).times == [NS, 101 * NS]


def test_a_clock_set_back_makes_no_rate_of_its_own() -> None:
    jumped = Points(COUNTER, NS, [10 * NS, 11 * NS, 5 * NS, 6 * NS, 6 * NS], [10, 11, 12, 13, 13])
    found = query.rate(jumped, max_gap_ns=5 * NS)

    assert found.times == [6 * NS, 11 * NS]
    assert found.values == [1.0, 1.0]


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=50))
def test_rates_add_up_to_the_increase(values: list[int]) -> None:
    found = query.rate(points([float(value) for value in values]), max_gap_ns=NS)

    increase = sum(after - before if after >= before else after for before, after in pairwise(values))
    assert sum(found.values) == pytest.approx(increase)
    assert min(found.values) >= 0


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        ("mean", [1.0, 3.5]),
        ("min", [0, 3]),
        ("max", [2, 4]),
        ("last", [2, 4]),
        ("sum", [3, 7]),
        ("count", [3, 2]),
    ],
)
def test_buckets_begin_at_multiples_of_the_step(aggregate: str, expected: list[float]) -> None:
    found = query.downsampled(points([0, 1, 2, 3, 4], first=30 * NS), 3 * NS, aggregate)

    assert found.times == [30 * NS, 33 * NS]
    assert found.values == expected


def test_counters_keep_their_last_value_and_gauges_their_mean() -> None:
    assert query.default_aggregate(COUNTER) == "last"
    assert query.default_aggregate(GAUGE) == "mean"


def test_alignment_takes_the_newest_value_that_is_not_too_old() -> None:
    found = query.aligned(points([1, 2, 3], step=10), [5, 10, 19, 25, 40], lookback_ns=9)

    assert found == [1, 2, 2, 3, None]


def test_sums_are_taken_over_series_that_agree() -> None:
    other = COUNTER._replace(labels=(("device", "eth1"), ("zone", "a")))
    third = COUNTER._replace(labels=(("device", "eth2"), ("zone", "b")))
    found = query.summed_by(
        [points([1, 2]), points([10], series=other), points([5, 6], series=third)], ["zone"], [0, NS], 0
    )

    assert [item.series.labels for item in found] == [(("zone", "a"),), (("zone", "b"),)]
    assert [item.values for item in found] == [[11, 2], [5, 6]]


def test_histograms_become_cumulative_buckets() -> None:
    series = Series("wait_seconds", "histogram", "seconds", (("cpu", "0"),))
    whole = Points(series, NS, [0], [Histogram((0.5, 1.0), (3, 2, 1), 4.5)])
    found = {(item.series.metric, dict(item.series.labels).get("le")): item.values for item in query.flattened(whole)}

    assert found == {
        ("wait_seconds_bucket", "0.5"): [3],
        ("wait_seconds_bucket", "1"): [5],
        ("wait_seconds_bucket", "+Inf"): [6],
        ("wait_seconds_count", None): [6],
        ("wait_seconds_sum", None): [4.5],
    }


class OneHistogram:
    """A source of another kind than the archive: what a server's answer would be."""

    whole = Points(Series("wait_seconds", "histogram", "seconds", ()), NS, [0], [Histogram((1.0,), (3, 2), 4.5)])
    path = "memory"

    def __init__(self) -> None:
        self.damaged = 0
        self.notes: list[str] = []

    def span(self) -> Span | None:
        return Span(0, 0)

    def names(self) -> list[str]:
        return [self.whole.series.metric]

    def series(self, selector: Selector | None = None) -> list[Series]:
        return [self.whole.series]

    def read(self, selector: Selector, since_ns: int, until_ns: int) -> list[Points]:
        return [self.whole] if selector.matches(self.whole.series) else []


@pytest.mark.parametrize(
    ("text", "count"), [("wait_seconds", 4), ("wait_seconds_count", 1), ('wait_seconds_bucket{le="1"}', 1), ("x", 0)]
)
def test_parts_of_a_histogram_are_selected_by_their_own_names(text: str, count: int) -> None:
    source: query.Source = OneHistogram()

    assert len(query.select(source, parse_selector(text), 0, 1)) == count

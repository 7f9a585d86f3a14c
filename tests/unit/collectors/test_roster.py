"""Series of several accounts side by side."""

from __future__ import annotations

from typing import NamedTuple

from sonde.collectors.account_metrics import account_gaps, account_keys
from sonde.collectors.roster import Roster
from sonde.model import Kind, MetricSpec, Quality, Unit

INFO = MetricSpec("sonde_x_info", Kind.INFO, Unit.NONE, "It is there.", ("x",))
KEYS = account_keys("x", ("x",))


class Entry(NamedTuple):
    labels: tuple[str, ...]
    keys: tuple[str, ...]
    values: list[int | float]


def test_values_find_their_series_whatever_order_the_accounts_have() -> None:
    one = Entry(("a",), ("usage", "cpu_user", "unknown"), [10, 1.5, 99])
    two = Entry(("b",), ("cpu_user", "cpu_system", "usage"), [2.5, 0.5, 20])
    roster = Roster(KEYS)
    roster.arrange([((INFO, ("a",)), 1), ((INFO, ("b",)), 1)], [one, two])
    found = dict(
        zip(
            [(spec.name, *labels) for spec, labels in roster.layout],
            roster.values([one, two]),
            strict=True,
        )
    )

    assert found == {
        ("sonde_x_info", "a"): 1,
        ("sonde_x_info", "b"): 1,
        ("sonde_x_cpu_seconds_total", "a", "user"): 1.5,
        ("sonde_x_cpu_seconds_total", "b", "user"): 2.5,
        ("sonde_x_cpu_seconds_total", "b", "system"): 0.5,
        ("sonde_x_memory_usage_bytes", "a"): 10,
        ("sonde_x_memory_usage_bytes", "b"): 20,
    }


def test_the_layout_is_replaced_only_for_other_series() -> None:
    roster = Roster(KEYS)
    roster.arrange([], [Entry(("a",), ("usage",), [1])])
    first = roster.layout
    roster.arrange([], [Entry(("a",), ("usage",), [2])])
    second = roster.layout
    roster.arrange([], [Entry(("a",), ("usage", "peak"), [2, 3])])

    assert second is first
    assert roster.layout is not first


def test_what_an_account_lacks_is_told_with_the_cause() -> None:
    gaps = account_gaps(KEYS, {"usage"}, ("a",), {"io.stat": "Permission denied"}, "x")

    told = {gap.spec.name: (gap.quality, gap.reason) for gap in gaps}
    assert told["sonde_x_memory_limit_bytes"] == (Quality.BLANK, "no limit is set")
    assert told["sonde_x_read_bytes_total"] == (Quality.UNSUPPORTED, "Permission denied")
    assert told["sonde_x_threads"] == (Quality.UNSUPPORTED, "the x is in no cgroup of the pids controller")
    assert "sonde_x_pressure_waiting_seconds_total" not in told

"""The softirq line of /proc/stat."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.collectors.softirq import VECTORS, SoftirqCollector, parse_softirqs
from sonde.config import NoKeys
from sonde.errors import ParseError
from sonde.hostfs import HostFS

STAT = b"cpu  1 2 3\nintr 5 0 0\nctxt 7\nsoftirq 55 1 2 3 4 5 6 7 8 9 10\n"


def test_each_vector_has_its_number() -> None:
    assert dict(zip(VECTORS, parse_softirqs(STAT), strict=True)) == {
        "hi": 1,
        "timer": 2,
        "net_tx": 3,
        "net_rx": 4,
        "block": 5,
        "block_iopoll": 6,
        "tasklet": 7,
        "sched": 8,
        "hrtimer": 9,
        "rcu": 10,
    }


def test_it_is_the_sum_over_the_cpus_of_proc_softirqs(captured: Callable[[str], HostFS]) -> None:
    # The two files of the tree were read one after the other; vectors that stood still must agree.
    collector = SoftirqCollector(captured("vm"), NoKeys())
    layout, values, _, _ = collector.collect()
    collector.close()
    rows = [line.split() for line in captured("vm").text("proc/softirqs").splitlines()[1:]]
    sums = {row[0].rstrip(":").lower().replace("irq_poll", "block_iopoll"): sum(map(int, row[1:])) for row in rows}
    still = {"hi", "block_iopoll", "tasklet", "hrtimer"}

    assert {labels[0] for _, labels in layout} == set(sums)
    assert {labels[0]: v for (_, labels), v in zip(layout, values, strict=True) if labels[0] in still} == {
        name: sums[name] for name in still
    }


@pytest.mark.parametrize("text", [b"", b"cpu 1\n", b"\nsoftirq \n", b"\nsoftirq 1 2 3\n", STAT.replace(b"7", b"x")])
def test_odd_text_is_a_parse_error(text: bytes) -> None:
    with pytest.raises(ParseError):
        parse_softirqs(text)


def test_a_vector_of_a_later_kernel_is_passed_over() -> None:
    assert parse_softirqs(STAT.replace(b" 10\n", b" 10 11\n")) == list(range(1, 11))


@given(st.integers(0, len(STAT)), st.integers(0, len(STAT)), st.binary(max_size=8))
@settings(max_examples=300)
def test_mutated_text_is_read_or_refused(start: int, end: int, junk: bytes) -> None:
    try:
        counts = parse_softirqs(STAT[:start] + junk + STAT[end:])
    except ParseError:
        return

    assert len(counts) == len(VECTORS)

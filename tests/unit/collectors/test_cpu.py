"""/proc/stat."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.collectors.cpu import CpuCollector, parse_cpus, parse_host_wide
from sonde.config import NoKeys
from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.model import Reading, Value

STAT = b"""cpu  50 0 30 700 4 0 2 1 0 0
cpu0 20 0 10 300 1 0 1 1 0 0
cpu3 30 0 20 400 3 0 1 0 5 0
intr 135072 0 0 15 0 1
ctxt 249113
btime 1794778917
processes 5513
procs_running 1
procs_blocked 2
softirq 79302 0 14611 1
"""
HOST_WIDE = [135072, 249113, 1794778917, 5513, 1, 2]


def by_series(reading: Reading) -> dict[tuple[str, ...], Value]:
    return {(s.name, *labels): value for (s, labels), value in zip(reading.layout, reading.values, strict=True)}


@pytest.fixture
def host(tmp_path: Path) -> HostFS:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_bytes(STAT)
    return HostFS(str(tmp_path))


def test_time_is_in_seconds_per_cpu_and_mode(host: HostFS) -> None:
    collector = CpuCollector(host, NoKeys())

    values = by_series(collector.collect())

    assert values["node_cpu_seconds_total", "0", "user"] == 0.2
    assert values["node_cpu_seconds_total", "3", "idle"] == 4.0
    assert values["node_cpu_guest_seconds_total", "3", "user"] == 0.05
    assert len(values) == 2 * 10 + 6


def test_the_total_line_is_not_a_cpu(host: HostFS) -> None:
    collector = CpuCollector(host, NoKeys())

    cpus = {labels[0] for spec, labels in collector.collect().layout if labels}

    assert cpus == {"0", "3"}


def test_host_wide_numbers_are_whole_numbers(captured: Callable[[str], HostFS]) -> None:
    collector = CpuCollector(captured("vm"), NoKeys())

    values = by_series(collector.collect())

    assert values["node_intr_total",] == 135072
    assert values["node_boot_time_seconds",] == 1794778917
    assert all(isinstance(value, int) for series, value in values.items() if len(series) == 1)


def test_a_node_of_192_cpus_is_read_whole(captured: Callable[[str], HostFS]) -> None:
    collector = CpuCollector(captured("big"), NoKeys())

    values = by_series(collector.collect())

    assert len(values) == 192 * 10 + 6
    assert values["node_context_switches_total",] == 48201663391
    assert values["node_procs_running",] == 131
    assert ("node_cpu_seconds_total", "191", "steal") in values


def test_a_cpu_taken_offline_leaves_and_comes_back(host: HostFS) -> None:
    collector = CpuCollector(host, NoKeys())
    stat = Path(host.path("proc/stat"))
    both = collector.collect()
    stat.write_bytes(STAT.replace(b"cpu3 30 0 20 400 3 0 1 0 5 0\n", b""))

    one = collector.collect()
    stat.write_bytes(STAT)
    again = collector.collect()

    assert {labels[0] for _, labels in one.layout if labels} == {"0"}
    assert by_series(again) == by_series(both)


def test_the_layout_is_kept_while_the_cpus_are_the_same(host: HostFS) -> None:
    collector = CpuCollector(host, NoKeys())

    assert collector.collect().layout is collector.collect().layout


def test_a_counter_that_steps_back_is_passed_on(host: HostFS) -> None:
    collector = CpuCollector(host, NoKeys())
    collector.collect()
    Path(host.path("proc/stat")).write_bytes(STAT.replace(b"cpu0 20 0 10 300 1", b"cpu0 20 0 10 299 0"))

    values = by_series(collector.collect())

    assert values["node_cpu_seconds_total", "0", "idle"] == 2.99
    assert values["node_cpu_seconds_total", "0", "iowait"] == 0.0


def test_an_interrupt_line_of_any_length_is_only_looked_at_in_front() -> None:
    text = STAT.replace(b"intr 135072 0 0 15 0 1", b"intr 135072" + b" 7" * 50_000)

    assert parse_host_wide(text, text.find(b"\nintr ")) == HOST_WIDE


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"cpu 1",
        STAT[: STAT.find(b"intr")],
        STAT.replace(b"btime", b"btome"),
        STAT.replace(b"ctxt 249113", b"ctxt"),
        STAT.replace(b"cpu0 20", b"cpu0 nan"),
        STAT.replace(b"cpu0 20", b"cpu0 inf"),
        STAT.replace(b"cpu3", b"cpu0"),
        STAT.replace(b"cpu3", b"cpux"),
        STAT.replace(b"intr 135072 0 0 15 0 1\n", b"intr \n"),
    ],
)
def test_odd_text_is_a_parse_error(host: HostFS, text: bytes) -> None:
    collector = CpuCollector(host, NoKeys())
    collector.collect()
    Path(host.path("proc/stat")).write_bytes(text)

    with pytest.raises(ParseError):
        collector.collect()


def mutated(text: bytes) -> st.SearchStrategy[bytes]:
    odd = st.binary(max_size=8) | st.sampled_from([b"-1", b"nan", b"1e999", b"9" * 400, b"\n", b" ", b"cpu"])
    place = st.integers(0, len(text))
    return st.binary(max_size=100) | st.builds(
        lambda at, length, new: text[:at] + new + text[at + length :], place, st.integers(0, 30), odd
    )


@settings(max_examples=200, deadline=None)
@given(text=mutated(STAT))
def test_any_text_gives_values_or_a_parse_error(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    root = tmp_path_factory.getbasetemp() / "cpu"
    (root / "proc").mkdir(parents=True, exist_ok=True)
    (root / "proc/stat").write_bytes(STAT)
    collector = CpuCollector(HostFS(str(root)), NoKeys())
    reading = collector.collect()
    (root / "proc/stat").write_bytes(text)

    try:
        reading = collector.collect()
    except ParseError:
        pass

    assert all(value < float("inf") for value in by_series(reading).values() if isinstance(value, float))


@given(tokens=st.lists(st.sampled_from([b"cpu", b"cpu0", b"cpu1", b"5", b"x"]), max_size=40))
def test_any_tokens_give_cpus_or_a_parse_error(tokens: list[bytes]) -> None:
    try:
        cpus = parse_cpus(tokens)
    except ParseError:
        return

    assert len(cpus) == len(tokens) // 11 - 1

"""A configuration becomes a pipeline."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sonde.clock import SystemClock
from sonde.config import Config, from_tree
from sonde.errors import ConfigError
from sonde.hostfs import HostFS
from sonde.pipeline.assembly import Assembly, plan_collectors
from sonde.pipeline.outlet import Outlet
from sonde.store.ring import Ring


def configured(tree: dict[str, object]) -> Config:
    return from_tree(tree, "test")


def test_only_the_named_collectors_are_planned_and_they_have_their_periods() -> None:
    config = configured(
        {"daemon": {"collectors": ["cpu", "load"], "period": "2s"}, "collectors": {"load": {"period": "500ms"}}}
    )

    assert [(plan.name, plan.period_ns) for plan in plan_collectors(config)] == [
        ("cpu", 2_000_000_000),
        ("load", 500_000_000),
    ]


def test_one_is_switched_off_and_one_on() -> None:
    names = [
        plan.name
        for plan in plan_collectors(
            configured({"collectors": {"cpu": {"enabled": False}, "process": {"enabled": True}}})
        )
    ]

    assert "cpu" not in names
    assert "process" in names
    assert "process" not in [plan.name for plan in plan_collectors(Config())]


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"daemon": {"collectors": ["cpuu"]}}, "no collector is called 'cpuu'"),
        ({"collectors": {"cpu": {"period": "1ms"}}}, "shortest period is 10ms"),
        ({"collectors": {"cpu": {"perod": "1s"}}}, "did you mean collectors.cpu.period?"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_runs(tree: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_collectors(configured(tree))

    assert message in str(caught.value)


def test_a_host_without_a_source_leaves_its_collector_out_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/loadavg").write_text("0.1 0.2 0.3 1/2 3\n")
    config = configured({"daemon": {"collectors": ["cpu", "load"]}})

    assembly = Assembly(config, HostFS(str(tmp_path)), SystemClock(), [])

    assert [runner.name for runner in assembly.runners] == ["load"]
    assert [(absent.name, absent.reason) for absent in assembly.absent] == [("cpu", "no /proc/stat on this host")]
    assembly.stop(1)


def test_a_required_collector_that_is_not_there_refuses_the_start(tmp_path: Path) -> None:
    config = configured({"daemon": {"collectors": ["cpu"]}, "collectors": {"cpu": {"on_unavailable": "fail"}}})

    with pytest.raises(ConfigError, match=r"collectors\.cpu is required"):
        Assembly(config, HostFS(str(tmp_path)), SystemClock(), [])


def test_a_source_that_comes_later_is_picked_up_when_told_to_retry(tmp_path: Path) -> None:
    ring = Ring()
    config = configured(
        {"daemon": {"collectors": ["load"], "period": "50ms"}, "collectors": {"load": {"on_unavailable": "retry"}}}
    )
    assembly = Assembly(config, HostFS(str(tmp_path)), SystemClock(), [Outlet("ring", ring)])
    assembly.start()
    waited = assembly.waits
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/loadavg").write_text("0.1 0.2 0.3 1/2 3\n")

    assembly.retry()
    time.sleep(0.3)

    assert (waited, assembly.waits) == (True, False)
    assert assembly.absent == []
    assert [frame.source for frame in ring.latest()] == ["load"]
    assert assembly.stop(1)


def test_a_collector_that_can_block_has_a_thread_of_its_own(captured: Callable[[str], HostFS]) -> None:
    config = configured({"daemon": {"collectors": ["cpu", "memory", "filesystem"]}})

    assembly = Assembly(config, captured("big"), SystemClock(), [])

    assert threads(assembly) == [["cpu", "memory"], ["filesystem"]]
    assembly.stop(1)


def test_a_collector_that_becomes_able_to_block_moves_to_a_thread_of_its_own(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    config = configured({"daemon": {"period": "20ms", "collectors": ["load", "filesystem"]}})
    ring = Ring()
    assembly = Assembly(config, host, SystemClock(), [Outlet("ring", ring)])
    before = threads(assembly)
    assembly.start()
    with open(host.path("proc/1/mountinfo"), "a", encoding="ascii") as file:
        file.write("96 27 0:52 / /nas rw - nfs4 nas:/home rw\n")
    until = time.monotonic() + 10
    while threads(assembly) == before and time.monotonic() < until:
        time.sleep(0.01)

    assert (before, threads(assembly)) == ([["load", "filesystem"]], [["load"], ["filesystem"]])
    assert assembly.stop(1)


def threads(assembly: Assembly) -> list[list[str]]:
    return [[runner.name for runner in sampler.runners] for sampler in assembly.samplers]


def test_constant_labels_reach_every_sink(captured: Callable[[str], HostFS]) -> None:
    ring = Ring()
    config = configured({"daemon": {"collectors": ["load"], "labels": {"site": "north"}}})
    assembly = Assembly(config, captured("vm"), SystemClock(), [Outlet("ring", ring)])
    assembly.start()
    time.sleep(0.2)
    assembly.stop(1)

    frame = ring.latest()[0]
    assert {(spec.labels, labels) for spec, labels in frame.layout} == {(("site",), ("north",))}

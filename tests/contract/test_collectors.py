"""What every collector of the registry promises, checked on all of them and on every captured host."""

from __future__ import annotations

import gc
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sonde.errors import Unavailable
from sonde.hostfs import HostFS
from sonde.model import Collector, Kind, MetricSpec, Reading, Unit
from sonde.pipeline.assembly import construct
from sonde.registry import COLLECTORS, load

TESTS = Path(__file__).parents[1]
HOSTS = sorted(path.name for path in (TESTS / "fixtures/hosts").iterdir() if path.is_dir())
NAMES = sorted(COLLECTORS)

OWN_PROCESS = {"daemon"}  # reads itself, not the host
HARDWARE = {"power", "cpufreq", "hwmon", "thermal_zone", "infiniband", "ipmi"}  # that a virtual machine lacks
# Nor has it jobs, containers, guests, a second memory node, or network filesystems; lo and eth0 there have no driver's,
# and a tree of files has no counters.
ELSEWHERE = {"job", "process", "container", "kvm", "numa", "nfs", "mountstats", "lustre", "ethtool", "perf"}
BY_FILE = {"textfile"}  # its metrics are those of the files it is pointed at
OPEN_ENDED = {"hwmon": "node_hwmon_"}  # drivers have files of their own, which become metrics by rule


@contextmanager
def built(name: str, host: HostFS) -> Iterator[Collector]:
    cls: Any = load(COLLECTORS, name)
    collector = construct(cls, host, cls.Config())
    try:
        yield collector
    finally:
        collector.close()


def specs_of(name: str) -> tuple[MetricSpec, ...]:
    cls: Any = load(COLLECTORS, name)
    specs: tuple[MetricSpec, ...] = cls.metrics
    return specs


def check(reading: Reading) -> None:
    """What holds for any reading."""
    assert len(reading.values) == len(reading.layout)
    for (spec, labels), value in zip(reading.layout, reading.values, strict=True):
        assert all(isinstance(label, str) and label.encode() is not None for label in labels), (spec, labels)
        assert not (isinstance(value, float) and math.isnan(value)), (spec, labels)
        assert not isinstance(value, bool), (spec, labels)
        if spec.kind is Kind.INFO:
            assert value == 1, (spec, labels)
    for gap in reading.gaps:
        assert gap.reason, gap
        assert not gap.labels or len(gap.labels) == len(gap.spec.labels), gap


@pytest.mark.parametrize("name", NAMES)
def test_one_name_is_key_module_class_and_test(name: str) -> None:
    camel = "".join(word.capitalize() for word in name.split("_"))
    cls = load(COLLECTORS, name)

    assert COLLECTORS[name] == f"sonde.collectors.{name}:{camel}Collector"
    assert (cls.__module__, cls.__name__) == (f"sonde.collectors.{name}", f"{camel}Collector")
    assert (TESTS / f"unit/collectors/test_{name}.py").is_file()


@pytest.mark.parametrize("name", NAMES)
def test_the_configuration_is_frozen_and_has_defaults(name: str) -> None:
    cls: Any = load(COLLECTORS, name)
    config = cls.Config()

    assert isinstance(config, tuple)
    assert set(cls.Config._field_defaults) == set(cls.Config._fields)


@pytest.mark.parametrize("name", NAMES)
def test_metrics_are_declared_with_help_and_conventional_names(name: str) -> None:
    specs = specs_of(name)

    assert specs
    for spec in specs:
        assert re.fullmatch(r"(node|sonde)_[a-zA-Z0-9_]+", spec.name), spec
        assert spec.help.endswith("."), spec
        assert len(set(spec.labels)) == len(spec.labels), spec
        for label in spec.labels:
            assert re.fullmatch(r"[a-z][a-z0-9_]*", label), spec
        assert not {"job", "instance"} & set(spec.labels), f"{spec} takes a label of Prometheus' own"


@pytest.mark.parametrize("name", NAMES)
def test_our_own_names_end_with_unit_and_total(name: str) -> None:
    for spec in specs_of(name):
        if not spec.name.startswith("sonde_"):
            continue
        stem = spec.name.removesuffix("_total")
        assert (spec.kind is Kind.COUNTER) == spec.name.endswith("_total"), spec
        assert (spec.kind is Kind.INFO) == spec.name.endswith("_info"), spec
        assert spec.unit is Unit.NONE or stem.endswith("_" + spec.unit.value), spec


def test_no_two_collectors_give_the_same_metric() -> None:
    owners: dict[str, str] = {}
    for name in NAMES:
        for spec in specs_of(name):
            assert spec.name not in owners, f"{spec.name} is given by {owners[spec.name]} and {name}"
            owners[spec.name] = name


@pytest.mark.parametrize("name", sorted(set(NAMES) - OWN_PROCESS))
def test_on_a_host_with_nothing_to_read_it_is_unavailable(name: str, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"\w+"), built(name, HostFS(str(tmp_path))):
        pass


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("name", sorted(set(NAMES) - BY_FILE))
def test_three_ticks_on_a_captured_host(name: str, host: str, captured: Callable[[str], HostFS]) -> None:
    declared = set(specs_of(name))
    try:
        with built(name, captured(host)) as collector:
            readings = [collector.collect() for _ in range(3)]
    except Unavailable:
        return  # not every host has everything

    for reading in readings:
        check(reading)
        given = {spec for spec, _ in reading.layout} | {gap.spec for gap in reading.gaps}
        assert [spec for spec in given - declared if not spec.name.startswith(OPEN_ENDED.get(name, " "))] == []
        assert reading.layout is readings[0].layout


@contextmanager
def without_collections() -> Iterator[None]:
    """What is made here is still in the first generation at the end."""
    gc.collect(0)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("host", [*HOSTS, "/"])
@pytest.mark.parametrize("name", sorted(set(NAMES) - BY_FILE))
def test_a_tick_leaves_no_cycle_behind(name: str, host: str, captured: Callable[[str], HostFS]) -> None:
    # A cycle that an exception closes holds the frames of all callers, and so every value of the tick, for minutes.
    try:
        with built(name, HostFS() if host == "/" else captured(host)) as collector, without_collections():
            for _ in range(2):
                collector.collect()
            left = gc.collect(0)
    except Unavailable:
        return  # not every host has everything

    assert left == 0


@pytest.mark.parametrize("name", sorted(set(NAMES) - BY_FILE - HARDWARE - ELSEWHERE))
def test_the_captured_virtual_machine_has_it(name: str, captured: Callable[[str], HostFS]) -> None:
    with built(name, captured("vm")) as collector:
        assert len(collector.collect().layout) > 0


@pytest.mark.parametrize("name", sorted(HARDWARE - {"power", "ipmi"}))
def test_the_written_machine_has_the_hardware(name: str, captured: Callable[[str], HostFS]) -> None:
    with built(name, captured("metal")) as collector:
        assert len(collector.collect().layout) > 0


@pytest.mark.parametrize("name", sorted(set(NAMES) - BY_FILE))
def test_two_instances_do_not_share_state(name: str, captured: Callable[[str], HostFS]) -> None:
    try:
        with built(name, captured("vm")) as first, built(name, captured("vm")) as second:
            before = list(second.collect().layout)
            first.collect()
            first.close()
            after = list(second.collect().layout)
    except Unavailable:
        return  # the one before says which

    assert after == before


def test_the_metrics_of_files_hold_the_same_promises(tmp_path: Path) -> None:
    (tmp_path / "a.prom").write_text('# TYPE a counter\na{b="c"} 1\nd NaN\n')
    cls: Any = load(COLLECTORS, "textfile")
    collector = construct(cls, HostFS(str(tmp_path)), cls.Config(directory="/"))
    readings = [collector.collect() for _ in range(3)]
    collector.close()

    for reading in readings:
        check(reading)
        assert reading.layout is readings[0].layout

"""Which jobs and processes a collector counts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from sonde.collectors.job import JobCollector, JobConfig
from sonde.collectors.process import ProcessCollector, ProcessConfig
from sonde.collectors.scope import parse_pids
from sonde.errors import ConfigError
from sonde.hostfs import HostFS
from sonde.model import Reading


@pytest.fixture
def tree() -> Iterator[subprocess.Popen[bytes]]:
    """A shell with two children."""
    process = subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60 & echo up; wait"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    for child in _children(process.pid):
        os.kill(child, 9)
    process.kill()
    process.wait()
    process.stdout.close()


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def value(reading: Reading, name: str) -> float:
    found = [one for (spec, _), one in zip(reading.layout, reading.values, strict=True) if spec.name == name]
    assert len(found) == 1
    assert isinstance(found[0], int | float)
    return found[0]


def job_of(*collected: Reading) -> Reading:
    return collected[-1]


def test_given_processes_are_a_job_with_their_children(tree: subprocess.Popen[bytes]) -> None:
    config = JobConfig(pids=(str(tree.pid),), name="mine", only=("mine",), schedulers=("local",))
    collector = JobCollector(HostFS(), config)
    try:
        reading = job_of(*[collector.collect() for _ in range(3)])
    finally:
        collector.close()

    assert value(reading, "sonde_job_processes") == 3
    assert value(reading, "sonde_job_threads") == 3
    assert {labels[:2] for spec, labels in reading.layout} == {("mine", "local")}


def test_a_process_that_is_left_out_is_not_counted(tree: subprocess.Popen[bytes]) -> None:
    left_out = str(_children(tree.pid)[0])
    config = JobConfig(pids=(str(tree.pid),), without_pids=(left_out,), only=(str(tree.pid),))
    collector = JobCollector(HostFS(), config)
    try:
        reading = job_of(*[collector.collect() for _ in range(3)])
    finally:
        collector.close()

    assert value(reading, "sonde_job_processes") == 2


def test_the_totals_of_the_dead_are_kept(tree: subprocess.Popen[bytes]) -> None:
    burner = subprocess.Popen(["sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; sleep 60"])
    config = JobConfig(pids=(str(tree.pid), str(burner.pid)), name="two", only=("two",))
    collector = JobCollector(HostFS(), config)
    try:
        before = 0.0
        while before < 0.1:
            before = _cpu(collector.collect())
        burner.kill()
        burner.wait()
        after = _cpu(collector.collect())
    finally:
        burner.kill()
        burner.wait()
        collector.close()

    assert after >= before


def _cpu(reading: Reading) -> float:
    pairs = zip(reading.layout, reading.values, strict=True)
    found = [one for (spec, _), one in pairs if spec.name == "sonde_job_cpu_seconds_total"]
    return sum([float(one) for one in found if isinstance(one, int | float)])


def test_the_processes_of_one_job_only(tree: subprocess.Popen[bytes]) -> None:
    other = subprocess.Popen(["sleep", "60"], env={**os.environ, "SONDE_JOB_ID": "other"})
    mine = subprocess.Popen(["sleep", "60"], env={**os.environ, "SONDE_JOB_ID": "mine"})
    collector = ProcessCollector(HostFS(), ProcessConfig(only=("mine",), per_process=True))
    try:
        reading = job_of(*[collector.collect() for _ in range(3)])
    finally:
        collector.close()
        for process in (other, mine):
            process.kill()
            process.wait()

    assert {labels[1] for spec, labels in reading.layout if spec.labels[:1] == ("root",)} == {"mine"}
    assert {labels[0] for spec, labels in reading.layout if spec.labels[:1] == ("pid",)} == {str(mine.pid)}


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "1.5", "99999999999", "²"])
def test_what_is_no_process_id_is_refused_by_its_key(text: str) -> None:
    with pytest.raises(ConfigError, match=r"collectors\.job\.pids"):
        parse_pids((text,), "collectors.job.pids")

"""Trees of processes, one series per process, and memory on request."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sonde.collectors.process import ProcessCollector, ProcessConfig, measure_memory
from sonde.errors import ConfigError, Unavailable
from sonde.hostfs import HostFS
from sonde.model import Quality, Reading, Value
from sonde.units import Duration

TREE = """
import os, sys, time
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        time.sleep(60); os._exit(0)
print("ready", flush=True)
time.sleep(60)
"""


def table(reading: Reading) -> dict[tuple[str, ...], Value]:
    return {
        (spec.name.removeprefix("sonde_process_"), *labels): value
        for (spec, labels), value in zip(reading.layout, reading.values, strict=True)
    }


@pytest.fixture
def tree() -> Iterator[Callable[[int], subprocess.Popen[bytes]]]:
    """A process with so many children; all are ended with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(children: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", TREE, str(children)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield start
    for process in started:
        os.killpg(process.pid, 9)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def config(process: subprocess.Popen[bytes], **keys: object) -> ProcessConfig:
    base = ProcessConfig(pids=(str(process.pid),), jobs=False, scan=Duration(0))
    return base._replace(**keys)  # type: ignore[arg-type]


Start = Callable[[int], subprocess.Popen[bytes]]


def test_a_tree_is_one_set_of_totals(tree: Start) -> None:
    root = tree(3)
    collector = ProcessCollector(HostFS(), config(root))
    reading = collector.collect()
    collector.close()

    found = table(reading)
    labels = (str(root.pid), "", "")
    assert found["tree_processes", *labels] == 4
    assert found["tree_threads", *labels] == 4
    assert not any(key[0].startswith("cpu_") for key in found)
    for name in ("memory_rss_bytes", "memory_shared_bytes", "memory_virtual_bytes", "open_files"):
        value = found[f"tree_{name}", *labels]
        assert isinstance(value, int)
        assert value > 0
    virtual, rss, shared = (found[f"tree_memory_{name}_bytes", *labels] for name in ("virtual", "rss", "shared"))
    assert isinstance(virtual, int)
    assert isinstance(rss, int)
    assert isinstance(shared, int)
    assert virtual > rss > shared


def test_a_process_has_series_of_its_own_only_on_request(tree: Start) -> None:
    root = tree(1)
    collector = ProcessCollector(HostFS(), config(root, per_process=True))
    reading = collector.collect()
    collector.close()

    pids = {key[1] for key in table(reading) if key[0] == "memory_rss_bytes"}
    assert len(pids) == 2
    assert str(root.pid) in pids


def test_the_layout_stays_while_nobody_comes_or_goes_and_the_end_of_the_root_is_an_event(tree: Start) -> None:
    root = tree(1)
    collector = ProcessCollector(HostFS(), config(root, per_process=True))
    first, second = collector.collect(), collector.collect()
    root.kill()
    root.wait()
    third = collector.collect()
    collector.close()

    assert second.layout is first.layout
    assert third.layout is not first.layout
    assert [(event.name, event.attrs["pid"]) for event in third.events] == [("process.exit", root.pid)]


def test_a_sample_takes_no_longer_than_its_readings(tree: Start) -> None:
    root = tree(40)
    collector = ProcessCollector(HostFS(), config(root, scan=Duration(10)))
    collector.collect()
    begun = time.monotonic()
    for _ in range(5):
        collector.collect()
    took = time.monotonic() - begun
    collector.close()

    assert took < 1.0  # a measuring interval per process, as some tools have it, would be 100 s


def test_a_process_that_is_not_there_is_a_gap() -> None:
    collector = ProcessCollector(HostFS(), ProcessConfig(pids=("4194304",), jobs=False))
    reading = collector.collect()
    collector.close()

    assert [(gap.quality, gap.reason) for gap in reading.gaps] == [(Quality.BLANK, "there is no process 4194304")]


def test_a_pid_must_be_a_number_and_something_must_be_followed() -> None:
    with pytest.raises(ConfigError, match="'x1' is not a process id"):
        ProcessCollector(HostFS(), ProcessConfig(pids=("x1",), jobs=False))
    with pytest.raises(Unavailable, match="nothing to follow"):
        ProcessCollector(HostFS(), ProcessConfig(jobs=False))


def test_the_processes_of_a_job_are_followed(tmp_path: Path) -> None:
    environ = {**os.environ, "SONDE_JOB_ID": f"process-{os.getpid()}"}
    with subprocess.Popen(["sleep", "60"], env=environ) as process:
        collector = ProcessCollector(HostFS(), ProcessConfig(scan=Duration(0)))
        found = table(collector.collect())
        collector.close()
        process.kill()

    assert found["tree_processes", "", environ["SONDE_JOB_ID"], "local"] == 1


def test_memory_is_measured_on_request_and_carries_its_time() -> None:
    before = time.time_ns()
    reading = measure_memory(HostFS(), [os.getpid(), os.getpid(), 4194304])

    found = table(reading)
    pid = str(os.getpid())
    pss, uss = found["memory_pss_bytes", pid], found["memory_uss_bytes", pid]
    assert isinstance(pss, int)
    assert isinstance(uss, int)
    assert pss >= uss > 1 << 20
    assert len(found) == 2
    times = [gap.time_ns for gap in reading.gaps if gap.labels == (pid,)]
    assert len(times) == 2
    assert all(before <= read <= time.time_ns() for read in times)
    assert {gap.quality for gap in reading.gaps if gap.labels == ("4194304",)} == {Quality.BLANK}

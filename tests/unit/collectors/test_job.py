"""The jobs on this node, from captured hosts and from processes of the test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sonde.collectors.job import JobCollector, JobConfig
from sonde.hostfs import HostFS
from sonde.model import Quality, Reading, Value
from sonde.units import Duration

EAGER = JobConfig(scan=Duration(0))  # a scan at every tick
JOB = ("76_4", "slurm")


def table(reading: Reading) -> dict[tuple[str, ...], Value]:
    return {
        (spec.name.removeprefix("sonde_job_"), *labels): value
        for (spec, labels), value in zip(reading.layout, reading.values, strict=True)
    }


@pytest.fixture
def collector() -> Iterator[Callable[..., JobCollector]]:
    made: list[JobCollector] = []

    def make(host: HostFS, config: JobConfig = EAGER) -> JobCollector:
        made.append(JobCollector(host, config))
        return made[-1]

    yield make
    for one in made:
        one.close()


Make = Callable[..., JobCollector]


def test_a_job_is_described_by_one_series_to_join_on(captured: Callable[[str], HostFS], collector: Make) -> None:
    found = table(collector(captured("slurm_v1")).collect())

    assert found["info", *JOB, "ada", "1000", "train", "gpu", "physics", "n[1-2]"] == 1
    assert found["rank_info", *JOB, "0", "0", "0", "4", "110"] == 1
    assert found["rank_info", *JOB, "0", "1", "1", "4", "111"] == 1
    assert found["processes", *JOB] == 6


def test_user_and_system_time_come_from_the_jobs_cgroup(captured: Callable[[str], HostFS], collector: Make) -> None:
    found = table(collector(captured("slurm_v1")).collect())

    assert (found["cpu_seconds_total", *JOB, "user"], found["cpu_seconds_total", *JOB, "system"]) == (57.64, 22.02)
    assert found["memory_peak_bytes", *JOB] == 122638336


def test_a_variable_that_nobody_asked_for_is_never_exported(captured: Callable[[str], HostFS], collector: Make) -> None:
    reading = collector(captured("slurm_v1")).collect()

    assert "not-for-export" not in repr((list(reading.layout), reading.events, reading.gaps))


def test_what_no_controller_accounts_for_is_a_gap_with_the_reason(
    captured: Callable[[str], HostFS], collector: Make
) -> None:
    reading = collector(captured("slurm_v1")).collect()

    gaps = {gap.spec.name: gap for gap in reading.gaps}
    assert gaps["sonde_job_read_bytes_total"].quality is Quality.UNSUPPORTED
    assert "blkio" in gaps["sonde_job_read_bytes_total"].reason
    assert "pids" in gaps["sonde_job_threads"].reason
    assert "v2" in gaps["sonde_job_pressure_waiting_seconds_total"].reason
    assert not {gap.spec for gap in reading.gaps} & {spec for spec, _ in reading.layout}


def test_a_job_without_a_limit_says_so(scratch: Callable[[str], HostFS], collector: Make) -> None:
    host = scratch("slurm_v2")
    next(Path(host.path("sys")).rglob("memory.max")).write_text("max\n")
    reading = collector(host).collect()

    limit = [gap for gap in reading.gaps if gap.spec.name == "sonde_job_memory_limit_bytes"]
    assert [(gap.quality, gap.reason) for gap in limit] == [(Quality.BLANK, "no limit is set")]


def test_start_and_end_of_a_job_are_events(scratch: Callable[[str], HostFS], collector: Make) -> None:
    host = scratch("slurm_v2")
    job = collector(host)
    first = job.collect()
    second = job.collect()
    for pid in (300, 301, 310, 311):
        shutil.rmtree(host.path(f"proc/{pid}"))
    third = job.collect()

    assert [(event.name, event.attrs["job_id"]) for event in first.events] == [("job.start", "88")]
    assert second.events == []
    assert second.layout is first.layout
    assert [event.name for event in third.events] == ["job.end"]
    assert third.events[0].attrs["cpu_seconds"] == 5.5
    assert len(third.layout) == 0


def test_an_oom_kill_is_an_event_when_the_counter_rises(scratch: Callable[[str], HostFS], collector: Make) -> None:
    host = scratch("slurm_v2")
    job = collector(host)
    before = job.collect()
    events = next(Path(host.path("sys")).rglob("memory.events"))
    events.write_text(events.read_text().replace("oom_kill 1", "oom_kill 3"))
    after = job.collect()

    assert "oom.kill" not in [event.name for event in before.events]
    assert [(event.name, event.attrs["kills"]) for event in after.events] == [("oom.kill", 2)]
    assert table(after)["oom_kills_total", "88", "slurm"] == 3


def test_a_limit_that_is_lifted_changes_the_layout_and_loses_nothing_else(
    scratch: Callable[[str], HostFS], collector: Make
) -> None:
    host = scratch("slurm_v2")
    job = collector(host, JobConfig())
    before = job.collect()
    next(Path(host.path("sys")).rglob("memory.max")).write_text("max\n")
    after = [job.collect() for _ in range(12)][-1]

    lost = {spec.name for spec, _ in before.layout} - {spec.name for spec, _ in after.layout}
    assert lost == {"sonde_job_memory_limit_bytes"}


def test_two_jobs_that_claim_one_id_both_have_their_series(scratch: Callable[[str], HostFS], collector: Make) -> None:
    host = scratch("slurm_v2")
    path = Path(host.path("proc/1/environ"))
    path.write_bytes(b"SLURM_JOB_ID=5\0SLURM_PROCID=0\0SLURM_ARRAY_JOB_ID=4\0SLURM_ARRAY_TASK_ID=1\0")
    shutil.copytree(host.path("proc/1"), host.path("proc/2"))
    other = b"SLURM_JOB_ID=6\0SLURM_PROCID=0\0SLURM_ARRAY_JOB_ID=4\0SLURM_ARRAY_TASK_ID=1\0"
    Path(host.path("proc/2/environ")).write_bytes(other)
    for pid in (1, 2):
        Path(host.path(f"proc/{pid}/statm")).write_text("765 410 382 5 0 123 0\n")
        Path(host.path(f"proc/{pid}/status")).write_text(
            "Name:\tx\nvoluntary_ctxt_switches:\t1\nnonvoluntary_ctxt_switches:\t1\n"
        )
        os.mkdir(host.path(f"proc/{pid}/fd"))

    found = table(collector(host).collect())

    assert {key[1] for key in found if key[0] == "info"} == {"88", "4_1", "6"}


def test_more_jobs_than_allowed_are_left_out_and_said_to_be(captured: Callable[[str], HostFS], collector: Make) -> None:
    reading = collector(captured("slurm_v1"), JobConfig(max_jobs=0)).collect()

    assert len(reading.layout) == 0
    assert "1 jobs are beyond max_jobs" in [gap.reason for gap in reading.gaps]


BURNER = """
import os, time
def burn(seconds):
    begun = time.process_time()
    while time.process_time() - begun < seconds: pass
held = bytearray(30 << 20)
for _ in range(3):
    if os.fork() == 0:
        burn(0.1); os._exit(0)
    os.wait()
print("done", flush=True)
time.sleep(60)
"""


def test_a_job_without_a_cgroup_is_walked(collector: Make) -> None:
    environ = {**os.environ, "SONDE_JOB_ID": f"unit-{os.getpid()}", "RANK": "3", "WORLD_SIZE": "8"}
    process = subprocess.Popen([sys.executable, "-c", BURNER], env=environ, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        job = collector(HostFS())
        deadline = time.monotonic() + 10
        reading = job.collect()
        while not reading.events and time.monotonic() < deadline:
            reading = job.collect()  # of a host with very many processes 500 are looked at each time
        process.kill()
        process.wait()
        events = [event for event in reading.events if event.attrs["job_id"] == environ["SONDE_JOB_ID"]]
        while len(events) < 2 and time.monotonic() < deadline:
            events += [event for event in job.collect().events if event.attrs["job_id"] == environ["SONDE_JOB_ID"]]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()

    found = table(reading)
    key = (environ["SONDE_JOB_ID"], "local")
    user, system = found["cpu_seconds_total", *key, "user"], found["cpu_seconds_total", *key, "system"]
    assert isinstance(user, float)
    assert isinstance(system, float)
    assert 0.3 <= user + system < 2
    rss = found["memory_rss_bytes", *key]
    assert isinstance(rss, int)
    assert rss > 30 << 20
    assert found["rank_info", *key, "", "3", "", "8", str(process.pid)] == 1
    assert [event.name for event in events] == ["job.start", "job.end"]
    rated = [gap.quality for gap in reading.gaps if gap.spec.name == "sonde_job_memory_rss_bytes" and gap.labels == key]
    assert rated == [Quality.ESTIMATED]

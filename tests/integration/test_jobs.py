"""Jobs in real cgroups: directories as Slurm makes them, processes moved in, the kernel's own accounts beside ours."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.lacking import lacking

from sonde.collectors.job import JobCollector, JobConfig
from sonde.collectors.ledger import Group
from sonde.collectors.process import ProcessCollector, ProcessConfig
from sonde.collectors.proctree import Walker, read_identity
from sonde.hostfs import HostFS
from sonde.model import Event, Quality, Reading, Value
from sonde.schedulers.cgroupfs import mounts

PATIENCE = 20.0  # seconds
NUMBER = 1_000_000_000 + os.getpid()  # of a job that is nobody else's
JOB = f"slurm/uid_0/job_{NUMBER}"
KEY = (str(NUMBER), "slurm")

WORKER = """
import os, time
def burn(seconds):
    begun = time.process_time()
    while time.process_time() - begun < seconds: pass
held = bytearray(20 << 20)
burn(0.2)
for _ in range(2):
    if os.fork() == 0:
        burn(0.1); os._exit(0)
    os.wait()
print("done", flush=True)
time.sleep(60)
"""


class Cgroups:
    """A job's directories in every v1 hierarchy that can be written."""

    def __init__(self, step: str) -> None:
        found = mounts(HostFS())
        names = [name for name in ("cpuacct", "cpu", "memory", "freezer", "blkio", "pids") if name in found]
        self.points: dict[str, Path] = {name: Path("/", found[name].point) for name in names}
        self.step = step

    def make(self) -> None:
        for point in self.points.values():
            (point / JOB / self.step).mkdir(parents=True)

    def enter(self) -> None:
        """Called in a child between fork and exec."""
        for point in self.points.values():
            with open(point / JOB / self.step / "cgroup.procs", "w") as file:
                file.write(str(os.getpid()))

    def read(self, controller: str, name: str) -> str:
        return (self.points[controller] / JOB / name).read_text()

    def remove(self) -> None:
        for point in self.points.values():
            for path in sorted((point / JOB).rglob("*/"), reverse=True):
                self._remove(path)
            self._remove(point / JOB)
            for parent in ((point / JOB).parent, (point / JOB).parent.parent):
                try:
                    parent.rmdir()
                except OSError:
                    break  # another job's, or a real Slurm's

    @staticmethod
    def _remove(path: Path) -> None:
        deadline = time.monotonic() + PATIENCE
        while path.exists():
            try:
                path.rmdir()
            except OSError:
                assert time.monotonic() < deadline, f"{path} is still in use"
                time.sleep(0.05)


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    made = Cgroups("step_0/task_0")
    try:
        if not {"cpuacct", "memory"} <= made.points.keys():
            raise PermissionError("this host has no cgroup v1 with cpuacct and memory")
        made.make()
    except OSError as error:
        made.remove()
        if os.environ.get("CI") == "true" and os.geteuid() == 0 and "cpuacct" in made.points:
            pytest.fail(f"cgroups cannot be made: {error}")
        lacking(f"needs root and cgroup v1: {error}")
    yield made
    made.remove()


Spawn = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def spawn(cgroups: Cgroups) -> Iterator[Spawn]:
    """Start Python code inside the job's cgroups; ended by its id before they are removed."""
    started: list[subprocess.Popen[bytes]] = []

    def start(code: str, **environ: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, **environ},
            stdout=subprocess.PIPE,
            preexec_fn=cgroups.enter,  # noqa: PLW1509 (it only writes to files)
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def collector() -> Iterator[JobCollector]:
    collector = JobCollector(HostFS(), JobConfig())
    yield collector
    collector.close()


def ours(reading: Reading) -> dict[tuple[str, ...], Value]:
    return {
        (spec.name.removeprefix("sonde_job_"), *labels[2:]): value
        for (spec, labels), value in zip(reading.layout, reading.values, strict=True)
        if labels[:2] == KEY
    }


def number(value: Value) -> float:
    assert isinstance(value, int | float)
    return value


def test_the_totals_of_a_job_are_those_of_its_cgroup(cgroups: Cgroups, spawn: Spawn, collector: JobCollector) -> None:
    workers = [spawn(WORKER, SLURM_JOB_ID=str(NUMBER), SLURM_PROCID=str(rank), SLURM_STEP_ID="0") for rank in range(3)]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"done\n"
    deadline = time.monotonic() + PATIENCE
    found = ours(collector.collect())
    # The kernel brings memory.stat up to date every two seconds (FLUSH_TIME in mm/memcontrol.c).
    while number(found["memory_rss_bytes",]) < 3 * (20 << 20) and time.monotonic() < deadline:
        time.sleep(0.1)
        found = ours(collector.collect())
    usage = int(cgroups.read("cpuacct", "cpuacct.usage")) / 1e9

    cpu = number(found["cpu_seconds_total", "user"]) + number(found["cpu_seconds_total", "system"])
    assert cpu == pytest.approx(usage, abs=0.1)
    assert cpu > 3 * 0.4 - 0.1  # the children that have ended too
    assert number(found["memory_rss_bytes",]) >= 3 * (20 << 20)
    assert number(found["memory_peak_bytes",]) >= number(found["memory_usage_bytes",]) > 3 * (20 << 20)
    assert number(found["page_faults_total",]) > 3 * 5000
    assert found["processes",] == 3
    if "pids" in cgroups.points:
        assert found["threads",] == 3
    ranks = {key[2]: key[5] for key in found if key[0] == "rank_info"}
    assert ranks == {str(rank): str(worker.pid) for rank, worker in enumerate(workers)}


def test_a_walk_of_the_same_processes_agrees_with_the_cgroup(cgroups: Cgroups, spawn: Spawn) -> None:
    host = HostFS()
    walker, group = Walker(host, max_processes=10), Group()
    worker = spawn(WORKER)
    identity = read_identity(host, worker.pid)
    assert identity is not None
    walker.follow(worker.pid, identity[2], group)
    assert worker.stdout is not None
    worker.stdout.readline()
    walker.tick()
    usage = int(cgroups.read("cpuacct", "cpuacct.usage")) / 1e9
    walker.close()

    walked = (group.user + group.system) / os.sysconf("SC_CLK_TCK")
    # The cgroup was entered before the interpreter started, and each of four numbers is rounded down.
    assert walked == pytest.approx(usage, abs=0.1)


def test_a_job_is_noticed_when_its_directory_comes_and_its_end_when_it_goes(
    cgroups: Cgroups, spawn: Spawn, collector: JobCollector
) -> None:
    worker = spawn("import time; time.sleep(60)")
    events: list[Event] = []
    _collect_until(collector, events, lambda: _named(events, "job.start"))
    worker.kill()
    worker.wait()
    cgroups.remove()
    _collect_until(collector, events, lambda: _named(events, "job.end"))

    assert [event.name for event in events if event.attrs["job_id"] == KEY[0]] == ["job.start", "job.end"]


def _named(events: list[Event], name: str) -> bool:
    return any(event.name == name and event.attrs["job_id"] == KEY[0] for event in events)


def _collect_until(collector: JobCollector, events: list[Event], done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        events += collector.collect().events
        time.sleep(0.05)


def test_an_oom_kill_in_a_task_is_counted_and_an_event(cgroups: Cgroups, spawn: Spawn, collector: JobCollector) -> None:
    directory = cgroups.points["memory"] / JOB / cgroups.step
    (directory / "memory.limit_in_bytes").write_text(str(48 << 20))
    spawn("import time; time.sleep(60)")
    victim = spawn("import time; time.sleep(1); bytearray(200 << 20)")
    events: list[Event] = []
    _collect_until(collector, events, lambda: _named(events, "job.start"))
    assert victim.wait(PATIENCE) == -9
    _collect_until(collector, events, lambda: _named(events, "oom.kill"))
    reading = collector.collect()

    assert ours(reading)["oom_kills_total",] == 1


def as_nobody(work: Callable[[], object]) -> str:
    """What the work gives, as text, when an ordinary user does it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            text = repr(work())
        except BaseException as error:  # noqa: BLE001 (it is the answer)
            text = repr(error)
        os.write(writer, text.encode()[:60_000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_an_ordinary_user_sees_what_is_allowed_and_is_told_what_is_not() -> None:
    if os.geteuid() != 0:
        lacking("only root can become another user")
    with subprocess.Popen(["sleep", "60"], env={"SONDE_JOB_ID": "of-root", "PATH": os.environ["PATH"]}) as process:

        def look() -> list[object]:
            job = JobCollector(HostFS(), JobConfig())
            tree = ProcessCollector(HostFS(), ProcessConfig(pids=(str(process.pid),), jobs=False))
            jobs, trees = job.collect(), tree.collect()
            return [
                sorted({labels[0] for spec, labels in jobs.layout if spec.name == "sonde_job_info"}),
                sorted({(gap.spec.name, gap.quality.value) for gap in jobs.gaps if gap.quality is Quality.DENIED}),
                sorted({spec.name for spec, _ in trees.layout}),
                sorted({(gap.spec.name, gap.quality.value) for gap in trees.gaps}),
            ]

        text = as_nobody(look)
        process.kill()

    assert "Error" not in text
    assert "of-root" not in text
    assert "('sonde_job_info', 'denied')" in text
    assert "'sonde_process_tree_cpu_seconds_total'" in text
    assert "('sonde_process_tree_read_bytes_total', 'denied')" in text
    assert text.count("sonde_process_tree_read_bytes_total") == 1  # a gap, and no series with a zero

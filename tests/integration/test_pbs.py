"""PBS jobs as the kernel shows them: sessions as pbs_mom makes them, cgroups as its hook makes them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.lacking import lacking

from sonde.collectors.job import JobCollector, JobConfig
from sonde.hostfs import HostFS
from sonde.model import Reading, Value
from sonde.schedulers.cgroupfs import UNIFIED, mounts

PATIENCE = 20.0  # seconds
NOBODY = 65534  # pbs_mom does not look at processes of root
ID = f"{os.getpid()}.sonde-test"  # of a job that is nobody else's

BURN = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"
# A batch script that starts a program without its environment, and one that also leaves the session.
SCRIPT = f"""
env -i sh -c 'echo child $$; {BURN}; echo burnt $$; exec sleep 60' &
env -i setsid sh -c 'echo stray $$; exec sleep 60' &
wait
"""


class Script:
    """A running batch script and the pids it has told."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.pids: dict[str, int] = {}

    def wait_for(self, *words: str) -> None:
        assert self.process.stdout is not None
        while not self.pids.keys() >= set(words):
            word, pid = self.process.stdout.readline().decode().split()
            self.pids[word] = int(pid)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pid in {*self.pids.values()}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # ended by itself
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def run() -> Iterator[Callable[..., Script]]:
    """Run a script as an ordinary user in a session of its own; everything it told of is ended by its id."""
    if os.geteuid() != 0:
        lacking("only root can become another user")
    started: list[Script] = []

    def start(text: str, *environ: str) -> Script:
        process = subprocess.Popen(
            ["setsid", "env", *environ, "sh", "-c", text],  # both execute the next: the pid stays
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
        )
        started.append(Script(process))
        return started[-1]

    yield start
    for script in started:
        script.end()


@pytest.fixture
def collector() -> Iterator[JobCollector]:
    collector = JobCollector(HostFS(), JobConfig())
    yield collector
    collector.close()


def ours(reading: Reading) -> dict[tuple[str, ...], Value]:
    return {
        (spec.name.removeprefix("sonde_job_"), *labels[2:]): value
        for (spec, labels), value in zip(reading.layout, reading.values, strict=True)
        if labels[:2] == (ID, "pbs")
    }


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_processes_without_environment_are_counted_by_their_session_and_strays_are_not(
    run: Callable[..., Script], collector: JobCollector
) -> None:
    script = run(SCRIPT, f"PBS_JOBID={ID}", "PBS_JOBNAME=train", "PBS_QUEUE=gpu", "PBS_ACCOUNT=physics", "LOGNAME=ada")
    script.wait_for("child", "stray", "burnt")
    found = ours(collector.collect())
    used = cpu_ticks(script.pids["child"]) / os.sysconf("SC_CLK_TCK")

    assert ("info", "ada", str(NOBODY), "train", "gpu", "physics", "") in found
    assert found["processes",] == 2  # the script and the child
    user, system = found["cpu_seconds_total", "user"], found["cpu_seconds_total", "system"]
    assert isinstance(user, float)
    assert isinstance(system, float)
    assert used > 0.05
    assert user + system == pytest.approx(used, abs=0.1)


def test_the_end_of_the_session_is_the_end_of_the_job(run: Callable[..., Script], collector: JobCollector) -> None:
    script = run("echo child $$; exec sleep 60", f"PBS_JOBID={ID}", "PBS_TASKNUM=1")
    script.wait_for("child")
    begun = [event.name for event in collector.collect().events if event.attrs["job_id"] == ID]
    script.process.kill()
    script.process.wait()
    events: list[str] = []
    deadline = time.monotonic() + PATIENCE
    while not events and time.monotonic() < deadline:
        time.sleep(0.05)
        events = [event.name for event in collector.collect().events if event.attrs["job_id"] == ID]

    assert begun == ["job.start"]
    assert events == ["job.end"]


def remove(path: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while path.exists():
        try:
            path.rmdir()
        except OSError:
            assert time.monotonic() < deadline, f"{path} is still in use"
            time.sleep(0.05)


class Cgroups:
    """A job's directories, v1 (`jobid`) or v2 (`jobs`)."""

    def __init__(self, layout: str) -> None:
        found = mounts(HostFS())
        wanted = ("cpuacct", "freezer", "memory") if layout == "jobid" else (UNIFIED,)
        self.paths = [Path("/", found[name].point, "pbs_jobs.service", layout, ID) for name in wanted if name in found]

    def make(self) -> None:
        for path in self.paths:
            path.mkdir(parents=True)

    def move(self, pid: int) -> None:
        for path in self.paths:
            (path / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        for path in self.paths:
            remove(path)
            for parent in (path.parent, path.parent.parent):
                try:
                    parent.rmdir()
                except OSError:
                    break  # never made, or a real PBS' own


@pytest.fixture(params=["jobid", "jobs"])
def cgroups(request: pytest.FixtureRequest) -> Iterator[Cgroups]:
    cgroups = Cgroups(request.param)
    if os.geteuid() != 0 or not cgroups.paths:
        lacking("needs root and that version of cgroups")
    yield cgroups
    cgroups.remove()


def test_a_job_of_the_cgroups_hook_is_noticed_at_once_and_needs_no_environment(
    cgroups: Cgroups, run: Callable[..., Script], collector: JobCollector
) -> None:
    collector.collect()  # the next scan is due in ten seconds, unless something disturbs
    script = run(f"read go; {BURN}; echo burnt $$; exec sleep 60")
    cgroups.make()
    cgroups.move(script.process.pid)
    assert script.process.stdin is not None
    script.process.stdin.write(b"\n")
    script.process.stdin.flush()
    script.wait_for("burnt")
    found: dict[tuple[str, ...], Value] = {}
    for _ in range(100):  # one parent of job directories is looked at per tick
        if found := ours(collector.collect()):
            break

    assert found["processes",] == 1
    assert ("info", "", str(NOBODY), "", "", "", "") in found
    user, system = found["cpu_seconds_total", "user"], found["cpu_seconds_total", "system"]
    assert isinstance(user, int | float)
    assert isinstance(system, int | float)
    assert user + system == pytest.approx(cpu_ticks(script.process.pid) / os.sysconf("SC_CLK_TCK"), abs=0.1)

"""What a job of 1,000 processes costs: its cgroup, each of its processes, and psutil reading the same.

The job is a small C program that forks sleepers, in v1 cgroups where this user may make them. The job collector reads
the cgroup; the process collector reads stat, statm, io and schedstat of every process, and a tenth of their status and
fd. CPU time of the reading thread, medians over windows that take turns; ticks are spaced so that caches cool down.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from benchmarks.harness import Row
from sonde.collectors.cpu import CpuCollector
from sonde.collectors.job import JobCollector, JobConfig
from sonde.collectors.memory import MemoryCollector
from sonde.collectors.process import ProcessCollector, ProcessConfig
from sonde.config import NoKeys
from sonde.hostfs import HostFS
from sonde.schedulers import cgroupfs

PROCESSES = 1000
WINDOWS = 9
TICKS = 3  # per window
SPACING = 0.15  # seconds between ticks
JOB = f"slurm/uid_0/job_{4_200_000_000 + os.getpid()}/step_0/task_0"  # nobody else has it

SOURCE = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int count = atoi(argv[1]);
    useconds_t nap = argc > 2 ? atoi(argv[2]) : 0;
    pid_t parent = getpid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < count; i++) {
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent) _exit(0);
            for (;;) nap ? (void)usleep(nap) : (void)pause();
        }
    }
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
"""


@contextmanager
def sleepers(count: int, cgroups: list[Path], nap_us: int = 0) -> Iterator[int]:
    """The pid of a process with `count` children that sleep, all in the given cgroups and ended at the end."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise RuntimeError("a C compiler is needed")
    with tempfile.TemporaryDirectory() as directory:
        source, program = Path(directory, "sleepers.c"), Path(directory, "sleepers")
        source.write_text(SOURCE)
        subprocess.run([compiler, "-O1", "-o", program, source], check=True)
        environ = {**os.environ, "SONDE_JOB_ID": "benchmark"}

        def enter() -> None:
            for cgroup in cgroups:
                (cgroup / "cgroup.procs").write_text(str(os.getpid()))

        command = [str(program), str(count), *([str(nap_us)] if nap_us else [])]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environ, preexec_fn=enter)  # noqa: PLW1509 (one thread)
        assert process.stdout is not None
        try:
            process.stdout.readline()
            yield process.pid
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


@contextmanager
def job_cgroups() -> Iterator[list[Path]]:
    """Directories named as Slurm names them, in the v1 hierarchies it would use; none where that is not possible."""
    mounts = cgroupfs.mounts(HostFS())
    wanted = ("cpuacct", "memory", "freezer", "blkio", "pids")
    made: list[Path] = []
    try:
        for name in wanted:
            if name in mounts and os.access(f"/{mounts[name].point}", os.W_OK):
                path = Path("/", mounts[name].point, JOB)
                path.mkdir(parents=True)
                made.append(path)
        yield made
    finally:
        for path in made:
            _remove(path, depth=JOB.count("/") + 1)


def _remove(path: Path, depth: int) -> None:
    for _ in range(depth):
        for _ in range(100):  # the kernel takes a moment to let the killed go
            try:
                path.rmdir()
                break
            except OSError:
                if any(path.glob("*/")):
                    return  # somebody else's
                time.sleep(0.05)
        path = path.parent


def cost_ms(work: Callable[[], object], company: Callable[[], object], ticks: int = TICKS) -> float:
    """CPU of one tick. What the daemon has done before in the same tick is done, and not counted."""
    spent = []
    for _ in range(ticks):
        time.sleep(SPACING)
        company()
        begun = time.thread_time_ns()
        work()
        spent.append((time.thread_time_ns() - begun) / 1e6)
    return median(spent)


def psutil_reader(root: int) -> Callable[[], object]:
    """A kept psutil.Process per process, and the calls that read stat, statm, io and the thread count."""
    import psutil

    parent = psutil.Process(root)
    processes = [parent, *parent.children(recursive=True)]

    def read() -> list[object]:
        rows: list[object] = []
        for process in processes:
            with process.oneshot():
                rows.append((process.cpu_times(), process.memory_info(), process.io_counters(), process.num_threads()))
        return rows

    return read


def _interleaved(works: dict[str, tuple[Callable[[], object], Callable[[], object]]]) -> dict[str, float]:
    for work, _ in works.values():
        work()
        work()
    spent: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(WINDOWS):
        for name, (work, company) in works.items():
            spent[name].append(cost_ms(work, company))
    return {name: median(values) for name, values in spent.items()}


def measure() -> list[dict[str, object]]:
    host = HostFS()
    with ExitStack() as stack:
        cgroups = stack.enter_context(job_cgroups())
        root = stack.enter_context(sleepers(PROCESSES, cgroups))
        costs = _asleep(stack, host, root)
    costs["awake"] = _awake(host)
    rows = _rows(costs)
    # Without a cgroup the job is walked, which is the other row's figure.
    return [row.as_dict() for row in (rows if cgroups else rows[1:])]


def _nothing() -> None:
    pass


def _asleep(stack: ExitStack, host: HostFS, root: int) -> dict[str, float]:
    cpu, memory = CpuCollector(host, NoKeys()), MemoryCollector(host, NoKeys())
    job = JobCollector(host, JobConfig())
    # A collector each for the A/A: the same work, other descriptors.
    trees = [ProcessCollector(host, ProcessConfig(pids=(str(root),), jobs=False)) for _ in range(2)]
    for close in (cpu.close, memory.close, job.close, *(tree.close for tree in trees)):
        stack.callback(close)
    for _ in range(4):  # the second looks of the first scans are behind us then
        job.collect()
    walked = trees[0].collect().values[0]
    if walked != PROCESSES + 1:
        raise RuntimeError(f"{walked} processes are walked, not {PROCESSES + 1}")

    def tick() -> None:
        cpu.collect()
        memory.collect()

    return _interleaved(
        {
            "job": (job.collect, tick),
            "job alone": (job.collect, _nothing),
            "ours": (trees[0].collect, _nothing),
            "psutil": (psutil_reader(root), _nothing),
            "again": (trees[1].collect, _nothing),
        }
    )


def _awake(host: HostFS) -> float:
    """The same processes waking ten times a second: every stat, io and schedstat is read and parsed anew."""
    with sleepers(PROCESSES, [], nap_us=100_000) as root:
        collector = ProcessCollector(host, ProcessConfig(pids=(str(root),), jobs=False))
        try:
            return _interleaved({"awake": (collector.collect, _nothing)})["awake"]
        finally:
            collector.close()


def _rows(costs: dict[str, float]) -> list[Row]:
    job, ours, psutil = costs["job"], costs["ours"], costs["psutil"]
    same = f"A/A {costs['again'] / ours:.2f}"
    alone = f"after the cpu and memory collectors' tick; alone, with cold caches, {costs['job alone']:.3f} ms"
    return [
        Row(f"job of {PROCESSES} processes, totals from its v1 cgroup, CPU per tick", job, "ms", 0.2, alone),
        Row(f"{PROCESSES} processes asleep, each read, CPU per tick", ours, "ms", 25, same),
        Row(
            f"{PROCESSES} processes asleep, each read, share of psutil's CPU",
            ours / psutil,
            "",
            1 / 8,
            f"psutil {psutil:.1f} ms: {psutil / ours:.1f} times ours; {same}",
        ),
        Row(f"{PROCESSES} processes awake, each read, CPU per tick", costs["awake"], "ms", 25, "10 wake-ups/s each"),
    ]


if __name__ == "__main__":
    for row in measure():
        print(f"{row['name']}: {row['value']:.3g} {row['unit']} (bar {row['bar']}, met: {row['met']}) {row['detail']}")

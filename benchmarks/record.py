"""What a recorder takes from the job it records, against perfmon's way; what it keeps, against perfmon's JSON.

perfmon's way is the walk it makes for every sample: psutil finds the children and asks each for its CPU times, memory,
USS, I/O, descriptors and threads, one after the other. Both run at the same time beside the same processes; CPU time is
the kernel's, of all threads and of children that were waited for.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from benchmarks.harness import Row, cpu_ns
from benchmarks.processes import JOB, job_cgroups
from sonde.clock import NS, ManualClock
from sonde.config import ArchiveConfig
from sonde.errors import Unavailable
from sonde.hostfs import HostFS
from sonde.jobs.follow import Followed
from sonde.jobs.recorder import DEFAULT, Plan, configuration
from sonde.model import Frame, Kind, Layout, MetricSpec, Unit
from sonde.pipeline.assembly import construct, plan_collectors
from sonde.registry import COLLECTORS
from sonde.schedulers.job import Job, JobId
from sonde.store.archive import Archive
from sonde.units import Duration, Size

SECONDS = 20.0
WARM_UP = 6.0  # seconds: imports, the first scan, the context of the host
HZ = os.sysconf("SC_CLK_TCK")
METRICS, RATE, HOUR = 200, 10, 3600
CAPTURE = 30  # seconds of a real job out of which the hour is made
RESIDENT = 256 << 20  # bytes of each process of the job; they share the pages, but each has its own page table

# A rank and its peers: each wakes ten times a second.
RANKS = """
import os, sys, time
count, block = int(sys.argv[1]), bytearray(int(sys.argv[2]))
for _ in range(count - 1):
    if not os.fork(): break
print("ready", flush=True)
while True: time.sleep(0.1)
"""
# A job that computes, writes and starts short programs.
BUSY = """
while :; do
    dd if=/dev/zero of=block bs=64k count=200 2>/dev/null
    sleep 0.03
    i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done
done
"""

# perfmon's sampling loop, in fewer words: every metric is asked of every process, for each sample.
PERFMON = """
import sys, time, psutil
root, period = psutil.Process(int(sys.argv[1])), float(sys.argv[2])
while True:
    begun = time.monotonic()
    found = []
    for process in [root, *root.children(recursive=True)]:
        try:
            found.append((process.cpu_times(), process.cpu_percent(), process.memory_info(), process.memory_full_info(),
                          process.memory_percent(), process.io_counters(), process.num_fds(), process.num_threads()))
        except psutil.Error:
            continue
    psutil.cpu_percent(); psutil.net_io_counters()
    time.sleep(max(0.0, period - (time.monotonic() - begun)))
"""


@contextmanager
def started(*words: str, folder: str) -> Iterator[subprocess.Popen[bytes]]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SONDE_"))}
    process = subprocess.Popen(words, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def spent_ns(pid: int) -> int:
    """CPU time of a process and of the children it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return cpu_ns(pid) + (int(fields[13]) + int(fields[14])) * NS // HZ


@contextmanager
def ranks(count: int, cgroups: list[Path]) -> Iterator[int]:
    """The pid of a process with its peers, all in the given cgroups; ended by their group at the end."""

    def enter() -> None:
        for cgroup in cgroups:
            (cgroup / "cgroup.procs").write_text(str(os.getpid()))

    words = [sys.executable, "-c", RANKS, str(count), str(RESIDENT)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, preexec_fn=enter, process_group=0)  # noqa: PLW1509
    assert process.stdout is not None
    try:
        for _ in range(count):
            process.stdout.readline()
        yield process.pid
    finally:
        os.killpg(process.pid, 9)
        process.wait()
        process.stdout.close()


def record(name: str, period: str, *whom: str) -> list[str]:
    return [sys.executable, "-m", "sonde", "record", "-i", period, *whom, "-o", name]


def costs(commands: dict[str, list[str]], root: int) -> dict[str, float]:
    """Milliseconds of CPU per second of each command, all at the same time beside the same job."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        if not os.path.exists(f"/proc/{root}"):
            raise RuntimeError("the job has ended")
        running = {name: stack.enter_context(started(*words, folder=folder)) for name, words in commands.items()}
        time.sleep(WARM_UP)
        windows: dict[str, list[float]] = {name: [] for name in running}
        for _ in range(3):
            begun = {name: (spent_ns(process.pid), time.monotonic()) for name, process in running.items()}
            time.sleep(SECONDS / 3)
            for name, process in running.items():
                before, at = begun[name]
                windows[name].append((spent_ns(process.pid) - before) / 1e6 / (time.monotonic() - at))
        return {name: median(values) for name, values in windows.items()}


def small_job() -> dict[str, float]:
    with ranks(2, []) as root:
        pid = ("--pid", str(root))
        return costs({"1 Hz": record("a", "1s", *pid), "10 Hz": record("b", "100ms", *pid)}, root)


def large_job() -> tuple[dict[str, float], bool]:
    """A job of 64 processes in cgroups as Slurm makes them, where this user may; else it is walked."""
    number = JOB.partition("job_")[2].partition("/")[0]
    with job_cgroups() as cgroups, ranks(64, cgroups) as root:
        pid = ("--pid", str(root))
        whom = ("--job", number) if cgroups else pid
        commands = {
            "ours": record("a", "1s", *whom),
            "again": record("b", "1s", *whom),
            "walked": record("c", "1s", *pid),
            "psutil": [sys.executable, "-c", PERFMON, str(root), "1"],
        }
        return costs(commands, root), bool(cgroups)


def captured() -> tuple[list[str], list[list[int | float]]]:
    """What the first 200 series of a recording of a busy job were, and their values, ten times a second."""
    kinds: list[str] = []
    ticks: list[list[int | float]] = []
    with tempfile.TemporaryDirectory() as folder, started("sh", "-c", BUSY, folder=folder) as job:
        followed = Followed(Job(JobId("local", "busy")), (job.pid,))
        names = tuple(name for name in DEFAULT if name in COLLECTORS and name not in ("perf", "filesystem"))
        config = configuration(Plan(followed, Duration(1 / RATE), names), "n1")
        collectors = []
        for plan in plan_collectors(config):
            try:
                collectors.append(construct(plan.cls, HostFS(), plan.own))
            except Unavailable:
                continue
        time.sleep(2)
        due = time.monotonic()
        for _ in range(CAPTURE * RATE):
            readings = [collector.collect() for collector in collectors]
            flat = [
                (f"{spec.name}{labels}", spec.kind.value, value)
                for reading in readings
                for (spec, labels), value in zip(reading.layout, reading.values, strict=True)
                if isinstance(value, int | float)
            ]
            known = {name: value for name, _, value in flat}
            if not kinds:
                chosen = flat[:METRICS]
                kinds = [kind for _, kind, _ in chosen]
            ticks.append([known.get(name, 0) for name, _, _ in chosen])
            due += 1 / RATE
            time.sleep(max(0.0, due - time.monotonic()))
        for collector in collectors:
            collector.close()
    return kinds, ticks


def hour(kinds: list[str], ticks: list[list[int | float]]) -> Iterator[list[int | float]]:
    """An hour out of the captured stretch, again and again; counters go on from where they were."""
    grown = [last - first for first, last in zip(ticks[0], ticks[-1], strict=True)]
    for tick in range(HOUR * RATE):
        turn, place = divmod(tick, len(ticks))
        yield [
            value + turn * growth if kind == "counter" else value
            for kind, value, growth in zip(kinds, ticks[place], grown, strict=True)
        ]


def sizes() -> tuple[int, int, list[float]]:
    """Bytes of an hour in the archive and as perfmon's JSON; and milliseconds of each minute's commits."""
    kinds, ticks = captured()
    specs = [
        MetricSpec(f"metric_{n}", Kind.COUNTER if kind == "counter" else Kind.GAUGE, Unit.NONE, "A metric.")
        for n, kind in enumerate(kinds)
    ]
    layout = Layout((spec, ()) for spec in specs)
    folder = tempfile.mkdtemp()
    try:
        clock = ManualClock()
        path = os.path.join(folder, "archive.db")
        limits = ArchiveConfig(max_age=Duration(10 * 365 * 86400), max_size=Size(10**12))
        archive = Archive(path, limits, host="n1", boot_id="", clock=clock)
        lists: list[list[int | float]] = [[] for _ in kinds]
        times: list[int] = []
        minutes = [0.0] * (HOUR // 60)
        for tick, values in enumerate(hour(kinds, ticks)):
            for column, value in zip(lists, values, strict=True):
                column.append(value)
            times.append(clock.time_ns() // NS)
            begun = time.thread_time_ns()
            archive.write([Frame("all", clock.time_ns(), 0, NS // RATE, layout, values)])
            minutes[tick // (60 * RATE)] += (time.thread_time_ns() - begun) / 1e6
            clock.advance(1 / RATE)
        archive.close()
        told: dict[str, object] = {f"metric_{n}": column for n, column in enumerate(lists)}
        text = json.dumps({"host_names": ["n1"], "sampling_frequency": 1 / RATE, "n1": {"time_stamps": times, **told}})
        return os.path.getsize(path), len(text), minutes
    finally:
        shutil.rmtree(folder)


def measure() -> list[dict[str, object]]:
    two = small_job()
    many, in_cgroup = large_job()
    archive, text, minutes = sizes()
    values = METRICS * RATE * HOUR
    first, last = median(minutes[1:11]), median(minutes[-10:])
    walked = (
        f"psutil {many['psutil']:.1f} ms/s, ours {many['ours']:.2f} {'by its cgroup' if in_cgroup else 'walked'}"
        f" (A/A {many['again'] / many['ours']:.2f}), walked {many['walked']:.2f}; {RESIDENT >> 20} MiB resident each"
    )
    rows = [
        Row("recorder of a job of 2 processes at 1 Hz, CPU", two["1 Hz"], "ms/s", 2.0),
        Row("recorder of a job of 2 processes at 10 Hz, CPU", two["10 Hz"], "ms/s", 12.0),
        Row(
            "recorder of a job of 64 processes at 1 Hz, share of perfmon's CPU",
            many["ours"] / many["psutil"],
            "",
            1 / 20,
            walked,
        ),
        Row(
            f"archive of {METRICS} metrics at {RATE} Hz for an hour, share of perfmon's JSON",
            archive / text,
            "",
            1 / 20,
            f"{archive / 1e6:.1f} MB, {archive / values:.2f} bytes per value; JSON {text / 1e6:.0f} MB on one line,"
            f" {(text + 12 * values) / 1e6:.0f} MB indented, of which it is {archive / (text + 12 * values):.3f}",
        ),
        Row(
            "CPU of a minute's checkpoints at the end of an hour, times that at its begin",
            last / first,
            "",
            1.25,
            f"{first:.0f} ms, then {last:.0f} ms, for 600 ticks of {METRICS} metrics",
        ),
    ]
    return [row.as_dict() for row in rows]


if __name__ == "__main__":
    for row in measure():
        print(
            f"{row['name']}: {row['value']:.3g} {row['unit']} (bar {row['bar']:.3g}, met: {row['met']}) {row['detail']}"
        )

"""Measuring side by side on a noisy machine: everything runs at the same time, in windows, and medians are compared.

CPU time comes from /proc/PID/task/*/schedstat (nanoseconds on a CPU, kernel work included), so both a C program and a
daemon of many threads are measured the same way. Each comparison runs one of its sides twice: the ratio of the two
(the A/A) says what the machine's noise alone does to a ratio.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

BUILD = Path(__file__).parent / "build"


class Row(NamedTuple):
    """One measure beside its bar."""

    name: str
    value: float
    unit: str
    bar: float
    detail: str = ""

    @property
    def met(self) -> bool:
        return self.value <= self.bar

    def as_dict(self) -> dict[str, object]:
        return {**self._asdict(), "met": self.met}


def compile_c(source: str) -> Path:
    """Build a C program of this directory with gcc -O2; only when it is newer than what was built."""
    BUILD.mkdir(exist_ok=True)
    path, target = Path(__file__).parent / source, BUILD / source.removesuffix(".c")
    if not target.exists() or target.stat().st_mtime < path.stat().st_mtime:
        subprocess.run(["gcc", "-O2", "-Wall", "-o", str(target), str(path)], check=True)
    return target


@contextmanager
def running(command: Sequence[str], **options: object) -> Iterator[subprocess.Popen[bytes]]:
    """A child process for as long as the block runs; ended by its id."""
    process = subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **options,  # type: ignore[call-overload]
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def cpu_ns(pid: int) -> int:
    """Nanoseconds all threads of a process have been on a CPU."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat", "rb") as file:
            total += int(file.read().split()[0])
    return total


def switches(pid: int) -> int:
    """Voluntary context switches of all threads of a process."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/status", "rb") as file:
            total += int(file.read().rpartition(b"\nvoluntary_ctxt_switches:")[2].split()[0])
    return total


def resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def windows(pids: Sequence[int], *, count: int, seconds: float) -> list[list[float]]:
    """CPU milliseconds per second of each process in each of `count` windows, all at the same time."""
    columns: list[list[float]] = [[] for _ in pids]
    before = [cpu_ns(pid) for pid in pids]
    begun = time.monotonic()
    for window in range(1, count + 1):
        time.sleep(max(0.0, begun + window * seconds - time.monotonic()))
        after = [cpu_ns(pid) for pid in pids]
        for column, now, earlier in zip(columns, after, before, strict=True):
            column.append((now - earlier) / 1e6 / seconds)
        before = after
    return columns


def medians(columns: Sequence[Sequence[float]]) -> list[float]:
    return [median(column) for column in columns]


def interleaved(works: Sequence[Callable[[], object]], *, rounds: int, repeat: int) -> list[list[float]]:
    """Microseconds of CPU of this thread per call of each work, `rounds` times, taking turns."""
    columns: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for column, work in zip(columns, works, strict=True):
            begun = time.thread_time_ns()
            for _ in range(repeat):
                work()
            column.append((time.thread_time_ns() - begun) / repeat / 1e3)
    return columns


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def interpreter() -> str:
    import platform
    import sysconfig

    optimised = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    build = "PGO" if optimised else "no PGO"
    return f"Python {platform.python_version()} ({build}) at {Path(sys.executable).name}, Linux {platform.release()}"

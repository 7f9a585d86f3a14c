"""The socket of training processes: how soon they are answered, and what it costs to have them.

Under load: 500 processes poll once a second, beside clients that are gone before their answer or never read one, while
the archive's thread has all collectors' frames to write every 200 ms. Each process asks an echo server in C in the same
moment. Idle: 8 processes poll every 5 s, as libkineto does; of the daemon's CPU time that of the same daemon without
processes is taken off, because its loop and one collector have a cost of their own.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.harness import Row, compile_c, cpu_ns, running

_SONDE = str(Path(sys.executable).with_name("sonde"))
_LOADED = (500, 1000, 30, 2)  # processes, milliseconds between polls, seconds, nuisances of each kind
_IDLE = (8, 5000)
_WINDOWS, _SECONDS = 9, 15.0  # of idle polls; 24 of them are in each


class Answers(NamedTuple):
    """What ipc_pollers prints of one daemon; microseconds."""

    polls: int
    p50: int
    p99: int
    worst: int
    lost: int
    first_p99: int
    first_worst: int


@contextmanager
def daemon(folder: Path, *options: str) -> Iterator[int]:
    """A daemon that listens in this directory; its pid."""
    folder.mkdir()
    (folder / "sonde.toml").write_text(f'[tracing]\nenabled = true\nabstract = false\nsocket_dir = "{folder}"\n')
    command = [_SONDE, "daemon", "--state", str(folder), "--rpc-address", "", "--http-address", "", *options]
    with running(command) as process:
        _wait_for(folder)
        yield process.pid


@contextmanager
def echo(folder: Path) -> Iterator[int]:
    folder.mkdir()
    with running([str(compile_c("ipc_echo.c")), str(folder)]) as process:
        _wait_for(folder)
        yield process.pid


def _wait_for(folder: Path) -> None:
    until = time.monotonic() + 20
    while not (folder / "dynolog").exists():
        if time.monotonic() > until:
            raise SystemExit(f"nobody listens in {folder}")
        time.sleep(0.05)


def pollers(count: int, period_ms: int, seconds: int, nuisances: int, *folders: Path) -> list[str]:
    return [str(compile_c("ipc_pollers.c")), *map(str, (count, period_ms, seconds, nuisances)), *map(str, folders)]


def loaded(folder: Path) -> list[Row]:
    ours, theirs = folder / "loaded", folder / "loaded-c"
    with daemon(ours, "--period", "200ms"), echo(theirs):
        time.sleep(2)
        done = subprocess.run(pollers(*_LOADED, ours, theirs), capture_output=True, text=True, check=True, timeout=120)
    sonde, c = (Answers(*map(int, line.split()[1:])) for line in done.stdout.splitlines())
    detail = f"p50 {sonde.p50 / 1e3:.2f}, p99 {sonde.p99 / 1e3:.2f} ms of {sonde.polls} polls, {sonde.lost} lost"
    detail += f"; C p50 {c.p50 / 1e3:.2f}, p99 {c.p99 / 1e3:.2f}, worst {c.worst / 1e3:.1f} ms"
    first = f"first polls: p99 {sonde.first_p99 / 1e3:.2f}, worst {sonde.first_worst / 1e3:.1f} ms"
    return [
        Row("IPC answer to 500 processes, p99 above C's", (sonde.p99 - c.p99) / 1e3, "ms", 10, detail),
        Row("IPC answer to 500 processes, worst", max(sonde.worst, sonde.first_worst) / 1e3, "ms", 50, first),
    ]


def idle(folder: Path) -> Row:
    minimal = ("--no-archive", "--collectors", "load", "--period", "60s")
    seconds = int(_WINDOWS * _SECONDS) + 30
    with ExitStack() as stack:
        asked, alone, c = folder / "asked", folder / "alone", folder / "asked-c"
        pids = [stack.enter_context(daemon(place, *minimal)) for place in (asked, alone)]
        pids.append(stack.enter_context(echo(c)))
        stack.enter_context(running(pollers(*_IDLE, seconds, 0, asked, c)))
        time.sleep(8)  # all have registered
        columns = _windows(pids)
    ours, without, floor = (median(column) for column in columns)
    polls = _IDLE[0] * 1000 / _IDLE[1]
    detail = (
        f"{(ours - without) / polls:.0f} against {floor / polls:.0f} µs per poll; the daemon alone {without:.0f} µs/s"
    )
    return Row("idle cost of 8 processes at 5 s polls / C echo", (ours - without) / floor, "×", 5, detail)


def _windows(pids: list[int]) -> list[list[float]]:
    """CPU microseconds per second of each process, in each of the windows, all at the same time."""
    columns: list[list[float]] = [[] for _ in pids]
    before = [cpu_ns(pid) for pid in pids]
    for _ in range(_WINDOWS):
        time.sleep(_SECONDS)
        after = [cpu_ns(pid) for pid in pids]
        for column, now, then in zip(columns, after, before, strict=True):
            column.append((now - then) / 1e3 / _SECONDS)
        before = after
    return columns


def measure() -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        return [row.as_dict() for row in [*loaded(Path(folder)), idle(Path(folder))]]

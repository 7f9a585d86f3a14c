"""How soon a trace begins, and how much at once: a real PyTorch on the CPU under the defaults of `sonde run`.

From the call of `trace.start` to the first operator that the trace file has: half a poll period on average, and the
second that libkineto needs before a start. And the distance between the first operators of four ranks of one host that
were given one moment to begin at: by the clock of the machine, whatever the daemon or the caller think of it.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import Row
from sonde.errors import SondeError
from sonde.rpc.client import call

PYTHON = Path(sys.prefix) / "torch/bin/python"
TRAIN = Path(__file__).parents[1] / "tests/torch/train.py"
SONDE = Path(sys.executable).with_name("sonde")
ROUNDS = 10
RANKS = 4
LEAD_NS = 2_500_000_000  # a poll period, the 1.1 s of libkineto, and room
PATIENCE = 60.0

Session = Mapping[str, Any]


def measure() -> list[dict[str, object]]:
    if not PYTHON.exists():
        raise RuntimeError("make real-torch installs PyTorch")
    with tempfile.TemporaryDirectory(prefix="trigger") as folder:
        delays = sorted(_delays(folder))
        skews = sorted(_skews(folder))
    return [row.as_dict() for row in (*_delay_rows(delays), _skew_row(skews))]


def _delay_rows(delays: list[float]) -> Iterator[Row]:
    detail = f"{ROUNDS} traces of 100 ms at random moments; least {delays[0]:.2f} s"
    yield Row("trace.start to the first recorded operator, median", median(delays), "s", 2.5, detail)
    yield Row("trace.start to the first recorded operator, longest", delays[-1], "s", 2.5)


def _skew_row(skews: list[float]) -> Row:
    detail = f"{ROUNDS} traces of {RANKS} ranks on {os.cpu_count()} CPUs; least {skews[0]:.2g}, most {skews[-1]:.3g} ms"
    return Row(f"first operators of {RANKS} ranks apart, median", median(skews), "ms", 5.0, detail)


def _delays(folder: str) -> Iterator[float]:
    """Seconds from the request to the first operator."""
    chance = random.Random(1)  # the moments are the same in every run
    with training(folder, "--steps-per-second", "200") as (address, pids):
        for number in range(ROUNDS):
            time.sleep(chance.random())  # anywhere between two polls
            asked = time.time_ns()
            session = traced(address, pids, f"delay-{number}", folder, duration_ms=100)
            yield (min(first_operators(session)) - asked) / 1e9


def _skews(folder: str) -> Iterator[float]:
    """Milliseconds between the first operators of the first and the last rank to begin."""
    with training(folder, "--ranks", str(RANKS), "--steps-per-second", "250") as (address, pids):
        for number in range(ROUNDS):
            start_ns = time.time_ns() + LEAD_NS
            session = traced(address, pids, f"skew-{number}", folder, duration_ms=100, start_ns=start_ns)
            first = first_operators(session)
            yield (max(first) - min(first)) / 1e6


@contextmanager
def training(folder: str, *options: str) -> Iterator[tuple[str, list[int]]]:
    """A training under `sonde run`: the address of its private daemon, and its processes once all have registered."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_RUNTIME_DIR": folder}
    # Before other work, where this user may: what is asked is when a trace begins, not how busy the machine is.
    command = ["nice", "-n", "-10", str(SONDE), "run", "--private", "--", str(PYTHON), str(TRAIN), *options]
    process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        count = RANKS if "--ranks" in options else 1
        pids = [int(json.loads(process.stdout.readline())["pid"]) for _ in range(count)]
        address = f"unix:{folder}/sonde/run/{process.pid}/rpc.sock"
        until = time.monotonic() + PATIENCE
        while not set(pids) <= {one["pid"] for one in call(address, "process.list")["processes"]}:
            if time.monotonic() > until:
                raise SondeError("the processes do not register")
            time.sleep(0.1)
        yield address, pids
    finally:
        with process:
            process.terminate()


def traced(address: str, pids: list[int], name: str, folder: str, **recording: Any) -> Session:
    """Ask for a trace and wait for its files."""
    until = time.monotonic() + PATIENCE
    session = call(address, "trace.start", session=name, pids=pids, directory=folder, **recording)
    while session["state"] == "active":
        if time.monotonic() > until:
            raise SondeError(f"no trace within {PATIENCE:.0f} s: {session}")
        session = call(address, "trace.show", timeout=20.0, session=name, version=session["version"], wait_seconds=10)
    return session


def first_operators(session: Session) -> list[int]:
    """When each process recorded its first operator, in Unix nanoseconds."""
    failed = [target for target in session["targets"] if target["state"] != "written"]
    if failed:
        raise SondeError(f"not all were traced: {failed}")
    return [_first_operator(Path(target["path"])) for target in session["targets"]]


def _first_operator(path: Path) -> int:
    trace = json.loads(path.read_bytes())
    path.unlink()
    earliest: float = min(event["ts"] for event in trace["traceEvents"] if event.get("cat") == "cpu_op")
    return int(trace["baseTimeNanoseconds"]) + round(earliest * 1000)

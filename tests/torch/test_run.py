"""A real PyTorch under `sonde run`: it registers, asks every second, and ends as fast as without."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.conftest import SONDE

from sonde.rpc.client import call

if TYPE_CHECKING:
    from tests.torch.conftest import TracingDaemon, Training

RUN = (SONDE, "run", "--")


class Place:
    """A runtime directory, and the processes of the private daemons in it."""

    def __init__(self, runtime: str) -> None:
        self.runs = Path(runtime, "sonde/run")
        # A name at which nobody answers: a daemon of the machine under test is not to be found.
        self.environ = {"XDG_RUNTIME_DIR": runtime, "SONDE_DAEMON": f"unix:{runtime}/nobody"}

    def directories(self) -> list[str]:
        return os.listdir(self.runs) if self.runs.exists() else []

    def listed(self, pid: int) -> dict[int, dict[str, Any]]:
        """What the daemon of the command with this pid lists."""
        found = call(f"unix:{self.runs}/{pid}/rpc.sock", "process.list")["processes"]
        return {process["pid"]: process for process in found}


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="xdg") as runtime:
        yield Place(runtime)


def wait_for(true: Callable[[], object], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_process_asks_every_second_and_is_found_by_everyone_who_asks(
    training: Callable[..., Training], place: Place
) -> None:
    process = training(wrapper=RUN, environ=place.environ)
    pid = process.pid
    wait_for(lambda: pid in place.listed(pid))
    first = place.listed(pid)[pid]["polls"]
    begun = time.monotonic()
    wait_for(lambda: place.listed(pid)[pid]["polls"] == first + 1)
    mark = time.monotonic()
    wait_for(lambda: place.listed(pid)[pid]["polls"] == first + 4)
    period = (time.monotonic() - mark) / 3
    environ = {**os.environ, "XDG_RUNTIME_DIR": place.environ["XDG_RUNTIME_DIR"]}
    environ.pop("SONDE_DAEMON", None)
    said = subprocess.run([SONDE, "processes", "--json"], env=environ, capture_output=True, text=True, timeout=30)
    process.stop()

    assert pid == process.process.pid  # `sonde run` has become the command
    assert mark - begun < 2
    assert period == pytest.approx(1.0, abs=0.15)
    assert pid in {one["pid"] for one in json.loads(said.stdout)}, said.stderr
    wait_for(lambda: not place.directories())


def test_torchrun_and_its_ranks_end_at_once_and_leave_nothing(training: Callable[..., Training], place: Place) -> None:
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    job = training("--exit-after", "4", wrapper=RUN, launcher=torchrun, environ=place.environ, processes=2)
    wait_for(lambda: set(place.listed(job.process.pid)) >= set(job.pids))
    ended = job.wait_for("ended", 2)
    said = time.monotonic()
    code = job.process.wait(30)
    took = time.monotonic() - said

    assert code == 0, job.log.read_text()
    assert len({event["steps"] for event in ended}) == 1
    assert took < 8.0  # without a daemon to answer, each rank alone takes ten
    wait_for(lambda: not place.directories())


def test_under_a_daemon_of_the_node_no_other_is_started(
    training: Callable[..., Training], tracing_daemon: Callable[..., TracingDaemon], place: Place
) -> None:
    daemon = tracing_daemon()
    environ = {**place.environ, "SONDE_DAEMON": daemon.address}
    process = training("--exit-after", "3", wrapper=RUN, environ=environ)
    daemon.wait_for(lambda: process.process.pid in daemon.pids())
    during = place.directories()
    process.wait_for("ended")
    said = time.monotonic()
    code = process.process.wait(30)
    took = time.monotonic() - said

    assert (code, during) == (0, [])
    assert took < 5.0

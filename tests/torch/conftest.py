"""Real PyTorch processes and a daemon they register with, in a directory of their own: no abstract name, no fixed port.

`import torch` costs two seconds of CPU, so what is started here lasts as long as the module that asked for it, and
tests share it where they can.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import SONDE, RunningDaemon
from tests.lacking import lacking

from sonde.errors import SondeError
from sonde.rpc.client import call

PATIENCE = 60.0  # seconds until a training process must have made its first step; the machine may be busy
TRAIN = Path(__file__).with_name("train.py")


@pytest.fixture(scope="session")
def torch_python() -> str:
    """The Python that can import torch."""
    path = Path(sys.prefix) / "torch/bin/python"
    if not path.exists():
        lacking(f"{path} is not there; `make real-torch` installs PyTorch")
    return str(path)


class Ipc:
    """A private directory for the sockets of libkineto, and the environment that leads a process there."""

    def __init__(self, folder: Path, poll_seconds: int = 1) -> None:
        self.folder = folder
        self.folder.chmod(0o1777)  # a client binds its own socket in there, whoever it is
        self.config = folder / "libkineto.conf"
        self.config.write_text(f"ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS={poll_seconds}\n")

    @property
    def environ(self) -> dict[str, str]:
        return {
            "KINETO_USE_DAEMON": "1",
            "KINETO_CONFIG": str(self.config),
            "KINETO_IPC_SOCKET_DIR": str(self.folder),
        }


class TracingDaemon(RunningDaemon):
    """A daemon that PyTorch processes register with."""

    def __init__(self, process: subprocess.Popen[bytes], state: Path, ipc: Ipc) -> None:
        super().__init__(process, state)
        self.ipc = ipc

    @property
    def address(self) -> str:
        return f"unix:{self.state}/rpc.sock"

    def call(self, function: str, **arguments: Any) -> dict[str, Any]:
        return call(self.address, function, timeout=30.0, **arguments)

    def processes(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("process.list")["processes"]
        return found

    def pids(self) -> set[int]:
        return {process["pid"] for process in self.processes()}

    def stop(self) -> None:
        if self.process.poll() is None:
            self.end()


@pytest.fixture(scope="module")
def tracing_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., TracingDaemon]]:
    """Start a daemon with `--tracing` and further options; it has answered when this returns.

    `tracing` is more text of its section [tracing], `config` of its file; its processes poll every `poll_seconds`.
    With `state` and `ipc` of an earlier one it is that daemon, started again.
    """
    started: list[TracingDaemon] = []

    def start(
        *options: str,
        tracing: str = "",
        config: str = "",
        poll_seconds: int = 1,
        state: Path | None = None,
        ipc: Ipc | None = None,
    ) -> TracingDaemon:
        state = state or tmp_path_factory.mktemp("state")
        ipc = ipc or Ipc(tmp_path_factory.mktemp("ipc"), poll_seconds)
        (state / "sonde.toml").write_text(
            f'{config}\n[tracing]\nabstract = false\nsocket_dir = "{ipc.folder}"\n{tracing}\n'
        )
        command = [SONDE, "daemon", "--state", str(state), "--config", f"{state}/sonde.toml", "--tracing"]
        command += ["--collectors", "load", "--no-archive", "--log-file", f"{state}/log"]
        command += ["--rpc-address", "127.0.0.1:0", "--http-address", "", *options]
        running = TracingDaemon(subprocess.Popen(command, stdin=subprocess.DEVNULL), state, ipc)
        started.append(running)
        running.wait_for(lambda: _answers(running), PATIENCE)
        return running

    yield start
    for running in started:
        running.stop()


def _answers(running: TracingDaemon) -> bool:
    try:
        running.processes()
    except SondeError:
        return False
    return True


class Training:
    """A started tests/torch/train.py: its processes, and what they have said."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, count: int) -> None:
        self.process = process
        self.log = log
        self._count = count

    def events(self, name: str) -> list[dict[str, Any]]:
        """The lines of one kind, by rank."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return sorted((line for line in lines if line["event"] == name), key=lambda line: int(line["rank"]))

    @property
    def pids(self) -> list[int]:
        """Of the training processes, by rank."""
        return [event["pid"] for event in self.events("training") or self.events("resting")]

    @property
    def pid(self) -> int:
        return self.pids[0]

    def wait_for(self, name: str, count: int = 1, seconds: float = PATIENCE) -> list[dict[str, Any]]:
        until = time.monotonic() + seconds
        ended = False
        while len(found := self.events(name)) < count:
            assert not ended, f"it ended with {self.process.returncode}:\n{self.log.read_text()}"
            ended = self.process.poll() is not None  # then what it has said is complete at the next look
            assert time.monotonic() < until, f"no {name!r} within {seconds} s:\n{self.log.read_text()}"
            time.sleep(0.02)
        return found

    def wait_until_it_trains(self) -> None:
        self.wait_for("training", self._count)

    def wait_until_it_rests(self) -> None:
        self.wait_for("resting", self._count)

    def stop(self) -> None:
        """End all of them, by their ids; nothing happens when they have ended."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def training(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Training]]:
    """Start a training with options of train.py; every process of it has made a step when this returns, or rests.

    `ipc` is where they look for a daemon (`daemon.ipc`; None: nowhere); `wrapper` are words before the command,
    `launcher` words between Python and the script.
    """
    started: list[Training] = []

    def start(
        *options: str,
        ipc: Ipc | None = None,
        environ: Mapping[str, str] | None = None,
        wrapper: tuple[str, ...] = (),
        launcher: tuple[str, ...] = (),
        processes: int | None = None,
        **settings: Any,
    ) -> Training:
        log = tmp_path_factory.mktemp("training") / "log"
        told = ipc.environ if ipc else {}
        count = processes or _count(options)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*wrapper, torch_python, *launcher, str(TRAIN), *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**_quiet_environ(), **told, **(environ or {})},
                **settings,
            )
        running = Training(process, log, count)
        started.append(running)
        if "--rest" in options:
            running.wait_until_it_rests()
        else:
            running.wait_until_it_trains()
        return running

    yield start
    for running in started:
        running.stop()


def _quiet_environ() -> dict[str, str]:
    """Ours, without what would lead to another daemon or make a rank of it, and on one core."""
    foreign = ("KINETO_", "SLURM_", "RANK", "LOCAL_RANK", "WORLD_SIZE", "PMI_", "SONDE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**kept, "OMP_NUM_THREADS": "1"}


def _count(options: tuple[str, ...]) -> int:
    ranks = int(options[options.index("--ranks") + 1]) if "--ranks" in options else 1
    return ranks * (2 if "--spawn" in options else 1)

"""A real daemon, started as a user would, on free ports and in a directory of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import prometheus, promtool, victoria_metrics  # noqa: F401 - one fixture per program

SONDE = str(Path(sys.executable).with_name("sonde"))


class RunningDaemon:
    """A daemon process and the questions a test asks it."""

    def __init__(self, process: subprocess.Popen[bytes], state: Path) -> None:
        self.process = process
        self.state = state

    def sonde(self, *words: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "SONDE_DAEMON": f"unix:{self.state}/rpc.sock"}
        return subprocess.run([SONDE, *words], capture_output=True, text=True, timeout=30, env=environ, check=check)

    def status(self) -> dict[str, Any]:
        reply: dict[str, Any] = json.loads(self.sonde("status", "--json").stdout)
        return reply

    @property
    def metrics_url(self) -> str:
        return str(self.status()["addresses"]["metrics"])

    def page(self) -> str:
        with urllib.request.urlopen(self.metrics_url, timeout=10) as reply:
            return str(reply.read().decode())

    def log(self) -> str:
        try:
            return (self.state / "log").read_text()
        except FileNotFoundError:
            return ""  # being rotated, or not written yet

    def wait_for(self, true: Callable[[], object], seconds: float = 10.0) -> None:
        until = time.monotonic() + seconds
        while not true():
            assert self.process.poll() is None, f"the daemon ended with {self.process.returncode}: {self.log()}"
            assert time.monotonic() < until, f"not within {seconds} s; the log says:\n{self.log()}"
            time.sleep(0.05)

    def wait_for_log(self, words: str, seconds: float = 10.0) -> None:
        self.wait_for(lambda: words in self.log(), seconds)

    def end(self, number: int = signal.SIGTERM, timeout: float = 5.0) -> float:
        """Signal it; the seconds it took to end."""
        begun = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(timeout)
        return time.monotonic() - begun


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Callable[..., RunningDaemon]]:
    """Start a daemon with further options; `config` is the text of its file; it has answered when this returns."""
    started: list[RunningDaemon] = []

    def start(*options: str, config: str = "", wrapper: Sequence[str] = (), period: str = "200ms") -> RunningDaemon:
        state = tmp_path / f"state{len(started)}"
        state.mkdir(mode=0o777)
        state.chmod(0o777)
        (state / "sonde.toml").write_text(config)
        command = [*wrapper, SONDE, "daemon", "--state", str(state), "--period", period, "--log-file", f"{state}/log"]
        command += ["--rpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0", "--no-tracing", *options]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        running = RunningDaemon(process, state)
        started.append(running)
        until = time.monotonic() + 15
        while not ((state / "rpc.sock").exists() and running.sonde("status").returncode in (0, 1)):
            assert process.poll() is None, "the daemon ended at once"
            assert time.monotonic() < until
            time.sleep(0.05)
        return running

    yield start
    for running in started:
        if running.process.poll() is None:
            running.process.kill()
        running.process.wait()

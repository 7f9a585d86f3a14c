"""The real programs the integration tests talk to: one fixture each, named after the program."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 20.0  # seconds until a program must answer; the machine may be busy with other tests


def require(program: str, target: str = "real-programs") -> str:
    """The path of a program. Where it is not installed the test is skipped; under CI=true it fails."""
    path = shutil.which(program)
    if path is not None:
        return path
    message = f"{program} is not installed; `make {target}` installs it as root on Debian"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


class NodeExporter:
    """A running node_exporter."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.process = process
        self.url = url

    def scrape(self) -> str:
        with urllib.request.urlopen(self.url, timeout=PATIENCE) as reply:
            text: bytes = reply.read()
        return text.decode()


@pytest.fixture
def node_exporter(tmp_path: Path) -> Iterator[Callable[..., NodeExporter]]:
    """Start node_exporter with flags; it listens on a loopback port of the kernel's choice and ends with the test."""
    program = require("prometheus-node-exporter")
    started: list[subprocess.Popen[bytes]] = []

    def start(*flags: str) -> NodeExporter:
        log = tmp_path / f"node_exporter-{len(started)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [program, "--web.listen-address=127.0.0.1:0", "--web.disable-exporter-metrics", *flags],
                stdout=output,
                stderr=output,
            )
        started.append(process)
        address = logged(log, rb'msg="Listening on" address=([0-9.:]+)', process)
        return NodeExporter(process, f"http://{address}/metrics")

    yield start
    for process in started:
        process.terminate()
        process.wait(PATIENCE)


def logged(log: Path, pattern: bytes, process: subprocess.Popen[bytes]) -> str:
    """Wait until a program has logged a line, and give what the pattern's group matches."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        match = re.search(pattern + rb"\s", log.read_bytes())
        if match:
            return match[1].decode()
        if process.poll() is not None:
            break
        time.sleep(0.02)
    raise AssertionError(f"{process.args!r} did not log {pattern!r}:\n{log.read_text()}")


class Prometheus:
    """A running Prometheus."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.process = process
        self.url = url

    def ask(self, what: str, **parameters: str) -> Any:
        """The data of an answer of its API."""
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=PATIENCE) as reply:
            return json.load(reply)["data"]

    def query(self, expression: str) -> dict[str, float]:
        """The present value of each series, by its `__name__`; of one without a name by the expression."""
        result = self.ask("query", query=expression)["result"]
        return {item["metric"].get("__name__", expression): float(item["value"][1]) for item in result}

    def wait_for(self, expression: str) -> dict[str, float]:
        """Ask until there is an answer."""
        deadline = time.monotonic() + PATIENCE
        while not (found := self.query(expression)) and time.monotonic() < deadline:
            time.sleep(0.05)
        return found


def scraping(job: dict[str, Any]) -> dict[str, Any]:
    """A configuration that scrapes four times a second; VictoriaMetrics reads the same one."""
    return {
        "global": {"scrape_interval": "250ms", "scrape_timeout": "250ms"},
        "scrape_configs": [{"job_name": "sonde", **job}],
    }


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Callable[..., Prometheus]]:
    """Start Prometheus; it listens on a loopback port of the kernel's choice and ends with the test.

    `target` is one address to scrape; `discovery` is a scrape configuration's own way to find some.
    """
    program = require("prometheus")
    started: list[subprocess.Popen[bytes]] = []

    def start(target: str = "", path: str = "/metrics", discovery: dict[str, Any] | None = None) -> Prometheus:
        folder = tmp_path / f"prometheus-{len(started)}"
        folder.mkdir()
        found = discovery or {"static_configs": [{"targets": [target]}]}
        (folder / "prometheus.yml").write_text(json.dumps(scraping({"metrics_path": path, **found})))  # JSON is YAML
        with (folder / "log").open("wb") as output:
            process = subprocess.Popen(
                [
                    program,
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    "--web.listen-address=127.0.0.1:0",
                ],
                stdout=output,
                stderr=output,
            )
        started.append(process)
        address = logged(folder / "log", rb'msg="Listening on" address=([0-9.:]+)', process)
        logged(folder / "log", rb'msg="(Server is ready)', process)
        return Prometheus(process, f"http://{address}")

    yield start
    for process in started:
        process.terminate()
        process.wait(PATIENCE)


class VictoriaMetrics(Prometheus):
    """A VictoriaMetrics that can be stopped, and started again on the same port with the same data."""

    def __init__(self, command: list[str], url: str, log: Path) -> None:
        self._command = command
        self._log = log
        super().__init__(self._started(), url)
        self._wait_until_it_answers()

    def _started(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as output:
            return subprocess.Popen(self._command, stdout=output, stderr=output)

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=PATIENCE).close()
            except OSError:
                waiting = self.process.poll() is None and time.monotonic() < deadline
                assert waiting, self._log.read_text()
                time.sleep(0.05)
            else:
                return

    def start(self) -> None:
        self.process = self._started()
        self._wait_until_it_answers()

    def stop(self) -> None:
        """End it; nothing happens when it has ended already."""
        self.process.terminate()
        self.process.wait(PATIENCE)


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody had a moment ago, for programs that cannot tell which one the kernel gave them."""
    with socket.create_server((host, 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def victoria_metrics(tmp_path: Path) -> Iterator[Callable[..., VictoriaMetrics]]:
    """Start VictoriaMetrics, with a target to scrape or without one."""
    program = require("victoria-metrics")
    started: list[VictoriaMetrics] = []

    def start(target: str = "", *flags: str) -> VictoriaMetrics:
        folder = tmp_path / f"victoria-metrics-{len(started)}"
        folder.mkdir()
        address = f"127.0.0.1:{free_port()}"
        command = [program, f"-httpListenAddr={address}", f"-storageDataPath={folder / 'data'}", "-retentionPeriod=1"]
        # Without these, points of the last 30 s are hidden from it and answers come from a cache.
        command += ["-search.latencyOffset=0s", "-search.disableCache", "-loggerLevel=ERROR", *flags]
        if target:
            job = {"static_configs": [{"targets": [target]}]}
            (folder / "scrape.yml").write_text(json.dumps(scraping(job)))
            command.append(f"-promscrape.config={folder / 'scrape.yml'}")
        started.append(VictoriaMetrics(command, f"http://{address}", folder / "log"))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def promtool() -> Callable[[str], list[str]]:
    """What `promtool check metrics` has to say about a page; nothing about a good one."""
    program = require("promtool")

    def check(page: str) -> list[str]:
        done = subprocess.run([program, "check", "metrics"], input=page.encode(), capture_output=True, timeout=PATIENCE)
        said = (done.stdout + done.stderr).decode().splitlines()
        assert (done.returncode == 0) == (not said)
        return said

    return check

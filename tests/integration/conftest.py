"""The real programs the integration tests talk to: one fixture each, named after the program."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.lacking import lacking

PATIENCE = 20.0  # seconds until a program must answer; the machine may be busy with other tests


def require(program: str, target: str = "real-programs") -> str:
    """The path of a program. Where it is not installed the test is skipped; under CI=true it fails."""
    path = shutil.which(program)
    if path is None:
        lacking(f"{program} is not installed; `make {target}` installs it as root on Debian")
    return path


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


Samples = dict[frozenset[tuple[str, str]], list[tuple[int, float]]]  # by labels: times in ms and values


class Prometheus:
    """A running Prometheus."""

    tls: ssl.SSLContext | None = None  # for https

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.process = process
        self.url = url

    def ask(self, what: str, **parameters: str) -> Any:
        """The data of an answer of its API."""
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=PATIENCE, context=self.tls) as reply:
            return json.load(reply)["data"]

    def query(self, expression: str) -> dict[str, float]:
        """The present value of each series, by its `__name__`; of one without a name by the expression."""
        result = self.ask("query", query=expression)["result"]
        return {item["metric"].get("__name__", expression): float(item["value"][1]) for item in result}

    def samples(self, selector: str) -> Samples:
        """Everything that is stored of the last ten minutes, with the times it was stored under."""
        result = self.ask("query", query=f"{selector}[10m]")["result"]
        return {
            frozenset(item["metric"].items()): [(round(at * 1000), float(value)) for at, value in item["values"]]
            for item in result
        }

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
    `web` is the configuration of its server: TLS and users. `data` is a directory that has blocks already.
    """
    program = require("prometheus")
    started: list[subprocess.Popen[bytes]] = []

    def start(
        target: str = "",
        path: str = "/metrics",
        discovery: dict[str, Any] | None = None,
        flags: Sequence[str] = (),
        web: dict[str, Any] | None = None,
        data: Path | None = None,
    ) -> Prometheus:
        folder = tmp_path / f"prometheus-{len(started)}"
        folder.mkdir()
        found = discovery or {"static_configs": [{"targets": [target] if target else []}]}
        (folder / "prometheus.yml").write_text(json.dumps(scraping({"metrics_path": path, **found})))  # JSON is YAML
        (folder / "web.yml").write_text(json.dumps(web or {}))
        with (folder / "log").open("wb") as output:
            process = subprocess.Popen(
                [
                    program,
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={data or folder / 'data'}",
                    f"--web.config.file={folder / 'web.yml'}",
                    "--web.listen-address=127.0.0.1:0",
                    *flags,
                ],
                stdout=output,
                stderr=output,
            )
        started.append(process)
        address = logged(folder / "log", rb'msg="Listening on" address=([0-9.:]+)', process)
        logged(folder / "log", rb'msg="(Server is ready)', process)
        return Prometheus(process, f"{'https' if web else 'http'}://{address}")

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

    def samples(self, selector: str) -> Samples:
        """Everything that is stored: a query would round its time down to the second."""
        urllib.request.urlopen(f"{self.url}/internal/force_flush", timeout=PATIENCE).close()
        until = str(int(time.time()) + 10)
        url = f"{self.url}/api/v1/export?{urllib.parse.urlencode({'match[]': selector, 'end': until})}"
        found: Samples = {}
        with urllib.request.urlopen(url, timeout=PATIENCE) as reply:
            for line in reply:
                item = json.loads(re.sub(rb"(?<=[\[,])[+]?(-?Inf)(?=[\],])", rb"\1inity", line))
                pairs = zip(item["timestamps"], item["values"], strict=True)
                values = [(ms, float(value)) for ms, value in pairs if value is not None]  # null: the end
                found.setdefault(frozenset(item["metric"].items()), []).extend(values)
        return found

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


class Slurm:
    """A running Slurm cluster whose nodes n1, n2, … are slurmd processes of this machine, each on a port of its own."""

    def __init__(self, folder: Path, nodes: int, proctrack: str) -> None:
        self.folder = folder
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self.environ = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._configure(proctrack)

    def _configure(self, proctrack: str) -> None:
        folder = self.folder
        for name in ("munge", "state", "log", *[f"spool.{node}" for node in self.nodes]):
            (folder / name).mkdir()
        # A user's job must reach the socket of munged, and only munged its key.
        (folder / "munge").chmod(0o711)
        (folder / "munge/key").touch(mode=0o600)
        (folder / "munge/key").write_bytes(os.urandom(128))
        host, count = os.uname().nodename, len(self.nodes)
        lines = [
            "ClusterName=test",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={free_port()}",
            "SlurmUser=root",
            "SlurmdUser=root",
            "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny",  # else both listen on every interface
            "AuthType=auth/munge",
            f"AuthInfo=socket={folder}/munge/sock",
            "CredType=cred/munge",
            f"StateSaveLocation={folder}/state",
            f"SlurmdSpoolDir={folder}/spool.%n",
            f"SlurmctldPidFile={folder}/slurmctld.pid",
            f"SlurmdPidFile={folder}/slurmd.%n.pid",
            f"SlurmctldLogFile={folder}/log/slurmctld",
            f"SlurmdLogFile={folder}/log/slurmd.%n",
            f"ProctrackType=proctrack/{proctrack}",
            f"TaskPlugin={'task/cgroup' if proctrack == 'cgroup' else 'task/none'}",
            f"JobAcctGatherType=jobacct_gather/{'cgroup' if proctrack == 'cgroup' else 'linux'}",
            "MpiDefault=none",
            "SwitchType=switch/none",
            "ReturnToService=2",
            "SlurmdParameters=config_overrides",  # the nodes have what is said here, not what the machine has
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core",
            "SchedulerType=sched/builtin",
            f"FirstJobId={1000 + os.getpid() * 100 % 60_000_000}",  # not that of another cluster on this machine
        ]
        for number, node in enumerate(self.nodes, 1):
            lines.append(
                f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=8 Sockets=1"
                f" CoresPerSocket=8 ThreadsPerCore=1 RealMemory=4000 Feature=rack{(number + 1) // 2},cpu State=UNKNOWN"
            )
        lines.append(f"PartitionName=main Nodes=n[1-{count}] Default=YES MaxTime=INFINITE State=UP")
        lines.append("PartitionName=debug Nodes=n1 MaxTime=INFINITE State=UP")
        (folder / "slurm.conf").write_text("\n".join(lines) + "\n")
        cgroups = ["CgroupPlugin=cgroup/v1", "CgroupMountpoint=/sys/fs/cgroup", "CgroupAutomount=no"]
        (folder / "cgroup.conf").write_text("\n".join(cgroups) + "\n")

    def start(self) -> None:
        """munged, the controller, a slurmd per node; returns when all nodes are idle."""
        munge = self.folder / "munge"
        files = [f"--{name}-file={munge / name}" for name in ("key", "pid", "log", "seed")]
        self._start("munged", [require("munged"), "--foreground", "--force", f"--socket={munge / 'sock'}", *files])
        self._start("slurmctld", [require("slurmctld"), "-c", "-D"])
        for node in self.nodes:
            self.start_node(node)
        self.wait_until_idle()

    def _start(self, name: str, command: list[str]) -> None:
        with (self.folder / "log" / f"{name}.out").open("ab") as output:
            self._processes[name] = subprocess.Popen(command, stdout=output, stderr=output, env=self.environ)

    def start_node(self, node: str) -> None:
        self._start(node, [require("slurmd"), "-D", "-N", node])

    def run(self, *command: str, check: bool = True) -> str:
        """What a client program prints: srun, sinfo, scontrol."""
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=PATIENCE)
        assert not check or done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def wait_until_idle(self) -> None:
        """Until all nodes are up and no job runs."""
        everyone = str(len(self.nodes))
        self.wait_for(lambda: self.run("sinfo", "-h", "-t", "idle", "-o", "%D", check=False).strip() == everyone)

    def wait_for(self, true: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < deadline, self._logs()
            time.sleep(0.1)

    def _logs(self) -> str:
        return "\n".join(f"{path}:\n{path.read_text()[-2000:]}" for path in sorted((self.folder / "log").iterdir()))

    def stop(self) -> None:
        """Jobs first: their slurmstepd outlive slurmd and ignore SIGTERM."""
        self.run("scancel", "--user=root", check=False)
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(scope="session")
def slurm() -> Iterator[Callable[..., Slurm]]:
    """Clusters of the session: asked for again, the same one is given. Who changes a node's state puts it back."""
    for program in ("munged", "slurmctld", "slurmd"):
        require(program)
    if os.geteuid():
        lacking("a Slurm cluster of the tests is started by root")
    started: dict[tuple[int, str], Slurm] = {}

    def cluster(nodes: int = 3, proctrack: str = "linuxproc") -> Slurm:
        if (nodes, proctrack) not in started:
            folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # pytest's own are closed to others
            folder.chmod(0o711)  # a user's job reaches its script and the socket of munged below
            started[nodes, proctrack] = Slurm(folder, nodes, proctrack)
            started[nodes, proctrack].start()
        return started[nodes, proctrack]

    yield cluster
    for running in started.values():
        running.stop()
        shutil.rmtree(running.folder, ignore_errors=True)

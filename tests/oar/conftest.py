"""A real OAR: one node with two cores, in namespaces of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import daemon  # noqa: F401 - one fixture per program for the whole project
from tests.integration.conftest import require
from tests.lacking import lacking

CLUSTER = Path(__file__).with_name("cluster")
SOURCE = Path(__file__).parents[2] / "src"
START = 120.0  # seconds for a database, sshd and OAR on a busy machine
SUBMIT = 90.0  # seconds from oarsub to the job's first line; 12 on an idle machine
CGROUPS = Path("/sys/fs/cgroup")


class Cluster:
    """The running cluster; `run` runs a program in its namespaces, as root."""

    def __init__(self, process: subprocess.Popen[bytes], directory: Path) -> None:
        self.process = process
        self.directory = directory
        self.inside: list[str] = []

    def wait(self) -> None:
        deadline = time.monotonic() + START
        while not (self.directory / "ready").exists():
            assert self.process.poll() is None, f"it ended:\n{self.log()}"
            assert time.monotonic() < deadline, f"not within {START} s:\n{self.log()}"
            time.sleep(0.1)
        first = next(pid for pid in _pids() if _parent(pid) == self.process.pid)
        self.inside = ["nsenter", "--target", str(first), "--mount", "--net", "--uts", "--ipc", "--pid"]

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def run(self, *argv: str) -> str:
        done = subprocess.run([*self.inside, *argv], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done.stdout

    def python(self, code: str) -> Any:
        """What the code, run beside the cluster with sonde, has put into `result`, by way of JSON."""
        path = f"PYTHONPATH={SOURCE}"
        return json.loads(
            self.run("env", path, sys.executable, "-c", f"{code}\nimport json\nprint(json.dumps(result))")
        )

    def submit(self, script: str, options: str) -> str:
        """Submit a script as the user ada; the id, once it has said `ready`."""
        self.run("sh", "-c", f"cat >/home/ada/job.sh <<'END'\n{script}\nEND\nchmod 755 /home/ada/job.sh")
        said = self.run("su", "-", "ada", "-c", f"rm -f ready; oarsub {options} ./job.sh")
        job = said.rpartition("OAR_JOB_ID=")[2].strip()
        deadline = time.monotonic() + SUBMIT
        while not self.run("sh", "-c", "ls /home/ada").count("ready"):
            assert time.monotonic() < deadline, self.run("sh", "-c", f"oarstat -f -j {job}; tail -50 /var/log/oar.log")
            time.sleep(0.2)
        return job


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _remove_cgroups() -> None:
    """Those of OAR: empty once the cluster has ended, unless a real OAR runs here."""
    deadline = time.monotonic() + 20
    for directory in CGROUPS.glob("*/oar"):
        for path in (*directory.glob("*/"), directory):
            while path.exists():
                try:
                    path.rmdir()
                except OSError:
                    assert time.monotonic() < deadline, f"{path} is still in use"
                    time.sleep(0.05)


@pytest.fixture(scope="module")
def oar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    for program in ("oarsub", "oarstat", "oar-server", "sshd", "unshare", "nsenter"):
        require(program, "real-oar")
    if os.geteuid() != 0:
        lacking("only root can make namespaces with other users in them")
    if not (CGROUPS / "cpuset/tasks").exists():
        lacking("OAR 2.5 needs cgroup v1")
    if any(directory.glob("*_*") for directory in CGROUPS.glob("cpuset/oar")):
        lacking("jobs of another OAR run on this host")
    directory = tmp_path_factory.mktemp("oar")
    directory.parent.chmod(0o755)  # OAR and its user read their scripts from there
    # All of it is killed with unshare, and unshare with us.
    process = subprocess.Popen(
        [
            *("setpriv", "--pdeathsig", "KILL"),
            *("unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"),
            *("sh", str(CLUSTER), str(directory)),
        ]
    )
    try:
        cluster = Cluster(process, directory)
        cluster.wait()
        yield cluster
    finally:
        process.kill()
        process.wait()
        _remove_cgroups()

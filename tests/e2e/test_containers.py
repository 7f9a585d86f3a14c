"""A daemon in a container: own mount, pid and cgroup namespaces, the host's /proc and /sys below another root.

The pods are real cgroups with the kubelet's paths, in every v1 hierarchy and in v2's, and the processes are real;
nothing but a kubelet is missing. From within, processes have other ids and cgroups other paths than the host knows.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.e2e.conftest import RunningDaemon
from tests.integration.conftest import prometheus  # noqa: F401 - one fixture per program for the whole project
from tests.lacking import lacking

from sonde.hostfs import HostFS
from sonde.schedulers.cgroupfs import mounts

GUIDE = Path(__file__).parents[2] / "docs/how-to/containers.md"
PATIENCE = 20.0  # seconds
TICK = 1 / os.sysconf("SC_CLK_TCK")
WORKER = """
import os, sys, time
if os.fork() == 0:
    begun = time.process_time()
    while time.process_time() - begun < 0.3: pass
    os._exit(0)
os.wait()
print("done", flush=True)
time.sleep(120)
"""
# As a container runtime does: the host's trees in a root of their own, then a /proc of the new pid namespace.
ENTER = """
set -e
host=$1; shift
mount -t tmpfs tmpfs "$host"
mkdir -p "$host/proc" "$host/sys" "$host/var/log"
mount --rbind /proc "$host/proc"
mount --rbind /sys "$host/sys"
mount --bind "$host/../logs" "$host/var/log"
mount -t proc proc /proc
exec "$@"
"""
JOIN = 'for point in $1; do echo $$ >"$point/cgroup.procs"; done; shift; exec "$@"'


class Cgroups:
    """Directories below every hierarchy that can be written, removed with their parents if nobody else uses those."""

    def __init__(self) -> None:
        found = mounts(HostFS())
        names = [name for name in ("", "cpuacct", "cpu", "memory", "blkio", "pids", "freezer") if name in found]
        self.points: dict[str, Path] = {name: Path("/", found[name].point) for name in names}
        self._made: list[str] = []

    def make(self, path: str) -> list[Path]:
        self._made.append(path)
        for point in self.points.values():
            (point / path).mkdir(parents=True)
        return [point / path for point in self.points.values()]

    def read(self, controller: str, path: str, file: str) -> str:
        return (self.points[controller] / path / file).read_text()

    def remove(self) -> None:
        deadline = time.monotonic() + PATIENCE
        for path in self._made:
            for point in self.points.values():
                while (point / path).exists():
                    try:
                        (point / path).rmdir()
                    except OSError:
                        assert time.monotonic() < deadline, f"{point / path} is still in use"
                        time.sleep(0.05)
                for parent in Path(path).parents[:-1]:
                    try:
                        (point / parent).rmdir()
                    except OSError:
                        break  # another test's, or a real kubelet's


class Worker(NamedTuple):
    pid: int
    container: str
    pod: str
    cgroup: str


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    made = Cgroups()
    probe = f"sonde-{secrets.token_hex(4)}"
    try:
        if not {"cpuacct", "memory", ""} <= made.points.keys():
            raise PermissionError("this host lacks cpuacct and memory of cgroup v1, or v2")
        made.make(probe)
    except OSError as error:
        if os.environ.get("CI") == "true" and os.geteuid() == 0 and "cpuacct" in made.points:
            pytest.fail(f"cgroups cannot be made: {error}")
        lacking(f"needs root and cgroup v1 and v2: {error}")
    finally:
        made.remove()
    yield made
    made.remove()


@pytest.fixture
def spawn(cgroups: Cgroups) -> Iterator[Callable[..., Worker]]:
    """Start a worker in a container of a pod; it has burnt its CPU time when this returns."""
    started: list[subprocess.Popen[bytes]] = []

    def start(pod: str, qos: str, **environ: str) -> Worker:
        container = secrets.token_hex(32)
        dashed = pod.replace("-", "_")
        folder = (
            f"kubepods.slice/kubepods-{qos}.slice/kubepods-{qos}-pod{dashed}.slice/cri-containerd-{container}.scope"
        )
        directories = cgroups.make(folder)

        def enter() -> None:
            for directory in directories:
                (directory / "cgroup.procs").write_text(str(os.getpid()))

        process = subprocess.Popen(
            [sys.executable, "-c", WORKER],
            env={"PATH": os.environ["PATH"], "KUBERNETES_SERVICE_HOST": "10.96.0.1", **environ},
            stdout=subprocess.PIPE,
            preexec_fn=enter,  # noqa: PLW1509 (it only writes to files)
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        return Worker(process.pid, container, pod, folder)

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def contained(
    daemon: Callable[..., RunningDaemon], cgroups: Cgroups, tmp_path: Path
) -> Iterator[Callable[..., RunningDaemon]]:
    """Start a daemon inside namespaces of its own, itself in a pod if asked to."""
    if shutil.which("unshare") is None:
        lacking("util-linux' unshare is not installed")
    host, logs = tmp_path / "host", tmp_path / "logs"
    host.mkdir()
    for name in ("pods", "containers"):
        (logs / name).mkdir(parents=True)
    running: list[RunningDaemon] = []

    def start(*, own_cgroups: bool) -> RunningDaemon:
        enter = ["sh", "-c", ENTER, "sh", str(host)]
        wrapper = ["unshare", "--mount", "--pid", "--fork", "--kill-child", *enter]
        if own_cgroups:
            pod = str(uuid.uuid4()).replace("-", "_")
            folder = f"kubepods.slice/kubepods-pod{pod}.slice/cri-containerd-{secrets.token_hex(32)}.scope"
            points = " ".join(map(str, cgroups.make(folder)))
            wrapper = ["sh", "-c", JOIN, "sh", points, wrapper[0], "--cgroup", *wrapper[1:]]
        config = f'[daemon]\nroot = "{host}"\n[collectors.container]\nper_process = true\nscan = "1s"\n'
        config += '[collectors.job]\nscan = "1s"\n'
        running.append(daemon("--collectors", "job,container", config=config, wrapper=wrapper))
        return running[-1]

    yield start
    for one in running:  # before its cgroups are removed
        one.process.kill()
        one.process.wait()


Labels = dict[str, str]


def series(page: str, name: str) -> list[tuple[Labels, float]]:
    rows = re.findall(rf"^{name}\{{(.*)\}} (\S+)", page, re.MULTILINE)
    return [(dict(re.findall(r'(\w+)="(.*?)"', labels)), float(value)) for labels, value in rows]


def settled(daemon: RunningDaemon, workers: list[Worker]) -> str:
    """A page on which every worker's process is."""
    page = ""

    def has_all() -> bool:
        nonlocal page
        page = daemon.page()
        pids = {labels["pid"] for labels, _ in series(page, "sonde_container_process_info")}
        return {str(worker.pid) for worker in workers} <= pids and bool(series(page, "sonde_job_info"))

    daemon.wait_for(has_all, PATIENCE)
    return page


@pytest.mark.parametrize("own_cgroups", [False, True], ids=["cgroups of the host", "cgroup namespace of its own"])
def test_process_container_pod_and_job_join_from_within_a_container(
    contained: Callable[..., RunningDaemon],
    spawn: Callable[..., Worker],
    cgroups: Cgroups,
    tmp_path: Path,
    own_cgroups: bool,
) -> None:
    one, two, other = (str(uuid.uuid4()) for _ in range(3))
    job = f"train-{secrets.token_hex(4)}"
    told = {"JOB_NAME": job, "POD_NAMESPACE": "ml", "WORLD_SIZE": "2"}
    first = spawn(one, "burstable", **told, POD_NAME=f"{job}-0", RANK="0")
    sidecar = spawn(one, "burstable", HOSTNAME=f"{job}-0")
    second = spawn(two, "burstable", **told, POD_NAME=f"{job}-1", RANK="1")
    proxy = spawn(other, "besteffort")
    workers = [first, sidecar, second, proxy]

    (tmp_path / "logs/pods" / f"kube-system_proxy-x1_{other}").mkdir()
    (tmp_path / "logs/containers" / f"proxy-x1_kube-system_proxy-{proxy.container}.log").touch()
    page = settled(contained(own_cgroups=own_cgroups), workers)

    pid_to_container = {
        labels["pid"]: labels["container_id"] for labels, _ in series(page, "sonde_container_process_info")
    }
    container = {labels["container_id"]: labels for labels, _ in series(page, "sonde_container_info")}
    pod_to_job = {labels["pod_uid"]: labels["job_id"] for labels, _ in series(page, "sonde_job_pod_info")}
    assert {worker.pid: pid_to_container[str(worker.pid)] for worker in workers} == {
        worker.pid: worker.container for worker in workers
    }
    assert [container[worker.container]["pod_uid"] for worker in workers] == [one, one, two, other]
    assert [pod_to_job[worker.pod] for worker in workers[:3]] == [job, job, job]
    assert [container[first.container][name] for name in ("namespace", "pod")] == ["ml", f"{job}-0"]
    named = [container[proxy.container][name] for name in ("namespace", "pod", "container")]
    assert named == ["kube-system", "proxy-x1", "proxy"]
    assert pod_to_job[other] == "proxy-x1"
    assert {container[worker.container]["qos"] for worker in workers[:3]} == {"burstable"}
    info = {labels["job_id"]: labels for labels, _ in series(page, "sonde_job_info")}
    assert (info[job]["scheduler"], info[job]["account"]) == ("kubernetes", "ml")
    ranks = {
        labels["rank"]: labels["pid"]
        for labels, _ in series(page, "sonde_job_rank_info")
        if labels["job_id"] == job  # others may run on this host
    }
    assert (ranks["0"], ranks["1"]) == (str(first.pid), str(second.pid))

    # The workers sleep: what their cgroups have is what we must say, to the nanosecond.
    usage = {labels["container_id"]: value for labels, value in series(page, "sonde_container_cpu_usage_seconds_total")}
    for worker in workers:
        assert usage[worker.container] == int(cgroups.read("cpuacct", worker.cgroup, "cpuacct.usage")) / 1e9 > 0.3
    rows = series(page, "sonde_job_cpu_seconds_total")
    mine = sum(value for labels, value in rows if labels["job_id"] == job)
    pods = {str(Path(worker.cgroup).parent) for worker in workers[:3]}
    stats = [cgroups.read("cpuacct", pod, "cpuacct.stat").split() for pod in pods]
    assert mine == pytest.approx(sum(int(stat[1]) + int(stat[3]) for stat in stats) * TICK)
    assert mine > 0.9 - 4 * TICK


def test_the_recipes_of_the_guide_give_answers(
    contained: Callable[..., RunningDaemon],
    spawn: Callable[..., Worker],
    cgroups: Cgroups,
    prometheus: Callable[..., Any],  # noqa: F811
) -> None:
    job = f"train-{secrets.token_hex(4)}"
    told = {"JOB_NAME": job, "POD_NAMESPACE": "ml", "POD_NAME": f"{job}-0", "CONTAINER_NAME": "main", "RANK": "0"}
    worker = spawn(str(uuid.uuid4()), "burstable", **told)
    (cgroups.points["memory"] / worker.cgroup / "memory.limit_in_bytes").write_text(str(256 << 20))
    running = contained(own_cgroups=False)
    settled(running, [worker])
    server = prometheus(running.metrics_url.removeprefix("http://").removesuffix("/metrics"))
    recipes = re.findall(r"```promql\n(.*?)```", GUIDE.read_text(), re.DOTALL)

    assert len(recipes) >= 4
    for recipe in recipes:
        assert server.wait_for(recipe), recipe

"""`sonde trace --job` over a real Slurm of two nodes and mutual TLS, with processes that only speak as PyTorch does.

tests/torch/test_cluster.py does it with PyTorch itself, on four.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.authority import USAGE, openssl
from tests.cluster import SHARED, Cluster, root_only

TRACED = Path(__file__).with_name("traced.py")


class Running(NamedTuple):
    cluster: Cluster
    job: str


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Two nodes, a process of one job on each."""
    root_only()
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), 2)
    try:
        cluster.start()
        cluster.certify("root", "nobody", "eve")
        cluster.start_daemons()
        job = cluster.submit(f"exec srun {sys.executable} {TRACED} '' 0\n", "-N2", "--ntasks-per-node=1")
        cluster.wait_for(lambda: all(cluster.registered(name) == 1 for name in cluster.names))
        yield Running(cluster, job)
    finally:
        cluster.stop()


def trace(running: Running, *words: str, job: str = "", certs: str = "") -> subprocess.CompletedProcess[str]:
    given = ("--certs-dir", certs or running.cluster.certificates("root"))
    return running.cluster.sonde("trace", "--job", job or running.job, *given, "--duration", "100ms", *words)


def manifest(running: Running, output: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((running.cluster.folder / output / "manifest.json").read_text())
    return found


def test_all_nodes_of_a_job_are_found_by_its_id_and_their_files_are_gathered(running: Running) -> None:
    told = trace(running, "--output", f"{SHARED}/all")

    assert told.returncode == 0, told.stderr
    assert f"2 processes on 2 hosts, ranks 0-1, job {running.job}" in told.stderr
    found = manifest(running, "all")
    assert [host["address"] for host in found["hosts"]] == ["n1:1778", "n2:1778"]
    # A request that waits for a delayed acknowledgement, 40 ms, would leave 20 of them in doubt.
    assert all(0 < host["clock"]["bound_ns"] < 15_000_000 for host in found["hosts"])
    assert [(row["rank"], row["host"], row["ok"]) for row in found["ranks"]] == [(0, "n1", True), (1, "n2", True)]
    for row in found["ranks"]:
        assert (running.cluster.folder / "all" / row["file"]).exists()
        # It was never in a directory that this machine, or another node, could see.
        assert not Path(row["path"]).exists()


def test_a_task_of_an_array_is_its_own_job(running: Running) -> None:
    cluster = running.cluster
    array = cluster.submit(f"exec {sys.executable} {TRACED} '' 0\n", "--array=4", "-N1", "--nodelist=n2")
    cluster.wait_for(lambda: cluster.registered("n2") == 2)
    told = trace(running, "--output", f"{SHARED}/array", job=f"{array}_4")
    cluster.login_run("scancel", array)
    cluster.wait_for(lambda: cluster.registered("n2") == 1)

    assert told.returncode == 0, told.stderr
    assert f"1 process on 1 host, job {array}_4" in told.stderr
    assert [host["address"] for host in manifest(running, "array")["hosts"]] == ["n2:1778"]


def test_a_user_may_not_have_the_processes_of_another_traced(running: Running) -> None:
    told = trace(running, certs=running.cluster.certificates("nobody"))

    assert told.returncode == 3
    assert "belongs to root, and only root may trace it" in told.stderr
    assert "all that was found belongs to root" in told.stderr


def test_without_a_certificate_nothing_is_to_be_had(running: Running) -> None:
    told = running.cluster.sonde("trace", "--job", running.job)

    assert told.returncode == 3
    assert "n1: this address speaks TLS only, and wants a certificate" in told.stderr
    assert "n2: this address speaks TLS only, and wants a certificate" in told.stderr


def test_a_revoked_certificate_is_refused_by_all_nodes(running: Running) -> None:
    cluster = running.cluster
    authority = cluster.folder / "authority"
    shutil.copytree(authority / "clients/eve", cluster.folder / "eve")  # she does not see the new list
    revoked = cluster.sonde("certs", "revoke", "eve", "--dir", f"{SHARED}/authority")
    for name in cluster.names:
        cluster.nodes[name].end("sonde", "HUP")
    logs = [cluster.folder / f"log/sonde.{name}" for name in cluster.names]
    cluster.wait_for(lambda: all("the certificates are read again" in log.read_text() for log in logs))
    told = trace(running, certs=f"{SHARED}/eve")

    assert revoked.returncode == 0, revoked.stderr
    assert told.returncode == 3
    assert "n1: n1:1778 refuses our certificate: it is revoked" in told.stderr
    assert "n2: n2:1778 refuses our certificate: it is revoked" in told.stderr


def test_an_expired_certificate_is_refused_before_it_is_shown(running: Running) -> None:
    authority = running.cluster.folder / "authority"
    old = authority / "clients/old"
    shutil.copytree(authority / "clients/root", old)
    request, extensions = str(old / "request"), old / "extensions"
    extensions.write_text(USAGE)
    openssl("req", "-new", "-key", str(old / "client.key"), "-subj", "/CN=root", "-out", request)
    signing = ["-CA", str(authority / "ca.crt"), "-CAkey", str(authority / "ca.key"), "-days", "-1"]
    files = ["-extfile", str(extensions), "-out", str(old / "client.crt")]
    openssl("x509", "-req", "-in", request, *signing, "-CAcreateserial", *files)
    told = trace(running, certs=running.cluster.certificates("old"))

    assert told.returncode == 2
    assert "expired" in told.stderr


def test_a_node_without_its_daemon_is_named_and_the_others_are_traced(running: Running) -> None:
    cluster = running.cluster
    cluster.nodes["n2"].end("sonde")
    socket = Path(f"/proc/{cluster.nodes['n2'].pid}/root/tmp/sonde/rpc.sock")
    cluster.wait_for(lambda: not socket.exists())
    told = trace(running, "--output", f"{SHARED}/one")

    assert told.returncode == 1
    assert "n2: nothing answers on n2:1778: Connection refused" in told.stderr
    assert "rank 1: no process found on the hosts that answer" in told.stderr
    assert f"1 of 2 in {SHARED}/one" in told.stdout

"""`sonde targets` between a real Slurm cluster and a real Prometheus."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.conftest import PATIENCE, free_port, logged

from sonde.http import Response, Server

if TYPE_CHECKING:
    from tests.conftest import RunningLoop
    from tests.integration.conftest import Prometheus, Slurm

SONDE = [sys.executable, "-m", "sonde", "targets", "slurm"]


@pytest.fixture
def page(loop: RunningLoop) -> Iterator[int]:
    """The port of something to scrape, in place of the nodes' daemons: they all have the address 127.0.0.1 here."""
    server = Server(loop, {"/metrics": lambda _: Response(200, b"answered 1\n")})
    yield loop.call(lambda: server.listen("127.0.0.1:0")).port
    loop.call(server.close)


@pytest.fixture
def drained(slurm: Callable[..., Slurm]) -> Iterator[Slurm]:
    """A cluster whose n2 is drained and whose n3 is down."""
    cluster = slurm()
    for name, state in (("n2", "drain"), ("n3", "down")):
        cluster.run("scontrol", "update", f"nodename={name}", f"state={state}", "reason=test")
    yield cluster
    for name in ("n2", "n3"):
        cluster.run("scontrol", "update", f"nodename={name}", "state=resume")
    cluster.wait_until_idle()


def targets(cluster: Slurm, *words: str) -> list[dict[str, Any]]:
    ended = subprocess.run([*SONDE, *words], env=cluster.environ, capture_output=True, text=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stderr) == (0, "")
    found: list[dict[str, Any]] = json.loads(ended.stdout)
    return found


def test_the_nodes_of_a_real_cluster(drained: Slurm) -> None:
    found = targets(drained, "--extract", "rack=^rack.*")

    assert [group["targets"] for group in found] == [["127.0.0.1:1779"]] * 3
    labels = [group["labels"] for group in found]
    assert [each["node"] for each in labels] == ["n1", "n2", "n3"]
    assert [each["rack"] for each in labels] == ["rack1", "rack1", "rack2"]
    assert sorted(labels[0]["partition"].split(",")) == ["debug", "main"]
    assert [each["__meta_sonde_state"] for each in labels] == ["idle", "idle+drain", "down"]
    assert [group["labels"]["node"] for group in targets(drained, "--state", "up")] == ["n1", "n2"]


def test_jobs_run_on_the_nodes_of_the_fixture(slurm: Callable[..., Slurm]) -> None:
    cluster = slurm()

    printed = cluster.run("srun", "--nodes=3", "printenv", "SLURMD_NODENAME")

    assert sorted(printed.split()) == cluster.nodes


def test_a_controller_that_is_away_is_told(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(
        f"ClusterName=x\nSlurmctldHost=x(127.0.0.1)\nSlurmctldPort={free_port()}\nMessageTimeout=2\nTCPTimeout=1\n"
    )
    environ = {**os.environ, "SLURM_CONF": str(tmp_path / "slurm.conf")}
    ended = subprocess.run(SONDE, env=environ, capture_output=True, text=True, timeout=60)

    assert (ended.returncode, ended.stdout) == (1, "")
    assert "scontrol ended with status 1" in ended.stderr


def test_prometheus_finds_the_nodes_by_file_and_by_http(
    slurm: Callable[..., Slurm], prometheus: Callable[..., Prometheus], page: int, tmp_path: Path
) -> None:
    cluster = slurm()
    path, log = tmp_path / "targets.json", tmp_path / "served"
    words = [*SONDE, "--port", str(page), "--state", "up", "--watch", "200ms"]
    with log.open("wb") as output:
        served = subprocess.Popen(
            [*words, "--serve", "127.0.0.1:0", "--label", "by=http"], env=cluster.environ, stderr=output
        )
        written = subprocess.Popen([*words, "--write", str(path), "--label", "by=file"], env=cluster.environ)
    try:
        discovery = {
            "file_sd_configs": [{"files": [str(path)], "refresh_interval": "1s"}],
            "http_sd_configs": [{"url": logged(log, rb"(http://\S+)", served), "refresh_interval": "1s"}],
        }
        server = prometheus(discovery=discovery)
        wait_for_targets(server, {(by, name) for by in ("http", "file") for name in cluster.nodes})
        assert server.wait_for("sum(answered) == 6")
        assert all(each["discoveredLabels"]["__meta_sonde_state"] == "idle" for each in active(server))

        cluster.run("scontrol", "update", "nodename=n2", "state=down", "reason=test")
        wait_for_targets(server, {(by, name) for by in ("http", "file") for name in ("n1", "n3")})
    finally:
        cluster.run("scontrol", "update", "nodename=n2", "state=resume", check=False)
        for process in (served, written):
            process.terminate()
            process.wait(PATIENCE)
    cluster.wait_until_idle()


def active(server: Prometheus) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.ask("targets", state="active")["activeTargets"]
    return found


def wait_for_targets(server: Prometheus, expected: set[tuple[str, str]]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        found = {(each["labels"]["by"], each["labels"]["node"]) for each in active(server)}
        if found == expected:
            return
        assert time.monotonic() < deadline, found
        time.sleep(0.1)

"""A distributed PyTorch training under a real Slurm of four nodes, traced with one command from the login node."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.cluster import SHARED, Cluster, root_only
from tests.torch.conftest import TRAIN

pytestmark = pytest.mark.long  # four imports of torch on two cores, and what there is to see of them

# The ranks meet at the first node, over the network of the nodes.
RANK = """#!/bin/sh
export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID MASTER_ADDR=n1 MASTER_PORT=29500
export GLOO_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=1 KINETO_USE_DAEMON=1 KINETO_CONFIG={shared}/libkineto.conf
exec {python} {train} --steps-per-second 10 --exit-after 900
"""
Event = dict[str, Any]


class Running(NamedTuple):
    cluster: Cluster
    job: str


@pytest.fixture(scope="module")
def running(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root_only()
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), 4)
    (cluster.folder / "libkineto.conf").write_text("ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n")
    (cluster.folder / "rank").write_text(RANK.format(shared=SHARED, python=torch_python, train=TRAIN))
    (cluster.folder / "rank").chmod(0o755)
    try:
        cluster.start()
        cluster.certify("root")
        cluster.start_daemons()
        job = cluster.submit(f"exec srun {SHARED}/rank\n", "-N4", "--ntasks-per-node=1")
        log = cluster.folder / f"log/job-{job}"
        cluster.wait_for(lambda: log.exists() and log.read_text().count('"training"') == 4)
        cluster.wait_for(lambda: all(cluster.registered(name) == 1 for name in cluster.names))
        yield Running(cluster, job)
    finally:
        cluster.stop()


class Told(NamedTuple):
    code: int
    out: str
    err: str
    folder: Path

    @property
    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "manifest.json").read_text())
        return found

    def events(self, name: str) -> list[Event]:
        found: list[Event] = json.loads(gzip.decompress((self.folder / name).read_bytes()))["traceEvents"]
        return found

    def steps(self, row: dict[str, Any]) -> list[int]:
        return sorted(
            int(one["name"].split()[1]) for one in self.events(row["file"]) if one["name"].startswith("forward ")
        )


def trace(running: Running, output: str, *words: str) -> Told:
    cluster = running.cluster
    given = ("--job", running.job, "--certs-dir", cluster.certificates("root"), "--output", f"{SHARED}/{output}")
    done = cluster.sonde("trace", *given, *words, timeout=100)
    return Told(done.returncode, done.stdout, done.stderr, cluster.folder / output)


def all_reduces(told: Told) -> list[list[Event]]:
    """Of each rank of the merged file, by time."""
    by_rank: dict[str, list[Event]] = {}
    for event in told.events("merged.json.gz"):
        if event.get("ph") == "X" and event["name"] == "gloo:all_reduce":
            by_rank.setdefault(event["pid"], []).append(event)
    return [sorted(events, key=lambda event: float(event["ts"])) for events in by_rank.values()]


def test_one_command_gathers_the_same_steps_of_every_rank_from_four_nodes(running: Running) -> None:
    for number in range(4):
        told = trace(running, f"steps{number}", "--steps", "3", "--round-up", "50", "--merge")
        assert told.code == 0, told.err
        if all(row["verdict"] == "ok" for row in told.manifest["ranks"]):
            break  # else the multiple came between the polls of two ranks, and the verdict says so

    assert told.code == 0, told.err
    assert f"4 processes on 4 hosts, ranks 0-3, job {running.job}" in told.err
    rows = told.manifest["ranks"]
    assert [(row["rank"], row["host"], row["verdict"]) for row in rows] == [
        (rank, f"n{rank + 1}", "ok") for rank in range(4)
    ]
    assert [told.steps(row)[:3] for row in rows] == [told.steps(rows[0])[:3]] * 4
    assert told.steps(rows[0])[0] % 50 == 2  # the first step makes libkineto's count 0, the one after a multiple is it
    hosts = told.manifest["hosts"]
    assert [host["address"] for host in hosts] == [f"n{number}:1778" for number in range(1, 5)]
    for host in hosts:
        assert abs(host["clock"]["offset_ns"]) <= host["clock"]["bound_ns"]  # all have the clock of this machine
        assert host["clock"]["rounds"] >= 1
    # Nobody leaves a collective before all have come, but for what is not known of the clocks: a part of a step.
    slack_us = 2 * max(host["clock"]["bound_ns"] for host in hosts) / 1000
    assert slack_us < 20_000
    collectives = list(zip(*all_reduces(told), strict=False))
    assert len(collectives) >= 6  # the gradients and the vote on the end, in each step
    for together in collectives:
        assert len(together) == 4
        left = min(event["ts"] + event["dur"] for event in together)
        assert max(event["ts"] for event in together) < left + slack_us


def test_a_duration_begins_on_all_nodes_at_once(running: Running) -> None:
    told = trace(running, "duration", "--duration", "500ms")

    assert told.code == 0, told.err
    rows = told.manifest["ranks"]
    assert [row["verdict"] for row in rows] == ["ok"] * 4
    assert all(0 <= row["first_ns"] - told.manifest["start_ns"] < 0.3e9 for row in rows)


def test_a_node_without_its_daemon_is_named_and_the_others_are_traced(running: Running) -> None:
    cluster = running.cluster
    cluster.nodes["n4"].end("sonde")
    socket = Path(f"/proc/{cluster.nodes['n4'].pid}/root/tmp/sonde/rpc.sock")
    cluster.wait_for(lambda: not socket.exists())
    told = trace(running, "three", "--duration", "200ms")

    assert told.code == 1
    assert "n4: nothing answers on n4:1778: Connection refused" in told.err
    assert "rank 3: no process found on the hosts that answer" in told.err
    assert [row["rank"] for row in told.manifest["ranks"] if row["ok"]] == [0, 1, 2]
    assert f"3 of 4 in {SHARED}/three" in told.out

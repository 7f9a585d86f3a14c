"""The hosts a trace is asked of."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from sonde.cli.trace_hosts import Node, nodes_of, settled
from sonde.errors import Unavailable, UsageError


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No batch system, no daemon but the one that SONDE_DAEMON names."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SONDE_DAEMON", "here:1778")
    return tmp_path


def asked(*hosts: str, job: str = "") -> tuple[list[tuple[str, str]], list[str]]:
    nodes, said = nodes_of(argparse.Namespace(host=list(hosts), job=job))
    return [(node.name, node.address) for node in nodes], said


def test_named_hosts_are_asked_at_dynologs_port_unless_they_say_another() -> None:
    assert asked("n[1-2]", "n3:99", "n1") == (
        [("n1", "n1:1778"), ("n2", "n2:1778"), ("n3:99", "n3:99")],
        [],
    )


def test_a_socket_and_ipv6_are_taken_as_they_are() -> None:
    assert asked("unix:/run/x.sock", "[::1]:5")[0] == [
        ("unix:/run/x.sock", "unix:/run/x.sock"),
        ("[::1]:5", "[::1]:5"),
    ]


def test_a_node_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "machines").write_text("n1 slots=8\nn2\n")

    assert [name for name, _ in asked(f"@{tmp_path}/machines")[0]] == ["n1", "n2"]


def test_nothing_named_is_this_host() -> None:
    assert asked() == ([(os.uname().nodename, "here:1778")], [])


def test_a_job_of_slurm_has_its_hosts(tmp_path: Path) -> None:
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\necho '77|77|ada|1000|gpu|physics|n[1-2]|train'\n")
    squeue.chmod(0o755)

    assert asked(job="77") == ([("n1", "n1:1778"), ("n2", "n2:1778")], [])


def test_a_job_that_no_batch_system_knows_is_looked_for_here_and_that_is_said() -> None:
    nodes, said = asked(job="77")

    assert nodes == [(os.uname().nodename, "here:1778")]
    assert said[0].startswith("only this host is asked: job 77: ")


def test_a_job_that_its_user_named_is_here() -> None:
    assert asked(job="tune-3") == ([(os.uname().nodename, "here:1778")], [])


def test_named_hosts_go_before_a_jobs() -> None:
    assert asked("n5", job="77") == ([("n5", "n5:1778")], [])


def test_a_list_that_makes_no_sense_is_a_usage_error() -> None:
    with pytest.raises(UsageError):
        asked("n[1-")


def test_a_daemon_of_this_host_that_has_nothing_is_left_out_when_another_has() -> None:
    node, private, named = (Node("n1", f"unix:/{number}") for number in range(3))
    node.local = private.local = True

    assert settled([node, private, named]) == [node, private, named]
    node.error = Unavailable("nothing answers")
    assert settled([node, private, named]) == [private, named]
    node.error, private.found = None, [{"pid": 5}]
    assert settled([node, private, named]) == [private, named]
    private.error = Unavailable("nothing answers")
    assert settled([private]) == [private]


def test_a_target_finds_its_process() -> None:
    node = Node("n1", "n1:1778")
    node.found = [{"pid": 5, "own_pid": 2, "framework": "pytorch"}]

    assert node.process_of({"pid": 5, "own_pid": 2}) == node.found[0]
    assert node.process_of({"pid": 5, "own_pid": 3}) == {}

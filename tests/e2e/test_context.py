"""`sonde context --host`, with a real daemon."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.e2e.conftest import RunningDaemon

from sonde.hostfs import HostFS
from sonde.jobs.context import gather


def test_a_daemon_tells_what_its_node_is_and_nothing_of_its_own_environment(
    daemon: Callable[..., RunningDaemon],
) -> None:
    running = daemon("--collectors", "load")
    ended = running.sonde("context", "--host", f"unix:{running.state}/rpc.sock", "--json")

    found = json.loads(ended.stdout)
    own = gather(HostFS())
    assert ended.returncode == 0
    assert found["cpu"] == own["cpu"]
    assert found["kernel"] == own["kernel"]
    assert "environment" not in found
    assert "PATH=" not in ended.stdout


def test_a_node_that_does_not_answer_is_named_beside_those_that_do(daemon: Callable[..., RunningDaemon]) -> None:
    running = daemon("--collectors", "load")
    ended = running.sonde("context", "--host", f"unix:{running.state}/rpc.sock", "--host", "127.0.0.1:1")

    assert ended.returncode == 1
    assert ended.stdout.startswith("host ")
    assert "sonde: context: 127.0.0.1:1: " in ended.stderr

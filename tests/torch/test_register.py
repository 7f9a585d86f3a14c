"""A real PyTorch process and the list of those that can be asked for a trace."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.torch.conftest import TracingDaemon, Training


def test_a_process_is_listed_while_it_runs_and_gone_within_a_second_of_its_exit(
    tracing_daemon: Callable[..., TracingDaemon], training: Callable[..., Training]
) -> None:
    daemon = tracing_daemon()
    process = training("--spawn", ipc=daemon.ipc)
    daemon.wait_for(lambda: len(daemon.pids()) == 2)
    listed = json.loads(daemon.sonde("processes", "--json", check=True).stdout)
    table = daemon.sonde("processes", check=True).stdout
    process.process.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    daemon.wait_for(lambda: process.process.pid not in daemon.pids())
    took = time.monotonic() - killed

    assert {one["pid"] for one in listed} == set(process.pids)
    assert all(str(pid) in table for pid in process.pids)
    assert all(one["accepts"] and one["polls"] >= 1 for one in listed)
    assert took < 1.0


def test_ranks_register_each_for_itself_and_a_profiler_of_their_own_is_seen(
    tracing_daemon: Callable[..., TracingDaemon], training: Callable[..., Training]
) -> None:
    daemon = tracing_daemon()
    ranks = training("--ranks", "2", "--profiler", "4", "--exit-after", "6", ipc=daemon.ipc)
    ranks.wait_for("profiling", 2)
    daemon.wait_for(lambda: daemon.pids() == set(ranks.pids))
    daemon.wait_for(lambda: not any(one["accepts"] for one in daemon.processes()))
    ranks.wait_for("profiled", 2)
    daemon.wait_for(lambda: all(one["accepts"] for one in daemon.processes()))
    daemon.wait_for(lambda: not daemon.pids(), 30)
    code = ranks.process.wait(10)

    assert code == 0, ranks.log.read_text()
    assert len({event["steps"] for event in ranks.events("ended")}) == 1

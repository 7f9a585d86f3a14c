"""`sonde processes` and `sonde doctor trace`, with a real daemon and processes that register with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import SONDE, RunningDaemon
from tests.trainee import Trainee, start_trainee

from sonde.errors import RpcError
from sonde.rpc.client import call
from sonde.tracing.identity import user_name

CONFIG = "[tracing]\nabstract = false\nsocket_dir = '{}'\n[archive]\nenabled = false\n"


class Site:
    def __init__(self, daemon: RunningDaemon, folder: Path) -> None:
        self.daemon = daemon
        self.folder = folder
        self.trainees: list[Trainee] = []

    def trainee(self, **environ: str) -> Trainee:
        environ = {"KINETO_IPC_SOCKET_DIR": str(self.folder), **environ}
        found = start_trainee(f"{self.folder}/dynolog", self.folder, environ)
        self.trainees.append(found)
        return found

    def ask(self, function: str, **arguments: Any) -> dict[str, Any]:
        return call(f"unix:{self.daemon.state}/rpc.sock", function, **arguments)


@pytest.fixture
def site(daemon: Callable[..., RunningDaemon], tmp_path: Path) -> Iterator[Site]:
    folder = tmp_path / "ipc"
    folder.mkdir()
    found = Site(daemon("--tracing", "--collectors", "load", config=CONFIG.format(folder)), folder)
    yield found
    for trainee in found.trainees:
        trainee.end()


def test_registered_processes_are_listed_by_job_and_rank(site: Site) -> None:
    ranks = [site.trainee(KINETO_USE_DAEMON="1", SONDE_JOB_ID="tune-3", RANK=str(rank)) for rank in (0, 1)]
    other = site.trainee(KINETO_USE_DAEMON="1")
    for trainee in (*ranks, other):
        trainee.poll()
    table = site.daemon.sonde("processes", check=True).stdout
    of_job = json.loads(site.daemon.sonde("processes", "--job", "tune-3", "--json", check=True).stdout)
    reply = site.ask("process.list")
    nobody = site.daemon.sonde("processes", "--job", "77", check=True).stdout
    counted = site.daemon.status()["ipc"]

    header, first, *_ = table.splitlines()
    assert header.split() == ["pid", "user", "job", "rank", "command", "framework", "last", "poll", "state", "step"]
    assert first.split()[:2] == [str(other.pid), user_name(os.getuid())]
    assert "pytorch" in first
    assert [(one["pid"], one["rank"]) for one in of_job] == [(ranks[0].pid, 0), (ranks[1].pid, 1)]
    assert of_job == [
        {**one, "polled_seconds_ago": shown["polled_seconds_ago"]}
        for one, shown in zip(reply["processes"][1:], of_job, strict=True)
    ]
    assert reply["ipc"] == [f"{site.folder}/dynolog"]
    assert counted == {"processes": 3, "refused": 0, "received": 3, "malformed": 0, "unanswered": 0}
    assert reply["host"] == os.uname().nodename
    assert nobody == "no process of job 77 has registered; without --job there are others\n"


def test_a_process_is_explained_with_marks_and_an_exit_code(site: Site) -> None:
    good, unset = site.trainee(KINETO_USE_DAEMON="1"), site.trainee()
    good.poll()
    fine = site.daemon.sonde("doctor", "trace", str(good.pid))
    flawed = site.daemon.sonde("doctor", "trace", str(unset.pid), "--json")
    nobody = site.daemon.sonde("doctor", "trace", "4000000")
    reply = site.ask("process.explain", pid=unset.pid)

    assert (fine.returncode, fine.stdout.splitlines()[-1]) == (0, f"{good.pid} can be traced")
    assert "\x1b" not in fine.stdout
    assert flawed.returncode == 1
    assert json.loads(flawed.stdout)["verdict"] == f"{unset.pid} cannot be traced: KINETO_USE_DAEMON is not set"
    assert (reply["registered"], reply["traceable"], reply["pid"]) == (False, False, unset.pid)
    assert {check["state"] for check in reply["checks"]} == {"ok", "bad"}
    assert nobody.returncode == 1
    assert "there is no process 4000000 on this host" in nobody.stdout


def test_all_that_keeps_processes_away_is_listed(site: Site) -> None:
    good, unset, stopped = site.trainee(KINETO_USE_DAEMON="1"), site.trainee(), site.trainee(KINETO_USE_DAEMON="1")
    good.poll()
    stopped.signal(signal.SIGSTOP)
    found = site.daemon.sonde("doctor", "trace")

    lines = found.stdout.splitlines()
    assert found.returncode == 1
    assert lines[0].split()[:2] == ["daemon", "ok"]
    assert lines[1].split() == ["sockets", "ok", f"{site.folder}/dynolog"]
    assert lines[2].split() == ["registered", "ok", str(good.pid)]
    assert any(line.startswith(f"{unset.pid} ") and "KINETO_USE_DAEMON is not set" in line for line in lines)
    assert any(line.startswith(f"{stopped.pid} ") and "stopped (state T)" in line for line in lines)


@pytest.mark.parametrize("pid", [None, "5", 0, -1, True, 2**31])
def test_what_is_not_a_process_is_refused(pid: object, site: Site) -> None:
    with pytest.raises(RpcError) as caught:
        site.ask("process.explain", pid=pid)

    assert caught.value.code == "bad-request"


def test_a_daemon_that_does_not_listen_says_so(daemon: Callable[..., RunningDaemon]) -> None:
    running = daemon("--collectors", "load", "--no-archive")
    listed, examined = running.sonde("processes"), running.sonde("doctor", "trace")

    assert listed.stdout.startswith("tracing is switched off in the daemon: start sonde daemon without --no-tracing")
    assert examined.returncode == 1
    assert "sockets" in examined.stdout
    assert "tracing is switched off" in examined.stdout


def test_without_a_daemon_a_process_is_explained_from_proc(tmp_path: Path) -> None:
    trainee = start_trainee("@nobody@", tmp_path, {"KINETO_USE_DAEMON": "1"})
    environ = {**os.environ, "SONDE_DAEMON": f"unix:{tmp_path}/rpc.sock"}
    commands = [["trace", str(trainee.pid)], ["trace"], ["trace", "--host", "nowhere.invalid:1778"]]
    one, everything, far = (
        subprocess.run([SONDE, "doctor", *words], capture_output=True, text=True, timeout=60, env=environ)
        for words in commands
    )
    trainee.end()

    assert (one.returncode, everything.returncode, far.returncode) == (3, 3, 3)
    assert one.stdout.splitlines()[-1] == f"{trainee.pid} cannot be traced: no daemon answers"
    assert f"{trainee.pid}" in everything.stdout
    assert everything.stdout.startswith("daemon ")
    assert far.stdout == ""  # another host's /proc is not ours

"""The table of `sonde processes`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.authority import Authority

from sonde.cli.main import main
from sonde.rpc.server import RpcServer
from sonde.rpc.tls import server_context

if TYPE_CHECKING:
    from tests.conftest import RunningLoop

IDLE: dict[str, Any] = {
    "pid": 812,
    "own_pid": 812,
    "user": "ada",
    "command": "python train.py",
    "job": None,
    "rank": None,
    "world_size": None,
    "launcher": False,
    "framework": "pytorch",
    "gpu": False,
    "step": None,
    "polled_seconds_ago": 1.25,
    "session": None,
    "state": "idle",
}
JOB = {"scheduler": "slurm", "id": "76_4", "raw_id": "77"}


class Daemon:
    """Answers what it is told to."""

    def __init__(self, loop: RunningLoop) -> None:
        self.reply: dict[str, Any] = {"host": "n1", "ipc": ["@dynolog"], "processes": []}
        self.server = RpcServer(loop, {"process.list": lambda request, peer: self.reply})
        self.address = str(loop.call(lambda: self.server.listen("127.0.0.1:0")))


@pytest.fixture
def daemon(loop: RunningLoop) -> Iterator[Daemon]:
    found = Daemon(loop)
    yield found
    loop.call(found.server.close)


def shown(daemon: Daemon, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["processes", "--host", daemon.address, *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_line_says_who_a_process_is_and_what_it_does(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.reply["processes"] = [
        {**IDLE, "job": JOB, "rank": 3, "world_size": 8, "gpu": True, "step": 1200, "state": "waiting"},
        {**IDLE, "pid": None, "own_pid": 5, "rank": 0, "gpu": None, "state": "tracing", "session": "t1"},
        {**IDLE, "launcher": True, "state": "profiling"},
    ]
    lines = shown(daemon, capsys)

    assert lines == [
        "pid  user  job       rank  command          framework    last poll  state                    step",
        "812  ada   76_4       3/8  python train.py  pytorch gpu  1.2 s ago  waits for its next poll  1200",
        "(5)  ada                0  python train.py  pytorch      1.2 s ago  tracing t1",
        "812  ada         launcher  python train.py  pytorch      1.2 s ago  profiling",
    ]


@pytest.mark.parametrize(("text", "count"), [("76_4", 1), ("77", 1), ("76", 1), ("78", 0)])
def test_a_job_is_named_as_its_batch_system_does(
    text: str, count: int, daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.reply["processes"] = [{**IDLE, "job": JOB}, IDLE]

    assert len(shown(daemon, capsys, "--job", text)) - 1 == count


def test_a_number_of_several_jobs_is_refused(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.reply["processes"] = [{**IDLE, "job": {**JOB, "id": f"76_{n}", "raw_id": str(n)}} for n in (1, 2)]
    code = main(["processes", "--host", daemon.address, "--job", "76"])

    assert code == 1
    assert "76 may be one of several jobs here: 76_1, 76_2" in capsys.readouterr().err


def test_that_nobody_is_there_is_said_with_what_to_do(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    on = shown(daemon, capsys)
    daemon.reply["ipc"] = []
    off = shown(daemon, capsys)

    assert "sonde doctor trace" in on[1]
    assert off[0].startswith("tracing is switched off in the daemon: start sonde daemon without --no-tracing")


def test_a_daemon_with_certificates_is_asked_with_ours(
    loop: RunningLoop, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "authority")
    theirs = server_context(authority.directory("server", authority.signed("server"), tmp_path / "server"))
    ours = authority.directory("client", authority.signed("root"), tmp_path / "client")
    server = RpcServer(loop, {"process.list": lambda request, peer: {"host": "n1", "ipc": ["x"], "processes": [IDLE]}})
    address = str(loop.call(lambda: server.listen("127.0.0.1:0", tls=theirs)))
    plain, secure = main(["processes", "--host", address]), main(["processes", "--host", address, "--certs-dir", ours])
    loop.call(server.close)

    out, err = capsys.readouterr()
    assert (plain, secure) == (1, 0)
    assert "this address speaks TLS only" in err
    assert "python train.py" in out

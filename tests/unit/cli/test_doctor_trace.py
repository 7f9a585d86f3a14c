"""`sonde doctor trace` against daemons that say this or that."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from sonde.cli.main import main
from sonde.daemon import runs
from sonde.rpc.server import RpcServer

if TYPE_CHECKING:
    from tests.conftest import RunningLoop

MINE = {"pid": 812, "own_pid": 812, "may_trace": True}
HIDDEN = {"pid": None, "own_pid": 5, "may_trace": True}
OTHERS = {"pid": 900, "own_pid": 900, "may_trace": False}


class Daemon:
    """Answers what it is told to, at an address that does not look like this host's."""

    def __init__(self, loop: RunningLoop) -> None:
        self.processes: list[dict[str, Any]] = []
        self.missing: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []
        self.server = RpcServer(loop, {"process.list": self._list, "trace.check": self._check})
        port = loop.call(lambda: self.server.listen("127.0.0.1:0")).port
        self.address = f"127.1:{port}"  # inet_aton(3) takes it for 127.0.0.1

    def _list(self, request: dict[str, Any], peer: object) -> dict[str, Any]:
        return {"host": "n1", "ipc": ["@dynolog"], "processes": self.processes}

    def _check(self, request: dict[str, Any], peer: object) -> dict[str, Any]:
        self.asked.append(request)
        return {"host": "n1", "found": [], "missing": self.missing}


@pytest.fixture
def daemon(loop: RunningLoop) -> Iterator[Daemon]:
    found = Daemon(loop)
    yield found
    loop.call(found.server.close)


def test_a_daemon_elsewhere_looks_at_its_own_processes(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.processes = [MINE, HIDDEN, OTHERS]
    daemon.missing = [{"pid": 813, "rank": 1, "command": "python train.py", "reason": "KINETO_USE_DAEMON is not set"}]
    code = main(["doctor", "--host", daemon.address, "trace"])

    assert code == 1
    assert daemon.asked == [{"all": True, "fn": "trace.check"}]
    assert capsys.readouterr().out.splitlines() == [
        f"daemon      ok      answers at {daemon.address}",
        "sockets     ok      @dynolog",
        "registered  ok      812, (5), and 1 of other users",
        "813         bad     python train.py (rank 1): KINETO_USE_DAEMON is not set",
        "                    → sonde doctor trace 813",
        "",
        "813: python train.py (rank 1): KINETO_USE_DAEMON is not set",
    ]


def test_that_nothing_is_in_the_way_is_success(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "trace", "--host", daemon.address, "--json"])

    found = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (found["traceable"], found["verdict"]) == (True, "nothing is in the way")
    assert found["checks"][2] == {"name": "registered", "state": "unknown", "detail": "none of yours", "hint": ""}


def test_a_pid_is_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["doctor", "trace", "train.py"])

    assert caught.value.code == 2
    assert "'train.py' is not a whole number" in capsys.readouterr().err


class Private:
    """A daemon as `sonde run` starts one, that knows one process or none."""

    def __init__(self, loop: RunningLoop, number: int, *known: int) -> None:
        self.run = runs.create(number)
        self.known = known
        self.server = RpcServer(loop, {"process.explain": self._explain, "process.list": self._list})
        loop.call(lambda: self.server.listen(self.run.address))

    def _explain(self, request: dict[str, Any], peer: object) -> dict[str, Any]:
        registered = request["pid"] in self.known
        state, where = ("ok", "") if registered else ("bad", f"this daemon listens at {self.run.directory}/dynolog")
        check = {"name": "socket", "state": state, "detail": where, "hint": ""}
        verdict = f"said by {os.path.basename(self.run.directory)}"
        return {"registered": registered, "traceable": registered, "verdict": verdict, "checks": [check]}

    def _list(self, request: dict[str, Any], peer: object) -> dict[str, Any]:
        known = [{"pid": pid, "own_pid": pid, "may_trace": True} for pid in self.known]
        return {"host": "n1", "ipc": [f"{self.run.directory}/dynolog"], "processes": known}


@pytest.fixture
def private(loop: RunningLoop, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Private]]:
    """Two of them: the second knows this very process."""
    with tempfile.TemporaryDirectory(prefix="xdg") as runtime, ExitStack() as ending:
        os.mkdir(f"{runtime}/sonde", 0o700)
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        monkeypatch.delenv("SONDE_DAEMON", raising=False)
        found = [Private(loop, 101), Private(loop, 102, os.getpid())]
        for one in found:
            ending.callback(os.close, one.run.lock)
            ending.callback(loop.call, one.server.close)
        yield found


def test_a_process_is_explained_by_the_private_daemon_that_knows_it(
    private: list[Private], capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["doctor", "trace", str(os.getpid())])

    assert capsys.readouterr().out.splitlines()[-1] == "said by 102"
    assert code == 0


def test_private_daemons_are_looked_at_with_all_they_know(
    private: list[Private], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["doctor", "trace"])

    lines = capsys.readouterr().out.splitlines()
    for one in private:
        assert any(line.split()[:2] == ["daemon", "ok"] and line.endswith(one.run.address) for line in lines)
    assert any(line.startswith("registered") and str(os.getpid()) in line for line in lines)

"""Who may trace whom, where traces may be written and what may be read of them: root's daemon, and other users."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import RunningDaemon, daemon  # noqa: F401 - one fixture per program
from tests.lacking import lacking
from tests.publicly import open_to_all

from sonde.errors import RpcError
from sonde.rpc.client import call, stream

TRACED = Path(__file__).with_name("traced.py")
ADA, BOB = 54321, 54322
AS_USER = """
import json, os, sys
from sonde.errors import RpcError
from sonde.rpc.client import call, stream
uid, address, function, arguments = int(sys.argv[1]), *sys.argv[2:]
os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
try:
    if function == "trace.fetch":
        print(json.dumps(list(stream(address, function, **json.loads(arguments)))))
    else:
        print(json.dumps(call(address, function, timeout=30.0, **json.loads(arguments))))
except RpcError as error:
    print(json.dumps({"ok": False, "code": error.code, "message": str(error)}))
"""


class Node:
    """A daemon and processes of several users that have registered with it."""

    def __init__(self, running: RunningDaemon, ipc: Path, tmp_path: Path) -> None:
        self.running = running
        self.ipc = ipc
        self.tmp_path = tmp_path
        self.trainees: list[subprocess.Popen[bytes]] = []
        self.count = 0

    @property
    def address(self) -> str:
        return f"unix:{self.running.state}/rpc.sock"

    def trainee(self, uid: int, trick: str = "", wrapper: tuple[str, ...] = ()) -> int:
        command = [*wrapper, sys.executable, str(TRACED), str(self.ipc), str(uid), trick]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self.trainees.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        self.running.wait_for(lambda: process.pid in {one["pid"] for one in self.call("process.list")["processes"]})
        return process.pid

    def call(self, function: str, uid: int = 0, **arguments: Any) -> Any:
        """As root, or as a user: then an error is an answer too."""
        if not uid:
            return call(self.address, function, timeout=30.0, **arguments)
        command = [sys.executable, "-c", AS_USER, str(uid), self.address, function, json.dumps(arguments)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return json.loads(ended.stdout)

    def start(self, *pids: int, uid: int = 0, **recording: Any) -> Any:
        self.count += 1
        arguments = {"duration_ms": 10, "directory": str(self.tmp_path / "out"), **recording}
        return self.call("trace.start", uid, session=f"s{self.count}", pids=list(pids), **arguments)

    def follow(self, session: Any, uid: int = 0) -> Any:
        until = time.monotonic() + 20
        while session["state"] == "active":
            assert time.monotonic() < until
            session = self.call(
                "trace.show", uid, session=session["session"], version=session["version"], wait_seconds=5
            )
        return session

    def fetch(self, session: Any, pid: int, uid: int = 0) -> bytes:
        if uid:
            frames = self.call("trace.fetch", uid, session=session["session"], pid=pid)
        else:
            frames = list(stream(self.address, "trace.fetch", session=session["session"], pid=pid))
        return gzip.decompress(b"".join(base64.b64decode(frame.get("data", "")) for frame in frames))


@pytest.fixture
def node(daemon: Callable[..., RunningDaemon], tmp_path: Path) -> Iterator[Callable[..., Node]]:  # noqa: F811
    """Start the node; `tracing` is more text of its section [tracing]."""
    if os.geteuid():
        lacking("only root can be other users")
    nodes: list[Node] = []
    open_to_all(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out").chmod(0o1777)
    ipc = tmp_path / "ipc"
    ipc.mkdir()
    ipc.chmod(0o1777)

    def start(tracing: str = "") -> Node:
        config = f'[tracing]\nabstract = false\nsocket_dir = "{ipc}"\n{tracing}\n'
        nodes.append(Node(daemon("--tracing", "--collectors", "load", config=config), ipc, tmp_path))
        return nodes[-1]

    yield start
    for one in nodes:
        for process in one.trainees:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def test_a_user_traces_their_own_processes_and_reads_the_result(node: Callable[..., Node]) -> None:
    here = node()
    pid = here.trainee(ADA)
    session = here.follow(here.start(pid, uid=ADA), ADA)

    assert [target["state"] for target in session["targets"]] == ["written"]
    assert json.loads(here.fetch(session, pid, ADA)) == {"traceEvents": []}
    assert here.call("trace.remove", ADA, session=session["session"])["removed"] == [session["targets"][0]["path"]]


def test_a_user_does_not_trace_somebody_else(node: Callable[..., Node]) -> None:
    here = node()
    pid = here.trainee(ADA)
    refused = here.start(pid, uid=BOB)
    listed = {one["pid"]: one["may_trace"] for one in here.call("process.list", BOB)["processes"]}

    assert [target["state"] for target in refused["targets"]] == ["refused"]
    assert f"it is a process of {ADA}: only {ADA} and root may" in refused["targets"][0]["reason"]
    assert listed == {pid: False}


def test_all_means_all_of_the_caller_and_root_traces_everybody(node: Callable[..., Node]) -> None:
    here = node()
    ada, bob = here.trainee(ADA), here.trainee(BOB)
    mine = here.call("trace.check", ADA, all=True)
    session = here.follow(here.start(ada, bob))

    assert [one["pid"] for one in mine["found"]] == [ada]
    assert [target["state"] for target in session["targets"]] == ["written", "written"]
    assert {target["uid"] for target in session["targets"]} == {ADA, BOB}


def test_a_session_of_somebody_else_can_be_neither_seen_nor_read_nor_cancelled(node: Callable[..., Node]) -> None:
    here = node()
    pid = here.trainee(ADA)
    session = here.follow(here.start(pid, uid=ADA), ADA)
    name = session["session"]

    assert here.call("trace.list", BOB)["sessions"] == []
    for function in ("trace.show", "trace.cancel", "trace.remove"):
        assert here.call(function, BOB, session=name)["code"] == "no-session"
    assert here.call("trace.fetch", BOB, session=name, pid=pid)["code"] == "no-session"
    assert [one["session"] for one in here.call("trace.list")["sessions"]] == [name]


def test_a_directory_the_user_cannot_write_to_is_refused_though_the_daemon_could(node: Callable[..., Node]) -> None:
    here = node()
    pid = here.trainee(ADA)
    private = here.tmp_path / "private"
    private.mkdir(mode=0o700)
    session = here.start(pid, directory=str(private))

    assert session["targets"][0]["state"] == "refused"
    assert "cannot be written to by the process' user" in session["targets"][0]["reason"]


def test_traces_are_confined_to_the_configured_roots_whatever_links_lead_out(
    node: Callable[..., Node], tmp_path: Path
) -> None:
    here = node(tracing=f'roots = ["/nowhere", "{tmp_path}/out"]')
    pid = here.trainee(ADA)
    (here.tmp_path / "out" / "way-out").symlink_to("/var/tmp")
    inside = here.start(pid)
    outside = here.start(pid, directory="/var/tmp")
    linked = here.start(pid, directory=str(here.tmp_path / "out" / "way-out"))

    assert inside["targets"][0]["state"] == "requested"
    assert "is not below" in outside["targets"][0]["reason"]
    assert "is not below" in linked["targets"][0]["reason"]


def test_a_link_is_not_a_trace_and_what_it_leads_to_is_not_read(node: Callable[..., Node]) -> None:
    here = node()
    secret = here.tmp_path / "secret.json"
    secret.write_text("the password")
    secret.chmod(0o600)
    pid = here.trainee(ADA, f"link:{secret}")
    session = here.follow(here.start(pid, uid=ADA, timeout_seconds=2), ADA)

    assert session["targets"][0]["state"] in ("timed-out", "failed")
    answer = here.call("trace.fetch", ADA, session=session["session"], pid=pid)
    assert answer["code"] == "not-written"


def test_a_trace_that_becomes_a_link_later_is_opened_as_its_user_and_not_followed(node: Callable[..., Node]) -> None:
    here = node()
    secret = here.tmp_path / "secret.json"
    secret.write_text("the password")
    secret.chmod(0o600)
    pid = here.trainee(ADA, f"swap:{secret}")
    session = here.follow(here.start(pid, uid=ADA), ADA)
    path = Path(session["targets"][0]["path"])
    here.running.wait_for(path.is_symlink)

    assert session["targets"][0]["state"] == "written"
    with pytest.raises(RpcError, match=r"symbolic links|Permission denied"):
        here.fetch(session, pid)  # not even for root: it is ada's process
    here.call("trace.remove", session=session["session"])
    assert secret.read_text() == "the password"


def test_a_file_beyond_the_limit_is_not_sent(node: Callable[..., Node]) -> None:
    here = node(tracing='max_file_size = "1MB"')
    pid = here.trainee(ADA, "large")
    session = here.follow(here.start(pid))

    with pytest.raises(RpcError, match="more than the 1MB that may be sent"):
        here.fetch(session, pid)


def test_a_process_in_a_mount_namespace_of_its_own_writes_there_and_is_read_there(node: Callable[..., Node]) -> None:
    here = node()
    private = here.tmp_path / "only-there"
    private.mkdir()
    mount = f'mount -t tmpfs -o mode=1777 none {private} && exec "$@"'
    pid = here.trainee(ADA, wrapper=("unshare", "-m", "sh", "-c", mount, "sh"))
    session = here.follow(here.start(pid, directory=str(private)))

    assert session["targets"][0]["state"] == "written"
    assert list(private.iterdir()) == []
    assert json.loads(here.fetch(session, pid)) == {"traceEvents": []}


def test_a_request_that_makes_no_sense_starts_nothing(node: Callable[..., Node]) -> None:
    here = node()
    pid = here.trainee(ADA)
    arguments: dict[str, Any] = {"session": "s1", "pids": [pid], "duration_ms": 10}
    mistakes: list[dict[str, Any]] = [
        {"duration_ms": "x"},
        {"session": "../x"},
        {"pids": []},
        {"steps": -1},
        {"activities": "cpu_op"},
    ]
    for wrong in mistakes:
        with pytest.raises(RpcError):
            here.call("trace.start", **{**arguments, **wrong})

    assert here.call("trace.list")["sessions"] == []


def test_what_a_process_leaves_behind_that_ends_during_its_trace_is_removed(node: Callable[..., Node]) -> None:
    here = node()
    pid = here.trainee(ADA)
    session = here.start(pid, duration_ms=10, start_ns=time.time_ns() + 30 * 10**9)
    out = here.tmp_path / "out"
    here.running.wait_for(lambda: list(out.glob("*.tmp")))
    here.trainees[-1].kill()
    here.trainees[-1].wait()
    session = here.follow(session)
    here.running.wait_for(lambda: not list(out.glob("*.tmp")))

    assert session["targets"][0]["state"] == "failed"

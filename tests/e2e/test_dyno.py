"""`dyno` and the bytes it is answered with, against a daemon that training processes register with."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.conftest import RunningDaemon

from sonde.agent import wire
from sonde.cli import compat
from sonde.version import VERSION

REPLIES = Path(__file__).parents[1] / "fixtures" / "dynolog" / "replies"


class Trainer:
    """This process, in the part of libkineto."""

    def __init__(self, folder: Path) -> None:
        environ = {"KINETO_IPC_SOCKET_DIR": str(folder)}
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.settimeout(10)
        self._sock.bind(wire.client_address("1", environ))
        self._daemon = wire.daemon_address(environ)

    def poll(self) -> str:
        self._sock.sendto(wire.pack_request(wire.Request(3, 0, (os.getpid(),))), self._daemon)
        return wire.parse_config(wire.parse(self._sock.recv(wire.MAX_DATAGRAM))[1])

    def close(self) -> None:
        self._sock.close()


@pytest.fixture
def tracing(daemon: Callable[..., RunningDaemon], tmp_path: Path) -> RunningDaemon:
    return daemon("--tracing", config=f'[tracing]\nabstract = false\nsocket_dir = "{tmp_path}"\n')


@pytest.fixture
def trainer(tracing: RunningDaemon, tmp_path: Path) -> Iterator[Trainer]:
    found = Trainer(tmp_path)
    yield found
    found.close()


def port_of(running: RunningDaemon) -> int:
    return int(running.status()["addresses"]["tcp"].rpartition(":")[2])


def exchanged(port: int, body: bytes) -> bytes:
    """Everything that comes back until the daemon closes."""
    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        sock.sendall(struct.pack("=i", len(body)) + body)
        return b"".join(iter(lambda: sock.recv(65536), b""))


def test_every_reply_is_dynologs_to_the_byte(tracing: RunningDaemon, trainer: Trainer) -> None:
    port = port_of(tracing)
    trainer.poll()
    text = REPLIES.read_text().replace("PID", str(os.getpid())).replace("VERSION", VERSION)
    requests, replies = text.splitlines()[::2], text.splitlines()[1::2]

    got = [exchanged(port, request.encode()) for request in requests]
    assert got == [struct.pack("=i", len(reply)) + reply.encode() for reply in replies]


def test_dyno_has_a_process_traced(tracing: RunningDaemon, trainer: Trainer, tmp_path: Path) -> None:
    (launcher,) = compat.link(str(tmp_path / "bin"), ["dyno"], force=False)
    trainer.poll()
    command = [launcher, "gputrace", "--log-file", "/tmp/t.json", "--iterations", "5", f"--port={port_of(tracing)}"]
    done, again = (subprocess.run(command, capture_output=True, text=True, timeout=20) for _ in range(2))
    delivered = trainer.poll()

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(
        f"\nMatched 1 processes\nTrace output files will be written to:\n    /tmp/t_{os.getpid()}.json\n"
    )
    assert (again.returncode, "busy" in again.stderr) == (1, True)
    assert "ACTIVITIES_LOG_FILE=/tmp/t.json\n" in delivered
    assert "ACTIVITIES_ITERATIONS=5\n" in delivered
    assert trainer.poll() == ""


def test_dyno_says_when_nobody_has_registered(tracing: RunningDaemon, tmp_path: Path) -> None:
    (launcher,) = compat.link(str(tmp_path / "bin"), ["dyno"], force=False)
    words = [launcher, f"--port={port_of(tracing)}", "gputrace", "--log-file", "/tmp/t.json", "--fail-on-no-process"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20)

    assert done.returncode == 1
    assert done.stdout.endswith("No processes were matched, please check --job-id or --pids flags\n")

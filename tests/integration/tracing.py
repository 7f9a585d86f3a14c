"""A daemon that training processes register with, at a path or in a private network, and a client that watches it."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.integration.conftest import free_port

from sonde.agent import wire

PROMPT = 0.1  # seconds within which the well-behaved client is answered, whatever others do
_GROWTH = 2**20  # bytes of resident memory
_CLONE_NEWNET = 0x40000000  # sched.h
_SONDE = str(Path(sys.executable).with_name("sonde"))
_PROBER = str(Path(__file__).with_name("prober.py"))


class Seen(NamedTuple):
    """What the client saw: see prober.py."""

    rounds: int
    rpc: float
    ipc: float
    whole: float
    failures: list[str]


class TracingDaemon:
    """A real daemon of few collectors, and beside it, in a process of its own, a client that never stops asking."""

    def __init__(self, folder: Path, *, abstract: bool) -> None:
        self.folder = folder
        self.port = free_port()
        self.abstract = abstract
        self.environ = {} if abstract else {"KINETO_IPC_SOCKET_DIR": str(folder)}
        self.ipc_address = wire.daemon_address(self.environ)
        place = "abstract = true" if abstract else f'abstract = false\nsocket_dir = "{folder}"'
        (folder / "sonde.toml").write_text(f"[tracing]\n{place}\n")
        command = [_SONDE, "daemon", "--state", str(folder), "--tracing", "--no-archive", "--collectors", "load"]
        command += ["--log-file", f"{folder}/log", "--rpc-address", f"127.0.0.1:{self.port}", "--http-address", ""]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self._prober: subprocess.Popen[str] | None = None

    def start(self) -> None:
        until = time.monotonic() + 20
        while "answers on" not in self.log():
            assert self.process.poll() is None, "the daemon ended at once"
            assert time.monotonic() < until
            time.sleep(0.02)
        environ = {name: value for name, value in os.environ.items() if name != "KINETO_IPC_SOCKET_DIR"}
        self._prober = subprocess.Popen(
            [sys.executable, _PROBER, str(self.port), str(self.process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**environ, **self.environ},
        )
        assert self._said() == "ready\n"

    def _said(self) -> str:
        assert self._prober is not None
        assert self._prober.stdout is not None
        return self._prober.stdout.readline()

    def seen(self) -> Seen:
        """What the client has seen since this was last asked."""
        assert self._prober is not None
        assert self._prober.stdin is not None
        self._prober.stdin.write("\n")
        self._prober.stdin.flush()
        return Seen(**json.loads(self._said()))

    def log(self) -> str:
        try:
            return (self.folder / "log").read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def resident_bytes(self) -> int:
        """The least of a few moments: what a request in progress needs is not kept."""
        pages = []
        for _ in range(5):
            pages.append(int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]))
            time.sleep(0.01)
        return min(pages) * os.sysconf("SC_PAGE_SIZE")

    @contextlib.contextmanager
    def unharmed(self) -> Iterator[None]:
        """Whatever is done in the block: the daemon lives, has not grown, and answers others at once."""
        self.seen()
        before = self.resident_bytes()
        yield
        during = self.seen()
        time.sleep(0.1)
        after = self.seen()
        self.assert_prompt(during)
        self.assert_prompt(after)
        assert self.process.poll() is None
        assert self.resident_bytes() - before <= _GROWTH

    def assert_prompt(self, seen: Seen) -> None:
        assert seen.failures == []
        assert seen.rounds
        assert max(seen.rpc, seen.ipc) <= PROMPT, seen

    def connected(self) -> socket.socket:
        """A connection to the RPC port."""
        return socket.create_connection(("127.0.0.1", self.port), 10)

    def stop(self) -> None:
        for process in (self._prober, self.process):
            if process is not None:
                process.terminate()
        if self._prober is not None:
            self._prober.communicate(timeout=10)
        self.process.wait(10)


@contextlib.contextmanager
def private_network() -> Iterator[None]:
    """Put this thread and what it starts into a network namespace of its own: abstract names are one per namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net", "rb") as before:
        if libc.unshare(_CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "no network namespace")
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            libc.setns(before.fileno(), _CLONE_NEWNET)


@contextlib.contextmanager
def tracing_daemon(folder: Path, *, abstract: bool) -> Iterator[TracingDaemon]:
    with private_network() if abstract else contextlib.nullcontext():
        running = TracingDaemon(folder, abstract=abstract)
        try:
            running.start()
            yield running
        finally:
            running.stop()

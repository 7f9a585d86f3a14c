"""A well-behaved client that asks all the time: RPC getStatus and an IPC poll, every few milliseconds.

    python prober.py PORT PID        KINETO_IPC_SOCKET_DIR says where the IPC socket is; without it the abstract name

A line on standard input is answered with what was seen since the line before:

    {"rounds": 41, "rpc": 0.0007, "ipc": 0.0002, "whole": 0.0151, "failures": []}

`rpc` and `ipc` are the longest answers in seconds, without the time in which the daemon (PID) or this process was ready
to run and the kernel let others run: that is the second number of /proc/PID/schedstat, and says how busy the machine
is. `whole` is the longest answer with it.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable

from sonde.agent import wire

PAUSE = 0.005
TIMEOUT = 5.0


class Prober:
    def __init__(self, port: int, pid: int) -> None:
        self._port = port
        self._schedstats = [open(f"/proc/{who}/schedstat", "rb", buffering=0) for who in (pid, os.getpid())]  # noqa: SIM115
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.settimeout(TIMEOUT)
        self._sock.bind(wire.client_address(f"prober{os.getpid()}"))
        self._daemon = wire.daemon_address()
        self._poll = wire.pack_request(wire.Request(3, 0, (os.getpid(), os.getppid())))
        self.forget()

    def forget(self) -> None:
        self.rounds = 0
        self.rpc = self.ipc = self.whole = 0.0
        self.failures: list[str] = []

    def ask_rpc(self) -> None:
        with socket.create_connection(("127.0.0.1", self._port), TIMEOUT) as sock:
            sock.sendall(b'\x12\0\0\0{"fn":"getStatus"}')
            reply = b"".join(iter(lambda: sock.recv(4096), b""))
        if reply != b'\x0c\0\0\0{"status":1}':
            raise ValueError(f"getStatus was answered with {reply!r}")

    def ask_ipc(self) -> None:
        self._sock.sendto(self._poll, self._daemon)
        kind, _ = wire.parse(self._sock.recv(wire.MAX_DATAGRAM))
        if kind != wire.REQUEST:
            raise ValueError(f"a poll was answered with {kind!r}")

    def took(self, ask: Callable[[], None]) -> float:
        """Seconds it took, less those in which a CPU was waited for."""
        waited, begun = self.waited(), time.monotonic()
        ask()
        whole = time.monotonic() - begun
        self.whole = max(self.whole, whole)
        # Both may have waited at the same time: the longer wait is taken off, not the sum.
        return whole - max(now - then for now, then in zip(self.waited(), waited, strict=True))

    def waited(self) -> list[float]:
        found = []
        for file in self._schedstats:
            file.seek(0)
            found.append(int(file.read().split()[1]) / 1e9)
        return found

    def run(self) -> None:
        print("ready", flush=True)
        while True:
            asked, _, _ = select.select([sys.stdin], [], [], PAUSE)
            if asked:
                if not sys.stdin.readline():
                    return
                self.answer()
            try:
                self.rpc = max(self.rpc, self.took(self.ask_rpc))
                self.ipc = max(self.ipc, self.took(self.ask_ipc))
            except (OSError, ValueError) as error:
                self.failures.append(repr(error))
            self.rounds += 1

    def answer(self) -> None:
        seen = {name: getattr(self, name) for name in ("rounds", "rpc", "ipc", "whole", "failures")}
        print(json.dumps(seen), flush=True)
        self.forget()


if __name__ == "__main__":
    Prober(int(sys.argv[1]), int(sys.argv[2])).run()

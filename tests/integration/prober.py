"""A well-behaved client that asks all the time: RPC getStatus and an IPC poll, every few milliseconds.

    python prober.py PORT        KINETO_IPC_SOCKET_DIR says where the IPC socket is; without it the abstract name

A line on standard input is answered with what was seen since the line before:

    {"rounds": 41, "starved": 0, "rpc": 0.0007, "ipc": 0.0002, "failures": []}

`rpc` and `ipc` are the longest answers in seconds. A round in which this process itself got no CPU for 50 ms says
nothing about the daemon: it is counted as starved. The waits between two rounds, whose length is known, show that.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time

from sonde.agent import wire

PAUSE = 0.005
STARVED = 0.05
TIMEOUT = 2.0


class Prober:
    def __init__(self, port: int) -> None:
        self._port = port
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.settimeout(TIMEOUT)
        self._sock.bind(wire.client_address(f"prober{os.getpid()}"))
        self._daemon = wire.daemon_address()
        self._poll = wire.pack_request(wire.Request(3, 0, (os.getpid(), os.getppid())))
        self.forget()

    def forget(self) -> None:
        self.rounds = self.starved = 0
        self.rpc = self.ipc = 0.0
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

    def round(self) -> tuple[float, float]:
        begun = time.monotonic()
        self.ask_rpc()
        between = time.monotonic()
        self.ask_ipc()
        return between - begun, time.monotonic() - between

    def run(self) -> None:
        print("ready", flush=True)
        took = (0.0, 0.0)
        while True:
            before = time.monotonic()
            asked, _, _ = select.select([sys.stdin], [], [], PAUSE)
            self.note(took, time.monotonic() - before - PAUSE)
            if asked:
                if not sys.stdin.readline():
                    return
                self.answer()
            try:
                took = self.round()
            except (OSError, ValueError) as error:
                took = (0.0, 0.0)
                self.failures.append(repr(error))

    def note(self, took: tuple[float, float], overslept: float) -> None:
        """Two short waits tell on either side of a round whether this process was given the CPU."""
        before = time.monotonic()
        time.sleep(PAUSE)
        overslept = max(overslept, time.monotonic() - before - PAUSE)
        self.rounds += 1
        if overslept > STARVED:
            self.starved += 1
        else:
            self.rpc, self.ipc = max(self.rpc, took[0]), max(self.ipc, took[1])

    def answer(self) -> None:
        seen = {name: getattr(self, name) for name in ("rounds", "starved", "rpc", "ipc", "failures")}
        print(json.dumps(seen), flush=True)
        self.forget()


if __name__ == "__main__":
    Prober(int(sys.argv[1])).run()

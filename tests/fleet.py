"""Many stub daemons in one process: a listener on each of 127.1.0.1, 127.1.0.2, … and all on the same port.

python tests/fleet.py COUNT [--certificate FILE --key FILE --ca FILE] [--shift-ns N] [--silent N]

It prints its port when it listens. Whatever is asked it answers `{"status":1}`; `clock.now` with a clock that is wrong
by (1 + its number) × N nanoseconds. The last --silent of them accept and never answer. A %d in the names of certificate
and key is the number of the host divided by ten: that many share one. Only the standard library.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

_LENGTH = struct.Struct("=i")
SHARING = 10  # hosts of one certificate


def host(number: int) -> str:
    return f"127.1.{number // 250}.{number % 250 + 1}"


class Fleet(NamedTuple):
    pid: int
    addresses: list[str]


@contextmanager
def fleet(count: int, *options: str) -> Iterator[Fleet]:
    """The fleet for as long as the block runs; its process is ended by its id."""
    process = subprocess.Popen([sys.executable, __file__, str(count), *options], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline())
        yield Fleet(process.pid, [f"{host(number)}:{port}" for number in range(count)])
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


class Stub(asyncio.Protocol):
    def __init__(self, shift_ns: int, silent: bool) -> None:
        self._shift_ns = shift_ns
        self._silent = silent
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._silent or len(self._buffer) < _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]:
            return
        answer: dict[str, object] = {"status": 1}
        if b'"clock.now"' in self._buffer:
            answer = {"ok": True, "time_ns": time.time_ns() + self._shift_ns}
        body = json.dumps(answer).encode()
        self._transport.write(_LENGTH.pack(len(body)) + body)
        self._transport.close()


async def serve(args: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    context: ssl.SSLContext | None = None
    port = 0
    for number in range(args.count):
        sock = socket.create_server((host(number), port), backlog=16)
        port = sock.getsockname()[1]
        if args.certificate and number % SHARING == 0:
            context = _context(args, number // SHARING)
        shift, silent = (number + 1) * args.shift_ns, number >= args.count - args.silent
        await loop.create_server(lambda a=shift, b=silent: Stub(a, b), sock=sock, ssl=context, backlog=16)
    print(port, flush=True)
    await asyncio.Event().wait()


def _context(args: argparse.Namespace, number: int) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(args.certificate.replace("%d", str(number)), args.key.replace("%d", str(number)))
    context.load_verify_locations(args.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    for name in ("--certificate", "--key", "--ca"):
        parser.add_argument(name)
    parser.add_argument("--shift-ns", type=int, default=0)
    parser.add_argument("--silent", type=int, default=0)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()

"""Call a daemon, blocking: sonde's, or a real dynolog. Imports little: it starts with every command."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

from sonde.address import Address, parse_address
from sonde.errors import TimedOut
from sonde.rpc import failures
from sonde.rpc.codec import LENGTH, REPLY_LIMIT, Message, decode, encode, parse_error, parse_length

_RECEIVE = 262144


def call(address: str, fn: str, /, timeout: float = 5.0, **arguments: object) -> Message:
    """One request, one reply. Raises RpcError for an error reply, Unavailable, TimedOut."""
    where = parse_address(address)
    with _Line(where, timeout) as line:
        line.send({**arguments, "fn": fn})
        return line.receive()


def stream(address: str, fn: str, /, timeout: float = 5.0, **arguments: object) -> Iterator[Message]:
    """One request, frames until one with `done`. The timeout is of each frame."""
    where = parse_address(address)
    with _Line(where, timeout) as line:
        line.send({**arguments, "fn": fn})
        while True:
            line.deadline = time.monotonic() + timeout
            message = line.receive()
            yield message
            if message.get("done"):
                return


class _Line:
    """A connection with a deadline for everything said on it."""

    def __init__(self, where: Address, timeout: float) -> None:
        self._where = where
        self._timeout = timeout
        self._buffer = b""
        self.deadline = time.monotonic() + timeout
        try:
            self._sock = _connect(where, timeout)
        except TimeoutError:
            raise self._late() from None
        except (OSError, ValueError) as error:
            raise failures.unreachable(where, error) from None

    def __enter__(self) -> _Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def _late(self) -> TimedOut:
        return failures.late(self._where, self._timeout)

    def send(self, message: Message) -> None:
        try:
            self._sock.sendall(encode(message))
        except TimeoutError:
            raise self._late() from None
        except OSError:
            pass  # a daemon that refused early has closed its end; its reason may still be readable

    def receive(self) -> Message:
        """The next message, or what it says went wrong."""
        length = parse_length(self._exactly(LENGTH.size), REPLY_LIMIT)
        reply = decode(self._exactly(length))
        error = parse_error(reply)
        if error is not None:
            raise error
        return reply

    def _exactly(self, count: int) -> bytes:
        parts = [self._buffer]
        size = len(self._buffer)
        while size < count:
            data = self._some()
            if not data:
                raise failures.closed(self._where, size, count)
            parts.append(data)
            size += len(data)
        whole = b"".join(parts)
        self._buffer = whole[count:]
        return whole[:count]

    def _some(self) -> bytes:
        remaining = self.deadline - time.monotonic()
        if remaining <= 0:
            raise self._late()
        self._sock.settimeout(remaining)
        try:
            return self._sock.recv(_RECEIVE)
        except TimeoutError:
            raise self._late() from None
        except ConnectionResetError:
            return b""


def _connect(where: Address, timeout: float) -> socket.socket:
    if not where.path:
        return socket.create_connection((where.host, where.port), timeout)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout)
        sock.connect(where.path)
    except OSError:
        sock.close()
        raise
    return sock

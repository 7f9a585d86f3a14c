"""Call a daemon, blocking: sonde's, or a real dynolog. Imports little: it starts with every command."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sonde.address import Address, parse_address
from sonde.errors import TimedOut, Unavailable
from sonde.rpc import failures
from sonde.rpc.codec import LENGTH, REPLY_LIMIT, Message, decode, encode, parse_error, parse_length

if TYPE_CHECKING:
    import ssl

_RECEIVE = 262144


def call(
    address: str, fn: str, /, timeout: float = 5.0, tls: ssl.SSLContext | None = None, **arguments: object
) -> Message:
    """One request, one reply. Raises RpcError for an error reply, Unavailable, TimedOut.

    `tls` is a client's context (sonde.rpc.tls); a Unix socket does without it.
    """
    where = parse_address(address)
    with _Line(where, timeout, tls) as line:
        line.send({**arguments, "fn": fn})
        return line.receive()


def stream(
    address: str, fn: str, /, timeout: float = 5.0, tls: ssl.SSLContext | None = None, **arguments: object
) -> Iterator[Message]:
    """One request, frames until one with `done`. The timeout is of each frame."""
    where = parse_address(address)
    with _Line(where, timeout, tls) as line:
        line.send({**arguments, "fn": fn})
        while True:
            line.deadline = time.monotonic() + timeout
            message = line.receive()
            yield message
            if message.get("done"):
                return


def exchange(address: str, body: bytes, /, timeout: float = 5.0) -> bytes:
    """A request's text and the text of its reply, as they are: for those that show them word for word."""
    with _Line(parse_address(address), timeout, None) as line:
        line.write(LENGTH.pack(len(body)) + body)
        return line.frame()


class _Line:
    """A connection with a deadline for everything said on it."""

    def __init__(self, where: Address, timeout: float, tls: ssl.SSLContext | None) -> None:
        self._where = where
        self._timeout = timeout
        self._buffer = b""
        self.deadline = time.monotonic() + timeout
        self._secure = tls is not None and not where.path
        try:
            self._sock = _connect(where, timeout)
        except TimeoutError:
            raise self._late() from None
        except (OSError, ValueError) as error:
            raise failures.unreachable(where, error) from None
        if tls is not None and self._secure:
            self._sock = self._secured(tls)

    def __enter__(self) -> _Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def _secured(self, tls: ssl.SSLContext) -> ssl.SSLSocket:
        from sonde.rpc.handshake import secured  # with ssl, which most calls do without

        sock = self._sock
        try:
            sock.settimeout(max(0.001, self.deadline - time.monotonic()))
            return secured(sock, tls, self._where)
        except TimeoutError:
            sock.close()
            raise self._late() from None
        except BaseException:
            sock.close()
            raise

    def _late(self) -> TimedOut:
        return failures.late(self._where, self._timeout)

    def send(self, message: Message) -> None:
        self.write(encode(message))

    def write(self, data: bytes) -> None:
        try:
            self._sock.sendall(data)
        except TimeoutError:
            raise self._late() from None
        except OSError:
            pass  # a daemon that refused early has closed its end; its reason may still be readable

    def receive(self) -> Message:
        """The next message, or what it says went wrong."""
        reply = decode(self.frame())
        error = parse_error(reply)
        if error is not None:
            raise error
        return reply

    def frame(self) -> bytes:
        """What follows the next length, whatever it says."""
        return self._exactly(parse_length(self._exactly(LENGTH.size), REPLY_LIMIT))

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
        except OSError as error:
            return self._broken(error)

    def _broken(self, error: OSError) -> bytes:
        """The connection ends without an answer. With TLS 1.3 that is also how a daemon refuses our certificate."""
        if self._secure:
            from sonde.rpc.handshake import failure

            raise failure(self._where, error) from None
        if isinstance(error, ConnectionResetError):
            return b""
        raise Unavailable(f"the connection to {self._where} broke: {error.strerror or error}") from None


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

"""One call on its way that never waits: connect, shake hands, ask, take the reply in dynolog's framing.

Whoever drives it tells when its socket is ready and is told what to wait for next. TLS goes through memory (SSLObject):
the records of a flight are taken from the kernel in one read, and the time stamp of a read is at hand.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

from sonde.address import Address
from sonde.errors import SondeError
from sonde.rpc import failures
from sonde.rpc.codec import LENGTH, Message, decode, parse_error, parse_length
from sonde.rpc.names import Route

if TYPE_CHECKING:
    import ssl

READ = select.EPOLLIN
WRITE = select.EPOLLOUT
REPLY_LIMIT = 64 * 2**20  # bytes; a server of HTTP announces 1.3 GB by its first four letters
_RECEIVE = 65536
# asm-generic/socket.h; the kernel's time of arrival comes with each read, as a struct timespec (socket(7)).
SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("=qq")
_NS = 10**9


class Exchange:
    """A call and what became of it: a reply or an error.

    `sent_ns` and `received_ns` are this host's clock when the last of the request went and the last of the reply came.
    """

    __slots__ = (
        "begun",
        "deadline",
        "error",
        "fd",
        "finished",
        "patience",
        "received_ns",
        "reply",
        "request",
        "routes",
        "sent_ns",
        "subject",
        "took",
        "waits",
        "where",
    )

    def __init__(self, subject: Any, where: Address, request: bytes) -> None:
        self.subject = subject  # the caller's; not looked at here
        self.where = where
        self.request = request
        self.routes: list[Route] = []  # still to be tried
        self.reply: Message | None = None
        self.error: SondeError | None = None
        self.finished = False
        self.begun = self.deadline = self.took = 0.0
        self.patience = 0.0  # when the next route is tried, if this one has not answered
        self.sent_ns = self.received_ns = 0
        self.waits = False  # for its turn
        self.fd = -1  # of its connection, while there is one


class Line:
    """The connection of an exchange, along the first of its routes.

    One that is `timed` has its reads stamped by the kernel and does not ask before `may_ask` is set.
    """

    __slots__ = (
        "_asked",
        "_buffer",
        "_exchange",
        "_expected",
        "_secured",
        "_stamped",
        "_tls",
        "_unsent",
        "connected",
        "may_ask",
        "sock",
        "watched",
    )

    def __init__(self, exchange: Exchange, tls: ssl.SSLContext | None, *, timed: bool) -> None:
        """Begin to connect. Raises OSError when that fails at once: EAGAIN is the full queue of a Unix socket."""
        family, target = exchange.routes[0]
        local = family == socket.AF_UNIX  # the kernel vouches for both sides: no TLS
        self._exchange = exchange
        self._tls = None if local else tls
        self._secured: Secured | None = None
        self._stamped = timed and not local
        self._asked = False
        self._unsent = b""
        self._buffer = bytearray()
        self._expected = LENGTH.size  # bytes of the reply as far as is known
        self.connected = False
        self.may_ask = not timed
        self.watched = WRITE  # what its driver waits for; connect(2) ends with it
        self.sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            if self._stamped:
                self.sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            if self._tls is not None:
                # Nobody answers to the end of our handshake. Nagle's algorithm would hold the request back until the
                # other side's delayed acknowledgement of it, 40 ms later; measured between two network namespaces.
                self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = self.sock.connect_ex(target)
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, os.strerror(code))
        except BaseException:
            self.sock.close()
            raise

    def advance(self, ready: int) -> int:
        """Go on where the socket is ready. Returns what to wait for; 0 when there is a reply.

        Raises OSError when no connection came about, SondeError when one did and failed.
        """
        if not self.connected:
            self._begin()
        elif ready & ~WRITE and self._receive():
            return 0
        if self.may_ask and self.is_set_up:
            self._ask()
        if self._unsent:
            self._send()
        return READ | WRITE if self._unsent else READ  # who refuses a large request may say so before it is all there

    @property
    def is_set_up(self) -> bool:
        """Is asking all that is left to do?"""
        return self.connected and not self._asked and (self._secured is None or self._secured.shaken)

    def _begin(self) -> None:
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        self.connected = True
        if self._tls is not None:
            self._secured = Secured(self._tls, self._exchange)
            self._unsent = self._secured.hello()

    def _ask(self) -> None:
        request = self._exchange.request
        self._unsent += request if self._secured is None else self._secured.sealed(request)
        self._asked = True
        self._exchange.sent_ns = 0

    def _send(self) -> None:
        stamp = time.time_ns()
        try:
            sent = self.sock.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            sent = len(self._unsent)  # a daemon that refused early has closed its end; its reason may still be readable
        self._unsent = self._unsent[sent:]
        if self._asked and not self._exchange.sent_ns and not self._unsent:
            self._exchange.sent_ns = stamp  # before the last of the request went; what TLS may send later is not it

    def _receive(self) -> bool:
        """Take what has come. Is the reply complete?"""
        try:
            data, self._exchange.received_ns = self._read()
        except BlockingIOError:
            return False
        except OSError:
            data = b""  # reset
        ended = not data
        if self._secured is not None:
            data, ended = self._secured.received(data)
            self._unsent += self._secured.waiting()
        if data:
            return self._complete(data)
        if not ended:
            return False
        if self._secured is not None and not self._buffer:
            raise self._secured.torn()
        raise failures.closed(self._exchange.where, len(self._buffer), self._expected)

    def _read(self) -> tuple[bytes, int]:
        """What has come, and when: by the kernel's stamp of it, else now.

        Not when epoll told: the reply may have come since, in the wake of a session ticket.
        """
        if not self._stamped:
            return self.sock.recv(_RECEIVE), time.time_ns()
        data, notes, _, _ = self.sock.recvmsg(_RECEIVE, 64)
        for level, kind, value in notes:
            if (level, kind, len(value)) == (socket.SOL_SOCKET, SO_TIMESTAMPNS, _TIMESPEC.size):
                seconds, nanoseconds = _TIMESPEC.unpack(value)
                return data, seconds * _NS + nanoseconds
        return data, time.time_ns()

    def _complete(self, data: bytes) -> bool:
        buffer = self._buffer
        begins = len(buffer) < LENGTH.size
        buffer += data
        if begins and len(buffer) >= LENGTH.size:
            self._expected = LENGTH.size + parse_length(bytes(buffer[: LENGTH.size]), REPLY_LIMIT)
        if len(buffer) < self._expected:
            return False
        reply = decode(bytes(buffer[LENGTH.size : self._expected]))
        error = parse_error(reply)
        if error is not None:
            raise error
        self._exchange.reply = reply
        return True


class Secured:
    """TLS of one connection, through memory: bytes of the wire go in and come out, the reply's come out in clear."""

    __slots__ = ("_exchange", "_handshake", "_incoming", "_object", "_outgoing", "shaken")

    def __init__(self, context: ssl.SSLContext, exchange: Exchange) -> None:
        import ssl

        from sonde.rpc import handshake

        self._exchange = exchange
        self._handshake = handshake
        self.shaken = False  # our side of the handshake is done; what is still to be sent of it may go with the request
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        name = exchange.where.host.partition("%")[0]  # the zone of a link-local address is ours, not the certificate's
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)

    def torn(self) -> SondeError:
        """Why, as far as one can say, the other side ended the connection without an answer."""
        return self._handshake.failure(self._exchange.where, ConnectionResetError())

    def hello(self) -> bytes:
        self._shake()
        return self.waiting()

    def waiting(self) -> bytes:
        """What is to be sent."""
        return self._outgoing.read()

    def sealed(self, data: bytes) -> bytes:
        self._object.write(data)  # memory takes it all
        return self.waiting()

    def received(self, data: bytes) -> tuple[bytes, bool]:
        """The clear text of what came, and whether nothing more will come; no data is the end of the connection."""
        if not data:
            return b"", True
        self._incoming.write(data)
        if not self.shaken:
            self._shake()
        return self._clear() if self.shaken else (b"", False)

    def _shake(self) -> None:
        import ssl

        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            raise self._handshake.failure(self._exchange.where, error) from None
        self._handshake.check_server(self._object.getpeercert(True), self._exchange.where)
        self.shaken = True

    def _clear(self) -> tuple[bytes, bool]:
        import ssl

        parts = []
        try:
            while part := self._object.read(_RECEIVE):
                parts.append(part)
        except ssl.SSLWantReadError:
            return b"".join(parts), False
        except ssl.SSLZeroReturnError:
            pass  # they have said that this was all
        except ssl.SSLError as error:
            raise self._handshake.failure(self._exchange.where, error) from None
        return b"".join(parts), True

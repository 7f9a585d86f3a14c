"""Connections over mutual TLS, on the loop: a handshake that waits for nobody, then the bytes of a conversation.

    16 03 01 02 00 01 …      a client's hello: a handshake record, version, length, client_hello (RFC 8446, 4.1.2)
    12 00 00 00 7b 22 66 6e  {"fn…: a client that speaks no TLS; it is told so in its own language

A certificate that OpenSSL refuses ends the handshake with an alert. One that OpenSSL takes and we do not is refused in
an answer, which says more than an alert can.
"""

from __future__ import annotations

import logging
import socket
import ssl
import time

from sonde.errors import RpcError
from sonde.loop import READ, WRITE
from sonde.rpc.codec import is_hello
from sonde.rpc.handshake import flaw_of_peer, refusal
from sonde.sockets import RECEIVE, Acceptor, Conversation, Stream

log = logging.getLogger(__name__)

HANDSHAKE_TIME = 5.0  # seconds
_HELLO = b"\x16\x03\x01\x00\xff\x01"
_QUIET = 1.0  # seconds between two lines of the log about clients that were refused

NOT_TLS = RpcError(
    "tls",
    "this address speaks TLS only, and wants a certificate",
    hint="give --certs-dir DIR, or set SONDE_CERTS_DIR; on the node itself the Unix socket needs neither",
)


class _Handshake:
    """The conversation of a connection that is not secured yet; its bytes are OpenSSL's."""

    def __init__(self, stream: SecureStream) -> None:
        self._stream = stream
        stream.allow(HANDSHAKE_TIME)

    def received(self, data: bytes) -> None:
        pass

    def ended(self) -> None:
        pass

    def expired(self) -> None:
        self._stream.refuse(f"no handshake within {HANDSHAKE_TIME:g} s")


class SecureStream(Stream):
    """A connection that begins with a handshake. Raises OSError when the client has gone before it."""

    known = False

    def __init__(self, acceptor: Acceptor, sock: socket.socket, context: ssl.SSLContext, log: RefusalLog) -> None:
        line = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self._log = log
        self._shaking = True
        self._greeted = False  # have its first bytes come?
        self._plain = False  # it speaks no TLS
        self._line = line
        super().__init__(acceptor, line)

    def _opening(self) -> Conversation:
        return _Handshake(self)

    def _read(self) -> None:
        if not self._shaking or self._parting or self._shaken():
            super()._read()

    def _shaken(self) -> bool:
        """Go on with the handshake as far as the client lets us; may the conversation go on?"""
        if not self._greeted and not self._greet():
            return self._plain
        try:
            self._line.do_handshake()
        except ssl.SSLWantReadError:
            self._watch(READ)
            return False
        except ssl.SSLWantWriteError:
            self._watch(WRITE)
            return False
        except OSError as error:
            self.refuse(refusal(error))
            return False
        self._watch(READ)
        self._vet()
        return True

    def _greet(self) -> bool:
        """Look at the first bytes without taking them: is it a handshake that begins?"""
        try:
            hello = socket.socket.recv(self._line, 6, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        if not hello:
            self.close()  # somebody looked whether the port is open
            return False
        self._greeted = True
        if is_hello(hello + _HELLO[len(hello) :]):  # what has not come yet may still be right
            return True
        self._plain = True
        self._begin(NOT_TLS)
        return False

    def _vet(self) -> None:
        """What OpenSSL has verified must also be good enough for us."""
        certificate, flaw = flaw_of_peer(self._line.getpeercert(True), "client")
        if flaw is not None:
            text = f"the client's certificate {flaw.text}"
            self._log.add(self.sock, text)
            self._begin(RpcError("certificate", text, hint=flaw.hint))
        elif certificate is not None:
            self.user = certificate.user
            self.known = True
            self._begin(None)

    def _begin(self, refusal: RpcError | None) -> None:
        self._shaking = False
        self.refusal = refusal
        self._conversation = self._acceptor.converse(self)

    def refuse(self, text: str) -> None:
        """End without an answer. OpenSSL has sent its alert; parting, not closing, lets it arrive."""
        if text:
            self._log.add(self.sock, text)
        self.finish()

    def _receive(self) -> bytes | None:
        if self._plain or self._parting:
            try:
                return socket.socket.recv(self._line, RECEIVE)
            except BlockingIOError:
                return None
        try:
            data = self._line.recv(RECEIVE)
            while self._line.pending():
                data += self._line.recv(RECEIVE)
        except ssl.SSLWantReadError:
            self._watch(READ)
            return None
        except ssl.SSLWantWriteError:  # an update of keys that the client asks for (RFC 8446, 4.6.3)
            self._watch(READ | WRITE)
            return None
        return data

    def _transmit(self, data: bytes | memoryview) -> int:
        if self._plain:
            try:
                return socket.socket.send(self._line, data)
            except BlockingIOError:
                return 0
        sent = 0
        try:
            while sent < len(data):  # one record, 16 KiB, at a time: SSL_MODE_ENABLE_PARTIAL_WRITE
                sent += self._line.send(memoryview(data)[sent:])
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass  # the kernel takes no more now
        return sent

    def _farewell(self) -> None:
        if self._shaking or self._plain:
            return
        try:
            self._line.unwrap()  # close_notify; the client's own is not waited for
        except (OSError, ValueError):
            pass


class RefusalLog:
    """Says in the log who was refused and why, once a second at most: a scanner must not fill a disk."""

    def __init__(self) -> None:
        self._next = 0.0
        self._untold = 0
        self.refused = 0

    def add(self, sock: socket.socket, text: str) -> None:
        self.refused += 1
        now = time.monotonic()
        if now < self._next:
            self._untold += 1
            return
        try:
            where = sock.getpeername()[0]
        except OSError:
            where = "a client that has gone"
        more = f" ({self._untold} more since the last line)" if self._untold else ""
        log.warning("refused a connection from %s: %s%s", where, text, more)
        self._next, self._untold = now + _QUIET, 0

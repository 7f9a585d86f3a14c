"""A server that answers like an OpenTelemetry collector, or as badly as a test wants, over HTTP or TLS."""

from __future__ import annotations

import contextlib
import gzip
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import NamedTuple

from tests.authority import Pair

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n"


class Received(NamedTuple):
    target: str
    headers: dict[str, str]  # names in lower case
    body: bytes  # not compressed any more


def answer(status: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Receiver:
    """Takes one connection after the other. `answers` are used up one per request, then everything is welcome.

    An answer of None is silence, until the client gives up.
    """

    def __init__(self, pair: Pair | None = None, *, client_ca: str = "") -> None:
        self._context: ssl.SSLContext | None = None
        if pair is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(pair.certificate, pair.key)
            if client_ca:
                self._context.load_verify_locations(client_ca)
                self._context.verify_mode = ssl.CERT_REQUIRED
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.url = f"{'https' if pair else 'http'}://localhost:{self.port}"
        self.answers: list[bytes | None] = []
        self.received: list[Received] = []
        self.connections = 0
        self.per_connection = 1000  # requests until it is closed
        self._closing = False
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            sock, _ = self._server.accept()
            sock.settimeout(20)
            if self._closing:
                sock.close()
                return
            self.connections += 1
            with contextlib.suppress(OSError), self._secured(sock) as stream:
                self._converse(stream)

    def _secured(self, sock: socket.socket) -> socket.socket:
        if self._context is None:
            return sock
        stream = self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        try:
            stream.do_handshake()
        except OSError:
            # What is closed with something unread is reset, and the client would not get the alert.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(stream, socket.SHUT_WR)
                while socket.socket.recv(stream, 65536):
                    pass
            stream.close()
            raise
        return stream

    def _converse(self, stream: socket.socket) -> None:
        data = b""
        for _ in range(self.per_connection):
            while b"\r\n\r\n" not in data:
                more = stream.recv(65536)
                if not more:
                    return
                data += more
            head, _, data = data.partition(b"\r\n\r\n")
            line, *rest = head.decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (text.partition(":") for text in rest)}
            length = int(headers["content-length"])
            while len(data) < length:
                data += stream.recv(65536)
            body, data = data[:length], data[length:]
            if headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            reply = self.answers.pop(0) if self.answers else OK
            if reply is None:
                stream.recv(1)  # the client gives up and closes
                return
            self.received.append(Received(line.split()[1], headers, body))
            stream.sendall(reply)

    def close(self) -> None:
        self._closing = True
        with socket.create_connection(("127.0.0.1", self.port)):
            pass
        self._thread.join(30)
        assert not self._thread.is_alive()
        self._server.close()


@contextlib.contextmanager
def receiving(pair: Pair | None = None, *, client_ca: str = "") -> Iterator[Receiver]:
    server = Receiver(pair, client_ca=client_ca)
    try:
        yield server
    finally:
        server.close()

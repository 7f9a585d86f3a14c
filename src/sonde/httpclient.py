"""A small blocking HTTP/1.1 client, after RFC 9112: one server, one kept connection.

    with Client("https://victoria:8428/api/v1/write", tls=Tls(ca="/etc/sonde/ca.crt")) as client:
        reply = client.send(body, headers={"Content-Type": "application/x-protobuf"})

Every call has one deadline for all of connecting, sending and receiving. `ssl` is imported for https only (7 MB), and
the standard library's http.client not at all: it brings the email package, 4 MB.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, NamedTuple

from sonde.address import Address, parse_address
from sonde.errors import ConfigError, ReadError, TimedOut, Unavailable, UsageError

if TYPE_CHECKING:
    import ssl

_LIMIT = 64 * 2**20  # bytes a reply may have
_NO_BODY = (204, 304)
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Tls(NamedTuple):
    """Whom to trust and who we are: PEM files."""

    ca: str = ""  # the authorities; empty: those the system trusts
    certificate: str = ""  # our own, with its chain; empty: none is shown
    key: str = ""  # empty: in the same file as the certificate


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


class TooLarge(ReadError):
    """The server has more to say than is taken; asking for less helps."""


class Url(NamedTuple):
    secure: bool
    address: Address
    target: str


def parse_url(url: str) -> Url:
    scheme, found, rest = url.partition("://")
    if not found or scheme not in ("http", "https") or not url.isascii() or not url.isprintable() or " " in url:
        raise UsageError(f"{url!r} is not a URL", hint="write http://host:port/path")
    authority, slash, path = rest.partition("/")
    secure = scheme == "https"
    if ":" not in authority.rpartition("]")[2]:
        authority += ":443" if secure else ":80"
    return Url(secure, parse_address(authority), slash + path or "/")


class Client:
    """Sends to one URL. Used by one thread at a time.

    The TLS files are read when the client is made, which raises ConfigError, and again when they have changed.
    """

    def __init__(
        self, url: str, *, headers: Mapping[str, str] = _NO_HEADERS, timeout: float = 5.0, tls: Tls | None = None
    ) -> None:
        self.url = url
        self._where = parse_url(url)
        self._timeout = timeout
        self._trust = _Trust(tls or Tls(), url) if self._where.secure else None
        self._fixed = f"Host: {self._where.address}\r\n{_lines(headers)}"
        self._stream: _Stream | None = None

    def send(
        self,
        body: bytes = b"",
        *,
        method: str = "POST",
        target: str = "",
        headers: Mapping[str, str] = _NO_HEADERS,
        timeout: float = 0.0,
    ) -> Reply:
        """Ask and wait for the answer. Raises Unavailable, TimedOut or ReadError; an error status is an answer.

        A kept connection that the server has closed in the meantime is made anew, once. `timeout` is for this request.
        """
        timeout = timeout or self._timeout
        length = f"Content-Length: {len(body)}\r\n" if body or method in ("POST", "PUT") else ""
        head = f"{method} {target or self._where.target} HTTP/1.1\r\n{self._fixed}{_lines(headers)}{length}\r\n"
        message = head.encode("latin-1") + body
        deadline = time.monotonic() + timeout
        try:
            return self._exchange(message, method, deadline)
        except TimeoutError:
            self.close()
            raise TimedOut(f"{self.url}: no answer within {timeout:g} s") from None
        except OSError as error:
            self.close()
            raise self._failure(error) from None
        except BaseException:
            self.close()
            raise

    def _exchange(self, message: bytes, method: str, deadline: float) -> Reply:
        if self._stream is not None:
            try:
                return self._ask(self._stream, message, method, deadline)
            except (_Closed, OSError) as error:
                if isinstance(error, TimeoutError):
                    raise
                self.close()
        self._stream = stream = _Stream(self._connect(deadline), self.url)
        try:
            return self._ask(stream, message, method, deadline)
        except _Closed:
            raise ReadError(f"{self.url}: the server closed the connection without an answer") from None
        except self._torn as error:
            return self._last_words(stream, method, deadline, error)

    @property
    def _torn(self) -> tuple[type[OSError], ...]:
        """What a connection raises that the server has closed."""
        return (ConnectionError,) if self._trust is None else self._trust.torn

    def _last_words(self, stream: _Stream, method: str, deadline: float, error: OSError) -> Reply:
        """A server that closes while it is written to may have said why: 413, or an alert of TLS."""
        try:
            reply, _ = stream.reply(method, deadline)
        except (_Closed, ReadError):
            raise error from None
        except self._torn:
            raise error from None
        self.close()
        return reply

    def _ask(self, stream: _Stream, message: bytes, method: str, deadline: float) -> Reply:
        stream.send(message, deadline)
        reply, kept = stream.reply(method, deadline)
        if not kept:
            self.close()
        return reply

    def _connect(self, deadline: float) -> socket.socket:
        where = self._where
        sock = socket.create_connection((where.address.host, where.address.port), _left(deadline))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._trust is None:
            return sock
        try:
            sock.settimeout(_left(deadline))
            return self._trust.context().wrap_socket(sock, server_hostname=where.address.host)
        except BaseException:
            sock.close()
            raise

    def _failure(self, error: OSError) -> Unavailable:
        if self._trust is not None:
            return self._trust.failure(error)
        return Unavailable(f"{self.url}: {error.strerror or error}")

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def request(
    url: str, *, method: str = "GET", body: bytes = b"", headers: Mapping[str, str] = _NO_HEADERS, timeout: float = 5.0
) -> Reply:
    """Ask once, all within `timeout` seconds. Raises Unavailable, TimedOut or ReadError."""
    with Client(url, headers={**headers, "Connection": "close"}, timeout=timeout) as client:
        return client.send(body, method=method)


class _Closed(Exception):
    """The server closed before it answered."""


class _Stream:
    """A connection and what has been received on it and not yet used."""

    def __init__(self, sock: socket.socket, url: str) -> None:
        self._sock = sock
        self._url = url
        self._data = b""

    def send(self, message: bytes, deadline: float) -> None:
        # Not sendall: with TLS its time-out begins anew with every record.
        rest = memoryview(message)
        while rest:
            self._sock.settimeout(_left(deadline))
            rest = rest[self._sock.send(rest) :]

    def reply(self, method: str, deadline: float) -> tuple[Reply, bool]:
        """The next reply, and whether the connection can be used again."""
        while True:
            status, version, headers = self._head(deadline)
            if status >= 200:  # below: an interim reply; the real one follows
                break
        kept = version != "HTTP/1.0" and "close" not in headers.get("connection", "").lower()
        if method == "HEAD" or status in _NO_BODY:
            return Reply(status, headers, b""), kept
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return Reply(status, headers, self._chunks(deadline)), kept
        if headers.get("content-length", "").isdigit():
            return Reply(status, headers, self._take(int(headers["content-length"]), deadline)), kept
        return Reply(status, headers, self._rest(deadline)), False

    def _head(self, deadline: float) -> tuple[int, str, dict[str, str]]:
        while b"\r\n\r\n" not in self._data:
            if not self._more(deadline):
                if not self._data:
                    raise _Closed
                raise ReadError(f"{self._url}: not an HTTP reply: {self._data[:80]!r}")
        head, _, self._data = self._data.partition(b"\r\n\r\n")
        line, *rest = head.decode("latin-1").split("\r\n")
        words = line.split(None, 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise ReadError(f"{self._url}: not an HTTP reply: {line[:80]!r}")
        headers = {name.lower(): value.strip() for name, _, value in (text.partition(":") for text in rest)}
        return int(words[1]), words[0], headers

    def _more(self, deadline: float) -> bool:
        self._sock.settimeout(_left(deadline))
        data = self._sock.recv(65536)
        self._data += data
        if len(self._data) > _LIMIT:
            raise TooLarge(f"{self._url}: a reply of more than {_LIMIT} bytes")
        return bool(data)

    def _take(self, length: int, deadline: float) -> bytes:
        if length > _LIMIT:
            raise TooLarge(f"{self._url}: a reply of {length} bytes; the limit is {_LIMIT}")
        parts, size = [self._data], len(self._data)
        while size < length:
            self._sock.settimeout(_left(deadline))
            data = self._sock.recv(65536)
            if not data:
                raise ReadError(f"{self._url}: the reply ends after {size} of {length} bytes")
            parts.append(data)
            size += len(data)
        data = b"".join(parts)
        self._data = data[length:]
        return data[:length]

    def _rest(self, deadline: float) -> bytes:
        """Everything until the server closes."""
        while self._more(deadline):
            pass
        data, self._data = self._data, b""
        return data

    def _chunks(self, deadline: float) -> bytes:
        parts: list[bytes] = []
        total = 0
        while True:
            line = self._line(deadline)
            try:
                size = int(line.split(b";")[0], 16)
            except ValueError:
                size = -1
            if size < 0:
                raise ReadError(f"{self._url}: a malformed chunk")
            if not size:
                break
            total += size
            if total > _LIMIT:
                raise TooLarge(f"{self._url}: a reply of more than {_LIMIT} bytes")
            parts.append(self._take(size + 2, deadline)[:-2])
        while self._line(deadline):  # trailers
            pass
        return b"".join(parts)

    def _line(self, deadline: float) -> bytes:
        while b"\r\n" not in self._data:
            if not self._more(deadline):
                raise ReadError(f"{self._url}: the reply ends within a chunk")
        line, _, self._data = self._data.partition(b"\r\n")
        return line

    def close(self) -> None:
        self._sock.close()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _lines(headers: Mapping[str, str]) -> str:
    for name, value in headers.items():
        if not f"{name}{value}".isprintable():  # a line break would begin another header
            raise UsageError(f"the header {name!r} holds what no header can: {value!r}")
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])


class _Trust:
    """The TLS context of a client: made once, because reading the system's authorities takes 20 ms, and made anew when
    a file has changed, because certificates are renewed while a daemon runs.
    """

    def __init__(self, tls: Tls, url: str) -> None:
        from sonde import tlserrors

        self.torn = tlserrors.TORN
        self._tls = tls
        self._url = url
        self._seen = self._stamps()
        self._context = self._made()

    def context(self) -> ssl.SSLContext:
        stamps = self._stamps()
        if stamps != self._seen:
            self._context = self._made()
            self._seen = stamps
        return self._context

    def _stamps(self) -> list[tuple[int, int]]:
        """What tells that a file is another one; of a missing one reading it will tell."""
        stamps = []
        for path in filter(None, self._tls):
            try:
                status = os.stat(path)
                stamps.append((status.st_mtime_ns, status.st_ino))
            except OSError:
                stamps.append((0, 0))
        return stamps

    def _made(self) -> ssl.SSLContext:
        import ssl

        tls = self._tls
        try:
            context = ssl.create_default_context(cafile=tls.ca or None)
        except OSError as error:  # SSLError is one: the file is there but holds no certificates
            raise self._unusable("the CA file", tls.ca, error) from None
        if tls.key and not tls.certificate:
            raise ConfigError(f"{self._url}: the key {tls.key} is of no use without its certificate")
        if tls.certificate:
            try:
                # An empty password, because OpenSSL would ask for one on the terminal.
                context.load_cert_chain(tls.certificate, tls.key or None, password="")
            except (OSError, ValueError) as error:
                named = " with the key ".join(filter(None, (tls.certificate, tls.key)))
                raise self._unusable("the certificate", named, error) from None
        return context

    def _unusable(self, what: str, path: str, error: Exception) -> ConfigError:
        from sonde.tlserrors import words

        return ConfigError(f"{self._url}: cannot use {what} {path}: {words(error)}")

    def failure(self, error: OSError) -> Unavailable:
        """What went wrong on a connection with TLS, in words."""
        from sonde.tlserrors import Failure, kind_of, words

        refuses = "refuses our certificate" if self._tls.certificate else "wants a certificate of ours"
        message, hint = {
            Failure.UNTRUSTED: (
                f"the server's certificate is refused: {getattr(error, 'verify_message', '')}",
                "trust its authority with the CA file, or ask for the name that its certificate carries",
            ),
            Failure.TORN: (
                "the server closed the connection",
                "it may want a certificate of ours, or another one: its log has the reason",
            ),
            Failure.REFUSED: (
                f"the server {refuses}: {words(error)}",
                "set the client's certificate and key, of an authority that the server trusts",
            ),
            Failure.PLAIN: ("the server does not speak TLS there", "write http:// instead"),
            Failure.OTHER: (words(error), ""),
        }[kind_of(error)]
        return Unavailable(f"{self._url}: {message}", hint=hint)

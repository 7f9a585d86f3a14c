"""A small HTTP/1.1 server on the loop, after RFC 9110 and RFC 9112.

    GET /metrics HTTP/1.1\\r\\nHost: node01:1779\\r\\nAccept: text/plain\\r\\n\\r\\n

The server answers GET and HEAD from a table of paths, keeps connections alive and reads no bodies: it only shows
things. The standard library's http.server brings 10 MB of imports and a thread per connection.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from sonde.address import Address, parse_address
from sonde.listening import listen
from sonde.loop import Loop
from sonde.sockets import Acceptor, Stream

log = logging.getLogger(__name__)

HEAD_LIMIT = 8192  # bytes of request line and headers
_REQUEST_TIME = 5.0  # seconds for a request that has begun
_IDLE_TIME = 150.0  # seconds between requests: a scraper's usual interval, twice and a half
_COMPRESSED_FROM = 4096  # bytes; below, the headers weigh more than what is saved
_REASONS = {
    200: "OK",
    204: "No Content",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Request(NamedTuple):
    method: str
    path: str
    query: str  # what follows the question mark, as it came
    headers: Mapping[str, str]  # names in lower case
    keep_alive: bool
    chunked: bool  # does the client understand a body of unknown length?


class Response(NamedTuple):
    """A body made of an iterator is written piece by piece, one per turn of the loop, as the client takes it."""

    status: int
    body: bytes | Iterator[bytes] = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = {}


Handler = Callable[[Request], Response]


class Refused(Exception):
    """A request that gets an error and no handler."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.response = Response(status, f"{message}\n".encode(), headers=headers or {})


def parse_request(head: bytes) -> Request:
    """The request line and headers, without the empty line at their end. Raises Refused."""
    line, *rest = head.decode("latin-1").split("\r\n")
    method, space, target = line.partition(" ")
    target, _, version = target.partition(" ")
    if not (method.isalpha() and method.isupper() and space and target.startswith("/")):
        raise Refused(400, "this is not an HTTP request")
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise Refused(400, "only HTTP/1.0 and HTTP/1.1 are spoken here")
    headers = {}
    for text in rest:
        name, colon, value = text.partition(":")
        if not colon or not name or name != name.strip():
            raise Refused(400, "a header is malformed")
        headers[name.lower()] = value.strip()
    path, _, query = target.partition("?")
    modern = version == "HTTP/1.1"
    connection = headers.get("connection", "").lower()
    keep_alive = "close" not in connection if modern else "keep-alive" in connection
    return Request(method, path, query, headers, keep_alive, modern)


class _Conversation:
    """The requests of one connection, one after the other."""

    def __init__(self, server: Server, stream: Stream) -> None:
        self._server = server
        self._stream = stream
        self._buffer = b""
        stream.allow(_REQUEST_TIME)

    def received(self, data: bytes) -> None:
        if not self._buffer:
            self._stream.allow(_REQUEST_TIME)
        self._buffer += data
        self._answer()

    def ended(self) -> None:
        self._stream.close()

    def expired(self) -> None:
        if self._buffer:
            self._last(Refused(408, "the request did not arrive in time").response)
        else:
            self._stream.close()

    def _answer(self) -> None:
        """Answer the first request of the buffer, if it is complete."""
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if len(head) > HEAD_LIMIT:
            self._last(Refused(431, f"more than {HEAD_LIMIT} bytes of headers").response)
            return
        if not found:
            self._stream.allow(_REQUEST_TIME if self._buffer else _IDLE_TIME)
            return
        self._buffer = rest
        try:
            request = parse_request(head.lstrip(b"\r\n"))
        except Refused as refused:
            self._last(refused.response)
            return
        response = self._server.respond(request)
        if not request.keep_alive or response.status >= 400:
            self._last(response, request)
            return
        first, following = encode(request, response, close=False)
        if rest and following is None:
            following = iter(())  # requests sent without waiting are answered one per turn of the loop
        self._stream.send(first, following, self._answer)

    def _last(self, response: Response, request: Request | None = None) -> None:
        self._buffer = b""
        request = request or Request("GET", "/", "", {}, False, False)
        self._stream.send(*encode(request, response, close=True), self._stream.finish)


def encode(request: Request, response: Response, *, close: bool) -> tuple[bytes, Iterator[bytes] | None]:
    """The bytes of a reply: what goes first, and what follows piece by piece."""
    status, body, content_type, headers = response
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Unknown')}", f"Date: {date(time.time())}"]
    lines += [f"Content-Type: {content_type}", *(f"{name}: {value}" for name, value in headers.items())]
    if close:
        lines.append("Connection: close")
    if isinstance(body, bytes):
        lines.append(f"Content-Length: {len(body)}")
    elif request.chunked:
        lines.append("Transfer-Encoding: chunked")
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")
    if request.method == "HEAD":
        return head, None
    if isinstance(body, bytes):
        return head + body, None
    return head, _chunked(body) if request.chunked else body


def _chunked(pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        if piece:  # an empty chunk would end the body (RFC 9112, 7.1)
            yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


def date(seconds: float) -> str:
    """`Sun, 15 Nov 2026 21:42:38 GMT`, whatever the locale."""
    t = time.gmtime(seconds)
    return f"{_DAYS[t[6]]}, {t[2]:02} {_MONTHS[t[1] - 1]} {t[0]} {t[3]:02}:{t[4]:02}:{t[5]:02} GMT"


def compressed(request: Request, response: Response) -> Response:
    """The response in gzip when the client takes it and it is large enough to gain.

    Off unless the server is told to: 139 kB of metrics cost 0.7 ms at the fastest level, more than rendering them
    (benchmarks/exposition.py), and a scraper on the same machine gains nothing.
    """
    accepted = request.headers.get("accept-encoding", "")
    if "gzip" not in accepted or not isinstance(response.body, bytes) or len(response.body) < _COMPRESSED_FROM:
        return response
    import zlib

    press = zlib.compressobj(1, zlib.DEFLATED, 31)  # 31: a gzip header (zlib.h, deflateInit2)
    body = press.compress(response.body) + press.flush()
    return response._replace(
        body=body, headers={**response.headers, "Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    )


class Server:
    """Serves a table of paths. `listen` may be called more than once; all belongs to the loop's thread."""

    def __init__(self, loop: Loop, routes: Mapping[str, Handler], *, limit: int = 64, compress: bool = False) -> None:
        self._routes = routes
        self._compress = compress
        self._acceptor = Acceptor(loop, lambda stream: _Conversation(self, stream), limit=limit)
        self.requests = 0
        self.failures = 0  # handlers that raised

    def listen(self, address: str, *, insecure: bool = False) -> Address:
        """Listen on `127.0.0.1:1779` or `[::1]:0`; returns the address with the port the kernel chose."""
        sock = listen(parse_address(address), insecure=insecure)
        self._acceptor.add(sock)
        name = sock.getsockname()
        return Address(name[0], name[1])

    @property
    def connections(self) -> int:
        return len(self._acceptor)

    def respond(self, request: Request) -> Response:
        self.requests += 1
        handler = self._routes.get(request.path)
        if handler is None:
            known = ", ".join(sorted(self._routes))
            return Refused(404, f"there is no {request.path} here; there is {known}").response
        if request.method not in ("GET", "HEAD"):
            return Refused(405, "only GET and HEAD are answered", {"Allow": "GET, HEAD"}).response
        if request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
            return Refused(400, "a request here has no body").response
        try:
            response = handler(request)
        except Exception:
            self.failures += 1
            log.exception("the handler of %s failed", request.path)
            return Refused(500, "this page failed; the log of the daemon has the reason").response
        return compressed(request, response) if self._compress else response

    def close(self) -> None:
        self._acceptor.close()

"""The RPC server on the loop: one request and one reply per connection, in dynolog's framing.

An error is an answer, never a closed socket: whatever a client sends, it gets `{"ok":false,"error":{…}}`. A function
of ours (`area.verb`) gets `"ok":true` put on its reply; a foreign one (`getStatus`) is answered word for word. A
function that returns an iterator streams: each dictionary is a frame of its own, made when the client has taken the one
before, and the last frame has `"done":true`. A `Pending` is an answer that comes later, a `Feed` a stream that a thread
fills. A function whose entry says `blocks` may wait for a disk or another program: it runs in a thread of its own, and
nobody else waits for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from sonde.address import Address, parse_address
from sonde.errors import RpcError
from sonde.listening import listen
from sonde.loop import Loop
from sonde.rpc.codec import LENGTH, Message, decode, encode, error_reply, is_hello, parse_length
from sonde.rpc.feed import Feed
from sonde.rpc.peer import Peer, Users, from_socket, identify, look_up
from sonde.sockets import Acceptor, Chunks, Stream

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)

REQUEST_TIME = 5.0  # seconds to send a request
BLOCKING_TIME = 30.0  # seconds for a function that waits for others
_CONNECTIONS = 64
_TLS = RpcError(
    "tls", "this address does not speak TLS", hint="leave out --certs-dir, or start the daemon with --certs-dir"
)
_THREADS = 8  # of functions that block; the next is refused, and may be asked again


class Pending:
    """An answer that comes later. Whoever holds it calls `resolve` in the loop's thread, within `seconds`.

    What is resolved after that, a second time, or for a client that has gone, is of no matter.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._answer: Answer | RpcError | None = None
        self._deliver: Callable[[Answer | RpcError], None] | None = None

    def resolve(self, answer: Answer | RpcError) -> None:
        if self._deliver is not None:
            self._deliver(answer)
        elif self._answer is None:
            self._answer = answer

    def then(self, deliver: Callable[[Answer | RpcError], None]) -> None:
        """Say who takes the answer; it may be there already."""
        self._deliver = deliver
        if self._answer is not None:
            deliver(self._answer)


Answer = Message | Iterator[Message] | Feed | Pending
Finish = Callable[[], Answer | RpcError]  # what is left to do in the loop's thread, by a function that blocks
Function = Callable[[Message, Peer], Answer | Finish]


class Entry(NamedTuple):
    """A function and what it needs.

    One that `writes` is only called for a caller somebody vouches for: the kernel, or a certificate. One that
    `identifies` is told who calls when that is known, and answers everybody. One that `blocks` runs in a thread.
    """

    call: Function
    writes: bool = False
    identifies: bool = False
    blocks: bool = False


class _Conversation:
    """One request, one reply."""

    def __init__(self, server: RpcServer, stream: Stream) -> None:
        self._server = server
        self._stream = stream
        self._buffer = b""
        self._pending: Pending | None = None
        stream.allow(REQUEST_TIME)

    def received(self, data: bytes) -> None:
        if self._stream.refusal is not None:
            self._refuse(self._stream.refusal)
            return
        if self._pending is not None:
            return  # one request a connection: whatever follows is not kept
        self._buffer += data
        if len(self._buffer) < LENGTH.size:
            return
        if is_hello(self._buffer):
            self._refuse(_TLS)
            return
        try:
            length = parse_length(self._buffer)
        except RpcError as error:
            self._refuse(error)
            return
        end = LENGTH.size + length
        if len(self._buffer) >= end:
            self._buffer = self._buffer[:end]
            self._respond(self._buffer[LENGTH.size :])

    def _respond(self, body: bytes) -> None:
        self._settle(*self._server.respond(body, self._stream))

    def _settle(self, name: str, answer: Answer | RpcError) -> None:
        if isinstance(answer, Pending):
            self._wait(name, answer)
        elif isinstance(answer, Mapping | RpcError):
            self._reply(self._server.encoded(name, answer), None)
        else:
            if isinstance(answer, Feed):
                answer.start(self._server.waker(self._stream))
            self._reply(b"", self._server.frames(name, answer))

    def ended(self) -> None:
        if self._pending is not None:
            return  # it has said all it wanted to, and waits for the answer
        if self._buffer:
            self._refuse(RpcError("short", f"the request ends after {len(self._buffer)} bytes"))
        else:
            self._stream.close()  # somebody looked whether the port is open

    def expired(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            self._refuse(RpcError("timed-out", f"no answer was ready within {pending.seconds:g} s"))
        else:
            self._refuse(RpcError("timed-out", f"no complete request within {REQUEST_TIME:g} s"))

    def _wait(self, name: str, pending: Pending) -> None:
        self._pending = pending
        self._stream.allow(pending.seconds)
        pending.then(lambda answer: self._resolved(name, pending, answer))

    def _resolved(self, name: str, pending: Pending, answer: Answer | RpcError) -> None:
        if self._pending is pending and not self._stream.closed:
            self._pending = None
            self._settle(name, answer)

    def _refuse(self, error: RpcError) -> None:
        self._reply(self._server.encoded("", error), None)

    def _reply(self, first: bytes, rest: Chunks | None) -> None:
        self._buffer = b""
        self._stream.send(first, rest, self._stream.finish)


class RpcServer:
    """Serves a table of functions. All of it, and every function, runs in the loop's thread."""

    def __init__(self, loop: Loop, functions: Mapping[str, Function | Entry]) -> None:
        self._functions = {name: f if isinstance(f, Entry) else Entry(f) for name, f in functions.items()}
        self._loop = loop
        self._threads = 0
        self._users = Users()
        self._tls: ssl.SSLContext | None = None
        self._acceptor = Acceptor(loop, lambda stream: _Conversation(self, stream), limit=_CONNECTIONS)
        self.requests = 0
        self.errors = 0  # requests that got an error for an answer

    def listen(self, address: str, *, tls: ssl.SSLContext | None = None, insecure: bool = False) -> Address:
        """Listen on `127.0.0.1:1778` or `unix:/run/sonde/rpc.sock`; what others can reach needs `tls` or `insecure`."""
        where = parse_address(address)
        sock = listen(where, insecure=insecure, proves=tls is not None)
        if tls is None:
            self._acceptor.add(sock)
        else:
            from sonde.rpc.secure import RefusalLog, SecureStream

            self.renew(tls)
            refusals = RefusalLog()
            self._acceptor.add(
                sock, lambda acceptor, client: SecureStream(acceptor, client, self._tls or tls, refusals)
            )
        name = sock.getsockname()
        return where if where.path else Address(name[0], name[1])

    def renew(self, tls: ssl.SSLContext) -> None:
        """Certificates for the connections to come on addresses with TLS; those that are there go on as they are."""
        self._tls = tls

    @property
    def connections(self) -> int:
        return len(self._acceptor)

    def respond(self, body: bytes, stream: Stream) -> tuple[str, Answer | RpcError]:
        """The function a request names, and what it answers."""
        self.requests += 1
        try:
            request = decode(body)
            name, entry = self._entry(request)
        except RpcError as error:
            return "", error
        user = stream.user
        if user is not None and (entry.writes or entry.identifies) and not self._users.remembers(user):
            return name, self._after_look_up(user, lambda: self._called(name, entry, request, stream))
        return name, self._called(name, entry, request, stream)

    def _called(self, name: str, entry: Entry, request: Message, stream: Stream) -> Answer | RpcError:
        def call() -> object:
            peer = self._peer(name, entry, stream)
            return self._in_thread(lambda: entry.call(request, peer)) if entry.blocks else entry.call(request, peer)

        return _checked(_guarded(call))

    def _after_look_up(self, user: str, call: Finish) -> Answer | RpcError:
        """Call when it is known who a user of a certificate is here."""
        deadline = time.monotonic() + REQUEST_TIME

        def found(uid: int | None) -> Answer | RpcError:
            self._users.keep(user, uid)
            if time.monotonic() > deadline:  # whoever was told that it failed must not have it done
                return RpcError("timed-out", f"{user} was not found within {REQUEST_TIME:g} s")
            return call()

        return _checked(_guarded(lambda: self._in_thread(lambda: partial(found, look_up(user)), REQUEST_TIME)))

    def encoded(self, name: str, answer: Mapping[str, object] | RpcError) -> bytes:
        """The frame of an answer. One that JSON cannot say is a fault of ours, and is answered as such."""
        try:
            if not isinstance(answer, RpcError):
                return encode(_marked(name, answer))
        except (ValueError, TypeError) as error:
            log.exception("the answer of %s cannot be written", name)
            answer = _internal(error)
        self.errors += 1
        return encode(error_reply(answer))

    def _in_thread(self, work: Callable[[], object], seconds: float = BLOCKING_TIME) -> Pending:
        """Do what may wait in a thread of its own; what that gives is called for the answer in the loop's thread."""
        if self._threads >= _THREADS:
            raise RpcError("busy", f"{_THREADS} such requests are being answered", hint="ask again in a moment")
        pending = Pending(seconds)
        threading.Thread(target=self._work, args=(work, pending), daemon=True).start()
        self._threads += 1
        return pending

    def _work(self, work: Callable[[], object], pending: Pending) -> None:
        answer = _guarded(work)
        self._loop.post(lambda: self._worked(pending, answer))

    def _worked(self, pending: Pending, answer: object) -> None:
        self._threads -= 1
        pending.resolve(_checked(_guarded(answer) if callable(answer) else answer))

    def _entry(self, request: Message) -> tuple[str, Entry]:
        name = request.get("fn")
        if not isinstance(name, str):
            raise RpcError("bad-request", 'a request names its function: {"fn":"getStatus"}')
        entry = self._functions.get(name)
        if entry is None:
            known = ", ".join(sorted(self._functions))
            raise RpcError("unknown-function", f"there is no function {name[:80]!r}", hint=f"there are: {known}")
        return name, entry

    def _peer(self, name: str, entry: Entry, stream: Stream) -> Peer:
        if stream.user is not None:
            peer = from_socket(stream.sock)._replace(uid=self._users.uid(stream.user), name=stream.user)
        elif entry.writes or entry.identifies:
            # Only for those that need it: without sock_diag the table of a node with many connections takes
            # milliseconds.
            peer = identify(stream.sock)
        else:
            peer = from_socket(stream.sock)
        if entry.writes and peer.uid is None:
            raise _denial(name, peer)
        return peer

    def waker(self, stream: Stream) -> Callable[[], None]:
        """What a feed calls, in its own thread, when it has something for the client."""
        return lambda: self._loop.post(stream.resume)

    def frames(self, name: str, answer: Iterator[Message | None]) -> Chunks:
        """Frame a stream; a stream that fails ends with an error that is also its last frame."""
        done = False
        try:
            for message in answer:
                if message is None:
                    yield None  # not ready: the feed wakes the stream when it is
                    continue
                done = bool(message.get("done"))
                yield encode(_marked(name, message))
                if done:
                    return
            yield encode(_marked(name, {"done": True}))
        except RpcError as error:
            self.errors += 1
            yield encode({**error_reply(error), "done": True})
        except Exception as error:
            self.errors += 1
            log.exception("the RPC stream %s failed", name)
            yield encode({**error_reply(_internal(error)), "done": True})
        finally:
            if isinstance(answer, Feed):
                answer.close()  # also when the client has gone, and this generator with its connection

    def close(self) -> None:
        self._acceptor.close()


def _marked(name: str, answer: Mapping[str, object]) -> Mapping[str, object]:
    return answer if "." not in name else {"ok": True, **answer}


def _guarded(work: Callable[[], object]) -> object:
    """What work returns, or the error it is answered with."""
    try:
        return work()
    except RpcError as error:
        return error
    except Exception as error:
        log.exception("an RPC function failed")
        return _internal(error)


def _checked(answer: object) -> Answer | RpcError:
    """An answer that can be given; anything else is a fault of ours."""
    if isinstance(answer, dict | RpcError | Pending | Iterator):
        return answer
    return _internal(TypeError(f"a function must not return a {type(answer).__name__}"))


def _denial(name: str, peer: Peer) -> RpcError:
    if peer.name:
        return RpcError(
            "denied",
            f"{name} changes something, and this node has no user {peer.name!r}, for whom the certificate is",
            hint="its CN must be a user of the node, or root: sonde certs client USER",
        )
    return RpcError(
        "denied",
        f"{name} changes something, and it is not known who is calling from {peer.address}",
        hint="call from the same machine, over the Unix socket or a loopback address, or with a certificate",
    )


def _internal(error: Exception) -> RpcError:
    return RpcError("internal", f"the function failed: {error!r}"[:500], hint="the log of the daemon has the reason")

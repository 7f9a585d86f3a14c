"""Connections that listening sockets accept, on the loop: bounded, with deadlines, none waiting for another.

What is said on a connection is a `Conversation` (HTTP, RPC); how the bytes come and go is here. A reply is an iterator
of chunks: one chunk is made per turn of the loop, when the client has taken the one before, so a large reply delays
nobody and a client that does not read costs a slot and nothing else. None in place of a chunk: the next is not ready.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from sonde.errors import RpcError
from sonde.loop import READ, WRITE, Loop, Timer

log = logging.getLogger(__name__)

RECEIVE = 65536  # bytes taken from the kernel in one turn
_SEND = 262144  # bytes handed to the kernel in one turn
_STALL = 10.0  # seconds a client may take nothing of a reply
_PATIENCE = 60.0  # seconds a reply may wait for whoever makes its next chunk
_DRAIN = 1.0  # seconds a client has to see our end before the connection is cut
_GRACE = 0.1  # seconds a new connection is left alone though there are too many: its client may wait for a CPU
_CROWD = 8  # times the limit, when not even that is granted
_PAUSE = 0.5  # seconds without accepting when descriptors have run out


_END = b"the end of a reply, known by its identity"

Chunks = Iterator[bytes | None]


class Conversation(Protocol):
    """What a protocol does with a connection. All calls come from the loop's thread."""

    def received(self, data: bytes) -> None: ...
    def ended(self) -> None:
        """The client will send no more; it may still read."""

    def expired(self) -> None:
        """The deadline the conversation has set is over."""


class _Over:
    """The conversation of a connection that is closed: whatever still comes is of no matter."""

    def received(self, data: bytes) -> None:
        pass

    def ended(self) -> None:
        pass

    def expired(self) -> None:
        pass


_OVER = _Over()


def _nothing() -> None:
    pass


class Stream:
    """One accepted connection. Either the client has the turn, or a reply is being written, or we are parting.

    A transport of another kind (sonde.rpc.secure) has its own ways to begin, receive, transmit and part.
    """

    user: str | None = None  # whom the client's certificate vouches for; None: it has shown none
    refusal: RpcError | None = None  # why nothing that it asks is answered
    known = True  # false until it has proved who it is, where it must

    def __init__(self, acceptor: Acceptor, sock: socket.socket) -> None:
        self.sock = sock
        self._acceptor = acceptor
        self._loop = acceptor.loop
        self._watched = READ
        self._chunks: Chunks | None = None
        self._pending: bytes | memoryview = b""
        self._then: Callable[[], None] = self.close
        self.writing = False
        self._parting = False
        self._timer: Timer | None = None
        self._deadline = 0.0
        self.begun = self.active = time.monotonic()  # when bytes last moved
        self.closed = False
        self._conversation: Conversation = self._opening()
        self._loop.register(sock, READ, self._on_events)

    def _opening(self) -> Conversation:
        return self._acceptor.converse(self)

    def begin(self) -> None:
        """Look at once: a client sends its request right after it has connected, and the loop is spared a turn."""
        self._guard(self._read)

    def allow(self, seconds: float) -> None:
        """Set the deadline of whoever has the turn."""
        self._deadline = deadline = time.monotonic() + seconds
        timer = self._timer
        # A timer that fires early looks at the deadline again: cheaper than a new timer for every request.
        if timer is None or timer.when > deadline:
            if timer is not None:
                timer.cancel()
            self._timer = self._loop.call_at(deadline, self._on_deadline)

    def send(self, first: bytes, rest: Chunks | None, then: Callable[[], None]) -> None:
        """Write a reply as the client takes it; then call `then`. What the client sends meanwhile waits."""
        self._pending = first
        self._chunks = rest
        self._then = then
        self.writing = True
        self.allow(_STALL)
        self._guard(self._write)

    def resume(self) -> None:
        """Go on with a reply whose next chunk was not ready."""
        if self.writing and not self.closed:
            self.allow(_STALL)
            self._guard(self._write)

    def finish(self) -> None:
        """Part so that what was written arrives: closing with unread bytes would reset the connection."""
        if self.closed:
            return
        try:
            self._farewell()
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.close()
            return
        self._parting = True
        self._watch(READ)
        self.allow(_DRAIN)

    def _farewell(self) -> None:
        """The last word of the transport itself."""

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.writing = False
        self._chunks = None
        self._pending = b""
        # Let go of what refers back to us: a closed connection is freed at once, not by the next collection.
        self._then = _nothing
        self._conversation = _OVER
        if self._timer is not None:
            self._timer.cancel()
        self._loop.unregister(self.sock)
        self.sock.close()
        self._acceptor.forget(self)

    def _watch(self, events: int) -> None:
        if events != self._watched:
            self._watched = events
            self._loop.modify(self.sock, events)

    def _on_events(self, events: int) -> None:
        if events & select.EPOLLHUP and not self._watched:
            self.close()  # it had said its last word, and now nobody is left to answer
            return
        self._guard(self._write if self.writing else self._read)

    def _guard(self, step: Callable[[], None]) -> None:
        try:
            step()
        except OSError:
            self.close()  # reset by the client, or a dead link: nobody is there to be told
        except Exception:
            self.close()  # a bug in a conversation ends this connection only; the loop logs it
            raise

    def _receive(self) -> bytes | None:
        """What has come; None when nothing has, and no bytes at the end."""
        try:
            return self.sock.recv(RECEIVE)
        except BlockingIOError:
            return None

    def _transmit(self, data: bytes | memoryview) -> int:
        """How much of it was taken."""
        try:
            return self.sock.send(data)
        except BlockingIOError:
            return 0

    def _read(self) -> None:
        data = self._receive()
        if data is None:
            return
        self.active = time.monotonic()
        if self._parting:
            if not data:
                self.close()
        elif data:
            self._conversation.received(data)
        else:
            self._watch(0)  # an end of file stays readable for ever
            self._conversation.ended()

    def _write(self) -> None:
        """Hand over one chunk, or what is left of it. One chunk is made per turn of the loop."""
        if not self._pending:
            following = next(self._chunks, _END) if self._chunks is not None else _END
            if following is _END:
                self._written()
                return
            if following is None:
                self._watch(0)  # more is to come, and whoever makes it will wake us
                self.allow(_PATIENCE)
                return
            self._pending = following
        sent = self._transmit(self._pending[:_SEND])
        if sent < len(self._pending):
            self._pending = memoryview(self._pending)[sent:]
        elif self._chunks is None:
            self._written()
            return
        else:
            self._pending = b""
        if sent:
            self.active = time.monotonic()
            self.allow(_STALL)
        self._watch(WRITE)

    def _written(self) -> None:
        self.writing = False
        self._chunks = None
        self._pending = b""
        self._watch(READ)
        self._then()

    def _on_deadline(self) -> None:
        self._timer = None
        remaining = self._deadline - time.monotonic()
        if remaining > 0:
            self.allow(remaining)
        elif self._parting or self.writing:
            self.close()
        else:
            self._guard(self._conversation.expired)


class Acceptor:
    """Listening sockets of one protocol and the connections they gave. Beyond `limit` the idlest gives way.

    In a burst that would be one whose client could not send yet: the new have a grace, and there may be more so long.
    """

    def __init__(self, loop: Loop, converse: Callable[[Stream], Conversation], *, limit: int = 64) -> None:
        self.loop = loop
        self.converse = converse
        self._limit = limit
        self._listeners: list[socket.socket] = []
        self._streams: set[Stream] = set()
        self.accepted = 0
        self.displaced = 0  # connections closed to make room

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, sock: socket.socket, transport: Callable[[Acceptor, socket.socket], Stream] = Stream) -> None:
        """Accept what comes to a listening socket. A transport that raises OSError has lost its client already."""
        sock.setblocking(False)
        self._listeners.append(sock)
        self.loop.register(sock, READ, lambda _events: self._accept(sock, transport))

    def forget(self, stream: Stream) -> None:
        self._streams.discard(stream)

    def _accept(self, sock: socket.socket, transport: Callable[[Acceptor, socket.socket], Stream]) -> None:
        try:
            connection, _ = sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # gone before it was accepted
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                raise
            self._pause(sock, error)
            return
        connection.setblocking(False)
        self._make_room()
        self.accepted += 1
        try:
            stream = transport(self, connection)
        except OSError:
            connection.close()
            return
        self._streams.add(stream)
        stream.begin()

    def _make_room(self) -> None:
        """Of those that nobody vouches for, if there are any; of these not the newest, unless they are very many."""
        before = time.monotonic() - _GRACE
        while len(self._streams) >= self._limit:
            pool = [stream for stream in self._streams if not stream.known] or list(self._streams)
            settled = [stream for stream in pool if stream.begun <= before]
            if not settled and len(self._streams) < self._limit * _CROWD:
                return
            self._displace(settled or pool)

    def _displace(self, streams: Iterable[Stream]) -> None:
        """Close the one that has moved nothing for longest: of strangers first, of those being answered last."""
        self.displaced += 1
        min(streams, key=lambda stream: (stream.known, stream.writing, stream.active)).close()

    def _pause(self, sock: socket.socket, error: OSError) -> None:
        # The connection stays in the backlog and readable: without a pause the loop would spin on it.
        log.warning("cannot accept a connection: %s; trying again in %s s", error.strerror, _PAUSE)
        if self._streams:
            self._displace(self._streams)
        self.loop.modify(sock, 0)
        self.loop.call_at(time.monotonic() + _PAUSE, lambda: self._resume(sock))

    def _resume(self, sock: socket.socket) -> None:
        if sock in self._listeners:
            self.loop.modify(sock, READ)

    def close(self) -> None:
        """Stop listening and cut every connection. A Unix socket's path is removed."""
        for sock in self._listeners:
            self.loop.unregister(sock)
            if sock.family == socket.AF_UNIX:
                _unlink(sock)
            sock.close()
        self._listeners.clear()
        for stream in tuple(self._streams):
            stream.close()


def _unlink(sock: socket.socket) -> None:
    try:
        os.unlink(sock.getsockname())
    except OSError:
        pass  # somebody was faster

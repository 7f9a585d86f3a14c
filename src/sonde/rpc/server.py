"""The RPC server on the loop: one request and one reply per connection, in dynolog's framing.

An error is an answer, never a closed socket: whatever a client sends, it gets `{"ok":false,"error":{…}}`. A function
of ours (`area.verb`) gets `"ok":true` put on its reply; a foreign one (`getStatus`) is answered word for word. A
function that returns an iterator streams: each dictionary is a frame of its own, made when the client has taken the one
before, and the last frame has `"done":true`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from sonde.address import Address, parse_address
from sonde.errors import RpcError
from sonde.loop import Loop
from sonde.rpc.codec import LENGTH, Message, decode, encode, error_reply, parse_length
from sonde.rpc.peer import Peer, from_socket, identify
from sonde.sockets import Acceptor, Stream, listen

log = logging.getLogger(__name__)

REQUEST_TIME = 5.0  # seconds to send a request
_CONNECTIONS = 64

Answer = Message | Iterator[Message]
Function = Callable[[Message, Peer], Answer]


class Entry(NamedTuple):
    """A function and what it needs. One that `writes` is only called for a caller the kernel vouches for."""

    call: Function
    writes: bool = False


class _Conversation:
    """One request, one reply."""

    def __init__(self, server: RpcServer, stream: Stream) -> None:
        self._server = server
        self._stream = stream
        self._buffer = b""
        stream.allow(REQUEST_TIME)

    def received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) < LENGTH.size:
            return
        try:
            length = parse_length(self._buffer)
        except RpcError as error:
            self._refuse(error)
            return
        end = LENGTH.size + length
        if len(self._buffer) >= end:
            self._reply(*self._server.respond(self._buffer[LENGTH.size : end], self._stream))

    def ended(self) -> None:
        if self._buffer:
            self._refuse(RpcError("short", f"the request ends after {len(self._buffer)} bytes"))
        else:
            self._stream.close()  # somebody looked whether the port is open

    def expired(self) -> None:
        self._refuse(RpcError("timed-out", f"no complete request within {REQUEST_TIME:g} s"))

    def _refuse(self, error: RpcError) -> None:
        self._server.errors += 1
        self._reply(encode(error_reply(error)), None)

    def _reply(self, first: bytes, rest: Iterator[bytes] | None) -> None:
        self._buffer = b""
        self._stream.send(first, rest, self._stream.finish)


class RpcServer:
    """Serves a table of functions. All of it, and every function, runs in the loop's thread."""

    def __init__(self, loop: Loop, functions: Mapping[str, Function | Entry]) -> None:
        self._functions = {name: f if isinstance(f, Entry) else Entry(f) for name, f in functions.items()}
        self._acceptor = Acceptor(loop, lambda stream: _Conversation(self, stream), limit=_CONNECTIONS)
        self.requests = 0
        self.errors = 0  # requests that got an error for an answer

    def listen(self, address: str, *, insecure: bool = False) -> Address:
        """Listen on `127.0.0.1:1778` or `unix:/run/sonde/rpc.sock`; what others can reach needs `insecure`."""
        where = parse_address(address)
        sock = listen(where, insecure=insecure)
        self._acceptor.add(sock)
        name = sock.getsockname()
        return where if where.path else Address(name[0], name[1])

    @property
    def connections(self) -> int:
        return len(self._acceptor)

    def respond(self, body: bytes, stream: Stream) -> tuple[bytes, Iterator[bytes] | None]:
        """The bytes of the reply: what goes first, and the frames that follow."""
        self.requests += 1
        try:
            request = decode(body)
            name, entry = self._entry(request)
            answer = entry.call(request, self._peer(name, entry, stream))
            if isinstance(answer, Mapping):
                return encode(_marked(name, answer)), None
            return b"", self._frames(name, answer)
        except RpcError as error:
            self.errors += 1
            return encode(error_reply(error)), None
        except Exception as error:
            self.errors += 1
            log.exception("an RPC function failed")
            return encode(error_reply(_internal(error))), None

    def _entry(self, request: Message) -> tuple[str, Entry]:
        name = request.get("fn")
        if not isinstance(name, str):
            raise RpcError("bad-request", 'a request names its function: {"fn":"getStatus"}')
        entry = self._functions.get(name)
        if entry is None:
            known = ", ".join(sorted(self._functions))
            raise RpcError("unknown-function", f"there is no function {name[:80]!r}", hint=f"there are: {known}")
        return name, entry

    @staticmethod
    def _peer(name: str, entry: Entry, stream: Stream) -> Peer:
        # Only for those that need it: without sock_diag the table of a node with many connections takes milliseconds.
        peer = identify(stream.sock) if entry.writes else from_socket(stream.sock)
        if entry.writes and peer.uid is None:
            raise RpcError(
                "denied",
                f"{name} changes something, and it is not known who is calling from {peer.address}",
                hint="call from the same machine, over the Unix socket or a loopback address",
            )
        return peer

    def _frames(self, name: str, answer: Iterator[Message]) -> Iterator[bytes]:
        """Frame a stream; a stream that fails ends with an error that is also its last frame."""
        done = False
        try:
            for message in answer:
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

    def close(self) -> None:
        self._acceptor.close()


def _marked(name: str, answer: Mapping[str, object]) -> Mapping[str, object]:
    return answer if "." not in name else {"ok": True, **answer}


def _internal(error: Exception) -> RpcError:
    return RpcError("internal", f"the function failed: {error!r}"[:500], hint="the log of the daemon has the reason")

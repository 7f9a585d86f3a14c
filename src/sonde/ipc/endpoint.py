"""The datagram socket at which training processes ask for work: unix(7), with the kernel's word on who is asking.

    recvmsg → b"(\\0…req\\0…", SCM_CREDENTIALS (pid 812, uid 1000), from b"\\0dynoconfigclient6f1c…\\0"

libkineto waits 90 ms for an answer and the kernel queues ten datagrams, then its clients wait too. So everything that
has come is taken in one turn of the loop, every answer is sent without waiting, and a client that is gone, deaf or
talks nonsense costs the others nothing: it is counted. An answer goes out of the socket the question came in by; from
any other address it would abort the client.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
import struct
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from sonde.agent import wire
from sonde.errors import Denied, Unavailable
from sonde.hostfs import HostFS
from sonde.loop import READ, Loop
from sonde.netstat import unix_owner

log = logging.getLogger(__name__)

_AT_ONCE = 64  # datagrams taken in one turn: six full queues of the kernel, then the loop looks at the others
_UCRED = struct.Struct("=iII")  # struct ucred: pid, uid, gid
# Room for the credentials and nothing else: descriptors that somebody sends along do not fit and are closed unseen.
_ANCILLARY = socket.CMSG_SPACE(_UCRED.size)
_MODE = 0o666  # who may write to it may send; what a sender may do is decided by who it is

Address = bytes | str
Ancillary = list[tuple[int, int, bytes]]


class Sender(NamedTuple):
    """Who sent a datagram, as the kernel says (SO_PASSCRED)."""

    pid: int  # in our own pid namespace, also for one in a container; 0: not visible from here
    uid: int
    gid: int
    address: Address
    said: bytes = b""  # the credentials and the datagram, as they came


Handler = Callable[[Sender, bytes, bytes], bytes | None]  # sender, type, payload; the answer's datagram, if any
Repeated = Callable[[bytes, Address], bytes | None]  # Sender.said and its address; None when it has to be read


def _never(said: bytes, address: Address) -> None:
    return None


class Endpoint:
    """Receives on one or more addresses. All belongs to the loop's thread."""

    def __init__(self, loop: Loop, handler: Handler, repeated: Repeated = _never) -> None:
        self._loop = loop
        self._handler = handler
        self._repeated = repeated
        self._sockets: list[tuple[socket.socket, str]] = []
        self.received = 0
        self.malformed = 0  # no sense, too long, or nobody to answer
        self.unanswered = 0  # the client was gone, or did not take the answer

    @property
    def addresses(self) -> list[str]:
        return [name for _, name in self._sockets]

    def listen(self, address: bytes) -> None:
        """Listen at a name as wire.daemon_address gives it. Raises Unavailable when somebody else does."""
        name = shown(address)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            # Before it has a name: the first datagram already needs its sender.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            if not address.startswith(b"\0"):
                _remove_dead(address)
            sock.bind(address)
            if not address.startswith(b"\0"):
                os.chmod(address, _MODE)
        except OSError as error:
            sock.close()
            raise _refusal(address, error) from None
        self._sockets.append((sock, name))
        self._loop.register(sock, READ, partial(self._drain, sock))

    def _drain(self, sock: socket.socket, _events: int) -> None:
        """Take what has come.

        A poll mostly comes alone, says what it said 5 s ago and finds the caches cold: it is answered without being
        read, and the queue is not asked for more, because that answer is an exception and epoll says it for nothing.
        """
        left = _AT_ONCE if self._loop.ready > 1 else 1
        while left:
            left -= 1
            try:
                data, ancillary, flags, address = sock.recvmsg(wire.MAX_DATAGRAM, _ANCILLARY)
            except BlockingIOError:
                return
            self.received += 1
            reply = self._repeated(ancillary[0][2] + data, address) if address and ancillary else None
            if reply is None:
                reply = self._read(data, ancillary, flags, address)
            if reply is not None:
                try:
                    sock.sendto(reply, address)
                except OSError:
                    self.unanswered += 1

    def _read(self, data: bytes, ancillary: Ancillary, flags: int, address: Address) -> bytes | None:
        try:
            if flags & socket.MSG_TRUNC or not address:
                raise wire.WireError("cut off, or from nobody")
            return self._handler(_sender(data, ancillary, address), *wire.parse(data))
        except wire.WireError as error:
            log.debug("a datagram from %r: %s", address, error)
        except Exception:
            log.exception("a datagram could not be handled")  # the next one is somebody else's
        self.malformed += 1
        return None

    def close(self) -> None:
        for sock, _ in self._sockets:
            self._loop.unregister(sock)
            name = sock.getsockname()
            sock.close()
            if isinstance(name, str):
                try:
                    os.unlink(name)
                except OSError:
                    pass  # somebody was faster
        self._sockets.clear()


def shown(address: Address) -> str:
    """An address as people write it: @name for an abstract one."""
    text = address if isinstance(address, str) else os.fsdecode(address)
    return "@" + text.strip("\0") if text.startswith("\0") else text


def _sender(data: bytes, ancillary: Ancillary, address: Address) -> Sender:
    for level, kind, who in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS and len(who) == _UCRED.size:
            pid, uid, gid = _UCRED.unpack(who)
            return Sender(pid, uid, gid, address, who + data)
    raise wire.WireError("without credentials")


def _remove_dead(address: bytes) -> None:
    """Remove a socket that a killed process left behind; EADDRINUSE when somebody still listens at it."""
    try:
        if not stat.S_ISSOCK(os.lstat(address).st_mode):
            raise FileExistsError(errno.EEXIST, "there is a file of that name", address)
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(address)
        except ConnectionRefusedError:
            os.unlink(address)
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _refusal(address: bytes, error: OSError) -> Unavailable:
    name = shown(address)
    if error.errno == errno.EADDRINUSE:
        owner = unix_owner(HostFS(), os.fsdecode(address).replace("\0", "@"))
        return Unavailable(
            f"the socket {name} is already taken by {owner or 'a process this user cannot see'}",
            hint="stop that dynolog or sonde, or start this one with --no-tracing (tracing.enabled = false)",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return Denied(f"this user may not listen at {name}")
    return Unavailable(f"cannot listen at {name}: {error.strerror}")

"""Who is calling: by SO_PEERCRED on a Unix socket (unix(7)), by the kernel's socket table on TCP over loopback, by the
certificate on TLS.
"""

from __future__ import annotations

import socket
import time
from typing import NamedTuple

from sonde import netstat
from sonde.address import Address, is_loopback
from sonde.hostfs import HostFS
from sonde.listening import credentials


class Peer(NamedTuple):
    """The caller. `uid` is None when nobody vouches for it; such a caller may only read."""

    uid: int | None
    pid: int | None
    address: str  # `127.0.0.1:40112`, or `unix`
    name: str = ""  # the user a certificate vouches for, whether or not this node knows it


UNKNOWN = Peer(None, None, "?")


def from_socket(sock: socket.socket) -> Peer:
    """What is known at once: everything on a Unix socket, the address only on TCP."""
    if sock.family == socket.AF_UNIX:
        pid, uid, _ = credentials(sock)
        return Peer(uid, pid or None, "unix")  # pid 0: a process of another pid namespace
    try:
        host, port = sock.getpeername()[:2]
    except OSError:
        return UNKNOWN  # gone already
    return Peer(None, None, str(Address(host, port)))


def identify(sock: socket.socket) -> Peer:
    """The caller with the uid that owns the other end of a loopback connection.

    The kernel's table is read while both ends are established, and our end is asked again afterwards: had the client
    gone in between, another process could have been found at its address.
    """
    peer = from_socket(sock)
    if sock.family == socket.AF_UNIX or peer is UNKNOWN:
        return peer
    try:
        server, client = sock.getsockname()[:2], sock.getpeername()[:2]
        if not is_loopback(client[0]):
            return peer
        row = _row(server, client)
        sock.getpeername()  # raises ENOTCONN once the connection was reset
    except OSError:
        return peer
    return peer._replace(uid=row.uid) if row is not None else peer


class Users:
    """The uids of the users that certificates name, remembered: a directory service may take seconds to answer."""

    _SECONDS = 60.0
    _MOST = 1000

    def __init__(self) -> None:
        self._known: dict[str, tuple[int | None, float]] = {}

    def remembers(self, name: str) -> bool:
        found = self._known.get(name)
        return found is not None and time.monotonic() < found[1]

    def uid(self, name: str) -> int | None:
        """What was found; None for a user this node does not have."""
        return self._known.get(name, (None, 0.0))[0]

    def keep(self, name: str, uid: int | None) -> None:
        if len(self._known) >= self._MOST:
            self._known.clear()
        self._known[name] = (uid, time.monotonic() + self._SECONDS)


def look_up(name: str) -> int | None:
    """Ask the node for a user. May wait for the network (nsswitch.conf(5)): not for the loop's thread."""
    if name == "root":
        return 0
    import pwd

    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):  # ValueError: a zero byte, or what is no text to this system
        return None


def _row(server: tuple[str, int], client: tuple[str, int]) -> netstat.Row | None:
    try:
        return netstat.ask_kernel(server, client)
    except OSError:
        return netstat.peer_row(HostFS(), server, client)  # a kernel without sock_diag


def process_of(sock: socket.socket) -> netstat.Owner | None:
    """The process at the other end of a loopback TCP connection. Walks all descriptors: on demand only."""
    row = _row(sock.getsockname()[:2], sock.getpeername()[:2])
    return netstat.holder(HostFS(), row.inode) if row is not None else None

"""Sockets that listen, and what keeps them from it: an address in use, by whom; one that other machines can reach."""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
import struct

from sonde.address import Address
from sonde.errors import ConfigError, Denied, Unavailable
from sonde.hostfs import HostFS
from sonde.netstat import Owner, listener, process_name

log = logging.getLogger(__name__)

# Connections that wait to be accepted. One more, and the kernel drops its first packet without a word: that client
# waits a second and knows nothing. 300 clients that came at once overflowed 128.
_BACKLOG = 1024
_UCRED = struct.Struct("=iII")  # struct ucred: pid, uid, gid


def require_local(address: Address, *, insecure: bool) -> None:
    """Refuse an address that other machines can reach, unless the operator has said that they may."""
    if not address.is_local and not insecure:
        raise ConfigError(
            f"{address} can be reached from other machines, and nothing there proves who is calling",
            hint="use a loopback address, or mutual TLS for the RPC (--certs-dir), or allow it with --insecure"
            " (daemon.insecure = true)",
        )


def listen(address: Address, *, insecure: bool = False, proves: bool = False, mode: int = 0o666) -> socket.socket:
    """A listening socket. Raises Unavailable, naming the owner, when the address is taken. `mode` is a Unix path's.

    Other machines may reach it when whoever calls `proves` who it is, or the operator says that it is `insecure`.
    """
    if address.path:
        return _listen_unix(address, mode)
    require_local(address, insecure=insecure or proves)
    if not address.is_local and not proves:
        log.warning("listening on %s, which other machines can reach, without authentication", address)
    host = "127.0.0.1" if address.host == "localhost" else address.host
    try:
        # As bytes: a str goes through the codec idna, whose tables take 0.3 MB.
        name = host.encode() if host.isascii() else host
        family, _, _, _, where = socket.getaddrinfo(name, address.port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise Unavailable(f"cannot listen on {address}: {error.strerror}") from None
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # inherited by what it accepts
        sock.bind(where)
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise _refusal(address, error, listener(HostFS(), str(where[0]), address.port)) from None
    return sock


def _listen_unix(address: Address, mode: int) -> socket.socket:
    owner = _unix_owner(address)
    if owner is not None:
        raise _refusal(address, OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)), owner)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if stat.S_ISSOCK(_mode_of(address.path)):
            os.unlink(address.path)  # nobody answers: left behind by a process that was killed
        sock.bind(address.path)
        os.chmod(address.path, mode)
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise _refusal(address, error, None) from None
    return sock


def _mode_of(path: str) -> int:
    try:
        return os.lstat(path).st_mode
    except FileNotFoundError:
        return 0


def _unix_owner(address: Address) -> Owner | None:
    """Who answers on a socket's path: SO_PEERCRED of a connection is the listener's (unix(7))."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(1.0)
        try:
            sock.connect(address.path)
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        except OSError as error:
            raise _refusal(address, error, None) from None
        pid, _, _ = credentials(sock)
    return Owner(pid, process_name(HostFS(), pid))


def credentials(sock: socket.socket) -> tuple[int, int, int]:
    """pid, uid and gid of the process at the other end of a Unix socket, as the kernel noted them."""
    pid, uid, gid = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return pid, uid, gid


def _refusal(address: Address, error: OSError, owner: Owner | None) -> Unavailable:
    if error.errno == errno.EADDRINUSE:
        elsewhere = "directory: a daemon has --state DIR" if address.path else "address; port 0 is any free one"
        return Unavailable(
            f"{address} is already taken by {owner or 'a process this user cannot see'}",
            hint=f"stop that process, or choose another {elsewhere}",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return Denied(f"this user may not listen on {address}")
    return Unavailable(f"cannot listen on {address}: {error.strerror}")

"""Who owns a TCP socket: from sock_diag(7), /proc/net/tcp, /proc/net/tcp6 and /proc/PID/fd.

      sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
       1: 0100007F:06F2 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 20737 1 …

An address is the hexadecimal of its 32-bit words as they lie in memory, the port is plain hexadecimal; state 01 is
ESTABLISHED and 0A is LISTEN (net/ipv4/tcp_ipv4.c, get_tcp4_sock; include/net/tcp_states.h).

The tables are written out whole for every read: 27 ms with 22,000 sockets, most of them in TIME_WAIT. Asking sock_diag
for one connection took 10 to 15 µs beside them; the tables remain for kernels without it and for finding listeners.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from sonde.hostfs import HostFS

_ESTABLISHED = b"01"
_LISTEN = b"0A"
_MAPPED = "::ffff:"

# linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_REQUEST = struct.Struct("=BBBxI2s2s16s16sIQ")  # family, protocol, ext, states, both ports and addresses, if, cookie
_NO_COOKIE = 2**64 - 1
_REPLY = struct.Struct("=BBBB48x3III")  # family, state, timer, retransmits, …, uid, inode


class Row(NamedTuple):
    """One socket of the table, as far as it tells an owner."""

    uid: int
    inode: int


class Owner(NamedTuple):
    """A process that holds a socket open."""

    pid: int
    name: str

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})"


def ask_kernel(server: tuple[str, int], client: tuple[str, int]) -> Row | None:
    """The client's end of an established connection, by sock_diag. OSError when the kernel does not know it.

    None when the client's process has closed it: then it belongs to nobody.
    """
    family, packed = _packed(client, server)
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF, *packed, 0, _NO_COOKIE)
    header = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as sock:
        sock.settimeout(1.0)
        sock.send(header + request)
        reply = sock.recv(8192)
    if len(reply) < _HEADER.size + _REPLY.size or _HEADER.unpack_from(reply)[1] != _SOCK_DIAG_BY_FAMILY:
        raise OSError(errno.ENOENT, "sock_diag does not know this connection")
    _, state, *_, uid, inode = _REPLY.unpack_from(reply, _HEADER.size)
    # With no such connection the kernel answers with the listener of its destination: the state tells.
    return Row(uid, inode) if state == int(_ESTABLISHED) and inode else None


def _packed(one: tuple[str, int], other: tuple[str, int]) -> tuple[int, tuple[bytes, bytes, bytes, bytes]]:
    family = socket.AF_INET6 if ":" in one[0] and not one[0].startswith(_MAPPED) else socket.AF_INET
    # An IPv6 socket that speaks IPv4 is hashed by its IPv4 addresses.
    addresses = [socket.inet_pton(family, host.removeprefix(_MAPPED)) for host, _ in (one, other)]
    ports = [port.to_bytes(2, "big") for _, port in (one, other)]
    return family, (ports[0], ports[1], addresses[0], addresses[1])


def row_of(table: bytes, local: bytes, remote: bytes, state: bytes) -> Row | None:
    """The row of one socket; an empty `remote` matches any. None when it is not there or belongs to nobody."""
    needle = b": " + local + b" " + remote
    at = table.find(needle)
    while at >= 0:
        end = table.find(b"\n", at)
        fields = table[at + 2 : end if end >= 0 else None].split(None, 9)
        if len(fields) > 8 and fields[2] == state and fields[6].isdigit() and fields[8].isdigit():
            # A socket its process has closed has no inode and is shown with uid 0: it must not pass for root's.
            return Row(int(fields[6]), int(fields[8])) if int(fields[8]) else None
        at = table.find(needle, at + 1)
    return None


def peer_row(host: HostFS, server: tuple[str, int], client: tuple[str, int]) -> Row | None:
    """The client's end of an established connection between two addresses of this machine."""
    for name, local, remote in _spellings(client, server):
        row = row_of(_table(host, name), local, remote, _ESTABLISHED)
        if row is not None:
            return row
    return None


def listener(host: HostFS, address: str, port: int) -> Owner | None:
    """The process that listens on a port, on this address or on all of them; None when it cannot be seen."""
    row = _listening(host, address, port)
    return None if row is None else holder(host, row.inode)


def listening_uid(host: HostFS, address: str, port: int) -> int | None:
    """The user who listens on a port; None when nobody does. Everyone may ask this of everybody."""
    row = _listening(host, address, port)
    return None if row is None else row.uid


def _listening(host: HostFS, address: str, port: int) -> Row | None:
    anywhere = (("proc/net/tcp", _v4("0.0.0.0", port)), ("proc/net/tcp6", _v6("::", port)))
    exact = [(name, local) for name, local, _ in _spellings((address, port), (address, port))]
    for name, local in (*exact, *anywhere):
        row = row_of(_table(host, name), local, b"", _LISTEN)
        if row is not None:
            return row
    return None


def holder(host: HostFS, inode: int) -> Owner | None:
    """The first process with this socket open. Walks every descriptor this user may see: not for a hot path."""
    target = f"socket:[{inode}]"
    for pid in host.names("proc"):
        if pid.isdigit() and target in _links(host, f"proc/{pid}/fd"):
            return Owner(int(pid), process_name(host, int(pid)))
    return None


def unix_owner(host: HostFS, name: str) -> Owner | None:
    """Who is bound to a Unix socket's name, as /proc/net/unix writes it: its path, or @name, each NUL as @."""
    for line in host.text("proc/net/unix").splitlines()[1:]:
        words = line.split(None, 7)
        if len(words) == 8 and words[7] == name:
            return holder(host, int(words[6]))
    return None


def process_name(host: HostFS, pid: int) -> str:
    try:
        return host.text(f"proc/{pid}/comm")
    except OSError:
        return "?"  # ended since


def _links(host: HostFS, directory: str) -> Iterator[str]:
    try:
        names = host.names(directory)
    except OSError:
        return  # ended since it was listed, or another user's
    for name in names:
        try:
            yield host.link(f"{directory}/{name}")
        except OSError:
            continue  # closed since it was listed


def _table(host: HostFS, name: str) -> bytes:
    try:
        return host.read(name)
    except FileNotFoundError:
        return b""  # a kernel without IPv6


def _spellings(one: tuple[str, int], other: tuple[str, int]) -> Iterator[tuple[str, bytes, bytes]]:
    """Table, address of one end and of the other, in each way the kernel may write them."""
    if ":" in one[0] and not one[0].startswith(_MAPPED):
        yield "proc/net/tcp6", _v6(*one), _v6(*other)
        return
    pair = (one[0].removeprefix(_MAPPED), one[1]), (other[0].removeprefix(_MAPPED), other[1])
    yield "proc/net/tcp", _v4(*pair[0]), _v4(*pair[1])
    # An IPv6 socket may speak IPv4: ::ffff:127.0.0.1.
    yield "proc/net/tcp6", _v6(_MAPPED + pair[0][0], pair[0][1]), _v6(_MAPPED + pair[1][0], pair[1][1])


def _v4(address: str, port: int) -> bytes:
    return _hex(socket.inet_pton(socket.AF_INET, address), port)


def _v6(address: str, port: int) -> bytes:
    return _hex(socket.inet_pton(socket.AF_INET6, address), port)


def _hex(packed: bytes, port: int) -> bytes:
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words).encode() + f":{port:04X}".encode()

"""What waits to be read at a Unix socket: sock_diag(7), as `ss -x` shows it in the column Recv-Q.

libkineto gives up waiting for an answer after 90 ms. One that comes later stays in its queue, and from then on it takes
the answer to its last poll for the answer to this one: everything reaches it a poll too late.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Collection, Iterator

# linux/netlink.h, linux/sock_diag.h and linux/unix_diag.h
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLMSG_DONE = 3
_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_REQUEST = struct.Struct("=BBxxIIIQ")  # family, protocol, states, inode, show, cookie
_MESSAGE = 16  # bytes of struct unix_diag_msg
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_QUEUES = struct.Struct("=II")  # to be read, to be written
_SHOW = 0x11  # UDIAG_SHOW_NAME | UDIAG_SHOW_RQLEN
_NAME, _RQLEN = 0, 4


def unread(names: Collection[bytes]) -> dict[bytes, int]:
    """Bytes of the first message that waits at each of these sockets. Those of other network namespaces are not seen.

    Raises OSError where the kernel has no sock_diag.
    """
    wanted = set(names)
    request = _REQUEST.pack(socket.AF_UNIX, 0, 0xFFFFFFFF, 0, _SHOW, 2**64 - 1)
    found: dict[bytes, int] = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as sock:
        sock.settimeout(1.0)
        sock.send(_HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _DUMP, 1, 0) + request)
        while True:
            data = sock.recv(65536)
            for kind, body in _messages(data):
                if kind != _SOCK_DIAG_BY_FAMILY:
                    return found  # the end of the list, or an error
                name, waiting = parse(body)
                if name in wanted:
                    found[name] = waiting
            if not data:
                return found


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size:
            return
        yield kind, data[at + _HEADER.size : at + length]
        at += -(-length // 4) * 4


def parse(body: bytes) -> tuple[bytes, int]:
    """The name of a socket, and the bytes of the first message that waits there."""
    name, waiting, at = b"", 0, _MESSAGE
    while at + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, at)
        if length < _ATTRIBUTE.size:
            break
        value = body[at + _ATTRIBUTE.size : at + length]
        if kind == _NAME:
            name = value if value.startswith(b"\0") else value.rstrip(b"\0")  # a path may end where its string does
        elif kind == _RQLEN and len(value) >= _QUEUES.size:
            waiting = _QUEUES.unpack_from(value)[0]
        at += -(-length // 4) * 4
    return name, waiting

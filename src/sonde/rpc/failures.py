"""What went wrong with a call, in words: from errno(3) and getaddrinfo(3) to the error tree.

One place for those who wait for a reply (rpc/client.py) and those who do not (rpc/exchange.py).
What goes wrong with TLS is in rpc/handshake.py.
"""

from __future__ import annotations

import socket

from sonde.address import Address
from sonde.errors import Denied, RpcError, TimedOut, Unavailable

_START = "is the daemon running? start it with: sonde daemon"


def late(where: Address, timeout: float) -> TimedOut:
    return TimedOut(f"{where} did not answer within {timeout:g} s")


def unreachable(where: Address, error: OSError | ValueError) -> Unavailable:
    """Why no connection was made. A ValueError is a host that cannot be one: a label of 64 characters, a zero."""
    if isinstance(error, PermissionError):
        return Denied(f"this user may not connect to {where}")
    if isinstance(error, socket.gaierror):
        return Unavailable(
            f"the host {where.host} is not found: {error.strerror}",
            hint=f"is the name right? what this machine knows of it is shown by: getent ahosts {where.host}",
        )
    if isinstance(error, OSError):
        return Unavailable(f"nothing answers on {where}: {error.strerror or error}", hint=_START)
    return Unavailable(f"{where.host!r} is not the name of a host: {error}", hint="write 127.0.0.1:1778 or node01:1778")


def closed(where: Address, size: int, count: int) -> RpcError:
    """The other side has ended the connection before its reply was complete."""
    return RpcError(
        "closed",
        f"{where} closed the connection after {size} of {count} bytes",
        hint="a dynolog daemon does that with a function it does not know",
    )

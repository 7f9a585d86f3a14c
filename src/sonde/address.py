"""Where a daemon is reached, as people write it: `127.0.0.1:1779`, `[::1]:0`, `unix:/run/sonde/rpc.sock`."""

from __future__ import annotations

import socket
from typing import NamedTuple

from sonde.errors import UsageError

_LONGEST_PATH = 107  # sun_path of sockaddr_un holds 108 bytes with the zero (unix(7))


class Address(NamedTuple):
    """A TCP host and port, or the path of a Unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Can only this machine reach it?"""
        return bool(self.path) or self.host == "localhost" or is_loopback(self.host)


def parse_address(text: str, default_port: int | None = None) -> Address:
    """Read an address, or raise UsageError with an example of a good one."""
    if text.startswith("unix:"):
        return _unix(text.removeprefix("unix:"))
    if default_port is not None and ":" not in text:
        text = f"{text}:{default_port}"
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return _refuse(text)
    if not host or " " in host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        return _refuse(text)
    return Address(host, int(port))


def _unix(path: str) -> Address:
    if not path or "\0" in path:
        return _refuse(f"unix:{path}")
    if len(path.encode("utf-8", "surrogateescape")) > _LONGEST_PATH:
        raise UsageError(f"the path of a Unix socket has at most {_LONGEST_PATH} bytes: {path}")
    return Address(path=path)


def _refuse(text: str) -> Address:
    raise UsageError(f"{text!r} is not an address", hint="write 127.0.0.1:1778, [::1]:1778 or unix:/path/to/socket")


def is_loopback(host: str) -> bool:
    """Is this numeric address one that only this machine can reach? A name that must be resolved is not trusted."""
    host = host.removeprefix("::ffff:")  # an IPv4 client of a dual-stack socket
    try:
        return socket.inet_pton(socket.AF_INET, host)[0] == 127
    except OSError:
        return host == "::1"

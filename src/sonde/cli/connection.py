"""Finding the daemon: --host, else SONDE_DAEMON, else the runtime directory's rpc.sock, else port 1778; and proving to
one on another machine who we are: --certs-dir, else SONDE_CERTS_DIR.
"""

from __future__ import annotations

import argparse
import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sonde.daemon.paths import default_paths
from sonde.errors import SondeError, Unavailable
from sonde.rpc import client

if TYPE_CHECKING:
    import ssl

DEFAULT_PORT = 1778  # dynolog's


def add_connection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host",
        metavar="HOST[:PORT]",
        help="the daemon to ask (default: $SONDE_DAEMON, else this node's); unix:/path/rpc.sock also works",
    )
    parser.add_argument(
        "--certs-dir",
        metavar="DIR",
        help="speak mutual TLS, with client.crt, client.key and ca.crt of this directory (else $SONDE_CERTS_DIR)",
    )


def tls_of(args: argparse.Namespace) -> ssl.SSLContext | None:
    """How to speak to the daemons of --host; None: without TLS. A Unix socket never has it."""
    directory = getattr(args, "certs_dir", None) or os.environ.get("SONDE_CERTS_DIR")
    return _context(directory) if directory else None


@lru_cache(maxsize=1)  # `sonde watch` asks every second
def _context(directory: str) -> ssl.SSLContext:
    from sonde.rpc.tls import client_context

    return client_context(directory)


def address_of(args: argparse.Namespace) -> str:
    named = args.host or os.environ.get("SONDE_DAEMON")
    if named:
        return named if named.startswith("unix:") or _has_port(named) else f"{named}:{DEFAULT_PORT}"
    socket_path = default_paths().rpc_socket
    return f"unix:{socket_path}" if os.path.exists(socket_path) else f"127.0.0.1:{DEFAULT_PORT}"


def daemons_of(args: argparse.Namespace) -> list[str]:
    """The daemons that know processes: the one that is named, else this node's and those of the user's `sonde run`."""
    node = address_of(args)
    if args.host or os.environ.get("SONDE_DAEMON"):
        return [node]
    from sonde.daemon import runs

    private = runs.living()
    # Without a daemon of the node the private ones are all there is to ask; without any, its absence is the message.
    return [node, *private] if not private or _listens(node) else private


def _listens(address: str) -> bool:
    try:
        client.call(address, "getStatus", timeout=2.0)
    except Unavailable:
        return False
    except SondeError:
        return True  # it is there, and what is wrong with it shall be said
    return True


def is_here(address: str) -> bool:
    """Is it an address of this host, whose /proc we see?"""
    from sonde.address import is_loopback, parse_address

    where = parse_address(address)
    return bool(where.path) or where.host == "localhost" or is_loopback(where.host)


def _has_port(named: str) -> bool:
    return named.rpartition(":")[2].isdigit() and (named.count(":") == 1 or named.startswith("["))


def call(args: argparse.Namespace, function: str, *, timeout: float = 5.0, **arguments: Any) -> dict[str, Any]:
    return call_at(address_of(args), args, function, timeout=timeout, **arguments)


def call_at(
    address: str, args: argparse.Namespace, function: str, *, timeout: float = 5.0, **arguments: Any
) -> dict[str, Any]:
    """Ask one of several daemons, with the certificate of the command line where there is TLS."""
    tls = None if address.startswith("unix:") else tls_of(args)
    return client.call(address, function, timeout=timeout, tls=tls, **arguments)

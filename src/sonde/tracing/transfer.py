"""A trace file on its way to whoever asked for it: read with the rights of its owner, compressed, in small messages.

{"data": "H4sIA…"} {"data": "…"} … {"done": true, "size": 696110, "sha256": "9f2c…"}

The pieces are one gzip stream; size and sum are of the file itself. A trace shrinks to a tenth.
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
import zlib
from collections.abc import Callable
from typing import TypeVar

from sonde.errors import RpcError, Unavailable
from sonde.hostfs import HostFS
from sonde.rpc.codec import Message
from sonde.tracing.rights import is_running, rights_of, root_of, with_rights
from sonde.tracing.target import Target

T = TypeVar("T")

_PIECE = 262_144  # bytes read at once
_LEVEL = 1  # a third of level 6's time for a tenth more bytes, on a trace of 78 MB
_GZIP = 31  # zlib's window bits for a gzip header


def open_trace(host: HostFS, target: Target) -> int:
    """A descriptor of the file a target has written, opened as its own user. Raises RpcError."""
    try:
        return _as_owner(host, target, lambda root: _open(root, target.path.lstrip("/")))
    except Unavailable as error:
        raise RpcError("not-written", str(error)) from None
    except OSError as error:
        raise RpcError("not-written", f"{target.path}: {error.strerror}") from None


def _as_owner(host: HostFS, target: Target, work: Callable[[int], T]) -> T:
    """Do something below the root directory that a target's process saw, with its rights."""
    pid = target.pid if target.pid and is_running(host, target.pid, target.started) else 0
    rights = rights_of(host, pid, target.uid, target.gid)
    root = root_of(host, pid, target.twin)
    try:
        return with_rights(rights, lambda: work(root))
    finally:
        os.close(root)


def _open(root: int, path: str) -> int:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=root)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(0, "not a plain file")
    return fd


def send(fd: int, limit: int, put: Callable[[Message], None]) -> None:
    """Put all of a file; closes it. Raises RpcError for one beyond the limit."""
    try:
        size = os.fstat(fd).st_size
        if size > limit:
            raise RpcError(
                "too-large",
                f"the file has {size} bytes, more than the {limit} that may be sent",
                hint="record less, raise tracing.max_file_size, or copy it from the node",
            )
        digest, packer = hashlib.sha256(), zlib.compressobj(_LEVEL, wbits=_GZIP)
        sent = 0
        while piece := os.read(fd, _PIECE):
            sent += len(piece)
            digest.update(piece)
            if packed := packer.compress(piece):
                put({"data": base64.b64encode(packed).decode("ascii")})
        put({"data": base64.b64encode(packer.flush()).decode("ascii")})
        put({"done": True, "size": sent, "sha256": digest.hexdigest()})
    except OSError as error:
        raise RpcError("not-written", f"reading failed: {error.strerror}") from None
    finally:
        os.close(fd)


def remove_trace(host: HostFS, target: Target) -> str:
    """Delete the file of a target, or what an unfinished one has left; the path, or nothing when there was none."""
    try:
        return target.path if _as_owner(host, target, lambda root: _remove(root, target.path.lstrip("/"))) else ""
    except Unavailable:
        return ""


def _remove(root: int, path: str) -> bool:
    removed = False
    for name in (path, f"{path}.tmp"):
        try:
            os.unlink(name, dir_fd=root)
            removed = True
        except OSError:
            pass  # not there, or no longer its owner's to remove
    return removed

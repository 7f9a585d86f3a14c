"""The functions of the RPC that hand out a node's part of a recording: record.list and record.fetch.

record.list  {"path": "/scratch/ada/sonde-77", "host": "n2"}    its files and sizes, and recording.json
record.fetch {"path": …, "host": …, "file": "archive.db"}       a stream, as trace.fetch has it

A recorder takes no port, so the daemon of its node speaks for it. It opens only the files of a directory that is a
recording, with the rights of whoever asks: what the caller could not read there, it does not get here.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from typing import Any, TypeVar

from sonde.errors import Denied, ParseError, RpcError
from sonde.jobs.recorder import is_held
from sonde.jobs.recording import ABOUT, ARCHIVE, CONTEXT, parse_about
from sonde.rpc.codec import Message
from sonde.rpc.feed import Feed
from sonde.rpc.peer import Peer
from sonde.tracing.rights import Rights, with_rights
from sonde.tracing.transfer import send

T = TypeVar("T")

FILES = (ABOUT, CONTEXT, ARCHIVE, f"{ARCHIVE}-wal")
LARGEST = 64 * 10**9  # bytes of one file
_ABOUT_BYTES = 2**20


def listing(request: Message, peer: Peer) -> Message:
    """record.list, in a thread."""
    return _as_caller(peer, lambda: _listed(request))


def fetch(request: Message, peer: Peer) -> Feed:
    """record.fetch."""
    name = request.get("file")
    if name not in FILES:
        raise RpcError("bad-request", f"file must be one of {', '.join(FILES)}")

    def make(put: Callable[[Message], None]) -> None:
        send(_as_caller(peer, lambda: _opened(request, name)), LARGEST, put)

    return Feed(make)


def _listed(request: Message) -> Message:
    folder = _folder(request)
    try:
        about = _about(folder)
        files = {name: size for name in FILES if (size := _size(folder, name)) is not None}
        return {"files": files, "about": about, "busy": is_held(f"/proc/self/fd/{folder}")}
    finally:
        os.close(folder)


def _opened(request: Message, name: str) -> int:
    folder = _folder(request)
    try:
        _about(folder)
        return _open(folder, name)
    finally:
        os.close(folder)


def _folder(request: Message) -> int:
    """A descriptor of the node's directory: the path itself, or the one of the host in it."""
    path, host = request.get("path"), request.get("host", "")
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
        raise RpcError("bad-request", "path must be the absolute path of a recording")
    if not isinstance(host, str) or "/" in host or "\0" in host or host in (".", ".."):
        raise RpcError("bad-request", "host must be the name of a node")
    for candidate in (path, os.path.join(path, host)):
        try:
            folder = os.open(candidate, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _refusal(candidate, error) from None
        if _size(folder, ABOUT) is not None:
            return folder
        os.close(folder)
    raise RpcError("not-found", f"{path} holds no recording of {host or 'this node'}")


def _about(folder: int) -> dict[str, Any]:
    fd = _open(folder, ABOUT)
    with os.fdopen(fd, "rb") as file:
        text = file.read(_ABOUT_BYTES)
    try:
        found = json.loads(text)
        parse_about(found, ABOUT)
    except (ValueError, AttributeError, TypeError, ParseError):
        raise RpcError("not-found", f"its {ABOUT} makes no sense: it is no recording") from None
    return dict(found)


def _open(folder: int, name: str) -> int:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        raise _refusal(name, error) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise RpcError("not-found", f"{name} is not a plain file")
    return fd


def _size(folder: int, name: str) -> int | None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _refusal(path: str, error: OSError) -> RpcError:
    if isinstance(error, PermissionError):
        return RpcError("denied", f"{path} may not be read by the user who asks")
    return RpcError("not-found", f"{path}: {error.strerror}")


def _as_caller(peer: Peer, work: Callable[[], T]) -> T:
    if peer.uid is None:
        raise RpcError("denied", "nobody vouches for who is asking", hint="use a Unix socket, or mutual TLS")
    try:
        return with_rights(_rights(peer.uid), work)
    except Denied as error:
        raise RpcError("denied", str(error), hint=error.hint) from None


def _rights(uid: int) -> Rights:
    if uid == os.geteuid():
        return Rights(uid, os.getegid())
    import pwd

    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        raise RpcError("denied", f"this node has no user {uid}") from None
    return Rights(uid, user.pw_gid, tuple(os.getgrouplist(user.pw_name, user.pw_gid)))

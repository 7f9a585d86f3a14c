"""Where the private daemons of `sonde run` live: a directory each, named after the pid of the command, mode 0700.

    /run/user/1000/sonde/run/812/    rpc.sock  dynolog  libkineto.conf  sonde.toml  log

Not in the state directory of a user without a runtime directory: that is in his home, which many hosts share, and where
a pid of one means nothing on another. A directory is held by a lock on it (flock(2)) that its daemon inherits: the
kernel lets go of it whatever the daemon dies of, and who gets it may remove what was left.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from sonde.agent import wire
from sonde.errors import Unavailable

_UNIQUE = "0" * 36  # as long as the UUID that libkineto puts into the name of a client's socket


class Run(NamedTuple):
    """A directory that is ours."""

    directory: str
    lock: int  # a descriptor; who closes the last copy of it lets go

    @property
    def address(self) -> str:
        return rpc_address(self.directory)


def rpc_address(directory: str) -> str:
    return f"unix:{directory}/rpc.sock"


def places(*, uid: int | None = None, environ: os._Environ[str] | dict[str, str] = os.environ) -> list[str]:
    """Directories that may hold those of a user, best first. The variable is not set in every job of a batch system."""
    uid = os.geteuid() if uid is None else uid
    told = environ.get("XDG_RUNTIME_DIR", "")
    found = [os.path.join(told, "sonde")] if told.startswith("/") and _owner(told) == uid else []
    # Not /run/sonde itself: systemd removes that, with everything in it, when the service of the node is stopped.
    found += ["/run/sonde-private"] if uid == 0 else []
    found += [f"/run/user/{uid}/sonde", f"/tmp/sonde-{uid}"]  # noqa: S108 - checked by _own
    return list(dict.fromkeys(found))


def _owner(path: str) -> int:
    try:
        return os.stat(path).st_uid
    except OSError:
        return -1


def own_place() -> str:
    """The first of the places that can be had, made when it is not there. Raises Unavailable."""
    reasons = []
    for place in places():
        try:
            _own(place)
            wire.client_address(_UNIQUE, {"KINETO_IPC_SOCKET_DIR": os.path.join(place, "run", "4194304")})
        except (OSError, wire.WireError) as error:
            reasons.append(str(error))
        else:
            return place
    raise Unavailable("there is no directory for a private daemon: " + "; ".join(reasons))


def _own(path: str) -> None:
    """Make a directory that nobody else can write to; OSError when it is there and another's."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    found = os.lstat(path)  # /tmp is everybody's: a link there could lead anywhere
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(f"{path} is not a directory of this user alone")


def create(pid: int) -> Run:
    """A new directory for the daemon of a process. Raises Unavailable."""
    folder = os.path.join(own_place(), "run")
    try:
        _own(folder)
        for number in range(100):  # a container beside us may have the same pid
            directory = os.path.join(folder, f"{pid}.{number}" if number else str(pid))
            if run := _taken(directory):
                return run
    except OSError as error:
        raise Unavailable(f"{error.filename or folder}: {error.strerror or error}") from None
    raise Unavailable(f"{folder} has a hundred directories of pid {pid}")


def _taken(directory: str) -> Run | None:
    """The directory, locked; None when another has it, or removes it just now."""
    remove_if_dead(directory)
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        return None
    lock = _locked(directory)
    if lock is None:
        return None
    if not os.fstat(lock).st_nlink:
        os.close(lock)
        return None  # swept away between the two calls
    return Run(directory, lock)


def _locked(directory: str) -> int | None:
    """Lock a directory; None when another holds it or it is gone."""
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def remove_if_dead(directory: str) -> bool:
    """Remove what a daemon that was killed left behind; False when its daemon lives."""
    lock = _locked(directory)
    if lock is None:
        return not os.path.isdir(directory)
    remove(directory)
    os.close(lock)
    return True


def remove(directory: str) -> None:
    """Remove a directory and what is in it, as far as that is possible (shutil would bring four compressors along)."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    remove(entry.path)
                else:
                    os.unlink(entry.path)
        os.rmdir(directory)
    except OSError:
        pass  # a client has just made a socket in it, or it is gone: whoever looks next removes the rest


def living() -> list[str]:
    """The addresses of this user's private daemons on this host. What is left of dead ones is removed."""
    held = [directory for directory in sorted(_directories()) if not remove_if_dead(directory)]
    return [rpc_address(directory) for directory in held if os.path.exists(os.path.join(directory, "rpc.sock"))]


def _directories() -> Iterator[str]:
    for place in places():
        folder = os.path.join(place, "run")
        try:
            if _owner(folder) == os.geteuid():
                yield from (entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
        except OSError:
            continue  # nobody has run anything from there

"""Who may append to a file that several jobs share: a lock beside it, with its owner's name in it.

    metrics.h5        metrics.h5.lock: `n1 4711 2026-09-21T14:13:20Z`

It is the kernel's lock (flock(2)) on that file, so a process that dies lets go of it, whatever its working directory
was. Where the filesystem has none (some Lustre mounts answer ENOSYS, some NFS servers ENOLCK), the file's existence is
the lock: it is touched every few seconds, and one that was not for a minute belongs to nobody. Nobody waits for ever:
after the patience is over the owner is named.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sonde.clock import iso
from sonde.errors import Denied, TimedOut

PATIENCE = 600.0  # seconds; 8 jobs that end together and append some MB each need a few
_EVERY = 0.1  # seconds between two tries
_UNSUPPORTED = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)
EXPIRY = 60.0  # seconds after which a lock that nobody touches is stale, where there are no locks of the kernel
_TOUCH = 10.0


@contextmanager
def locked(
    target: str,
    *,
    patience: float = PATIENCE,
    flock: Callable[[int, int], None] = fcntl.flock,
    expiry: float = EXPIRY,
) -> Iterator[None]:
    """Hold the lock of a file. TimedOut names who has it; Denied says that there is no right to lock."""
    path = f"{os.path.realpath(target)}.lock"
    until = time.monotonic() + patience
    try:
        descriptor = _taken(path, until, flock)
        if descriptor is None:
            with _marked(path, until, expiry):
                yield
            return
    except PermissionError as error:
        raise Denied(f"{path}: {error.strerror}", hint="appending needs the right to make a file beside it") from None
    try:
        yield
    finally:
        os.unlink(path)  # before letting go: whoever waits sees that its file is gone, and makes a new one
        os.close(descriptor)


def _taken(path: str, until: float, flock: Callable[[int, int], None]) -> int | None:
    """A descriptor with the kernel's lock; None where there are no such locks."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_same(descriptor, path):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, _owner().encode(), 0)
                return descriptor
        except BlockingIOError:
            pass
        except OSError as error:
            os.close(descriptor)
            if error.errno in _UNSUPPORTED:
                os.unlink(path)
                return None
            raise
        os.close(descriptor)
        _wait(path, until)


def _is_same(descriptor: int, path: str) -> bool:
    """Whether the file that was locked still has its name: its last owner removes it."""
    try:
        now = os.stat(path)
    except FileNotFoundError:
        return False
    mine = os.fstat(descriptor)
    return (mine.st_dev, mine.st_ino) == (now.st_dev, now.st_ino)


@contextmanager
def _marked(path: str, until: float, expiry: float) -> Iterator[None]:
    """The file's existence as the lock, touched for as long as it is held."""
    path = f"{path}.held"
    while (mark := _made(path)) is None:
        _expire(path, expiry)
        _wait(path, until, pause=min(_EVERY, expiry / 4))
    done = threading.Event()
    toucher = threading.Thread(target=_touch, args=(path, done, min(_TOUCH, expiry / 4)), daemon=True)
    toucher.start()
    try:
        yield
    finally:
        done.set()
        toucher.join()
        if _inode(path) == mark:  # not that of another, after we were stopped for longer than a mark is good for
            os.unlink(path)


def _made(path: str) -> int | None:
    """The inode of a mark of our own; None while somebody has one."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        return None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(_owner())
        return os.fstat(file.fileno()).st_ino


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return None


def _expire(path: str, expiry: float) -> None:
    """Take a stale mark away. Renamed first: of several who find it stale one wins, and one that is late sees it."""
    aside = f"{path}.{socket.gethostname()}.{os.getpid()}"
    try:
        if not _is_stale(path, expiry):
            return
        os.rename(path, aside)
    except FileNotFoundError:
        return
    if not _is_stale(aside, expiry):  # somebody else was faster, and this is the new owner's
        try:
            os.link(aside, path)
        except FileExistsError:
            pass
    os.unlink(aside)


def _is_stale(path: str, expiry: float) -> bool:
    return time.time() - os.stat(path).st_mtime >= expiry


def _touch(path: str, done: threading.Event, every: float) -> None:
    while not done.wait(every):
        try:
            os.utime(path)
        except FileNotFoundError:  # expired, after we were stopped for long
            return


def _wait(path: str, until: float, *, pause: float = _EVERY) -> None:
    if time.monotonic() >= until:
        raise TimedOut(
            f"{path.removesuffix('.held').removesuffix('.lock')} is in use by {_read_owner(path)}",
            hint="try again when that has ended, or export to a file of its own",
        )
    time.sleep(pause)


def _owner() -> str:
    return f"{socket.gethostname()} {os.getpid()} {iso(time.time_ns(), digits=0)}\n"


def _read_owner(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            host, pid, since = file.read(300).split()
    except (OSError, ValueError):
        return "somebody"
    return f"process {pid} on {host}, since {since}"

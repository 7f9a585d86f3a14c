"""Look at files with the rights of a process: its user, group and groups, below its own root directory.

In the kernel credentials are a thread's (credentials(7)); only the C library makes them the same for all. So a thread
of its own takes on what /proc/PID/status says of the process, does the work and ends. What a link leads to is then the
kernel's matter: nowhere its owner could not go. Files are found below /proc/PID/root, as the process sees them, also
one in a container.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from sonde.errors import Denied, ParseError, Unavailable
from sonde.hostfs import HostFS
from sonde.procstat import parse_stat

T = TypeVar("T")


class Rights(NamedTuple):
    """Whose rights."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


def rights_of(host: HostFS, pid: int, uid: int, gid: int) -> Rights:
    """Of a process, with the groups it has now; uid and gid are those the kernel put on its datagrams. 0: ended."""
    try:
        text = host.read(f"proc/{pid}/status")
    except OSError:
        return Rights(uid, gid)
    words = text.partition(b"\nGroups:")[2].partition(b"\n")[0].split()
    return Rights(uid, gid, tuple(int(word) for word in words if word.isdigit()))


def is_running(host: HostFS, pid: int, started: int) -> bool:
    """Is it still the process that began at this tick, and not another with its number?"""
    try:
        return parse_stat(host.read(f"proc/{pid}/stat"))[1] == started
    except (OSError, ParseError):
        return False


def root_of(host: HostFS, pid: int, twin: str) -> int:
    """A descriptor of the root directory a process sees, or of its twin's when it has ended. Raises Unavailable."""
    for who in filter(None, (str(pid), twin)):
        try:
            return os.open(host.path(f"proc/{who}/root"), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
    raise Unavailable("the process has ended, and the filesystem it saw is gone with it")


def twin_of(host: HostFS, pid: int) -> str:
    """Who sees the same files under the same names, and will when the process has ended: `self`, `1`, or nobody.

    A daemon that systemd gave a /tmp of its own is not the one.
    """
    try:
        its = _view(host, str(pid))
    except OSError:
        return ""
    for who in ("self", "1"):
        try:
            if _view(host, who) == its:
                return who
        except OSError:
            continue  # a user may not look at process 1
    return ""


def _view(host: HostFS, who: str) -> tuple[int, int, int]:
    root = os.stat(host.path(f"proc/{who}/root"))
    return root.st_dev, root.st_ino, os.stat(host.path(f"proc/{who}/ns/mnt")).st_ino


def with_rights(rights: Rights, work: Callable[[], T]) -> T:
    """Do the work with somebody's rights; raises what it raises. Waits for it: never in the loop's thread."""
    if rights.uid == os.geteuid():
        return work()
    from sonde.native.credentials import take_on  # brings ctypes

    results: list[T] = []
    failures: list[Exception] = []

    def run() -> None:
        try:
            take_on(rights.uid, rights.gid, rights.groups)
            results.append(work())
        except Exception as error:  # noqa: BLE001 - raised again in the thread that waits
            failures.append(error)

    thread = threading.Thread(target=run, name="as-user")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


def check_directory(root: int, path: str) -> None:
    """Can files be made in a directory? Asked with the rights in force. Raises Unavailable with the reason."""
    relative = path.lstrip("/") or "."
    try:
        # The truest question: a file without a name, gone when it is closed (open(2), O_TMPFILE).
        os.close(os.open(relative, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=root))
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            raise _refusal(path, error) from None
        _check_access(root, path, relative)
    folder = os.open(relative, os.O_PATH | os.O_CLOEXEC, dir_fd=root)
    try:
        space = os.statvfs(folder)
    finally:
        os.close(folder)
    if space.f_bavail * space.f_frsize < 2**20:
        raise Unavailable(f"{path}: less than 1 MiB is free there", hint="give another directory on the node")


def _check_access(root: int, path: str, relative: str) -> None:
    """For filesystems without O_TMPFILE: NFS, Lustre."""
    try:
        os.close(os.open(relative, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root))
    except PermissionError:
        pass  # a directory may be written to without being read
    except OSError as error:
        raise _refusal(path, error) from None
    if not os.access(relative, os.W_OK | os.X_OK, dir_fd=root, effective_ids=True):
        raise _refusal(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))


def _refusal(path: str, error: OSError) -> Unavailable:
    if error.errno == errno.ENOENT:
        return Unavailable(f"{path} does not exist", hint="make it on every node, or give another with --directory")
    if error.errno in (errno.EACCES, errno.EPERM):
        return Denied(f"{path} cannot be written to by the process' user", hint="give another with --directory")
    return Unavailable(f"{path}: {error.strerror}", hint="give another directory on the node with --directory")

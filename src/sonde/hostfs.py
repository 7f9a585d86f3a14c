"""The one door to /proc, /sys and the host's files, below a root that can be a captured tree.

Pseudo-files that are read at every tick are kept open and read with pread: opening costs as much as reading
(docs/adr/0003). Two kinds differ in how the kernel hands them out:

- a *record* (/proc/stat, /proc/meminfo, /proc/PID/stat, sysfs attributes) is made whole by one read;
- an *iterated* file (seq_file with a start/next/stop iterator: /proc/net/dev, /proc/vmstat, /proc/diskstats,
  cgroup.procs) gives at most one page per read: 121 interfaces arrived as 4,013 of 15,083 bytes. It must be read
  until 0.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterable
from typing import Final

_FIRST = 16384
_PAGE = 4096  # of the smallest page a kernel has, and so the most one read of an iterator or sysfs attribute gives
_LINE = 1024  # longer than any line of an iterated file that is kept open, unless its reader says otherwise


class _Kept:
    """A descriptor that is kept open; it ends with its owner, whatever becomes of that."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path: Final = path
        self._fd = fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


class HostFile(_Kept):
    """An open pseudo-file. `read` returns its whole present content; OSError as the kernel gives it."""

    __slots__ = ("_enough", "_iterated", "_size")

    def __init__(self, path: str, fd: int, *, iterated: bool, line: int = _LINE) -> None:
        super().__init__(path, fd)
        self._iterated = iterated
        self._size = _FIRST
        # A record is whole when the buffer was larger. An iterator stops at a page only because its next line does
        # not fit in what is left of it (seq_read_iter in fs/seq_file.c): with more than a line left, it has ended.
        self._enough = _PAGE - line if iterated else _FIRST

    def read(self) -> bytes:
        data = os.pread(self._fd, self._size, 0)
        return data if len(data) < self._enough else self._rest(data)

    def _rest(self, data: bytes) -> bytes:
        if not self._iterated:  # a record larger than the buffer: made anew, so read anew
            while len(data) == self._size:
                self._size = self._enough = self._size * 2
                data = os.pread(self._fd, self._size, 0)
            return data
        more = os.pread(self._fd, self._size, len(data))
        if not more:
            return data
        parts = [data, more]
        offset = len(data) + len(more)
        while more := os.pread(self._fd, self._size, offset):
            parts.append(more)
            offset += len(more)
        return b"".join(parts)


class Watched(_Kept):
    """A list whose changes the kernel calls out: /proc/PID/mountinfo (proc_pid_mounts(5), fs/proc_namespace.c).

    Asking whether it has changed takes a microsecond, reading thirty mounts forty.
    """

    __slots__ = ("_poll", "_text")

    def __init__(self, path: str, fd: int) -> None:
        super().__init__(path, fd)
        self._text: bytes | None = None
        self._poll: select.poll | None = None
        if not os.fstat(fd).st_size:  # a pseudo-file has no size; one of a captured tree is read and compared
            self._poll = select.poll()
            self._poll.register(fd, select.POLLPRI)

    def news(self) -> bytes | None:
        """The text when it is new or has changed; None while it is the same."""
        if self._poll is not None and self._text is not None and not self._poll.poll(0):
            return None
        text = self._read()
        if text == self._text:
            return None
        self._text = text
        return text

    def _read(self) -> bytes:
        # Line by line to the end, not by offset: a line can be as long as a page (the layers of an overlay).
        os.lseek(self._fd, 0, os.SEEK_SET)
        parts = []
        while data := os.read(self._fd, _FIRST):
            parts.append(data)
        return b"".join(parts)


class HostFS:
    """The host's file tree. Paths are relative to the root: `proc/stat`, `sys/class/net`."""

    __slots__ = ("root",)

    def __init__(self, root: str = "/") -> None:
        self.root: Final = root.rstrip("/") + "/"

    def path(self, name: str) -> str:
        return self.root + name

    def record(self, name: str) -> HostFile:
        """Keep a file open that one read returns whole."""
        return HostFile(name, os.open(self.root + name, os.O_RDONLY | os.O_CLOEXEC), iterated=False)

    def iterated(self, name: str, *, line: int = _LINE) -> HostFile:
        """Keep a file open that the kernel hands out page by page. `line` is more than its longest one has.

        With a page for `line` (and that of /proc/interrupts is longer still on many CPUs) it is read until 0 always.
        """
        return HostFile(
            name, os.open(self.root + name, os.O_RDONLY | os.O_CLOEXEC), iterated=True, line=min(line, _PAGE)
        )

    def watched(self, name: str) -> Watched:
        """Keep a list open whose changes the kernel calls out."""
        return Watched(name, os.open(self.root + name, os.O_RDONLY | os.O_CLOEXEC))

    def read(self, name: str) -> bytes:
        """Read a file once, whole, whatever its kind."""
        fd = os.open(self.root + name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = []
            while data := os.read(fd, _FIRST):
                parts.append(data)
            return b"".join(parts)
        finally:
            os.close(fd)

    def attributes(self, folder: str, names: Iterable[str]) -> dict[str, bytes | OSError]:
        """Small files of one directory, as sysfs has them; what cannot be read is there as its error.

        One read gives a sysfs attribute whole, and opening it below an open directory spares the walk along the path:
        17 of a network device take 60 µs this way and 88 µs by `read`.
        """
        found: dict[str, bytes | OSError] = {}
        directory = os.open(self.root + folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in names:
                try:
                    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
                    try:
                        found[name] = os.read(fd, _PAGE)
                    finally:
                        os.close(fd)
                except OSError as error:
                    # A traceback holds this frame, which holds `found`, which holds the error: a cycle that would keep
                    # the locals of all callers, and with them the frames of the whole tick, until the next collection.
                    found[name] = error.with_traceback(None)
        finally:
            os.close(directory)
        return found

    def text(self, name: str) -> str:
        """A small attribute as text, without the newline at its end."""
        return self.read(name).decode("utf-8", "replace").rstrip("\n")

    def names(self, name: str) -> list[str]:
        """The entries of a directory, sorted."""
        return sorted(os.listdir(self.root + name))

    def exists(self, name: str) -> bool:
        return os.path.exists(self.root + name)

    def link(self, name: str) -> str:
        return os.readlink(self.root + name)

    def resolved(self, name: str) -> str:
        """Where a path leads when all its links are followed; FileNotFoundError when nowhere."""
        return os.path.realpath(self.root + name, strict=True)

    def statvfs(self, name: str) -> os.statvfs_result:
        return os.statvfs(self.root + name.lstrip("/"))

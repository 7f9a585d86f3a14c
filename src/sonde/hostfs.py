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
from typing import Final

_FIRST = 16384


class HostFile:
    """An open pseudo-file. `read` returns its whole present content; OSError as the kernel gives it."""

    __slots__ = ("_fd", "_iterated", "_size", "path")

    def __init__(self, path: str, fd: int, *, iterated: bool) -> None:
        self.path: Final = path
        self._fd = fd
        self._iterated = iterated
        self._size = _FIRST

    def read(self) -> bytes:
        data = os.pread(self._fd, self._size, 0)
        if not self._iterated and len(data) < self._size:
            return data
        return self._rest(data) if data else data

    def _rest(self, data: bytes) -> bytes:
        if not self._iterated:  # a record larger than the buffer: made anew, so read anew
            while len(data) == self._size:
                self._size *= 2
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

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


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

    def iterated(self, name: str) -> HostFile:
        """Keep a file open that the kernel hands out page by page."""
        return HostFile(name, os.open(self.root + name, os.O_RDONLY | os.O_CLOEXEC), iterated=True)

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

    def statvfs(self, name: str) -> os.statvfs_result:
        return os.statvfs(self.root + name.lstrip("/"))

"""Lines to a file that is rotated, or to standard output or error: what every sink that writes lines shares.

A batch is one write(2), so a crash leaves at most one torn line; a disk that fills up in the middle leaves none.
"""

from __future__ import annotations

import errno
import os
import sys

from sonde.errors import ConfigError, SinkError, Unavailable
from sonde.rotation import rotate

STDOUT = "-"
STDERR = "stderr"

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class LineFile:
    """Appends lines. `reopen` may be called by any thread and takes effect with the next batch."""

    def __init__(self, sink: str, path: str, max_size: int, keep: int) -> None:
        """`sink` is the name of the sink, for messages; the path is a file's, STDOUT or STDERR."""
        if keep < 0 or max_size < 1:
            raise ConfigError(f"sinks.{sink}: max_size must be positive and keep not negative")
        self._path = path
        self._max_size = max_size
        self._keep = keep
        self._is_file = path not in (STDOUT, STDERR)
        self._reopen = False
        self._torn = False  # the last line of a pipe could not be ended
        self._size = 0
        try:
            self._fd = self._open() if self._is_file else os.dup(_standard(path))
        except OSError as error:
            raise Unavailable(f"cannot write to {path}: {error.strerror}") from None

    def _open(self) -> int:
        fd = os.open(self._path, _FLAGS, 0o644)
        self._size = os.fstat(fd).st_size
        return fd

    def write(self, data: bytes) -> None:
        """Append whole lines, or raise SinkError and leave none of them half written."""
        if self._is_file:
            if self._reopen:
                self._follow()
            if self._size + len(data) > self._max_size and self._size:
                self._rotate()
        elif self._torn:
            data = b"\n" + data
        try:
            written = os.write(self._fd, data)
            if written < len(data):
                written += self._write_rest(data, written)
        except OSError as error:
            raise self._failure(error) from None
        self._torn = False
        self._size += written

    def _write_rest(self, data: bytes, written: int) -> int:
        """Go on after a short write; when that fails, leave no half line behind."""
        view = memoryview(data)
        begun = written
        try:
            while written < len(data):
                written += os.write(self._fd, view[written:])
        except OSError:
            self._take_back(written)
            raise
        return written - begun

    def _take_back(self, written: int) -> None:
        if not self._is_file:
            self._torn = True
            return
        # The offset is behind what this descriptor wrote last (O_APPEND), whatever others did to the file before.
        end = os.lseek(self._fd, 0, os.SEEK_CUR) - written
        os.ftruncate(self._fd, end)
        self._size = end

    def _failure(self, error: OSError) -> SinkError:
        retry = error.errno not in (errno.EPIPE, errno.EBADF)  # nobody reads our output any more
        return SinkError(f"{self._path}: {error.strerror}", retry=retry)

    def reopen(self) -> None:
        """Write to a new file of the same name from the next batch on: somebody has moved the old one away."""
        self._reopen = True

    def _follow(self) -> None:
        self._reopen = False
        try:
            fd = self._open()
        except OSError as error:
            self._reopen = True
            raise self._failure(error) from None
        os.close(self._fd)
        self._fd = fd

    def _rotate(self) -> None:
        try:
            rotate(self._path, self._keep)
        except OSError as error:
            raise self._failure(error) from None
        self._follow()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _standard(path: str) -> int:
    stream, number = (sys.__stderr__, 2) if path == STDERR else (sys.__stdout__, 1)
    return stream.fileno() if stream else number

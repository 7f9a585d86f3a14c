"""The daemon's log: standard error, or a file that rotates by size and is reopened on SIGHUP."""

from __future__ import annotations

import logging
import os
import sys
import time

from sonde.config import DaemonConfig
from sonde.errors import Unavailable
from sonde.rotation import rotate

_FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s"


class RotatingFile(logging.Handler):
    """Appends to a file; beyond `max_bytes` it becomes `.1`, `.1` becomes `.2`, up to `keep`.

    logging.handlers would bring sockets, pickle and queues into the daemon's memory for this one need.
    """

    def __init__(self, path: str, max_bytes: int, keep: int) -> None:
        super().__init__()
        self._path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._open()

    def _open(self) -> None:
        os.makedirs(os.path.dirname(os.path.abspath(self._path)), exist_ok=True)
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def emit(self, record: logging.LogRecord) -> None:
        line = (self.format(record) + "\n").encode("utf-8", "replace")
        try:
            if self._max_bytes and os.fstat(self._fd).st_size + len(line) > self._max_bytes:
                rotate(self._path, self._keep)
                self.reopen()
            os.write(self._fd, line)
        except OSError:
            self.handleError(record)  # a full disk must not stop the daemon; logging.raiseExceptions is off

    def reopen(self) -> None:
        """Follow a file that was moved away: what comes next goes to a new file of the name."""
        old = self._fd
        self._open()
        os.close(old)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        super().close()


def set_up(config: DaemonConfig) -> logging.Handler:
    """Send the log where the configuration says; returns the handler in use."""
    handler: logging.Handler
    if config.log_file:
        try:
            handler = RotatingFile(config.log_file, config.log_max_size, config.log_keep)
        except OSError as error:
            raise Unavailable(
                f"{config.log_file}: {error.strerror}",
                hint="set daemon.log_file to a file this user may write, or leave it empty for standard error",
            ) from None
    else:
        handler = logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter(_FORMAT, "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    root = logging.getLogger()
    for previous in root.handlers[:]:
        root.removeHandler(previous)
        previous.close()
    root.addHandler(handler)
    root.setLevel(config.log_level.upper())
    logging.raiseExceptions = False
    return handler

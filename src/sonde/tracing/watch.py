"""A thread that looks at the files of traces under way, twenty times a second, and only while there are any.

libkineto makes `trace_812.json.tmp` when it takes a request up, and renames it to `trace_812.json` when it is complete:
the two moments are what a session wants to know. They are looked for, not waited for with inotify(7): a file on NFS or
in a container is seen the same way, and a directory that hangs holds up this thread and nobody else.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections.abc import Callable
from typing import NamedTuple

from sonde.errors import SondeError
from sonde.hostfs import HostFS
from sonde.loop import Loop
from sonde.tracing.rights import root_of

log = logging.getLogger(__name__)

_PERIOD = 0.05  # seconds


Key = tuple[str, int]  # a session, and the process by its own name for itself


class Wanted(NamedTuple):
    """A file somebody is expected to write."""

    key: Key
    pid: int
    uid: int
    path: str
    twin: str  # who sees the same files when the process has ended


class Seen(NamedTuple):
    """What is there of it. Times are Unix nanoseconds, of the last change as the filesystem notes it."""

    begun_ns: int | None = None  # the temporary file
    written_ns: int | None = None
    size: int = 0
    gone: bool = False  # nothing can be seen any more: the process has ended, and its filesystem with it


NOTHING = Seen()


class Watch:
    """Tells the loop what has changed, through `changed(key, seen)`. All methods belong to the loop's thread."""

    def __init__(self, loop: Loop, host: HostFS, changed: Callable[[Key, Seen], None]) -> None:
        self._loop = loop
        self._host = host
        self._changed = changed
        self._wanted: dict[Key, Wanted] = {}
        self._snapshot: tuple[Wanted, ...] = ()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def add(self, wanted: Wanted) -> None:
        self._wanted[wanted.key] = wanted
        self._snapshot = tuple(self._wanted.values())
        if self._thread is None or not self._thread.is_alive():
            self._stop = threading.Event()
            self._thread = threading.Thread(target=self._run, args=(self._stop,), name="trace-files", daemon=True)
            self._thread.start()

    def remove(self, key: Key) -> None:
        self._wanted.pop(key, None)
        self._snapshot = tuple(self._wanted.values())
        if not self._wanted:
            self.close()

    def close(self) -> None:
        self._stop.set()
        self._thread = None

    def _run(self, stop: threading.Event) -> None:
        before: dict[Key, Seen] = {}
        while not stop.wait(_PERIOD):
            for wanted in self._snapshot:
                known = before.get(wanted.key, NOTHING)
                seen = look(self._host, wanted)
                if seen.begun_ns is not None and known.begun_ns is not None:
                    continue  # it grows: when it was begun is known
                if seen != known:
                    before[wanted.key] = seen
                    self._report(wanted.key, seen)

    def _report(self, key: Key, seen: Seen) -> None:
        self._loop.post(lambda: self._changed(key, seen) if key in self._wanted else None)


def look(host: HostFS, wanted: Wanted) -> Seen:
    """What is there now. The file must be a plain one of the process' user: anything else is not its trace."""
    try:
        root = root_of(host, wanted.pid, wanted.twin)
    except SondeError:
        return Seen(gone=True)
    try:
        path = wanted.path.lstrip("/")
        whole = _plain(root, path, wanted.uid)
        if whole is not None:
            return Seen(None, whole.st_mtime_ns, whole.st_size)
        part = _plain(root, f"{path}.tmp", wanted.uid)
        return Seen(part.st_mtime_ns) if part is not None else NOTHING
    finally:
        os.close(root)


def _plain(root: int, path: str, uid: int) -> os.stat_result | None:
    try:
        found = os.stat(path, dir_fd=root, follow_symlinks=False)
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) and found.st_uid == uid else None

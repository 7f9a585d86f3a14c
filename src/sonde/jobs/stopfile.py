"""The file by which a batch script says that the job is over: `.ipc-<jobid>`, as perfmon has it.

    echo FINISHED > .ipc-$SLURM_JOB_ID

For jobs that leave something running: a dask scheduler that nobody stops. No such file is no news, and neither is an
empty one: the shell has opened it, and writes in a moment.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

IN_PROGRESS, FINISHED = "INPROGRESS", "FINISHED"


class StopFile:
    """Looks at one of several places; `asked` when one has been told to stop by a write made since the beginning."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._before = {path: self._stamp(path) for path in dict.fromkeys(paths)}

    def asked(self) -> bool:
        return any(self._says_stop(path, before) for path, before in self._before.items())

    def _says_stop(self, path: str, before: tuple[int, ...]) -> bool:
        stamp = self._stamp(path)
        if not stamp or stamp == before:
            return False  # not there, or left by a recording before this one
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                said = file.read(64).strip()
        except OSError:
            return False
        return said not in ("", IN_PROGRESS)

    @staticmethod
    def _stamp(path: str) -> tuple[int, ...]:
        try:
            found = os.stat(path)
        except OSError:
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_size


def places(directory: str, job_ids: Iterable[str]) -> list[str]:
    """Where a script may write it: where it runs, and where the recording is or goes."""
    folders = (os.getcwd(), os.path.dirname(os.path.abspath(directory)), os.path.abspath(directory))
    return [os.path.join(folder, f".ipc-{name}") for folder in folders for name in dict.fromkeys(job_ids) if name]

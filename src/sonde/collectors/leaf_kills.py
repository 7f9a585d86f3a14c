"""OOM kills below a directory of the v1 memory hierarchy, from memory.oom_control.

oom_kill_disable 0\\nunder_oom 0\\noom_kill 1
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence

from sonde.errors import ParseError
from sonde.hostfs import HostFile, HostFS

_LEAVES = 256  # tasks of a job whose OOM kills are looked at


class LeafKills:
    """OOM kills of a v1 job. v1 counts one only in the victim's own cgroup (memcg_memory_event in include/linux/
    memcontrol.h stops at the first), so those of the tasks are added up, and kept when a task's directory goes.
    One is read at each tick, in turn."""

    keys = ("oom_kills",)

    def __init__(self, host: HostFS, directories: Iterable[str]) -> None:
        self._host = host
        self._files: dict[str, HostFile] = {}
        self._counts: dict[str, int] = {}
        self.add(directories)
        if not self._counts:
            raise FileNotFoundError(errno.ENOENT, "no memory.oom_control")

    def add(self, directories: Iterable[str]) -> None:
        for directory in directories:
            if directory in self._counts or len(self._files) >= _LEAVES:
                continue
            try:
                self._files[directory] = self._host.record(f"{directory}/memory.oom_control")
                self._count(directory)
            except OSError:
                continue  # gone since its process was seen

    def _count(self, directory: str) -> None:
        file = self._files.pop(directory)
        text = file.read()
        self._files[directory] = file  # last in turn
        at = text.find(b"\noom_kill ")  # since 4.17
        try:
            self._counts[directory] = int(text[at + 10 :]) if at >= 0 else int(b"")
        except ValueError:
            raise ParseError(file.path, text) from None

    def read(self) -> Sequence[int]:
        for directory in self._files:
            try:
                self._count(directory)
            except OSError:
                pass  # the task has ended; its count stays
            break
        return (sum(self._counts.values()),)

    def close(self) -> None:
        for file in self._files.values():
            file.close()

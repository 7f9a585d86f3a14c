"""The process ids that came and went, from the names in /proc.

Only new ids are looked at. An id can be given out again, but not before the kernel has handed out all others
(idr_alloc_cyclic in kernel/pid.c), so every half turn, counted by the `processes` line of /proc/stat and
/proc/sys/kernel/pid_max, all ids are presented as new once more.

Listing /proc costs 1.3 ms with a thousand processes, nearly all of it in the kernel. It is spared when there was no
fork since the last listing and there are as many threads as then (/proc/loadavg: `0.03 0.07 0.03 2/85 2118`).
"""

from __future__ import annotations

import os

from sonde.errors import ParseError, Unavailable
from sonde.hostfs import HostFS

_DEFAULT_MAX = 32768


class PidTable:
    """What `changes` has presented is known; `again` asks for some to be presented once more."""

    def __init__(self, host: HostFS) -> None:
        if not host.exists("proc/stat"):
            raise Unavailable("no /proc/stat: is /proc mounted?")
        self._host = host
        self._path = host.path("proc")
        self._known: set[str] = set()
        self._again: set[str] = set()
        self._half_turn = self._pid_max() // 2
        self._forks = self._forked()
        self._population: tuple[int, bytes] | None = None

    def _pid_max(self) -> int:
        try:
            return int(self._host.read("proc/sys/kernel/pid_max"))
        except (OSError, ValueError):
            return _DEFAULT_MAX

    def _forked(self) -> int:
        return parse_forks(self._host.read("proc/stat"))

    def _threads(self) -> bytes:
        try:
            return self._host.read("proc/loadavg").partition(b"/")[2].partition(b" ")[0]
        except OSError:
            return b""

    def changes(self) -> tuple[list[int], list[int]]:
        """The ids that are new, ascending, and those that are gone."""
        forks = self._forked()
        population = (forks, self._threads())  # before the listing: what comes during it is listed again
        if population == self._population and not self._again:
            return [], []
        self._population = population if forks and population[1] else None
        names = set(os.listdir(self._path))
        gone = self._known - names
        if forks - self._forks >= self._half_turn:
            self._forks = forks
            self._known = set()
        new = names - self._known | self._again & names
        self._known = names
        self._again = set()
        return sorted(int(name) for name in new if name.isdigit()), [int(name) for name in gone if name.isdigit()]

    def again(self, pids: list[int]) -> None:
        self._again.update(map(str, pids))


def parse_forks(text: bytes) -> int:
    """The number of forks since boot in /proc/stat: `processes 2118`."""
    at = text.find(b"\nprocesses ")
    try:
        return int(text[at + 11 : text.index(b"\n", at + 1)]) if at >= 0 else 0
    except ValueError:
        raise ParseError("/proc/stat", text[at + 1 : at + 40]) from None

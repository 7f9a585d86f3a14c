"""Which jobs and processes a collector counts, from the keys that those of jobs and of processes have in common.

only = ["77"]                 the job 77, nothing else
without_steps = ["1"]         of it, all but step 1
without_pids = ["812"]        and but for process 812
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from sonde.errors import ConfigError
from sonde.schedulers.discovery import Scope
from sonde.schedulers.job import Job


class Keys(Protocol):
    @property
    def only(self) -> tuple[str, ...]: ...
    @property
    def without_pids(self) -> tuple[str, ...]: ...
    @property
    def without_steps(self) -> tuple[str, ...]: ...


def scope_of(keys: Keys, roots: Mapping[int, Job], section: str) -> Scope:
    """`section` is the collector's name, for messages."""
    return Scope(
        jobs=frozenset(keys.only),
        roots=roots,
        without_pids=frozenset(parse_pids(keys.without_pids, f"collectors.{section}.without_pids")),
        without_steps=frozenset(keys.without_steps),
    )


def parse_pids(texts: Sequence[str], key: str) -> list[int]:
    for text in texts:
        if not text.isascii() or not text.isdigit() or not 0 < int(text) < 1 << 31:
            raise ConfigError(f"{key}: {text!r} is not a process id")
    return list(map(int, texts))

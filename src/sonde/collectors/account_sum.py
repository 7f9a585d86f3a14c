"""The accounts of a job's parts added up: the pods of a training job that are on this node.

Counters of a part that has ended stay in the sum, so that it never goes back; levels leave with their part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sonde.collectors.cgroup import Account, Number, Reshaped, Vanished
from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.schedulers.cgroupfs import Mount

_LEVELS = frozenset(("threads", "rss", "anonymous", "cache", "swap", "usage", "peak", "limit", "inactive"))


class Sum:
    """Reads as an Account does. `keys` are those that every part has."""

    def __init__(self, host: HostFS, mounts: Mapping[str, Mount]) -> None:
        self._host = host
        self._mounts = mounts
        self._parts: dict[str, Account] = {}
        self._cgroups: dict[str, Mapping[str, str]] = {}
        self._leaves: frozenset[str] = frozenset()
        self._last: dict[str, dict[str, Number]] = {}
        self._past: dict[str, Number] = {}  # counters of the parts that have ended
        self.keys: tuple[str, ...] = ()
        self.missing: dict[str, str] = {}

    @property
    def parts(self) -> list[str]:
        """Those that have not ended."""
        return sorted(self._parts)

    def follow(self, parts: Mapping[str, Mapping[str, str]], leaves: Iterable[str]) -> None:
        """Take new parts in. One that has ended is not taken in again."""
        self._leaves = frozenset(leaves)
        for name, cgroups in parts.items():
            if name not in self._cgroups:
                self._cgroups[name] = dict(cgroups)
                self._parts[name] = self._account(name)
            elif name in self._parts:
                self._parts[name].add_leaves(self._leaves_of(name))
        self._settle()

    def _account(self, name: str) -> Account:
        return Account(self._host, self._mounts, self._cgroups[name], self._leaves_of(name))

    def _leaves_of(self, name: str) -> list[str]:
        directory = self._cgroups[name].get("memory", "/")
        return [leaf for leaf in self._leaves if leaf.startswith(directory)]

    def _settle(self) -> None:
        accounts = list(self._parts.values())
        first = accounts[0].keys if accounts else ()
        self.keys = tuple(key for key in first if all(key in account.keys for account in accounts))
        self.missing = {file: reason for account in accounts for file, reason in account.missing.items()}

    def read(self) -> list[Number]:
        """Vanished when the last part has ended, Reshaped when the parts have other keys in common than before."""
        before, renewed = self.keys, False
        for name, account in list(self._parts.items()):
            try:
                self._last[name] = dict(zip(account.keys, account.read(), strict=True))
            except Vanished:
                self._end(name)
            except (Reshaped, OSError, ParseError):
                # A fresh account leaves out what cannot be read.
                account.close()
                self._parts[name] = self._account(name)
                self._settle()
                renewed = True
        if not self._parts:
            raise Vanished
        if renewed or self.keys != before:
            raise Reshaped
        lasts = self._last.values()
        return [sum((last[key] for last in lasts), self._past.get(key, 0)) for key in self.keys]

    def _end(self, name: str) -> None:
        self._parts.pop(name).close()
        for key, value in self._last.pop(name, {}).items():
            if key not in _LEVELS:
                self._past[key] = self._past.get(key, 0) + value
        self._settle()

    def close(self) -> None:
        for account in self._parts.values():
            account.close()
        self._parts = {}

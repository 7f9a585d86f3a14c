"""Reading for facts: small files of the host, where what is missing is normal and what is denied is written down.

    view.text("sys/devices/system/cpu/smt/control")     "on", or None where the kernel has no such file

A fact that is not there is left out of the context. One that is there and may not be read, or makes no sense, is named
in `unseen` with the reason, so that nobody takes silence for absence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from sonde.hostfs import HostFS

Facts = dict[str, Any]

_LARGEST = 2**20  # bytes of one file; /proc/cpuinfo of 512 CPUs has 800 kB, of which the beginning is read apart
_RANGE = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7}))?")
_MOST_CPUS = 65536  # a list may name more, from a damaged file; nobody has them


class Unseen(NamedTuple):
    what: str  # dotted, as the fact would be called: memory.dimms
    reason: str


class View:
    """The files of a host, and what of them could not be seen."""

    def __init__(self, host: HostFS, subject: str = "self") -> None:
        self.host = host
        self.subject = subject  # the process the context is of: a pid, or this one
        self.unseen: list[Unseen] = []

    def miss(self, what: str, reason: str | Exception) -> None:
        if isinstance(reason, OSError):
            name = (reason.filename or "").removeprefix(self.host.root)
            reason = f"/{name}: {reason.strerror}" if name else str(reason.strerror or reason)
        self.unseen.append(Unseen(what, str(reason)))

    def text(self, path: str, what: str = "") -> str | None:
        """A file without the blanks around it; None when it is not there. Denied or broken is noted under `what`."""
        data = self.data(path, what)
        return None if data is None else data.decode("utf-8", "replace").strip()

    def data(self, path: str, what: str = "") -> bytes | None:
        try:
            return self.host.read(path)[:_LARGEST]
        except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
            return None
        except OSError as error:
            # A driver says in many ways that it has no value (ENODEV, EINVAL, ENODATA); only a denial is news.
            if what and isinstance(error, PermissionError):
                self.miss(what, error)
            return None

    def beginning(self, path: str, size: int) -> str:
        """The first bytes of a file that is long; empty when it cannot be read."""
        try:
            with open(self.host.path(path), "rb", buffering=0) as file:
                return (file.read(size) or b"").decode("utf-8", "replace")
        except OSError:
            return ""

    def number(self, path: str, what: str = "") -> int | None:
        """A whole number, in decimal; None for anything else."""
        text = self.text(path, what)
        return integer(text) if text is not None else None

    def names(self, path: str, what: str = "") -> list[str]:
        """The entries of a directory; empty when there is none."""
        try:
            return self.host.names(path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            if what:
                self.miss(what, error)
            return []

    def attributes(self, folder: str, names: Iterable[str]) -> dict[str, str]:
        """Those of several small files of a directory that say something."""
        try:
            found = self.host.attributes(folder, names)
        except OSError:
            return {}
        return {
            name: text
            for name, value in found.items()
            if isinstance(value, bytes) and (text := value.decode("utf-8", "replace").strip())
        }

    def target(self, path: str) -> str | None:
        """The last part of where a link leads: the driver of a device."""
        try:
            return os.path.basename(self.host.link(path))
        except OSError:
            return None

    def of_subject(self, file: str) -> str:
        return f"proc/{self.subject}/{file}"


def integer(text: str) -> int | None:
    """A decimal number with a sign perhaps; None for anything else."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 20 else None


def parse_list(text: str) -> list[int]:
    """`0-3,8` as the kernel writes sets of CPUs; what is not understood is left out."""
    found: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match:
            first, last = int(match[1]), int(match[2] or match[1])
            found += range(first, min(last, first + _MOST_CPUS) + 1)
    return found


def fields(text: str, separator: str = ":") -> dict[str, str]:
    """`name: value` lines; the first of a name counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, mark, value = line.partition(separator)
        if mark:
            found.setdefault(name.strip(), value.strip())
    return found


def kilobytes(text: str | None) -> int | None:
    """`24682416 kB` in bytes."""
    number = integer((text or "").removesuffix("kB").strip())
    return number * 1024 if number is not None else None


def present(facts: Facts) -> Facts:
    """Without what is not known."""
    return {name: value for name, value in facts.items() if value is not None and value != {} and value != []}

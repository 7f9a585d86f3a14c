"""What one job has used, from the accounting files of its cgroup, v1 or v2 (Documentation/admin-guide/cgroup-v{1,2}).

    cpuacct.stat      user 5764\\nsystem 2202\\n                         v1, in USER_HZ, whole subtree
    memory.stat       ...\\ntotal_rss 1060864\\ntotal_pgfault 31964\\n    v1, whole subtree; up to 2 s old
    cpu.stat          usage_usec 9\\nuser_usec 5\\nsystem_usec 4\\n...    v2, whole subtree
    io.stat           8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0
    cpu.pressure      some avg10=0.00 avg60=0.00 avg300=0.00 total=0

Reading them costs the same for one process and for a thousand. Every file is a part that gives some of the keys below;
a file that is missing or makes no sense takes only its own keys away. At one reading per second every file costs
some 15 µs whatever is in it, because the caches are cold: what hardly ever changes is read less often.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from sonde.collectors.leaf_kills import LeafKills
from sonde.errors import ParseError
from sonde.hostfs import HostFile, HostFS
from sonde.schedulers.cgroupfs import UNIFIED, Mount, locate
from sonde.shape import Shape

HERTZ = os.sysconf("SC_CLK_TCK")
_UNLIMITED = 1 << 62  # v1 shows PAGE_COUNTER_MAX pages for no limit: just below 2**63
SLOW = 10  # readings of an account in which a file that hardly ever changes is read once

Number = int | float


class Vanished(Exception):
    """The cgroup was removed: the job has ended."""


class Reshaped(Exception):
    """A limit was set or lifted: the account has other keys than before and must be made anew."""


class Part(Protocol):
    """What one file says: always the same keys, in the same order. Made from the first text of the file."""

    @property
    def keys(self) -> tuple[str, ...]: ...
    def parse(self, text: bytes) -> Sequence[Number]: ...


# key, the names whose sum it is, divisor
Wanted = tuple[str, tuple[bytes, ...], int]

V1_CPU: tuple[Wanted, ...] = (("cpu_user", (b"user",), HERTZ), ("cpu_system", (b"system",), HERTZ))
V1_THROTTLE: tuple[Wanted, ...] = (
    ("periods", (b"nr_periods",), 1),
    ("throttled_periods", (b"nr_throttled",), 1),
    ("throttled", (b"throttled_time",), 10**9),
)
V1_MEMORY: tuple[Wanted, ...] = (
    ("rss", (b"total_rss", b"total_mapped_file"), 1),  # v1 calls anonymous memory rss
    ("anonymous", (b"total_rss",), 1),
    ("cache", (b"total_cache",), 1),
    ("inactive", (b"total_inactive_file",), 1),  # page cache that goes first when memory is short
    ("swap", (b"total_swap",), 1),
    ("faults", (b"total_pgfault",), 1),
    ("major_faults", (b"total_pgmajfault",), 1),
)
V2_CPU: tuple[Wanted, ...] = (
    ("cpu_usage", (b"usage_usec",), 10**6),
    ("cpu_user", (b"user_usec",), 10**6),
    ("cpu_system", (b"system_usec",), 10**6),
    ("periods", (b"nr_periods",), 1),
    ("throttled_periods", (b"nr_throttled",), 1),
    ("throttled", (b"throttled_usec",), 10**6),
)
V2_MEMORY: tuple[Wanted, ...] = (
    ("rss", (b"anon", b"file_mapped"), 1),
    ("anonymous", (b"anon",), 1),
    ("cache", (b"file",), 1),
    ("inactive", (b"inactive_file",), 1),
    ("faults", (b"pgfault",), 1),
    ("major_faults", (b"pgmajfault",), 1),
)
V2_EVENTS: tuple[Wanted, ...] = (("limit_hits", (b"max",), 1), ("oom_kills", (b"oom_kill",), 1))


class Keyed:
    """Lines of a name and a number. Names that are not there take their key away."""

    def __init__(self, text: bytes, wanted: Iterable[Wanted], *, after: bytes = b"") -> None:
        self._after = after  # what stands before this is not looked at
        self._wanted = tuple(wanted)
        self._shape: Shape | None = None
        self.keys: tuple[str, ...] = ()
        self._divisors: list[int] = []
        self._sums: list[tuple[int, int]] = []  # (index of the value, token that is added to it)
        self.parse(text)

    def parse(self, text: bytes) -> Sequence[Number]:
        tokens = text[text.find(self._after) :].split() if self._after else text.split()
        shape = self._shape
        if shape is None or not shape.fits(tokens):
            shape = self._learn(tokens)
        try:
            values = [int(token) for token in shape.values(tokens)]
            for index, position in self._sums:
                values[index] += int(tokens[position])
        except ValueError:
            raise ParseError("cgroup", text) from None
        return [value if by == 1 else value / by for value, by in zip(values, self._divisors, strict=True)]

    def _learn(self, tokens: list[bytes]) -> Shape:
        names = tokens[::2]
        if len(tokens) % 2:
            raise ParseError("cgroup", b" ".join(tokens))
        found = [wanted for wanted in self._wanted if all(name in names for name in wanted[1])]
        keys = tuple(key for key, _, _ in found)
        if self._shape is not None and keys != self.keys:
            raise Reshaped
        self.keys = keys
        self._divisors = [divisor for _, _, divisor in found]
        position = {name: 2 * index + 1 for index, name in enumerate(names)}
        self._sums = [(index, position[name]) for index, (_, all_, _) in enumerate(found) for name in all_[1:]]
        self._shape = Shape(tokens, range(0, len(tokens), 2), [position[first] for _, (first, *_), _ in found])
        return self._shape


class Scalar:
    """A file that is one number."""

    def __init__(self, text: bytes, key: str, divisor: int = 1) -> None:
        self.keys = (key,)
        self._divisor = divisor
        self.parse(text)

    def parse(self, text: bytes) -> Sequence[Number]:
        try:
            return (int(text) if self._divisor == 1 else int(text) / self._divisor,)
        except ValueError:
            raise ParseError("cgroup", text) from None


class Limit:
    """A number, `max`, or v1's largest number. No limit is no value."""

    def __init__(self, text: bytes, key: str) -> None:
        self.keys = (key,) if self._value(text) is not None else ()

    def _value(self, text: bytes) -> int | None:
        if text == b"max\n":
            return None
        try:
            value = int(text)
        except ValueError:
            raise ParseError("cgroup", text) from None
        return value if value < _UNLIMITED else None

    def parse(self, text: bytes) -> Sequence[Number]:
        value = self._value(text)
        if (value is not None) != bool(self.keys):
            raise Reshaped
        return () if value is None else (value,)


class Transfers:
    """Bytes of all devices: `8:0 Read 4096` lines of v1's blkio, `8:0 rbytes=4096 wbytes=0` of v2's io.stat."""

    keys = ("read", "written")

    def __init__(self, text: bytes, reader: Callable[[bytes], tuple[int, int]]) -> None:
        self._reader = reader
        self.parse(text)

    def parse(self, text: bytes) -> Sequence[Number]:
        try:
            return self._reader(text)
        except (ValueError, IndexError):
            raise ParseError("cgroup", text) from None


def _blkio(text: bytes) -> tuple[int, int]:
    tokens = text.split()
    read, written = (
        sum(int(tokens[index + 1]) for index, token in enumerate(tokens) if token == operation)
        for operation in (b"Read", b"Write")
    )
    return read, written


def _io_stat(text: bytes) -> tuple[int, int]:
    tokens = text.split()
    read = sum(int(token[7:]) for token in tokens if token.startswith(b"rbytes="))
    return read, sum(int(token[7:]) for token in tokens if token.startswith(b"wbytes="))


class Pressure:
    """Stall time of one resource. The `full` line of cpu.pressure is there since 5.13."""

    def __init__(self, text: bytes, resource: str) -> None:
        self.keys = (f"waiting_{resource}", f"stalled_{resource}")
        self.parse(text)

    def parse(self, text: bytes) -> Sequence[Number]:
        tokens = text.split()
        try:
            if tokens[0] != b"some" or tokens[5] != b"full":
                raise ValueError
            return int(tokens[4].removeprefix(b"total=")) / 10**6, int(tokens[9].removeprefix(b"total=")) / 10**6
        except (ValueError, IndexError):
            raise ParseError("cgroup", text) from None


class _Slot:
    """A file, its part, and what it said last: text that is the same needs no parsing."""

    __slots__ = ("file", "left", "parse", "seen", "slow", "values")

    def __init__(self, file: HostFile, parse: Callable[[bytes], Sequence[Number]], seen: bytes, *, slow: bool) -> None:
        self.file = file
        self.parse = parse
        self.seen = seen
        self.values = parse(seen)
        self.slow = slow
        self.left = SLOW


class Account:
    """The files a job's cgroups have. `keys` and the values of `read` stand in the same order.

    `precise` adds v1's CPU time in nanoseconds, one more file; v2 has it beside the rest.
    """

    def __init__(
        self,
        host: HostFS,
        mounts: Mapping[str, Mount],
        cgroups: Mapping[str, str],
        leaves: Iterable[str],
        *,
        precise: bool = False,
    ) -> None:
        self._host = host
        self._precise = precise
        self._mounts = mounts
        self._slots: list[_Slot] = []
        self._kills: LeafKills | None = None
        self.keys: tuple[str, ...] = ()
        self.missing: dict[str, str] = {}  # files that cannot be read, and why
        directories: dict[str, str] = {}
        for name, path in cgroups.items():
            directory = locate(host, mounts[name], path) if name in mounts else None
            if directory is not None:
                directories[name] = directory
        self._add_v1(directories)
        if UNIFIED in directories:
            self._add_v2(directories[UNIFIED])
        if "memory" in directories:
            self._watch_kills(directories["memory"], leaves)

    def _add_v1(self, where: Mapping[str, str]) -> None:
        if "cpuacct" in where:
            self._add(where["cpuacct"], "cpuacct.stat", lambda text: Keyed(text, V1_CPU))
            if self._precise:
                self._add(where["cpuacct"], "cpuacct.usage", lambda text: Scalar(text, "cpu_usage", 10**9))
        if "cpu" in where:
            self._add(where["cpu"], "cpu.stat", lambda text: Keyed(text, V1_THROTTLE))
        if "memory" in where:
            memory = where["memory"]
            self._add(memory, "memory.stat", lambda text: Keyed(text, V1_MEMORY, after=b"total_cache"))
            self._add(memory, "memory.usage_in_bytes", lambda text: Scalar(text, "usage"))
            self._add(memory, "memory.max_usage_in_bytes", lambda text: Scalar(text, "peak"))
            self._add(memory, "memory.limit_in_bytes", lambda text: Limit(text, "limit"), slow=True)
            self._add(memory, "memory.failcnt", lambda text: Scalar(text, "limit_hits"), slow=True)
        if "blkio" in where:
            name = "blkio.throttle.io_service_bytes_recursive"
            self._add(where["blkio"], name, lambda text: Transfers(text, _blkio))
        if "pids" in where:
            self._add(where["pids"], "pids.current", lambda text: Scalar(text, "threads"))

    def _add_v2(self, where: str) -> None:
        self._add(where, "cpu.stat", lambda text: Keyed(text, V2_CPU))
        self._add(where, "memory.stat", lambda text: Keyed(text, V2_MEMORY))
        self._add(where, "memory.current", lambda text: Scalar(text, "usage"))
        self._add(where, "memory.peak", lambda text: Scalar(text, "peak"))
        self._add(where, "memory.swap.current", lambda text: Scalar(text, "swap"))
        self._add(where, "memory.max", lambda text: Limit(text, "limit"), slow=True)
        self._add(where, "memory.events", lambda text: Keyed(text, V2_EVENTS))
        self._add(where, "io.stat", lambda text: Transfers(text, _io_stat))
        self._add(where, "pids.current", lambda text: Scalar(text, "threads"))
        for resource in ("cpu", "memory", "io"):
            self._add(where, f"{resource}.pressure", _pressure(resource))

    def _add(self, where: str, name: str, make: Callable[[bytes], Part], *, slow: bool = False) -> None:
        """Take the file in unless it cannot be read, or a v1 hierarchy has given its keys already."""
        try:
            file = self._host.record(f"{where}/{name}")
            text = file.read()
            part = make(text)
            slot = _Slot(file, part.parse, text, slow=slow)
        except FileNotFoundError:
            return  # the controller is not enabled for this cgroup
        except (OSError, ParseError) as error:
            self.missing[name] = str(error)
            return
        if set(self.keys).isdisjoint(part.keys):
            self._slots.append(slot)
            self.keys += part.keys
        else:
            file.close()

    def _watch_kills(self, job: str, leaves: Iterable[str]) -> None:
        try:
            kills = LeafKills(self._host, [job])
        except FileNotFoundError:
            return
        except ParseError as error:
            self.missing["memory.oom_control"] = str(error)
            return
        self._kills = kills
        self.keys += kills.keys
        self.add_leaves(leaves)

    def add_leaves(self, leaves: Iterable[str]) -> None:
        """Look at the OOM kills of these cgroups of the v1 memory hierarchy too."""
        if self._kills is not None:
            found = {locate(self._host, self._mounts["memory"], path) for path in leaves}
            self._kills.add(sorted(filter(None, found)))

    def read(self) -> list[Number]:
        values: list[Number] = []
        try:
            for slot in self._slots:
                if slot.slow:
                    slot.left -= 1
                if not slot.slow or not slot.left:
                    slot.left = SLOW
                    text = slot.file.read()
                    if text != slot.seen:
                        slot.values = slot.parse(text)
                        slot.seen = text
                values += slot.values
        except OSError as error:
            if error.errno == errno.ENODEV:  # what kernfs answers once the directory is removed
                raise Vanished from None
            raise
        if self._kills is not None:
            values += self._kills.read()
        return values

    def close(self) -> None:
        for slot in self._slots:
            slot.file.close()
        self._slots = []
        if self._kills is not None:
            self._kills.close()


def _pressure(resource: str) -> Callable[[bytes], Part]:
    return lambda text: Pressure(text, resource)

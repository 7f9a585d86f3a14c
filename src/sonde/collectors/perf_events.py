"""Which of the events of this processor can be counted here, and groups of them while they count.

A group that the processor cannot count at once is taken apart, in the order of its events: the first part keeps the
group's name, the next are `topdown_2`, `topdown_3`. What cannot be opened even alone is left out, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sonde.counters.catalogue import HARDWARE, RAW, Event, Group
from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.model import Quality
from sonde.native.perf_event import ANYWHERE, DENIED, UNSUPPORTED, Attr, Counts, Detached, EventGroup, Source

_SELF = 0
_PMUS = "sys/bus/event_source/devices"
_WRAP = 1 << 64


class Part(NamedTuple):
    """What is counted together."""

    name: str
    group: str  # that it is a part of
    events: tuple[Event, ...]

    def attrs(self, *, user_only: bool, inherit: bool) -> list[Attr]:
        return [
            Attr(event.type, event.config, event.config1, inherit=inherit, user_only=user_only) for event in self.events
        ]


class Lacking(NamedTuple):
    """Events that cannot be counted here, and why."""

    events: tuple[str, ...]
    quality: Quality
    reason: str


class Possible(NamedTuple):
    """What can be counted here."""

    parts: tuple[Part, ...]
    lacking: tuple[Lacking, ...]
    user_only: bool  # without the kernel's part

    @property
    def of_cpus(self) -> Possible:
        """Without what means nothing for a whole CPU."""
        parts = [part._replace(events=tuple(e for e in part.events if not e.of_tasks)) for part in self.parts]
        return self._replace(parts=tuple(part for part in parts if part.events))


class Probe:
    """Tries events on this very process, which anybody may count who may count at all."""

    def __init__(self, source: Source, host: HostFS) -> None:
        self._source = source
        self._host = host
        self._user_only = False
        self._lacking: dict[tuple[Quality, str], list[str]] = {}

    def possible(self, groups: Sequence[Group], *, kernel: bool) -> Possible:
        """What of the groups can be counted. PermissionError when nothing may be."""
        self._user_only = not kernel or self._refused()
        parts = [part for group in groups for part in self._split(group)]
        lacking = [Lacking(tuple(events), *cause) for cause, events in self._lacking.items()]
        return Possible(tuple(parts), tuple(lacking), self._user_only)

    def _refused(self) -> bool:
        """May the kernel's part not be counted? perf_event_paranoid 2 and above refuses it."""
        try:
            self._try([Attr(1, 0)])  # PERF_COUNT_SW_CPU_CLOCK: every kernel has it
        except PermissionError:
            self._try([Attr(1, 0, user_only=True)])
            return True
        return False

    def _try(self, attrs: Sequence[Attr]) -> None:
        EventGroup(self._source, [attr._replace(disabled=True) for attr in attrs], _SELF, ANYWHERE).close()

    def _split(self, group: Group) -> Iterable[Part]:
        parts: list[list[Event]] = []
        for event in group.events:
            if event.in_kernel and self._user_only:
                reason = "happens in the kernel, whose part may not be counted (perf_event_paranoid)"
                self._lack(event, Quality.DENIED, reason)
            elif parts and not self._error([*parts[-1], event]):
                parts[-1].append(event)
            elif error := self._error([event]):
                self._lack(event, *self._cause(event, error))
            else:
                parts.append([event])
        for number, events in enumerate(parts, start=1):
            name = group.name if number == 1 else f"{group.name}_{number}"
            yield Part(name, group.name, tuple(events))

    def _error(self, events: Sequence[Event]) -> OSError | None:
        try:
            self._try(Part("", "", tuple(events)).attrs(user_only=self._user_only, inherit=False))
        except OSError as error:
            return error.with_traceback(None)
        return None

    def _lack(self, event: Event, quality: Quality, reason: str) -> None:
        events = self._lacking.setdefault((quality, reason), [])
        if event.key not in events:
            events.append(event.key)

    def _cause(self, event: Event, error: OSError) -> tuple[Quality, str]:
        if error.errno in DENIED:
            return Quality.DENIED, "the kernel refuses it"
        if error.errno not in UNSUPPORTED:
            return Quality.BLANK, f"perf_event_open: {error.strerror}"
        if event.type in (HARDWARE, RAW) and not has_hardware(self._host):
            return Quality.UNSUPPORTED, "no hardware counters here: a virtual machine that is not given any"
        return Quality.UNSUPPORTED, "the processor or the kernel does not have it"


def has_hardware(host: HostFS) -> bool:
    """Is there a PMU of the processor itself? It is called cpu on x86, armv8_pmuv3_0 and the like on Arm."""
    try:
        return any(name == "cpu" or name.startswith(("cpu_", "armv8")) for name in host.names(_PMUS))
    except FileNotFoundError:
        return False


class Meter:
    """One group on one task, or on one CPU for everybody or a cgroup. What it has counted stays when that ends."""

    __slots__ = ("_group", "_last", "_total")

    def __init__(self, source: Source, attrs: Sequence[Attr], pid: int, cpu: int, *, cgroup: bool = False) -> None:
        self._group: EventGroup | None = EventGroup(source, attrs, pid, cpu, cgroup=cgroup)
        self._last = self._total = Counts(0, 0, (0,) * len(attrs))

    def read(self) -> Counts:
        """The counts so far, never less than before."""
        if self._group is None:
            return self._total
        try:
            counts = self._group.read()
        except (Detached, OSError):
            self.close()
            return self._total
        if self._last is self._total and _ahead(counts, self._total):
            self._last = self._total = counts
        else:
            self._advance(counts)
        return self._total

    def _advance(self, counts: Counts) -> None:
        """Add what came since the last reading: some number was set back or has gone around its 64 bits."""
        steps = map(_step, _flat(self._last), _flat(counts))
        totals = [total + step for total, step in zip(_flat(self._total), steps, strict=True)]
        self._last = counts
        self._total = Counts(totals[0], totals[1], tuple(totals[2:]))

    def close(self) -> None:
        if self._group is not None:
            self._group.close()
            self._group = None


def _flat(counts: Counts) -> tuple[int, ...]:
    return counts.enabled_ns, counts.running_ns, *counts.values


def _ahead(new: Counts, old: Counts) -> bool:
    return new.enabled_ns >= old.enabled_ns and all(map(int.__ge__, new.values, old.values))


def _step(old: int, new: int) -> int:
    """From one reading to the next, of 64 bits. More than half of the range ahead is a step back: nothing came."""
    step = (new - old) % _WRAP
    return step if step < _WRAP // 2 else 0


def added(counts: Sequence[Counts], events: int) -> Counts:
    """The sum over meters of the same part."""
    if len(counts) == 1:
        return counts[0]
    if not counts:
        return Counts(0, 0, (0,) * events)
    enabled, running, values = zip(*counts, strict=True)
    return Counts(sum(enabled), sum(running), tuple(map(sum, zip(*values, strict=True))))


def descriptors() -> int:
    """How many descriptors may be used for counting: half of the limit, and some left to the rest."""
    import resource

    return max(0, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2 - 128)


def cpus(text: str) -> list[int]:
    """The CPUs of a list as /sys/devices/system/cpu/online has it: `0-3,8`."""
    found: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()) or int(last or first) >= 1 << 16:
            raise ParseError("/sys/devices/system/cpu/online", text)
        found += range(int(first), int(last or first) + 1)
    return found

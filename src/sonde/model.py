"""What travels: frames of values over a cached layout.

A collector declares its metrics once (`MetricSpec`), decides once which series it has (`Layout`) and then, tick after
tick, hands out only the values. Everything that depends on names and labels (rendered prefixes, column codecs,
filters) is computed by a sink once per layout and found again by the layout's identity. docs/adr/0001 has the
measurement behind this: an object per value cost 1.6 to 3 times as much.

Promises:

- `Layout` is immutable and compared by identity; a collector replaces it only when the topology changes.
- `len(frame.values) == len(frame.layout)`; a value is an int, a float that is not NaN, or a Histogram.
- A series that could not be read is not in the layout. It is in `gaps`, with the quality and the reason.
- Counters stay raw and cumulative, units are base units, ratios are 0 to 1.
- The series of one metric stand next to each other, so that a text exposition needs no sorting.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Final, NamedTuple, Protocol


class Kind(enum.Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"
    UNTYPED = "untyped"


class Unit(enum.Enum):
    """Base units only; a dialect converts when its language wants another."""

    NONE = ""
    SECONDS = "seconds"
    BYTES = "bytes"
    RATIO = "ratio"
    JOULES = "joules"
    WATTS = "watts"
    CELSIUS = "celsius"
    HERTZ = "hertz"
    VOLTS = "volts"
    AMPERES = "amperes"


class Quality(enum.Enum):
    OK = "ok"
    UNSUPPORTED = "unsupported"  # the kernel, driver or card does not have it
    DENIED = "denied"  # it is there, this user may not read it
    BLANK = "blank"  # the source answered "no value"
    STALE = "stale"  # the value is older than the frame says
    ESTIMATED = "estimated"
    MULTIPLEXED = "multiplexed"  # scaled up from the share of time it was counted


class MetricSpec:
    """One metric, declared beside the collector that reads it. Compared by identity; nobody changes one."""

    __slots__ = ("__weakref__", "help", "kind", "labels", "name", "unit")

    def __init__(self, name: str, kind: Kind, unit: Unit, help: str, labels: tuple[str, ...] = ()) -> None:
        self.name: Final = name
        self.kind: Final = kind
        self.unit: Final = unit
        self.help: Final = help
        self.labels: Final = labels

    def __repr__(self) -> str:
        return f"<{self.kind.value} {self.name}{{{','.join(self.labels)}}}>"


class Histogram(NamedTuple):
    """Counts per bucket (not cumulative); `bounds` are the inclusive upper ends, the last bucket is open."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]  # one more than bounds
    sum: float


Value = int | float | Histogram
Labels = tuple[str, ...]
Series = tuple[MetricSpec, Labels]


class Layout:
    """The series of a frame, in order. Immutable; its identity is the key under which sinks cache."""

    __slots__ = ("__weakref__", "_series")

    def __init__(self, series: Iterable[Series]) -> None:
        self._series = tuple(series)
        self._check()

    def _check(self) -> None:
        seen: set[Series] = set()
        closed: set[MetricSpec] = set()
        previous: MetricSpec | None = None
        for spec, labels in self._series:
            if len(labels) != len(spec.labels):
                raise ValueError(f"{spec!r} given {len(labels)} label values: {labels!r}")
            if (spec, labels) in seen:
                raise ValueError(f"{spec!r} twice with labels {labels!r}")
            seen.add((spec, labels))
            if spec is not previous:
                if spec in closed:
                    raise ValueError(f"the series of {spec!r} do not stand together")
                if previous is not None:
                    closed.add(previous)
                previous = spec

    def __len__(self) -> int:
        return len(self._series)

    def __iter__(self) -> Iterator[Series]:
        return iter(self._series)

    def __getitem__(self, index: int) -> Series:
        return self._series[index]


EMPTY_LAYOUT = Layout(())


class Event(NamedTuple):
    """Something that happened once: an OOM kill, a job's start, a process' end. Attributes are JSON scalars."""

    time_ns: int
    name: str  # subject.happening
    attrs: dict[str, str | int | float | bool | None]


class Gap(NamedTuple):
    """A value that is missing or qualified, and why."""

    spec: MetricSpec
    labels: Labels  # empty when all series of the metric are concerned
    quality: Quality
    reason: str
    time_ns: int = 0  # when the value was read, if that is what the quality is about


class Sample(NamedTuple):
    """The view one gets by iterating a frame; not what travels."""

    spec: MetricSpec
    labels: Labels
    value: Value


class Reading(NamedTuple):
    """What a collector gives: the runner adds who, when and how long."""

    layout: Layout
    values: Sequence[Value]
    events: Sequence[Event] = ()
    gaps: Sequence[Gap] = ()


class Frame(NamedTuple):
    source: str
    time_ns: int  # since the epoch, UTC, when the reading began
    took_ns: int
    period_ns: int  # a reader may call the frame stale after two of these
    layout: Layout
    values: Sequence[Value]
    events: Sequence[Event] = ()
    gaps: Sequence[Gap] = ()

    def samples(self) -> Iterator[Sample]:
        for (spec, labels), value in zip(self.layout, self.values, strict=True):
            yield Sample(spec, labels, value)


class Collector(Protocol):
    """Reads one subject. Constructed as `cls(host, config)`; raises Unavailable when this host has nothing to read.

    `collect` and `close` are called from one thread at a time. `blocks` says that a read can hang (a mount, a driver, a
    network): such a collector gets a thread of its own. It may become true later, before a read that can hang.
    """

    Config: ClassVar[type]
    metrics: ClassVar[tuple[MetricSpec, ...]]

    @property
    def blocks(self) -> bool: ...

    def collect(self) -> Reading: ...
    def close(self) -> None: ...


class Sink(Protocol):
    """Sends frames somewhere. The outlet owns queueing, batching, back-off and drop counting.

    `inline` says that write only stores a reference: the outlet then calls it at once, in the sampling thread, and
    needs neither queue nor thread. What a sink may have besides, and who looks for it:

    - `translate(frames) -> frames`: called by the outlet once per frame, before its queue, in the sampling thread;
    - `reads_host = True`: the daemon also gives it `files`, the HostFS of its configuration;
    - `address` and `page(request)`: the daemon serves the page as /metrics on that address;
    - `reopen()`: called at SIGHUP.
    """

    Config: ClassVar[type]
    inline: ClassVar[bool]

    def write(self, frames: Sequence[Frame]) -> None: ...
    def close(self) -> None: ...

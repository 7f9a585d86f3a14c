"""The archive's bars: bytes per sample on disk, CPU per tick replayed, and CPU per tick at a real pace.

The data is 200 series at 10 Hz: 30 % constants, 30 % counters, 20 % integer gauges, 20 % floats of two decimals, from a
seeded generator. It is about as hard as the data the bars were set with: the plain scheme of delta, zigzag, shuffle
and zlib-1 gives 0.83 bytes per sample here in blocks of 600 ticks and 0.95 in blocks of 100, there 0.82 and 0.94.

    python -m benchmarks.archive           everything, about 80 s
    python -m benchmarks.archive --quick   without the real paces
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from sonde.clock import NS
from sonde.config import ArchiveConfig
from sonde.model import Frame, Kind, Layout, MetricSpec, Unit
from sonde.sinks.archive import ArchiveSink

SERIES = 200
HERTZ = 10
WINDOWS = 10
WINDOW_TICKS = 3600  # 10 windows are an hour
LIVE_SECONDS = 27  # two blocks of 120 ticks
DAEMON_SOURCES = 17
DAEMON_SERIES = 510
DAEMON_SECONDS = 66  # one block of 60 ticks
Row = dict[str, Any]


class Mix:
    """Values of a node: each call of `tick` makes new ones, as a collector does."""

    def __init__(self, series: int, seed: int = 7) -> None:
        self._random = rand = random.Random(seed)
        constants, counters, gauges = series * 3 // 10, series * 3 // 10, series * 2 // 10
        self._constants = [rand.randrange(10 ** rand.randint(1, 10)) for _ in range(constants)]
        self._counters = [rand.randrange(10 ** rand.randint(3, 12)) for _ in range(counters)]
        self._rates = [10 ** rand.uniform(0, 5) for _ in range(counters)]
        self._gauges = [rand.randrange(10, 10 ** rand.randint(2, 6)) for _ in range(gauges)]
        self._steps = [max(1, gauge // 100) for gauge in self._gauges]
        self._floats = [rand.uniform(0, 100) for _ in range(series - constants - counters - gauges)]

    def tick(self) -> list[int | float]:
        rand = self._random
        for n, rate in enumerate(self._rates):
            self._counters[n] += int(rand.expovariate(1 / rate)) if n % 3 else int(rate / 10)
        for n, step in enumerate(self._steps):
            self._gauges[n] = max(0, self._gauges[n] + rand.randint(-step, step))
        self._floats = [min(100.0, max(0.0, value + rand.gauss(0, 1))) for value in self._floats]
        return [*self._constants, *self._counters, *self._gauges, *[round(value, 2) for value in self._floats]]

    def jitter_ns(self) -> int:
        return self._random.randrange(300_000)


class Node:
    """Frames of a mix, dealt out to a number of sources."""

    def __init__(self, series: int, sources: int, period_ns: int) -> None:
        self._mix = Mix(series)
        self._sources = sources
        self._period_ns = period_ns
        self._layouts = [
            Layout(
                (MetricSpec(f"bench_{source}_{n}", Kind.UNTYPED, Unit.NONE, "x"), ())
                for n in range(len(range(source, series, sources)))
            )
            for source in range(sources)
        ]

    def batch(self, time_ns: int) -> list[Frame]:
        values = self._mix.tick()
        time_ns += self._mix.jitter_ns()
        return [
            Frame(f"s{n}", time_ns + n * 20_000, 1, self._period_ns, layout, values[n :: self._sources])
            for n, layout in enumerate(self._layouts)
        ]

    def batches(self, begin_ns: int, count: int) -> Iterator[list[Frame]]:
        for tick in range(count):
            yield self.batch(begin_ns + tick * self._period_ns)


def new_sink(path: str) -> ArchiveSink:
    return ArchiveSink(path, ArchiveConfig(), host="bench", boot_id="bench")


def replay(path: str, node: Node, windows: int, ticks: int, period_ns: int) -> tuple[list[float], float]:
    """CPU µs per tick of each window, and the size of the closed file."""
    sink = new_sink(path)
    begin = time.time_ns() - windows * ticks * period_ns
    sink.write(node.batch(begin - period_ns))  # opens the file
    costs = []
    for window in range(windows):
        batches = list(node.batches(begin + window * ticks * period_ns, ticks))
        before = time.process_time_ns()
        for batch in batches:
            sink.write(batch)
        costs.append((time.process_time_ns() - before) / ticks / 1e3)
    sink.close()
    return costs, sum(os.path.getsize(path + end) for end in ("", "-wal") if os.path.exists(path + end))


def live(series: int, sources: int, period_ns: int, seconds: float) -> list[float]:
    """CPU µs of every write at a real pace, caches as cold as they are in a daemon that sleeps in between."""
    node = Node(series, sources, period_ns)
    with tempfile.TemporaryDirectory() as directory:
        sink = new_sink(f"{directory}/archive.db")
        sink.write(node.batch(time.time_ns()))
        costs = []
        due = time.monotonic_ns()
        for _ in range(int(seconds * NS / period_ns)):
            due += period_ns
            time.sleep(max(0, due - time.monotonic_ns()) / NS)
            batch = node.batch(time.time_ns())
            before = time.process_time_ns()
            sink.write(batch)
            costs.append((time.process_time_ns() - before) / 1e3)
        sink.close()
    return costs


def live_child(series: int, sources: int, period_ns: int, seconds: float) -> subprocess.Popen[str]:
    arguments = [str(argument) for argument in (series, sources, period_ns, seconds)]
    command = [sys.executable, "-m", "benchmarks.archive", "--live", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def row(name: str, value: float, unit: str, bar: float | None, detail: str) -> Row:
    return {
        "name": name,
        "value": round(value, 3),
        "unit": unit,
        "bar": bar,
        "met": bar is None or value <= bar,
        "detail": detail,
    }


def spread(costs: list[float]) -> str:
    """Range, and the same against itself: medians of the odd and of the even windows."""
    aa = median(costs[::2]) / median(costs[1::2])
    return f"{len(costs)} windows, {min(costs):.1f} to {max(costs):.1f}, A/A {aa:.2f}"


def measure_replayed() -> list[Row]:
    with tempfile.TemporaryDirectory() as directory:
        period = NS // HERTZ
        costs, size = replay(f"{directory}/hour.db", Node(SERIES, 1, period), WINDOWS, WINDOW_TICKS, period)
        samples = WINDOWS * WINDOW_TICKS * SERIES
        _, short = replay(f"{directory}/minutes.db", Node(SERIES, 1, period), 1, 6000, period)
        node = Node(DAEMON_SERIES, DAEMON_SOURCES, NS)
        batches, _ = replay(f"{directory}/daemon.db", node, WINDOWS, 320, NS)
    short_rate = short / 6000 / SERIES
    return [
        row("archive size", size / samples, "B/sample", 1.0, f"{samples} samples, 1 h; 10 min: {short_rate:.2f}"),
        row("archive CPU, replayed", median(costs), "µs/tick", 80, spread(costs)),
        row("archive CPU, daemon batch, replayed", median(batches), "µs/batch", 250, "17 frames; " + spread(batches)),
    ]


def measure_live() -> list[Row]:
    children = [
        live_child(SERIES, 1, NS // HERTZ, LIVE_SECONDS),
        live_child(SERIES, 1, NS // HERTZ, LIVE_SECONDS),
        live_child(DAEMON_SERIES, DAEMON_SOURCES, NS, DAEMON_SECONDS),
    ]
    fast, again, daemon = (json.loads(child.communicate(timeout=300)[0]) for child in children)
    mean, mean_again, mean_daemon = (sum(costs) / len(costs) for costs in (fast, again, daemon))
    # Means: the writes that make a block are 1 in 128 and a median would hide them.
    detail = (
        f"mean of {len(fast)} writes, median {median(fast):.0f}, largest {max(fast):.0f}, A/A {mean_again / mean:.2f}"
    )
    return [
        row("archive CPU, live", mean, "µs/tick", 160, detail),
        row(
            "archive CPU, daemon batch, live",
            mean_daemon,
            "µs/batch",
            250,
            f"mean of {len(daemon)} writes at 1 Hz, median {median(daemon):.0f}, largest {max(daemon):.0f}",
        ),
    ]


def measure(*, quick: bool = False) -> list[Row]:
    return measure_replayed() + ([] if quick else measure_live())


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--live"]:
        series, sources, period_ns, seconds = arguments[1:]
        print(json.dumps(live(int(series), int(sources), int(period_ns), float(seconds))))
        return
    for item in measure(quick="--quick" in arguments):
        bar = "" if item["bar"] is None else f"bar {item['bar']}: {'met' if item['met'] else 'MISSED'}"
        print(f"{item['name']:<38}{item['value']:>9.2f} {item['unit']:<9} {bar:<16} {item['detail']}")


if __name__ == "__main__":
    main(sys.argv[1:])

"""The cost of a page of 2,000 series, beside prometheus_client's for the same series; and that of JSON lines.

One row assumes that 30 % of the values change from page to page (on a 2-CPU machine with little to do 19 % of 392
values changed within 10 s); in the other every value changes, which is the worst case. The names are built with the
first page, which is measured once.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily

from benchmarks.harness import Row, interleaved, medians
from benchmarks.series import LAYOUT, value, versions
from sonde.clock import NS
from sonde.http import Request, compressed
from sonde.model import Frame, Layout
from sonde.sinks.jsonl import JsonlConfig, JsonlSink
from sonde.sinks.prometheus import PrometheusConfig, PrometheusSink
from sonde.units import Size

TEXT = Request("GET", "/metrics", "", {}, True, True)
OPENMETRICS = TEXT._replace(headers={"accept": "application/openmetrics-text;version=1.0.0"})
GZIP = TEXT._replace(headers={"accept-encoding": "gzip"})
ROUNDS = 11


def pages(ticks: Sequence[list[float]], request: Request) -> Callable[[], object]:
    """Render the next tick at every call."""
    sink = PrometheusSink(PrometheusConfig())
    frames: Iterator[Frame] = cycle([Frame("bench", 0, 0, 1000 * NS, LAYOUT, values) for values in ticks])

    def work() -> object:
        sink.write([next(frames)])
        return sink.page(request)

    return work


class _Reference:
    """The same series for prometheus_client, by its cheapest way: a custom collector."""

    def __init__(self, values: list[float]) -> None:
        self._values = values

    def collect(self) -> Iterator[CounterMetricFamily]:
        values = iter(self._values)
        families: dict[str, CounterMetricFamily] = {}
        for spec, labels in LAYOUT:
            family = families.get(spec.name)
            if family is None:
                family = families[spec.name] = CounterMetricFamily(spec.name, spec.help, labels=spec.labels)
            family.add_metric(labels, next(values))
        yield from families.values()


def reference(values: list[float]) -> Callable[[], object]:
    registry = CollectorRegistry()
    registry.register(_Reference(values))
    return lambda: generate_latest(registry)


def first_page_ms() -> float:
    work = pages(versions(0.3, 1), TEXT)
    begun = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - begun) / 1e6


def json_lines_us() -> float:
    """One tick of a small daemon: 16 CPU values, one uptime, 12 of the network, as three lines in one write."""
    parts = (("cpu", 16), ("host", 1), ("network", 12))
    layouts = [Layout([LAYOUT[index] for index in range(count)]) for _, count in parts]
    ticks = [
        [
            Frame(name, tick * NS, 41250, NS, layout, [value(5 if name == "cpu" else 0) for _ in range(count)])
            for (name, count), layout in zip(parts, layouts, strict=True)
        ]
        for tick in range(50)
    ]
    following = cycle(ticks)
    with tempfile.TemporaryDirectory() as folder:
        sink = JsonlSink(JsonlConfig(os.path.join(folder, "x.jsonl"), Size(10**9)), host="node01")
        (cost,) = medians(interleaved([lambda: sink.write(next(following))], rounds=ROUNDS, repeat=300))
        sink.close()
    return cost


def measure() -> list[dict[str, object]]:
    some, all_ = versions(0.3), versions(1.0)
    page = pages(some, TEXT)()
    body = page.body  # type: ignore[attr-defined]
    works = [pages(some, TEXT), pages(some, TEXT), pages(all_, TEXT), pages(some, OPENMETRICS)]
    works += [lambda: compressed(GZIP, page)]  # type: ignore[arg-type]
    warm, again, worst, openmetrics, gzip = medians(interleaved(works, rounds=ROUNDS, repeat=40))
    (client,) = medians(interleaved([reference(some[0])], rounds=ROUNDS, repeat=2))
    detail = (
        f"prometheus_client {client / 1e3:.1f} ms, {client / warm:.0f} times as much;"
        f" OpenMetrics {openmetrics / 1e3:.2f} ms;"
        f" first page {first_page_ms():.1f} ms; {len(body) / 1e3:.0f} kB; gzip would add {gzip / 1e3:.2f} ms;"
        f" A/A {again / warm:.2f}"
    )
    return [
        Row("page of 2,000 series, 30 % of them changed, CPU", warm / 1e3, "ms", 1.0, detail).as_dict(),
        Row("page of 2,000 series, all of them changed, CPU", worst / 1e3, "ms", 1.0).as_dict(),
        Row("JSON lines of 29 values in 3 frames, write(2) included, CPU", json_lines_us(), "µs", 50).as_dict(),
    ]


if __name__ == "__main__":
    for row in measure():
        print(row)

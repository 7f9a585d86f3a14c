"""The cost of the frame model: values over a cached layout against an object per value.

Both ways do what the data path does with 500 series: build them, select a third by name, render them as text. The
ratio is what docs/adr/0001 rests on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from operator import add
from statistics import median

from sonde.model import Frame, Kind, Layout, MetricSpec, Sample, Unit
from sonde.pipeline.selection import Selection

SPECS = [MetricSpec(f"node_metric_{n}_total", Kind.COUNTER, Unit.BYTES, "x", ("device",)) for n in range(50)]
LAYOUT = Layout((spec, (f"eth{d}",)) for spec in SPECS for d in range(10))
PREFIXES = [f'\n{spec.name}{{device="{labels[0]}"}} ' for spec, labels in LAYOUT]
TOKENS = [str(1_000_003 * n).encode() for n in range(len(LAYOUT))]


def objects() -> int:
    samples = [Sample(spec, labels, int(token)) for (spec, labels), token in zip(LAYOUT, TOKENS, strict=True)]
    chosen = [sample for sample in samples if sample.spec.name.startswith("node_metric_1")]
    lines = [f'\n{s.spec.name}{{{s.spec.labels[0]}="{s.labels[0]}"}} {s.value!r}' for s in samples]
    return len(chosen) + len("".join(lines))


_selection = Selection(include=["node_metric_1*"])


def frames() -> int:
    values = [int(token) for token in TOKENS]
    frame = Frame("bench", 0, 0, 10**9, LAYOUT, values)
    chosen = _selection.apply(frame)
    assert chosen is not None
    return len(chosen.values) + len("".join(map(add, PREFIXES, map(repr, frame.values))))


def cost_us(work: Callable[[], int], rounds: int = 200) -> float:
    begun = time.thread_time_ns()
    for _ in range(rounds):
        work()
    return (time.thread_time_ns() - begun) / rounds / 1e3


def measure(windows: int = 9) -> dict[str, float]:
    assert objects() == frames()
    rows = [(cost_us(objects), cost_us(frames), cost_us(frames)) for _ in range(windows)]
    per_object, per_frame, again = (median(column) for column in zip(*rows, strict=True))
    return {"objects_us": per_object, "frames_us": per_frame, "ratio": per_object / per_frame, "aa": again / per_frame}


if __name__ == "__main__":
    print(measure())

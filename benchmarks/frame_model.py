"""The cost of the frame model: values over a cached layout against an object per value.

Both ways do what the data path does with 500 series: build them, select a third by name, render them as text. The
ratio is what docs/adr/0001 rests on.
"""

from __future__ import annotations

from operator import add

from benchmarks.harness import Row, interleaved, medians
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


def measure() -> list[dict[str, object]]:
    assert objects() == frames()
    per_object, per_frame, again = medians(interleaved([objects, frames, frames], rounds=9, repeat=200))
    detail = f"{per_frame:.0f} µs against {per_object:.0f} µs with an object per value; A/A {again / per_frame:.2f}"
    return [
        Row(
            "frame model, 500 series built, filtered, rendered: frames / objects",
            per_frame / per_object,
            "×",
            0.6,
            detail,
        ).as_dict()
    ]


if __name__ == "__main__":
    print(measure())

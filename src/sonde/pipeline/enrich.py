"""Constant labels for every series, from `[daemon] labels`: which cluster, rack or site this host is in.

The job and the rank are not stamped on: they are joined through sonde_job_info, because a job id on every series
multiplies them (docs/jobs.md). The host is the scraper's `instance` or the sink's own field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

from sonde.errors import ConfigError
from sonde.model import Frame, Layout, MetricSpec


class Enricher:
    """Gives frames the constant labels. A layout is rewritten once and found again by identity."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        for name in labels:
            if not name.isidentifier() or name.startswith("__") or name in ("job", "instance", "le"):
                raise ConfigError(
                    f"daemon.labels.{name} cannot be a label name (job, instance and le are Prometheus' own)"
                )
        self._labels = dict(labels)
        self._layouts: WeakKeyDictionary[Layout, Layout] = WeakKeyDictionary()
        self._specs: dict[MetricSpec, MetricSpec] = {}

    def apply(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        if not self._labels:
            return frames
        return [
            frame._replace(layout=self._layouts.get(frame.layout) or self._rewrite(frame.layout)) for frame in frames
        ]

    def _rewrite(self, layout: Layout) -> Layout:
        rewritten = Layout((self._spec(spec), labels + self._values(spec)) for spec, labels in layout)
        self._layouts[layout] = rewritten
        return rewritten

    def _spec(self, spec: MetricSpec) -> MetricSpec:
        if spec not in self._specs:
            names = spec.labels + tuple(name for name in self._labels if name not in spec.labels)
            self._specs[spec] = MetricSpec(spec.name, spec.kind, spec.unit, spec.help, names)
        return self._specs[spec]

    def _values(self, spec: MetricSpec) -> tuple[str, ...]:
        # A series' own label says more than the constant one.
        return tuple(value for name, value in self._labels.items() if name not in spec.labels)

"""OTLP requests read back with the published protobuf classes, for the tests of everything that sends them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint, ScopeMetrics

from sonde.model import Histogram, Value

Attributes = frozenset[tuple[str, str | int]]


class Decoded(NamedTuple):
    """One data point."""

    name: str
    unit: str
    instrument: str  # counter, updowncounter, gauge or histogram
    attributes: Attributes
    start_ns: int
    time_ns: int
    value: Value


def scope_of(request: bytes) -> ScopeMetrics:
    """The one scope of the one resource."""
    decoded = ExportMetricsServiceRequest.FromString(request)
    (resource_metrics,) = decoded.resource_metrics
    scope_metrics: ScopeMetrics
    (scope_metrics,) = resource_metrics.scope_metrics
    return scope_metrics


def resource_of(request: bytes) -> dict[str, str | int]:
    decoded = ExportMetricsServiceRequest.FromString(request)
    return dict(attributes(decoded.resource_metrics[0].resource.attributes))


def points_of(request: bytes) -> list[Decoded]:
    return [point for metric in scope_of(request).metrics for point in _points(metric)]


def attributes(pairs: Iterable[KeyValue]) -> Attributes:
    return frozenset((pair.key, _any(pair)) for pair in pairs)


def _any(pair: KeyValue) -> str | int:
    which = pair.value.WhichOneof("value")
    assert which in ("string_value", "int_value")
    value: str | int = getattr(pair.value, which)
    return value


def _points(metric: Metric) -> Iterator[Decoded]:
    which = metric.WhichOneof("data")
    if which == "histogram":
        assert metric.histogram.aggregation_temporality == 2
        for point in metric.histogram.data_points:
            value = Histogram(tuple(point.explicit_bounds), tuple(point.bucket_counts), point.sum)
            assert point.count == sum(value.counts)
            yield Decoded(
                metric.name,
                metric.unit,
                "histogram",
                attributes(point.attributes),
                point.start_time_unix_nano,
                point.time_unix_nano,
                value,
            )
        return
    instrument = "gauge"
    if which == "sum":
        assert metric.sum.aggregation_temporality == 2
        instrument = "counter" if metric.sum.is_monotonic else "updowncounter"
    for number in metric.gauge.data_points if which == "gauge" else metric.sum.data_points:
        yield Decoded(
            metric.name,
            metric.unit,
            instrument,
            attributes(number.attributes),
            number.start_time_unix_nano,
            number.time_unix_nano,
            _value(number),
        )


def _value(point: NumberDataPoint) -> int | float:
    which = point.WhichOneof("value")
    assert which in ("as_int", "as_double")
    value: int | float = getattr(point, which)
    return value

"""dynolog's Prometheus page, on a port of its own: its names as gauges, with `host_name` and, per device, `net`.

    cpu_util{host_name="node01"} 28.658
    rx_bytes{net="eth0",host_name="node01"} 8021

Nothing is left out that was translated: dynolog's own page has a fixed list without steal, guests and GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from sonde.dialects.dynolog.translate import Translator
from sonde.hostfs import HostFS
from sonde.http import Request, Response
from sonde.model import Frame
from sonde.pipeline.enrich import Enricher
from sonde.sinks.prometheus import PrometheusConfig, PrometheusSink


class DynologPrometheusConfig(NamedTuple):
    address: str = "127.0.0.1:8080"  # where the page is served, as /metrics
    interface_prefixes: tuple[str, ...] = ()  # only network devices whose names begin so; empty: all


class DynologPrometheusSink:
    Config: ClassVar[type] = DynologPrometheusConfig
    inline: ClassVar[bool] = True
    reads_host: ClassVar[bool] = True

    def __init__(self, config: DynologPrometheusConfig, host: str, files: HostFS) -> None:
        self.address = config.address
        self.translate = Translator(files, config.interface_prefixes).frames
        self._enricher = Enricher({"host_name": host})
        self._sink = PrometheusSink(PrometheusConfig())

    def write(self, frames: Sequence[Frame]) -> None:
        self._sink.write(self._enricher.apply(frames))

    def page(self, request: Request) -> Response:
        return self._sink.page(request)

    def close(self) -> None:
        self._sink.close()

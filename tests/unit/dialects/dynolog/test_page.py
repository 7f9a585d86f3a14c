"""dynolog's page for Prometheus: its names, its labels, nothing of what was translated left out."""

from __future__ import annotations

from tests.unit.dialects.dynolog.conftest import cpu_frame, network_frame, uptime_frame

from sonde.dialects.dynolog.page import DynologPrometheusConfig, DynologPrometheusSink
from sonde.hostfs import HostFS
from sonde.http import Request

ASK = Request("GET", "/metrics", "", {}, True, True)


def page_after(sink: DynologPrometheusSink, *ticks: int) -> str:
    for n in ticks:
        frames = [cpu_frame({"0": {"idle": n, "steal": n}}), network_frame({"eth0": 5 * n}), uptime_frame(60 + n)]
        sink.write(sink.translate(frames))
    body = sink.page(ASK).body
    assert isinstance(body, bytes)
    return body.decode()


def test_the_first_page_holds_the_uptime() -> None:
    sink = DynologPrometheusSink(DynologPrometheusConfig(), host="node01", files=HostFS("/nonexistent"))

    page = page_after(sink, 0)

    assert 'uptime{host_name="node01"} 60\n' in page
    assert "cpu_util" not in page


def test_gauges_carry_the_host_and_the_device() -> None:
    sink = DynologPrometheusSink(DynologPrometheusConfig(), host="node01", files=HostFS("/nonexistent"))

    page = page_after(sink, 0, 1)

    assert "# TYPE cpu_util gauge\n" in page
    assert 'cpu_util{host_name="node01"} 50.0\n' in page
    assert 'rx_bytes{net="eth0",host_name="node01"} 5\n' in page
    for dropped_by_dynolog in ("cpu_z_ms", "cpu_guest", "cpu_guest_nice_ms"):
        assert f'{dropped_by_dynolog}{{host_name="node01"}}' in page

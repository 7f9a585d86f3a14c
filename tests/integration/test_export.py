"""Exports before those who read them: jobs that share a file at once, promtool, Prometheus, VictoriaMetrics."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from tests.integration.conftest import require
from tests.recordings import JOB, Course, make_recording

from sonde.cli.main import main
from sonde.clock import NS
from sonde.model import Histogram

if TYPE_CHECKING:
    from tests.integration.conftest import Prometheus, VictoriaMetrics

JOBS = 8
SERIES: dict[str, Course] = {
    "node_load1": lambda t, host: t / 4,
    'node_network_receive_bytes_total{device="eth0"}': lambda t, host: (1000 if host == "n1" else 5000) + int(t),
    "sonde_wait_seconds": lambda t, host: Histogram((0.5, 1.0), (int(t), 1, 1), t),
}


@pytest.mark.parametrize("form", ["hdf5", "sqlite", pytest.param("perfmon", marks=pytest.mark.long)])
def test_eight_jobs_append_at_once_from_different_directories_and_nothing_is_lost(tmp_path: Path, form: str) -> None:
    shared = tmp_path / ("shared" if form == "perfmon" else "shared.db")
    started = []
    for number in range(JOBS):
        place = tmp_path / f"job{number}"
        make_recording(place / "r", seconds=20, job={**JOB, "id": str(100 + number), "nodes": []}, series=SERIES)
        target = os.path.relpath(shared, place)
        words = ["export", "r", "--to", form, "--output", target, "--append"]
        words += ["--frames", "hdf5"] if form == "perfmon" else []
        started.append(
            subprocess.Popen([sys.executable, "-m", "sonde", *words], cwd=place, stderr=subprocess.PIPE, text=True)
        )

    errors = [process.communicate(timeout=100)[1] for process in started]

    assert [process.returncode for process in started] == [0] * JOBS, errors
    if form == "sqlite":
        connection = sqlite3.connect(shared)
        counts = connection.execute("SELECT recording, count(*) FROM samples GROUP BY 1 ORDER BY 1").fetchall()
        connection.close()
        assert counts == [(str(100 + number), 2 * 20 * 7) for number in range(JOBS)]
    else:
        path = str(shared / "metrics.h5" if form == "perfmon" else shared)
        for number in range(JOBS):
            keys = ["cpu_metrics_{}"] if form == "perfmon" else ["metrics_{}/n1", "metrics_{}/n2"]
            frames = [pd.read_hdf(path, key.format(100 + number)) for key in keys]
            assert sum(map(len, frames)) == 40
    left = [name for name in os.listdir(tmp_path) if "lock" in name or "part" in name]
    assert left == []


def test_promtool_makes_blocks_that_prometheus_answers_from(
    tmp_path: Path, prometheus: Callable[..., Prometheus]
) -> None:
    begun_ns = (time.time_ns() // NS - 6 * 3600) * NS  # of a job that ran hours ago
    make_recording(tmp_path / "r", seconds=20, series=SERIES, begun_ns=begun_ns)
    data = tmp_path / "data"
    data.mkdir()

    code = main(["export", str(tmp_path / "r"), "--to", "prometheus", "--output", str(tmp_path / "job.om")])
    made = subprocess.run(
        [require("promtool"), "tsdb", "create-blocks-from", "openmetrics", str(tmp_path / "job.om"), str(data)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    server = prometheus(data=data)
    at = str(begun_ns // NS + 25)
    found = server.ask("query", query='node_network_receive_bytes_total{device="eth0"}[1m]', time=at)["result"]

    assert (code, made.returncode) == (0, 0), made.stderr
    assert {item["metric"]["instance"]: item["values"] for item in found} == {
        host: [[begun_ns // NS + tick, str(first + tick)] for tick in range(20)]
        for host, first in (("n1", 1000), ("n2", 5000))
    }
    (bucket,) = server.ask("query", query='sonde_wait_seconds_bucket{le="1.0",instance="n1"}', time=at)["result"]
    assert bucket["value"][1] == "20"


def test_victoria_metrics_gets_a_job_of_the_past_with_its_times(
    tmp_path: Path, victoria_metrics: Callable[..., VictoriaMetrics], capsys: pytest.CaptureFixture[str]
) -> None:
    begun_ns = (time.time_ns() // NS - 7200) * NS
    offset_ns = 5 * NS
    clock = {"clock": {"offset_ns": offset_ns, "bound_ns": 1000}, "begun_ns": begun_ns + offset_ns}
    make_recording(tmp_path / "r", seconds=700, series=SERIES, begun_ns=begun_ns, nodes={"n2": clock})
    server = victoria_metrics()

    code = main(["export", str(tmp_path / "r"), "--to", "prometheus", "--url", f"{server.url}/api/v1/write", "--json"])

    found = server.samples('node_network_receive_bytes_total{device="eth0"}')
    assert code == 0
    assert '"rejected": 0' in capsys.readouterr().out
    assert {dict(labels)["instance"]: points for labels, points in found.items()} == {
        host: [(begun_ns // 1_000_000 + tick * 1000, first + tick) for tick in range(700)]
        for host, first in (("n1", 1000), ("n2", 5000))
    }

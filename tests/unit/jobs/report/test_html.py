from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.healthy import recording
from tests.recordings import JOB, make_recording

from sonde.jobs.report import make_report
from sonde.jobs.report.html import page
from sonde.jobs.report.packed import packed_plots
from sonde.jobs.summary import summarise


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page(make_report(recording(tmp_path_factory.mktemp("page") / "r", exit_code=3)))


def unpacked(packed: dict[str, Any]) -> list[int]:
    data = zlib.decompress(base64.b64decode(packed["values"]))
    half = len(data) // 2
    return [low | high << 8 for low, high in zip(data[:half], data[half:], strict=True)]


def column(packed: dict[str, Any], plot: dict[str, Any], place: int) -> list[float | None]:
    """As page.js reads it."""
    numbers = unpacked(packed)
    begin = plot["begin"] + place * packed["count"]
    scale = (plot["high"] - plot["low"]) / 65534
    return [
        None if number == 0 else plot["low"] + (number - 1) * scale
        for number in numbers[begin : begin + packed["count"]]
    ]


def test_the_page_fetches_nothing(healthy: str) -> None:
    assert not re.search(r"""(src|href)\s*=|url\(|@import|fetch\(|XMLHttp|https?:""", healthy)


def test_the_verdict_comes_first_and_findings_before_plots(healthy: str) -> None:
    places = [healthy.index(text) for text in ("<h1", "the command ended with exit code 3", "<h2>Plots", "<h2>Nodes")]

    assert places == sorted(places)


def test_every_plot_has_a_table_for_those_who_do_not_see_it(healthy: str) -> None:
    sections = re.findall(r'<section class="plot".*?</section>', healthy, re.DOTALL)

    assert len(sections) > 15
    assert all("<table>" in section and 'role="img"' in section and "aria-label" in section for section in sections)


def test_the_page_has_processes_counters_and_their_share(healthy: str) -> None:
    assert "<td>python</td>" in healthy
    assert "<td>instructions</td>" in healthy
    assert "<td class=n>25 %</td>" in healthy


def test_curves_survive_the_packing(tmp_path: Path) -> None:
    courses = {"node_load1": lambda t, host: None if 10 <= t < 20 and host == "n1" else t / 7 + (host == "n2")}
    summary = summarise(make_recording(tmp_path / "r", ("n1", "n2"), 60, 1.0, courses))

    packed = packed_plots(summary)

    (plot,) = packed["plots"]
    assert (plot["parts"], plot["hosts"]) == (1, [0, 1])
    for place, node in enumerate(summary.nodes):
        drawn = column(packed, plot, place)
        assert [value is None for value in drawn] == [value is None for value in node.curves["load"].mean]
        assert drawn == pytest.approx(node.curves["load"].mean, abs=60 / 65534)
    assert column(packed, plot, 0)[10:20] == [None] * 10


def test_a_flat_curve_is_packed_too(tmp_path: Path) -> None:
    summary = summarise(make_recording(tmp_path / "r", ("n1",), 10, 1.0, {"node_load1": lambda t, host: 4.0}))

    packed = packed_plots(summary)

    assert column(packed, packed["plots"][0], 0) == [4.0] * 10


def test_what_a_job_is_called_cannot_change_the_page(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>"
    job = {**JOB, "id": evil, "user": evil, "name": "<img>", "nodes": ["n1"]}

    text = page(make_report(make_recording(tmp_path / "r", ("n1",), job=job, notes=[evil])))

    assert "<script>alert" not in text
    assert "<img>" not in text


def test_nodes_that_differ_are_listed(tmp_path: Path) -> None:
    def context(host: str) -> dict[str, Any]:
        return {"host": host, "kernel": {"release": "6.1.0-21" if host == "n3" else "6.1.0-28"}}

    text = page(make_report(make_recording(tmp_path / "r", ("n1", "n2", "n3"), context=context)))

    assert "<td>kernel.release</td><td>6.1.0-21</td><td>n3</td>" in text


def test_the_numbers_in_the_page_are_json(healthy: str) -> None:
    data = re.search(r'id="plots-data">(.*?)</script>', healthy, re.DOTALL)

    assert data is not None
    assert json.loads(data[1])["hosts"] == ["n1", "n2"]


def test_a_recording_without_plots_is_a_page_too(tmp_path: Path) -> None:
    text = page(make_report(make_recording(tmp_path / "r", ("n1",), series={"node_boot_time_seconds": lambda t, h: 1})))

    assert "<canvas" not in text.partition("<script>")[0]
    assert "nothing was recorded" in text

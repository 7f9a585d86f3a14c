from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.healthy import GIB, HEALTHY, JOB, ROOT, recording, steady, still
from tests.recordings import Course

from sonde.jobs.report import Report, make_report
from sonde.jobs.report.text import Style, bar, energy, render

FAULTY: dict[str, Course | None] = {
    f"sonde_job_memory_rss_bytes{{{JOB}}}": still(2 * GIB),
    f"node_filesystem_avail_bytes{{{ROOT}}}": still(GIB),
    f"node_filesystem_free_bytes{{{ROOT}}}": still(GIB),
    'node_cpu_seconds_total{cpu="0",mode="steal"}': steady(0.8),
}


def reported(path: Path, changes: dict[str, Course | None] | None = None, **about: Any) -> Report:
    return make_report(recording(path, changes, **about))


def test_the_first_line_is_the_verdict_and_the_findings_follow_worst_first(tmp_path: Path) -> None:
    lines = render(reported(tmp_path / "r", FAULTY), Style()).splitlines()

    assert lines[0] == "Job 4711, 2 nodes, 9 m 55 s: a filesystem is full; 2 more findings"
    marks = [line.split()[0] for line in lines if line.startswith(("CRITICAL", "warning", "advice"))]
    assert marks == ["CRITICAL", "warning", "advice"]
    assert "         → write elsewhere or clean up: the next write may fail" in lines


def test_a_report_fits_a_screen(tmp_path: Path) -> None:
    lines = render(reported(tmp_path / "r", FAULTY), Style(80)).splitlines()

    assert len(lines) <= 30
    assert max(map(len, lines)) <= 80


def test_a_node_that_uses_less_of_its_cpus_comes_first(tmp_path: Path) -> None:
    changes: dict[str, Course | None] = {
        f'sonde_job_cpu_seconds_total{{{JOB},mode="user"}}': lambda t, host: t * (1.0 if host == "n2" else 3.4)
    }

    lines = render(reported(tmp_path / "r", changes), Style()).splitlines()

    nodes = [line.split()[0] for line in lines if "  CPU " in line]
    assert nodes == ["n2", "n1"]


def test_everything_is_listed_on_request(tmp_path: Path) -> None:
    report = reported(tmp_path / "r", FAULTY)

    short, whole = (render(report, Style(everything=everything)) for everything in (False, True))

    assert "n2 eth0" not in short
    assert "n2 eth0" in whole


def test_without_utf8_the_text_is_ascii(tmp_path: Path) -> None:
    text = render(reported(tmp_path / "r", FAULTY), Style(unicode=False))

    assert text.isascii()
    assert "?" not in text
    assert "-> ask for" in text
    assert "####" in text


def test_colours_are_painted_by_severity(tmp_path: Path) -> None:
    text = render(reported(tmp_path / "r", FAULTY), Style(paint=lambda text, colour: f"<{colour}>{text}</>"))

    assert text.startswith("<red>Job 4711")
    assert "<yellow>warning</>" in text


def test_what_was_not_measured_has_no_bar_and_is_named(tmp_path: Path) -> None:
    changes: dict[str, Course | None] = {name: None for name in HEALTHY if name.startswith("sonde_job_memory")}

    text = render(reported(tmp_path / "r", changes), Style(everything=True))

    assert "memory              not measured" in text
    assert "memory of the job: no values were recorded → name the job" in text


@pytest.mark.parametrize(
    ("share", "drawn"), [(None, "    "), (0.0, "░░░░"), (0.5, "██░░"), (0.53, "██▏░"), (1.0, "████"), (7.0, "████")]
)
def test_a_bar_is_as_long_as_its_share(share: float | None, drawn: str) -> None:
    assert bar(share, Style(), 4) == drawn


def test_nodes_that_are_not_alike_are_told(tmp_path: Path) -> None:
    def context(host: str) -> dict[str, Any]:
        return {"host": host, "kernel": {"release": "6.1.0-21" if host == "n2" else "6.1.0-28"}}

    report = reported(tmp_path / "r", context=context)

    assert "The nodes differ: kernel.release" in render(report, Style()).splitlines()
    assert "kernel.release: 6.1.0-21 on n2" in render(report, Style(everything=True)).splitlines()


def test_an_estimate_of_energy_is_called_one() -> None:
    assert energy(3.6e6, None) == ["energy 1 kWh"]
    assert energy(None, 1.8e6) == ["energy about 500 Wh (estimated)"]
    assert energy(None, 126.0) == ["energy about 126 J (estimated)"]
    assert energy(None, None) == []

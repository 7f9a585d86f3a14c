from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.healthy import recording
from tests.integration.conftest import require
from tests.recordings import make_recording

from sonde.jobs.report import Report, make_report
from sonde.jobs.report.pdf import write_pdf
from sonde.jobs.report.plots import write_plots


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return make_report(recording(tmp_path_factory.mktemp("pdf") / "r", exit_code=3))


def pages(path: Path) -> list[str]:
    """The text of each page, by poppler."""
    words = [require("pdftotext"), "-layout", str(path), "-"]
    out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return out.split("\f")[:-1]


@pytest.fixture(scope="module")
def written(report: Report, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    path = tmp_path_factory.mktemp("written") / "report.pdf"
    write_pdf(report, str(path))
    return pages(path)


def test_the_verdict_and_the_findings_come_first(written: list[str]) -> None:
    assert "the command failed" in written[0]
    assert "the command ended with exit code 3" in written[0]


def test_every_page_has_the_job_in_its_head_and_its_number(written: list[str]) -> None:
    for number, text in enumerate(written, 1):
        assert re.search(r"Job ID +4711 +User +ada +# Nodes +2 +Date +2026-09-21T14:13:\d\dZ", text)
        assert re.search(rf"^ +{number} .*sonde report$", text.strip("\n"), re.MULTILINE)


def test_no_page_is_blank(written: list[str]) -> None:
    assert min(len(text.split()) for text in written) > 25


def test_every_plot_is_drawn_together_and_per_node(written: list[str], report: Report) -> None:
    text = " ".join("".join(written).split())

    assert text.count("sum of 2 nodes") + text.count("mean of 2 nodes") == len(report.summary.plots)
    assert text.count("(2 nodes)") == len(report.summary.plots)


def test_a_page_is_a4(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "report.pdf"
    write_pdf(report, str(path))

    out = subprocess.run([require("pdfinfo"), str(path)], capture_output=True, text=True, check=True).stdout

    assert "(A4)" in out


def test_a_recording_without_plots_has_text_pages_only(tmp_path: Path) -> None:
    bare = make_report(make_recording(tmp_path / "r", ("n1",), series={"node_boot_time_seconds": lambda t, host: 1}))

    write_pdf(bare, str(tmp_path / "report.pdf"))

    assert "nothing was recorded" in pages(tmp_path / "report.pdf")[0]


@pytest.mark.parametrize(("form", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_a_plot_is_two_pictures(form: str, magic: bytes, tmp_path: Path) -> None:
    summary = make_report(
        make_recording(tmp_path / "r", ("n1", "n2"), 60, 1.0, {"node_load1": lambda t, host: t})
    ).summary

    written = write_plots(summary, str(tmp_path / "plots"), form)

    assert [Path(path).name for path in written] == [f"load_per_node.{form}", f"load_all_nodes.{form}"]
    assert all(Path(path).read_bytes().startswith(magic) for path in written)


def test_a_gap_is_a_hole_in_the_line(tmp_path: Path) -> None:
    def course(t: float, host: str) -> float | None:
        return None if 20 <= t < 40 else 5.0

    summary = make_report(make_recording(tmp_path / "r", ("n1",), 60, 1.0, {"node_load1": course})).summary
    paths = write_plots(summary, str(tmp_path / "plots"), "svg")

    text = Path(paths[0]).read_text()

    (line,) = re.findall(r'<path d="([^"]*)"[^>]*style="fill: none; stroke: #1f77b4', text)
    assert len(re.findall("M ", line)) == 2

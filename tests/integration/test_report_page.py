"""The page of a report in a real browser: it draws, complains of nothing, and needs no network."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.healthy import recording
from tests.integration.conftest import require

from sonde.jobs.report import make_report
from sonde.jobs.report.html import write_page


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The document after its script has run, and what the browser said."""
    directory = tmp_path_factory.mktemp("page")
    path = directory / "report.html"
    write_page(make_report(recording(directory / "r", exit_code=3)), str(path))
    return _opened(path, directory)


def _opened(path: Path, profile: Path) -> tuple[str, str]:
    words = [
        require("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
        "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=5000", f"--user-data-dir={profile}/chromium",
        "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    ended = subprocess.run(words, capture_output=True, text=True, timeout=90, check=True)
    return ended.stdout, ended.stderr


def test_every_plot_is_drawn(shown: tuple[str, str]) -> None:
    document, _ = shown

    canvases = re.findall(r"<canvas[^>]*>", document)
    assert len(canvases) > 15
    assert all(re.search(r'width="[1-9]\d+" height="[1-9]\d+"', canvas) for canvas in canvases)


def test_the_numbers_are_unpacked_and_the_nodes_can_be_switched(shown: tuple[str, str]) -> None:
    document, _ = shown

    assert 'id="no-plots"' not in document
    assert re.findall(r"</i>(n\d)</label>", document) == ["n1", "n2"]


ACTIONS = """
<script>
addEventListener("load", () => setTimeout(() => {
  const canvas = document.querySelector("#plot-cpu_used canvas"), box = canvas.getBoundingClientRect();
  const told = [], report = document.createElement("pre");
  const hover = () => {
    canvas.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + box.width / 2, clientY: box.top + 20}));
    told.push([...document.querySelectorAll("#plot-cpu_used .tip div")].map((line) => line.textContent).join("; "));
  };
  hover();
  document.getElementById("over").click(); hover(); document.getElementById("over").click();
  document.querySelectorAll("#hosts input")[0].click(); hover();
  canvas.dispatchEvent(new KeyboardEvent("keydown", {key: "+"}));
  canvas.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight"})); hover();
  report.id = "told"; report.textContent = told.join("\\n"); document.body.append(report);
}, 1500));
</script>
"""


def test_values_are_shown_below_the_pointer_nodes_are_switched_and_time_is_zoomed(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_page(make_report(recording(tmp_path / "r")), str(path))
    path.write_text(path.read_text().replace("</body>", ACTIONS + "</body>"))

    document, said = _opened(path, tmp_path)

    found = re.search(r'<pre id="told">(.*?)</pre>', document, re.DOTALL)
    assert found is not None, said
    each, together, switched, zoomed = found[1].splitlines()
    assert re.fullmatch(r"14:1[78]:\d\d UTC; n1  3.6; n2  3.6", each)
    assert together.endswith("UTC; sum of 2 nodes  7.2")
    assert switched.endswith("UTC; n2  3.6")
    assert each[:8] < zoomed[:8] < "14:21:00"
    assert "CONSOLE" not in said


def test_the_browser_complains_of_nothing(shown: tuple[str, str]) -> None:
    _, said = shown

    assert [line for line in said.splitlines() if "CONSOLE" in line] == []

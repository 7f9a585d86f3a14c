"""`sonde report`: what is printed, what is written, and what is said when it cannot be."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from tests.healthy import recording, steady
from tests.recordings import make_recording

from sonde.cli.main import main

STEAL = {f'node_cpu_seconds_total{{cpu="{cpu}",mode="steal"}}': steady(0.2) for cpu in range(4)}
VERDICT = "Job 4711, 2 nodes, 9 m 55 s: CPUs shared with other virtual machines"


@pytest.fixture
def directory(tmp_path: Path) -> str:
    recording(tmp_path / "r", STEAL)
    return str(tmp_path / "r")


def test_the_text_is_printed(directory: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["report", directory])

    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    assert out.startswith(VERDICT + "\n")
    assert "\x1b" not in out


def test_an_object_has_findings_figures_and_what_was_not_seen(
    directory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["report", directory, "--json"])

    told = json.loads(capsys.readouterr().out)
    assert code == 0
    assert told["verdict"] == VERDICT
    assert told["findings"][0]["rule"] == "steal"
    assert told["findings"][0]["evidence"]["host_steal_share"] == pytest.approx(1 / 6)
    assert told["figures"]["swap_peak"] == 0
    assert told["nodes"][1]["host"] == "n2"
    assert isinstance(told["not_seen"], list)


def test_several_outputs_are_written_at_once(
    directory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    html, pdf = tmp_path / "report.html", tmp_path / "report.pdf"

    code = main(["report", directory, "--html", str(html), "--pdf", str(pdf)])

    out = capsys.readouterr().out
    assert code == 0
    assert out.splitlines()[0] == VERDICT
    assert f"wrote {html}" in out
    assert html.read_text().startswith("<!doctype html>")
    assert pdf.read_bytes().startswith(b"%PDF")


def test_pictures_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_recording(tmp_path / "r", ("n1",), 30, 1.0, {"node_load1": lambda t, host: t})

    code = main(["report", str(tmp_path / "r"), "--plots", str(tmp_path / "plots"), "--svg", "--text"])

    assert code == 0
    assert sorted(os.listdir(tmp_path / "plots")) == ["load_all_nodes.svg", "load_per_node.svg"]
    assert "Not seen:" in capsys.readouterr().out


def test_a_file_of_rules_is_used(directory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "site.toml"
    rules.write_text("[steal]\nshare = 0.9\n")

    main(["report", directory, "--rules", str(rules)])

    assert "nothing to change" in capsys.readouterr().out


def test_the_configuration_may_name_the_rules(
    directory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules, config = tmp_path / "site.toml", tmp_path / "sonde.toml"
    rules.write_text("[steal]\nenabled = false\n")
    config.write_text(f'[report]\nrules = "{rules}"\n')

    main(["report", directory, "--config", str(config)])

    assert "nothing to change" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["/nowhere"], 2, "No such file"),
        (["{here}"], 2, "is not a recording"),
        (["{there}", "--svg"], 2, "--plots DIR --svg"),
        (["{there}", "--rules", "/nowhere.toml"], 2, "/nowhere.toml: No such file"),
        (["{there}", "--html", "/nowhere/report.html"], 2, "/nowhere/report.html: No such file"),
    ],
)
def test_what_cannot_be_done_is_said(
    words: list[str], code: int, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_recording(tmp_path / "r", ("n1",), 5)
    (tmp_path / "empty").mkdir()
    places = {"here": str(tmp_path / "empty"), "there": str(tmp_path / "r")}

    assert main(["report", *[word.format(**places) for word in words]]) == code
    assert complaint in capsys.readouterr().err


def run_without(module: str, *words: str) -> subprocess.CompletedProcess[str]:
    program = f"""
import sys
sys.modules[{module!r}] = None
from sonde.cli.main import main
raise SystemExit(main(["report", *sys.argv[1:]]))
"""
    return subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=60)


def test_without_matplotlib_the_extra_is_named(directory: str, tmp_path: Path) -> None:
    ended = run_without("matplotlib", directory, "--pdf", str(tmp_path / "report.pdf"))

    assert ended.returncode == 3
    assert "pip install 'sonde[report]'" in ended.stderr


def test_without_numpy_the_page_is_written(directory: str, tmp_path: Path) -> None:
    ended = run_without("numpy", directory, "--html", str(tmp_path / "report.html"))

    assert (ended.returncode, ended.stderr) == (0, "")
    assert VERDICT in (tmp_path / "report.html").read_text()


def test_a_terminal_sees_progress_and_colour(directory: str) -> None:
    leader, follower = pty.openpty()
    environ = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    try:
        subprocess.run(
            [sys.executable, "-m", "sonde", "report", directory],
            stdout=follower, stderr=follower, check=True, timeout=60, env=environ,
        )  # fmt: skip
        out = os.read(leader, 65536).decode()
    finally:
        os.close(leader)
        os.close(follower)

    assert "report █" in out or "report ░" in out
    assert "\x1b[33m" in out

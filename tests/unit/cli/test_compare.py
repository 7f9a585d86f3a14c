"""`sonde compare`, on recordings with a known difference."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.recordings import make_recording
from tests.runs import Noise, course

from sonde.cli.main import main


def record(path: Path, seed: int, slow: float = 0.0, context: Callable[[str], Any] | None = None) -> str:
    """A job of a fixed amount of work on two nodes."""
    chance = np.random.default_rng(seed)
    pace = course(chance, 2000, Noise(between=0)) / (1 + slow)
    lasted = int(np.searchsorted(np.cumsum(pace), 800)) + 1
    used = np.cumsum(pace[: lasted + 1] * (1 + slow) * 12)
    steps = np.cumsum(pace)
    make_recording(
        path,
        seconds=lasted,
        series={
            'sonde_job_cpu_seconds_total{job_id="7",scheduler="slurm",mode="user"}': lambda t, host: float(
                used[int(t)]
            ),
            "app_steps_total": lambda t, host: float(steps[int(t)]),
        },
        context=context,
        ended_by="command",
    )
    return str(path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    base = tmp_path_factory.mktemp("runs")

    def node(governor: str) -> Callable[[str], Any]:
        return lambda host: {"host": host, "cpu": {"governor": governor}, "unseen": []}

    return {
        "a": record(base / "a", 1, context=node("performance")),
        "like": record(base / "like", 2, context=node("performance")),
        "like2": record(base / "like2", 3),
        "slow": record(base / "slow", 4, slow=0.12, context=node("powersave")),
    }


def test_like_runs_have_no_difference(runs: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", runs["a"], runs["like"], "--fail-on", "changed"]) == 0

    text = capsys.readouterr().out
    assert text.startswith("no difference: duration ")
    assert "would have shown" in text.splitlines()[0]
    assert "hosts: no difference" in text
    assert "\x1b" not in text


def test_a_slower_run_is_worse_and_its_host_is_told(runs: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", runs["a"], runs["slow"]]) == 0
    assert main(["compare", runs["a"], runs["slow"], "--fail-on", "worse"]) == 1

    text = capsys.readouterr().out
    assert text.startswith("worse: duration +1")
    assert "cpu.governor: performance on A; powersave on B" in text


def test_a_faster_run_is_better_and_fails_no_pipeline(runs: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", runs["slow"], runs["a"], "--fail-on", "worse"]) == 0
    assert main(["compare", runs["slow"], runs["a"], "--fail-on", "changed"]) == 1

    assert capsys.readouterr().out.startswith("better: duration -")


def test_a_metric_of_ones_own_is_compared(runs: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", runs["a"], runs["slow"], "--higher", "app_steps_total", "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    (steps,) = [change for change in found["changes"] if change["measure"] == "app_steps_total"]
    assert (found["verdict"], steps["verdict"], steps["better"]) == ("worse", "worse", "more")
    assert steps["low"] < steps["change"] < steps["high"] < 0
    assert found["control"] == "Holm"


def test_further_runs_tell_the_noise_between_runs(runs: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    again = ["--again", runs["like"], "--again", runs["like2"]]
    assert main(["compare", runs["a"], runs["slow"], *again, "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert (found["run_noise"], found["runs_like_a"]) == (None, 3)


def test_what_cannot_be_compared_is_said(
    runs: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = make_recording(tmp_path / "empty", ["n1"], 0).path

    assert main(["compare", runs["a"], str(tmp_path / "none")]) == 2
    assert main(["compare", runs["a"], empty]) == 3
    assert main(["compare", runs["a"], runs["like"], "--again", runs["like2"]]) == 2
    with pytest.raises(SystemExit, match="2"):
        main(["compare", runs["a"], runs["like"], "--margin", "much"])
    text = capsys.readouterr().err
    assert "has no values" in text
    assert "does not tell how much runs differ" in text
    assert "write it as 2% or 0.02" in text


def test_without_numpy_it_says_what_to_install(runs: dict[str, str]) -> None:
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        f"from sonde.cli.main import main; sys.exit(main(['compare', {runs['a']!r}, {runs['like']!r}]))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert ended.returncode == 3
    assert "pip install 'sonde[report]'" in ended.stderr

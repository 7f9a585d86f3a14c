"""`sonde config`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sonde.cli.main import main
from sonde.config import load


def test_the_default_is_a_file_that_is_good_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "default"]) == 0
    path = tmp_path / "sonde.toml"
    path.write_text(capsys.readouterr().out)

    assert main(["config", "check", str(path)]) == 0
    assert load(str(path)).daemon == load("/dev/null").daemon


def test_a_key_of_a_plug_in_is_checked_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sonde.toml"
    path.write_text("[collectors.network]\nexlude = 'lo'\n")

    assert main(["config", "check", str(path)]) == 2
    error = capsys.readouterr().err
    assert f"{path}: collectors.network.exlude is not known; did you mean collectors.network.exclude?" in error


def test_show_prints_what_is_in_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sonde.toml"
    path.write_text('[daemon]\nperiod = "2s"\n[sinks.jsonl]\npath = "/tmp/x"\n')

    assert main(["config", "show", str(path)]) == 0
    text = capsys.readouterr().out
    assert 'period = "2s"' in text
    assert "\n[sinks.jsonl]\n" in text
    assert main(["config", "show", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["daemon"]["period"] == "2s"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[daemon]\nperiod = "1ms"\n', "the shortest period is 10ms"),
        ('[daemon]\ncollectors = ["cup"]\n', "no collector is called 'cup'"),
        ('[daemon]\nlabels = { job = "x" }\n', "daemon.labels.job cannot be a label name"),
        ('[collectors.disk]\nexclude = "("\n', "collectors.disk.exclude"),
        ('[daemon]\nhttp_address = "0.0.0.0:1779"\n', "daemon.http_address: 0.0.0.0:1779 can be reached"),
        ('[daemon]\nrpc_address = "localhost"\n', "daemon.rpc_address: 'localhost' is not an address"),
        ('[collectors.job]\nschedulers = ["lsf"]\n', "no plug-in is called 'lsf'"),
        ("[sinks.jsonl]\nqueue = -1\n", "sinks.jsonl.queue must hold at least one frame"),
        ("[collectors]\ncpu = 1\n", "collectors.cpu must be a table, [collectors.cpu]"),
    ],
)
def test_what_the_daemon_would_refuse_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    path = tmp_path / "sonde.toml"
    path.write_text(text)

    assert main(["config", "check", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_a_key_with_a_dot_is_shown_as_it_must_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sonde.toml"
    path.write_text('[sinks.otlp]\nattributes = { "deployment.environment.name" = "test", rack = "r12" }\n')
    assert main(["config", "show", str(path)]) == 0
    shown = capsys.readouterr().out
    path.write_text(shown)

    assert 'attributes = { "deployment.environment.name" = "test", rack = "r12" }' in shown
    assert load(str(path)).sinks["otlp"]["attributes"] == {"deployment.environment.name": "test", "rack": "r12"}

"""`sonde config`."""

from __future__ import annotations

import json
import subprocess
import sys
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
    path.write_text(f'[daemon]\nperiod = "2s"\n[sinks.jsonl]\npath = "{tmp_path}/x"\n')

    assert main(["config", "show", str(path)]) == 0
    text = capsys.readouterr().out
    assert 'period = "2s"' in text
    assert "\n[sinks.jsonl]\n" in text
    assert main(["config", "show", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["daemon"]["period"] == "2s"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[daemon]\nperiod = "1ms"\n', "daemon.period: the shortest period is 10ms"),
        ('[collectors.cpu]\nperiod = "1ms"\n', "collectors.cpu.period: the shortest period is 10ms"),
        (
            '[sinks.prometheus]\nrename = { node_load1 = "a b" }\n',
            "sinks.prometheus.rename.node_load1: 'a b' cannot be",
        ),
        ('[sinks.jsonl]\nrename = { node_load1 = "x", node_load5 = "x" }\n', "cannot both be called x"),
        (
            '[sinks.jsonl]\nrename = { node_load5 = "node_load15" }\n',
            "sinks.jsonl.rename.node_load5: node_load15 is the name of another metric",
        ),
        ('[sinks.jsonl]\npath = "/nope/f.jsonl"\n', "sinks.jsonl.path: there is no directory /nope"),
        ('[sinks.jsonl]\npath = "/proc"\n', "sinks.jsonl.path: /proc is a directory"),
        ("[sinks.jsonl]\nkeep = -1\n", "sinks.jsonl: max_size must be positive and keep not negative"),
        ('[archive]\nmax_size = "0MB"\n', "archive.max_size: 0B is too small for an archive: give it 1MB or more"),
        ('[archive]\nmax_age = "1000000d"\n', "archive.max_age: '1000000d' is out of range"),
        ('[daemon]\nroot = "/nope"\n', "daemon.root: /nope has no proc directory"),
        (
            '[sinks.remote_write]\nurl = "http://127.0.0.1:1/w"\nbearer_token_file = "/nope"\n',
            "sinks.remote_write.bearer_token_file: /nope: No such file",
        ),
        (
            '[sinks.remote_write]\nurl = "http://127.0.0.1:1/w"\nusername = "u"\npassword_file = "/nope"\n',
            "sinks.remote_write.password_file: /nope: No such file",
        ),
        ('[daemon]\ncollectors = ["cup"]\n', "no collector is called 'cup'"),
        ('[daemon]\nlabels = { job = "x" }\n', "daemon.labels.job cannot be a label name"),
        ('[collectors.disk]\nexclude = "("\n', "collectors.disk.exclude"),
        ('[daemon]\nhttp_address = "0.0.0.0:1779"\n', "daemon.http_address: 0.0.0.0:1779 can be reached"),
        ('[daemon]\nrpc_address = "localhost"\n', "daemon.rpc_address: 'localhost' is not an address"),
        ('[collectors.job]\nschedulers = ["lsf"]\n', "collectors.job.schedulers: no plug-in is called 'lsf'"),
        ('[collectors.job]\nschedulers = ["slurmm"]\n', "did you mean 'slurm'?"),
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


@pytest.mark.parametrize(
    "sink",
    [
        'rename = { node_load5 = "node_load15", node_load15 = "node_load5" }',
        'rename = { node_load5 = "node_load15" }\nexclude = ["node_load15"]',
    ],
)
def test_a_metric_may_get_a_name_that_another_has_given_up(tmp_path: Path, sink: str) -> None:
    path = tmp_path / "sonde.toml"
    path.write_text(f"[sinks.jsonl]\n{sink}\n")

    assert main(["config", "check", str(path)]) == 0


def test_an_empty_root_is_refused_by_the_check_and_by_the_daemon_in_the_same_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "host" / "proc").mkdir(parents=True)
    path = tmp_path / "sonde.toml"
    path.write_text(f'[daemon]\nroot = "{tmp_path}/host"\n')
    assert main(["config", "check", str(path)]) == 2
    checked = capsys.readouterr().err
    command = [sys.executable, "-m", "sonde", "daemon", "--config", str(path), "--state", str(tmp_path / "state")]
    started = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    assert f"{path}: daemon.root: {tmp_path}/host/proc is empty: the host's /proc is not mounted there" in checked
    assert started.returncode == 2
    assert started.stderr.replace("sonde: daemon:", "sonde: config:") == checked


def test_a_period_on_the_command_line_is_refused_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["daemon", "--period", "1ms"]) == 2
    assert "--period: the shortest period is 10ms" in capsys.readouterr().err


def test_a_file_that_is_switched_off_needs_no_directory(tmp_path: Path) -> None:
    path = tmp_path / "sonde.toml"
    path.write_text('[sinks.jsonl]\nenabled = false\npath = "/nope/f.jsonl"\n')

    assert main(["config", "check", str(path)]) == 0


def test_a_key_with_a_dot_is_shown_as_it_must_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sonde.toml"
    path.write_text('[sinks.otlp]\nattributes = { "deployment.environment.name" = "test", rack = "r12" }\n')
    assert main(["config", "show", str(path)]) == 0
    shown = capsys.readouterr().out
    path.write_text(shown)

    assert 'attributes = { "deployment.environment.name" = "test", rack = "r12" }' in shown
    assert load(str(path)).sinks["otlp"]["attributes"] == {"deployment.environment.name": "test", "rack": "r12"}

"""The entry: help, errors, exit codes."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from sonde.cli.main import COMMANDS, main, parser_of

SONDE = str(Path(sys.executable).with_name("sonde"))


def test_help_names_every_command_and_ends_with_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0

    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in COMMANDS)


def test_no_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage:" in capsys.readouterr().err


def test_an_unknown_command_is_answered_with_the_likely_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["statsu"]) == 2
    assert "did you mean status?" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_teaches_its_use(name: str) -> None:
    parser, module = parser_of(name)

    assert isinstance(parser, argparse.ArgumentParser)
    text = parser.format_help()
    assert module.__doc__ is not None
    assert module.__doc__.splitlines()[0] in text
    assert "exit codes" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_does(name: str) -> None:
    parser, _ = parser_of(name)

    assert [action.dest for action in parser._actions if action.option_strings and not action.help] == []


def test_an_error_is_a_line_and_a_next_step_without_traceback(tmp_path: Path) -> None:
    ended = subprocess.run(
        [SONDE, "status", "--host", f"unix:{tmp_path}/none.sock"], capture_output=True, text=True, timeout=20
    )

    assert ended.returncode == 3
    assert ended.stderr.startswith("sonde: status: ")
    assert "sonde daemon" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_reader_that_stops_reading_is_not_an_error() -> None:
    ended = subprocess.run(f"{SONDE} metrics --names | head -1", shell=True, capture_output=True, text=True, timeout=30)

    assert ended.returncode == 0
    assert ended.stderr == ""


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["daemon", "--colectors", "cpu"], "--collectors"), (["config", "check", "--jsn"], "--json")],
)
def test_a_mistyped_option_gets_the_one_that_was_meant(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)

    assert ended.value.code == 2
    assert f": no such option; did you mean {meant}?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--durration", "1s"], "--durration: no such option; did you mean --duration?"),
        (["--stpes=4"], "--stpes: no such option; did you mean --steps?"),
        (["--stpes", "4", "--job", "77"], "--stpes: no such option; did you mean --steps?"),
        (["lst"], "lst: no such verb; did you mean list?; there are list, show, cancel, fetch"),
        (["--duration", "1s", "77"], "77: no such verb; there are list, show, cancel, fetch"),
    ],
)
def test_a_mistyped_option_before_a_verb_is_not_taken_for_one(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["trace", *words])

    assert ended.value.code == 2
    assert capsys.readouterr().err == f"sonde trace: {said}\n  sonde trace --help explains\n"

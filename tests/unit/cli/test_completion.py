"""`sonde completion`: what each shell offers, asked of the shell itself."""

from __future__ import annotations

import argparse
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.conftest import require

from sonde.cli.completion import places_of
from sonde.cli.main import COMMANDS, main, parser_of
from sonde.registry import COLLECTORS, SINKS

# What a shell offers for the words typed so far; the last one is the one being typed.
Offer = Callable[..., set[str]]

# zsh completes only in its line editor: the functions it would call print what they are given.
ZSH = """
compdef() { : }
_describe() { print -l -- ${${(P)2}%%%%:*} }
compset() { [[ $words[CURRENT] = *,* ]] && begun=${words[CURRENT]%%,*}, }
compadd() { while [ "$1" != -- ]; do shift; done; shift; print -l -- $begun${^@} }
_files() { print FILES }
_message() { : }
source %s
words=("$@"); CURRENT=$#words; _sonde
"""
BASH = 'source %s; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sonde; printf "%%s\\n" "${COMPREPLY[@]}"'


@pytest.fixture(params=["bash", "zsh", "fish"])
def offered(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Offer:
    shell: str = request.param
    program = require(shell)
    script = tmp_path / "script"
    assert main(["completion", shell]) == 0
    script.write_text(capsys.readouterr().out)

    def ask(*words: str) -> set[str]:
        command = {
            "bash": [program, "-c", BASH % script, "bash", *words],
            "zsh": [program, "-f", "-c", ZSH % script, "zsh", *words],
            "fish": [program, "-N", "-c", f"source {script}; complete -C {shlex.quote(' '.join(words))}"],
        }[shell]
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=30, cwd=tmp_path, env={"HOME": str(tmp_path)}
        )
        assert (ended.returncode, ended.stderr) == (0, "")
        return {line.split("\t")[0] for line in ended.stdout.split("\n") if line}

    return ask


def test_every_command_is_offered(offered: Offer) -> None:
    assert offered("sonde", "") >= set(COMMANDS)


def test_the_verbs_of_a_command_are_offered(offered: Offer) -> None:
    assert offered("sonde", "config", "") >= {"check", "show", "default"}


def test_the_options_of_a_command_are_offered(offered: Offer) -> None:
    found = offered("sonde", "query", "--")

    assert found >= {"--since", "--rate", "--json"}
    assert "--live" not in found


def test_the_options_of_a_verb_are_offered(offered: Offer) -> None:
    assert "--json" in offered("sonde", "config", "show", "--")
    assert "--json" not in offered("sonde", "config", "default", "--")


def test_the_values_of_an_option_are_offered(offered: Offer) -> None:
    assert offered("sonde", "daemon", "--log-level", "") == {"debug", "info", "warning", "error"}


def test_the_names_of_sinks_are_offered(offered: Offer) -> None:
    assert offered("sonde", "replay", "--to", "") == set(SINKS)


def test_a_list_of_collectors_is_offered_name_by_name(offered: Offer) -> None:
    assert offered("sonde", "daemon", "--collectors", "") == set(COLLECTORS)
    assert {"cpu,memory", "cpu,mountstats"} <= offered("sonde", "daemon", "--collectors", "cpu,m")


def test_the_values_of_an_argument_are_offered(offered: Offer) -> None:
    assert offered("sonde", "completion", "") >= {"bash", "zsh", "fish"}


def test_bash_completes_what_is_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    (tmp_path / "script").write_text(capsys.readouterr().out)
    begun = [["sonde", "sta"], ["sonde", "daemon", "--log-level", "=", "de"], ["sonde", "daemon", "--log-level", "="]]
    completed = [
        subprocess.run(
            ["bash", "-c", BASH % (tmp_path / "script"), "bash", *words], capture_output=True, text=True, timeout=30
        ).stdout.split()
        for words in begun
    ]

    assert completed == [["status"], ["debug"], ["debug", "info", "warning", "error"]]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_verb_and_option_of_every_command_has_its_place(name: str) -> None:
    parser, _ = parser_of(name)
    places = {place.words: place for place in places_of(parser, (name,))}

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            assert all((name, verb) in places for verb in action.choices)
        elif action.option_strings:
            assert set(action.option_strings) & set(places[(name,)].spelled)


def test_an_option_that_is_not_shown_is_not_offered() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--secret", help=argparse.SUPPRESS)
    parser.add_argument("--open", help="it's open: 100%%")
    (place,) = places_of(parser, ("x",))

    assert place.spelled == ["--help", "--open"]


def test_what_a_trace_records_is_offered_one_by_one(offered: Offer) -> None:
    assert "cpu_op,kernel" in offered("sonde", "trace", "--activities", "cpu_op,k")
    assert offered("sonde", "trace", "") >= {"list", "show", "cancel", "fetch"}

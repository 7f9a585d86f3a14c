"""The pages of the manual and the configuration a package installs: from the parsers and the registries."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from tests.integration.conftest import require

from packages.manpages import pages
from packages.release import Release
from packages.roff import Page, escape, inline
from packages.settings import default_file, sections
from sonde.cli.config_check import check
from sonde.cli.main import COMMANDS, parser_of
from sonde.config import Config, load
from sonde.registry import COLLECTORS, SINKS

RELEASE = Release("0.1.0", 1_700_000_000, "x86_64", "One system.")
PAGES = {page.name: page.text for page in pages(RELEASE)}
CHANGED = {"log_max_size": ('"0B"', "rotated by others")}


@pytest.fixture
def page(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    name: str = request.param
    path = tmp_path / name
    path.write_text(PAGES[name])
    return path


@pytest.mark.parametrize("page", PAGES, indirect=True)
def test_mandoc_has_nothing_to_say(page: Path) -> None:
    ended = subprocess.run(
        [require("mandoc"), "-T", "lint", "-W", "warning", str(page)], capture_output=True, text=True
    )

    assert (ended.returncode, ended.stdout) == (0, "")


@pytest.mark.parametrize("page", PAGES, indirect=True)
def test_man_has_nothing_to_say(page: Path) -> None:
    ended = subprocess.run(
        [require("man"), "--warnings", "-E", "UTF-8", "-Tutf8", "-Z", "-l", str(page)],
        capture_output=True, text=True, env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80", "MANROFFSEQ": ""},
    )  # fmt: skip

    assert (ended.returncode, ended.stderr) == (0, "")


def test_pages_are_plain_ascii() -> None:
    assert all(text.isascii() for text in PAGES.values())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_s_page_names_all_its_options(name: str) -> None:
    parser, _ = parser_of(name)
    options = [option for action in parser._actions for option in action.option_strings]

    assert all(escape(option) in PAGES[f"sonde-{name}.1"] for option in options)
    assert f"sonde\\-{name}" in PAGES["sonde.1"]


def test_the_page_of_the_configuration_names_every_plug_in() -> None:
    text = PAGES["sonde.toml.5"]

    assert all(f"[collectors.{name}]" in text for name in COLLECTORS)
    assert all(f"[sinks.{name}]" in text for name in SINKS if name != "archive")


@pytest.mark.parametrize(
    ("text", "markup"),
    [
        ("a -b", r"a \-b"),
        (".so /etc/passwd", r"\&.so /etc/passwd"),
        ("it's", r"it\(aqs"),
        ("'quoted", r"\(aqquoted"),
        (r"\n", r"\en"),
        ("5 µs …", r"5 \[u00B5]s \[u2026]"),
        ("", ""),
    ],
)
def test_text_is_never_taken_for_a_request(text: str, markup: str) -> None:
    assert escape(text) == markup


def test_code_is_bold() -> None:
    assert inline("ask `sonde status` first") == r"ask \fBsonde status\fR first"


def test_a_docstring_keeps_its_columns() -> None:
    page = Page("x", 1, date="2026-01-01", source="sonde 1")
    page.document("First\nparagraph.\n\n  sonde a     one\n  sonde b     two\n\nLast.")

    assert "First paragraph.\n.PP\n.RS 4\n.EX\nsonde a     one\nsonde b     two\n.EE\n.RE\n.PP\nLast.\n" in page.text


def test_the_installed_configuration_changes_one_key(tmp_path: Path) -> None:
    path = tmp_path / "sonde.toml"
    path.write_text(default_file(changed=CHANGED))
    config = load(str(path))
    check(config)

    assert config.daemon._replace(log_max_size=Config().daemon.log_max_size) == Config().daemon
    assert config.daemon.log_max_size == 0
    assert (config.archive, config.collectors, config.sinks) == (Config().archive, {}, {})


def test_every_line_of_it_can_be_uncommented() -> None:
    text = re.sub(r"^#(\[|[a-z_]+ = )", r"\1", default_file(changed=CHANGED), flags=re.MULTILINE)
    text = re.sub(r"^.* = \(unset\)$", "", text, flags=re.MULTILINE)
    table = tomllib.loads(text)

    assert set(table["collectors"]) == set(COLLECTORS)
    assert set(table["sinks"]) == set(SINKS) - {"archive"}
    assert {key.name for section in sections() if section.name == "daemon" for key in section.keys} == set(
        table["daemon"]
    )

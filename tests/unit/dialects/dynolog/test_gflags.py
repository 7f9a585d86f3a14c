"""The command line of gflags, well formed and not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.dialects.dynolog.gflags import Flag, Given, Value, parse
from sonde.errors import UsageError

FLAGS = {
    flag.name: flag
    for flag in (
        Flag("port", 1778, "a number"),
        Flag("use_JSON", False, "a switch"),
        Flag("enable_env", True, "a switch that is on"),
        Flag("notes", "x", "a text whose name begins with no"),
    )
}
ALIASES = {"old_port": "port"}


def read(*words: str) -> Given:
    return parse(words, FLAGS, ALIASES)


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["--port=9"], "port", 9),
        (["--port", "9"], "port", 9),
        (["-port=9"], "port", 9),
        (["-port", "9"], "port", 9),
        (["--port=0x10"], "port", 16),
        (["--port", "-1"], "port", -1),
        (["--old_port=9"], "port", 9),
        (["--old-port", "9"], "port", 9),
        (["--port=9", "--port=10"], "port", 10),
        (["--use_JSON"], "use_JSON", True),
        (["--use-JSON"], "use_JSON", True),
        (["--use_JSON=true"], "use_JSON", True),
        (["--use_JSON=Yes"], "use_JSON", True),
        (["--use_JSON=1"], "use_JSON", True),
        (["--use_JSON", "--nouse_JSON"], "use_JSON", False),
        (["--use_JSON", "--nouse-JSON"], "use_JSON", False),
        (["--use_JSON=f"], "use_JSON", False),
        (["--noenable-env"], "enable_env", False),
        (["--notes=a=b,c"], "notes", "a=b,c"),
        (["--notes="], "notes", ""),
        (["--notes", "--port"], "notes", "--port"),
    ],
)
def test_a_flag_is_read_in_every_spelling(words: Sequence[str], name: str, value: Value) -> None:
    flags = read(*words)

    assert flags.values[name] == value
    assert type(flags.values[name]) is type(value)
    assert name in flags.named


def test_what_is_not_given_has_its_default() -> None:
    flags = read()

    assert flags.values == {"port": 1778, "use_JSON": False, "enable_env": True, "notes": "x"}
    assert not flags.named


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prot=1"], "--prot is not a flag of dynolog; did you mean --port?"),
        (["--use_json"], "did you mean --use_JSON"),
        (["--zzz"], "--zzz is not a flag of dynolog$"),
        (["--port"], "--port needs a value"),
        (["--port=abc"], "--port: 'abc' is not a whole number"),
        (["--port=4294967296"], "not a whole number"),
        (["--use_JSON=maybe"], "'maybe' is neither true nor false"),
        (["--nouse_JSON=1"], "takes no value"),
        (["--noport"], "--noport is not a flag"),
        (["--use_JSON", "false"], "'false' is not a flag"),
        (["--"], "is not a flag"),
        (["--flagfile"], "--flagfile needs a value"),
        (["--flagfile=/nonexistent/file"], "/nonexistent/file: No such file"),
    ],
)
def test_what_cannot_be_understood_is_refused_by_name(words: Sequence[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(*words)


def test_undefok_lets_a_flag_pass_that_nobody_knows() -> None:
    flags = read("--future-flag=3", "--undefok=future_flag,other", "--port=5")

    assert flags.values["port"] == 5


def test_a_flag_file_has_comments_blank_lines_and_further_files(tmp_path: Path) -> None:
    inner = tmp_path / "inner.gflags"
    inner.write_text("--notes=from inside, with blanks\n--port 5\n")
    outer = tmp_path / "outer.gflags"
    outer.write_text(f"# what we want\n\n  --use-JSON  \n--port=4\n--flagfile={inner}\n--noenable_env\n")

    flags = read("--port=3", f"--flagfile={outer}")

    assert flags.values == {
        "port": 5,
        "use_JSON": True,
        "enable_env": False,
        "notes": "from inside, with blanks",
    }


def test_what_follows_a_flag_file_wins_over_it(tmp_path: Path) -> None:
    file = tmp_path / "flags"
    file.write_text("--port=4\n")

    assert read("--flagfile", str(file), "--port=5").values["port"] == 5
    assert read("--port=5", f"--flagfile={file},{file}").values["port"] == 4


def test_a_flag_file_that_names_itself_is_refused(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text(f"--flagfile={second}\n")
    second.write_text(f"--flagfile={tmp_path}/./first\n")

    with pytest.raises(UsageError, match="names itself, by way of"):
        read(f"--flagfile={first}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--port=1\n--prot=2\n", ":2: --prot is not a flag of dynolog; did you mean --port"),
        ("--port\n", ":1: --port needs a value"),
        ("port=3\n", ":1: 'port=3' is not a flag"),
        ("--port=x\n", ":1: --port: 'x' is not a whole number"),
    ],
)
def test_a_mistake_in_a_flag_file_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "flags"
    file.write_text(text)

    with pytest.raises(UsageError, match=message):
        read(f"--flagfile={file}")


def test_a_flag_file_must_be_text_of_some_size(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "long").write_text("#" * 1_100_000)

    with pytest.raises(UsageError, match="not a file of text"):
        read(f"--flagfile={tmp_path / 'binary'}")
    with pytest.raises(UsageError, match="too long"):
        read(f"--flagfile={tmp_path / 'long'}")
    with pytest.raises(UsageError, match="Is a directory"):
        read(f"--flagfile={tmp_path}")


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(max_size=12) | st.sampled_from(["--port", "--use_JSON", "--nouse_JSON", "--notes=", "7"])))
def test_any_words_are_read_or_refused(words: list[str]) -> None:
    try:
        flags = read(*[word for word in words if "flagfile" not in word])
    except UsageError:
        return
    assert {name: type(value) for name, value in flags.values.items()} == {
        name: type(flag.default) for name, flag in FLAGS.items()
    }


@settings(max_examples=100, deadline=None)
@given(st.integers(-(2**31), 2**31 - 1), st.booleans(), st.text(st.characters(exclude_categories=["Cs"])))
def test_what_is_written_is_what_is_read(port: int, switch: bool, text: str) -> None:
    flags = read(f"--port={port}", f"--use-JSON={str(switch).lower()}", f"--notes={text}")

    assert (flags.values["port"], flags.values["use_JSON"], flags.values["notes"]) == (port, switch, text)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_any_text_in_a_flag_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.getbasetemp() / "flags"
    file.write_text(text.replace("flagfile", ""), encoding="utf-8", errors="replace")

    with suppress(UsageError):  # and nothing else
        read(f"--flagfile={file}")

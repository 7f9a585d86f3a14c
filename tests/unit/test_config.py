"""TOML to dataclasses, and what is refused on the way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

import pytest

from sonde.config import CollectorConfig, bind, load, split
from sonde.errors import ConfigError
from sonde.units import Duration, Size


class Options(NamedTuple):
    required: str
    number: int = 1
    ratio: float = 0.5
    on: bool = False
    wait: Duration = Duration(1)
    size: Size = Size(1)
    names: tuple[str, ...] = ()
    mode: Literal["a", "b"] = "a"
    maybe: Duration | None = None
    labels: Mapping[str, str] = MappingProxyType({})


def test_every_type_is_bound() -> None:
    table = {
        "required": "x",
        "number": 2,
        "ratio": 1,
        "on": True,
        "wait": "500ms",
        "size": "2GiB",
        "names": ["a", "b"],
        "mode": "b",
        "maybe": "2s",
    }

    assert bind(Options, table, "it") == Options(
        "x", 2, 1.0, True, Duration(0.5), Size(2**31), ("a", "b"), "b", Duration(2)
    )


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "it.required is required"),
        ({"required": 5}, "it.required must be a string, not a whole number"),
        ({"required": "x", "number": True}, "it.number must be a whole number, not true or false"),
        ({"required": "x", "number": "3"}, "it.number must be a whole number, not a string"),
        ({"required": "x", "wait": 5}, 'it.wait must be written with its unit, as "30s", not 5'),
        ({"required": "x", "wait": "5 parsecs"}, "it.wait: '5 parsecs'"),
        ({"required": "x", "names": "a"}, "it.names must be a list of strings, not a string"),
        ({"required": "x", "labels": {"a": 1}}, "it.labels must be a table of strings: a is a whole number"),
        ({"required": "x", "labels": "a"}, "it.labels must be a table of strings, not a string"),
        ({"required": "x", "mode": "c"}, "it.mode must be one of a, b, not 'c'"),
        ({"required": "x", "nubmer": 1}, "it.nubmer is not known; did you mean it.number?"),
    ],
)
def test_what_is_wrong_is_refused_by_name(table: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        bind(Options, table, "it")

    assert message in str(caught.value)


def test_a_plug_ins_table_holds_the_keys_all_have_and_its_own() -> None:
    common, own = split(CollectorConfig, Options, {"period": "1s", "required": "x"}, "collectors.it")

    assert common.period == Duration(1)
    assert own.required == "x"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("daemon = 5", "daemon must be a table"),
        ("[demon]", "demon is not known; did you mean daemon?"),
        ("[collectors.netwrk]", "collectors.netwrk is not known; did you mean collectors.network?"),
        ("[daemon]\nperiod = 5", "daemon.period must be written with its unit"),
        ('[daemon]\nmax_age = "2d"', "daemon.max_age is not known; did you mean archive.max_age?"),
        ("[daemon]\nenabled = true", "did you mean archive.enabled or tracing.enabled?"),
        ("[daemon", "not TOML"),
        ("[collectors]\ncpu = 3", "cpu must be a table"),
    ],
)
def test_a_bad_file_is_refused_with_its_name_and_the_key(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "sonde.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(str(path))

    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_a_file_that_is_missing_or_not_text_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(str(tmp_path / "none.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(ConfigError, match="UTF-8"):
        load(str(tmp_path / "bytes.toml"))


def test_an_archive_that_is_switched_off_may_have_any_size(tmp_path: Path) -> None:
    (tmp_path / "off.toml").write_text('[archive]\nenabled = false\nmax_size = "0MB"\n')

    assert load(str(tmp_path / "off.toml")).archive.max_size == 0


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "empty.toml").touch()
    config = load(str(tmp_path / "empty.toml"))

    assert config.daemon.period == Duration(10)
    assert config.archive.enabled

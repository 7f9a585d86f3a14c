"""The keys of the configuration, for sonde.toml(5) and for the file a package installs: from the same named tuples and
comments as docs/reference/config.md.

The installed file changes nothing but one key: every other line is a comment with the default. So a default that
changes with a new version takes effect where nobody has decided otherwise.

    [daemon]
    # default of all collectors
    #period = "10s"
"""

from __future__ import annotations

import textwrap
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple

from docs.generate import comments_of, defaults_of_keys, source_of, type_name

from sonde.config import CollectorConfig, Config, NoKeys, SinkConfig
from sonde.registry import COLLECTORS, SINKS, load

_WIDTH = 110
_HEAD = """\
# The configuration of the sonde daemon: sonde.toml(5). What is commented out is the default.
# `sonde config check` says what is wrong with this file, `systemctl reload sonde` takes it over.
"""


class Key(NamedTuple):
    name: str
    type: str
    default: str  # as TOML, or (unset)
    meaning: str


class Section(NamedTuple):
    name: str  # daemon, collectors.disk
    about: str
    keys: tuple[Key, ...]


def sections() -> Iterator[Section]:
    """Every section with its own keys; what all collectors and all sinks understand is in `collectors.NAME` and
    `sinks.NAME`."""
    defaults = defaults_of_keys()
    for name, cls in typing.get_type_hints(Config).items():
        if hasattr(cls, "_fields"):
            yield Section(name, "", _keys(cls, defaults[name]))
    for kind, plugins, common, about in (
        ("collectors", COLLECTORS, CollectorConfig, "Keys that every collector has."),
        ("sinks", SINKS, SinkConfig, "Keys that every sink has. A sink runs when its section is there."),
    ):
        known = [name for name in plugins if f"{kind}.{name}" in defaults]
        yield Section(f"{kind}.NAME", about, _keys(common, defaults[f"{kind}.{known[0]}"]))
        for name in known:
            cls = load(plugins, name)
            own: Any = cls.Config  # type: ignore[attr-defined]
            off = "" if getattr(cls, "default_on", True) else " Off by default."
            keys = () if own is NoKeys else _keys(own, defaults[f"{kind}.{name}"])
            yield Section(f"{kind}.{name}", source_of(cls) + off, keys)


def _keys(cls: type, defaults: dict[str, str]) -> tuple[Key, ...]:
    hints = typing.get_type_hints(cls)
    meanings = comments_of(cls)
    names: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
    return tuple(
        Key(
            name,
            type_name(hints[name]).replace("`", ""),
            "(unset)" if defaults[name] == "unset" else defaults[name].strip("`"),
            meanings.get(name, ""),
        )
        for name in names
    )


def default_file(*, changed: dict[str, tuple[str, str]]) -> str:
    """The file a package installs. `changed`: keys of [daemon] that are set there, each with its reason."""
    parts = [_HEAD]
    for section in sections():
        if section.name.endswith(".NAME"):
            parts.append(
                "\n".join([*_comment(f"[{section.name}]: {section.about}"), *map(_general, section.keys)]) + "\n"
            )
            continue
        # Only [daemon] is always there: an empty section would already switch a sink on.
        own = changed if section.name == "daemon" else {}
        lines = [*_comment(section.about), f"[{section.name}]" if own else f"#[{section.name}]"]
        for key in section.keys:
            value, reason = own.get(key.name, ("", ""))
            lines += _comment(reason or key.meaning)
            lines.append(f"{key.name} = {value}" if value else f"#{key.name} = {key.default}")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _general(key: Key) -> str:
    return f"#   {key.name} = {key.default}  # {key.meaning}"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ")

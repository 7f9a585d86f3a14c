"""Check, show or print the default configuration.

sonde config check [FILE]     refuse unknown keys, wrong types and bad units, by name
sonde config show [FILE]      what is in force: the file over the defaults
sonde config default          every key with its default, as a file to start from
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from sonde import config as configuration
from sonde.cli.config_check import check
from sonde.config import CollectorConfig, Config, SinkConfig, fields, split
from sonde.daemon.paths import default_paths
from sonde.registry import COLLECTORS, SINKS, load
from sonde.units import Duration, Size


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="check|show|default")
    for verb, text in (("check", "check a file and say what is wrong"), ("show", "print what is in force")):
        sub = verbs.add_parser(verb, help=text)
        sub.add_argument("file", nargs="?", help="the file (default: the one the daemon would read)")
        if verb == "show":
            sub.add_argument("--json", action="store_true", help="print an object")
    verbs.add_parser("default", help="print every key with its default")


def run(args: argparse.Namespace) -> int:
    if args.verb == "default":
        print(render(Config()), end="")
        return 0
    path = args.file or default_paths().config
    config = configuration.load(path) if args.file or os.path.exists(path) else Config()
    check(config)
    if args.verb == "check":
        print(f"{config.source}: good")
    elif args.json:
        print(json.dumps(_plain(config), indent=2))
    else:
        print(render(config), end="")
    return 0


def _keys(
    plugins: Mapping[str, str], common: type, name: str, table: configuration.Table, kind: str
) -> tuple[Any, Any]:
    own: type = load(dict(plugins), name).Config  # type: ignore[attr-defined]
    return split(common, own, table, f"{kind}.{name}")


def render(config: Config) -> str:
    """The whole configuration as TOML."""
    lines = [f"# sonde configuration ({config.source})"]
    for title in ("daemon", "archive", "tracing", "report"):
        lines += ["", f"[{title}]", *_assignments(getattr(config, title))]
    for kind, plugins, common in (("collectors", COLLECTORS, CollectorConfig), ("sinks", SINKS, SinkConfig)):
        tables = getattr(config, kind)
        for name in plugins:
            if kind == "sinks" and name == "archive":
                continue  # configured by [archive]
            shared, own = _keys(plugins, common, name, tables.get(name, {}), kind)
            body = [*_assignments(shared), *_assignments(own)]
            # A sink exists only when its section does: the default file shows it, switched off.
            comment = "# " if kind == "sinks" and name not in tables else ""
            lines += ["", *(comment + line for line in (f"[{kind}.{name}]", *body))]
    return "\n".join(lines) + "\n"


def _assignments(section: object) -> Iterator[str]:
    for name in fields(type(section))[0]:
        value = getattr(section, name)
        yield f"# {name} = (unset)" if value is None else f"{name} = {_toml(value)}"


def _toml(value: object) -> str:
    if isinstance(value, Duration | Size):
        return f'"{value}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, Mapping):
        pairs = [f"{_toml_key(key)} = {_toml(item)}" for key, item in value.items()]
        return "{ " + ", ".join(pairs) + " }" if pairs else "{}"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _toml_key(key: str) -> str:
    """Bare where TOML allows it: a dot in a bare key would make a table of it."""
    bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if bare else json.dumps(key)


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return {name: _plain(item) for name, item in value._asdict().items()}
    if isinstance(value, Duration | Size):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value

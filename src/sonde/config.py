"""TOML to frozen dataclasses; unknown keys, wrong types and bad units are refused by name.

    [daemon]                     DaemonConfig, below
    [archive]                    ArchiveConfig, below
    [collectors.<name>]          the keys of every collector (CollectorConfig) and the collector's own
    [sinks.<name>]               the keys of every sink (SinkConfig) and the sink's own

Precedence: flag, then file, then default. The environment sets nothing here. A plug-in owns its `Config` dataclass;
`bind` fills it. Field types understood: str, int, float, bool, Duration, Size, tuple[str, ...], dict[str, str],
Literal[...] of strings, and any of these `| None`.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, TypeVar, cast

from sonde.errors import ConfigError
from sonde.units import Duration, Size

T = TypeVar("T")
Table = Mapping[str, object]

OnUnavailable = Literal["skip", "retry", "fail"]


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    host: str = ""  # the kernel's node name when empty
    period: Duration = Duration(10)  # default of all collectors
    root: str = "/"  # where the host's /proc and /sys are found, for a daemon in a container
    rpc_address: str = "127.0.0.1:1778"  # empty: no TCP
    http_address: str = "127.0.0.1:1779"  # /metrics and /healthz; empty: off
    log_file: str = ""  # empty: standard error
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_max_size: Size = Size(10 * 10**6)  # rotated beyond this size
    log_keep: int = 7  # rotated files kept
    labels: dict[str, str] = field(default_factory=dict)  # put on every series
    flush_deadline: Duration = Duration(1.5)  # how long a stop waits for the sinks
    collectors: tuple[str, ...] = ()  # only these; empty: every one that is on by default


@dataclass(frozen=True, slots=True)
class ArchiveConfig:
    enabled: bool = True
    path: str = ""  # empty: archive.db in the state directory
    max_age: Duration = Duration(7 * 86400)
    max_size: Size = Size(512 * 10**6)


@dataclass(frozen=True, slots=True)
class CollectorConfig:
    """Keys every collector has."""

    enabled: bool | None = None  # unset: as the collector's default
    period: Duration | None = None  # unset: [daemon] period
    on_unavailable: OnUnavailable = "skip"


@dataclass(frozen=True, slots=True)
class SinkConfig:
    """Keys every sink has."""

    enabled: bool = True
    include: tuple[str, ...] = ()  # shell patterns of metric names; empty: all
    exclude: tuple[str, ...] = ()
    min_period: Duration = Duration(0)  # at most one frame per source in this time
    queue: int = 1000  # frames kept while the sink cannot be reached; then the oldest is dropped


@dataclass(frozen=True, slots=True)
class NoKeys:
    """For a plug-in that has no keys of its own."""


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration. Plug-in tables stay raw until their plug-in is loaded."""

    daemon: DaemonConfig = DaemonConfig()
    archive: ArchiveConfig = ArchiveConfig()
    collectors: Mapping[str, Table] = field(default_factory=dict)
    sinks: Mapping[str, Table] = field(default_factory=dict)
    source: str = "built-in defaults"


def parse(text: str, source: str) -> Config:
    """The configuration in a TOML text. Plug-in names are checked; their keys when they are bound."""
    import tomllib

    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: not TOML: {error}") from None
    return from_tree(tree, source)


def from_tree(tree: Table, source: str) -> Config:
    from sonde.registry import COLLECTORS, SINKS

    try:
        refuse_unknown(tree, ("daemon", "archive", "collectors", "sinks"), "")
        return Config(
            daemon=bind(DaemonConfig, _table(tree, "daemon"), "daemon"),
            archive=bind(ArchiveConfig, _table(tree, "archive"), "archive"),
            collectors=_plugins(tree, "collectors", COLLECTORS),
            sinks=_plugins(tree, "sinks", SINKS),
            source=source,
        )
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}", hint=error.hint) from None


def load(path: str) -> Config:
    try:
        with open(path, encoding="utf-8") as file:
            return parse(file.read(), path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None


def _table(tree: Table, key: str) -> Table:
    value = tree.get(key, {})
    if not isinstance(value, Mapping):
        raise ConfigError(f"{key} must be a table, [{key}], not {_kind(value)}")
    return value


def _plugins(tree: Table, key: str, known: Mapping[str, str]) -> Mapping[str, Table]:
    tables = _table(tree, key)
    refuse_unknown(tables, tuple(known), f"{key}.")
    return {name: _table(tables, name) for name in tables}


def bind(cls: type[T], table: Table, where: str) -> T:
    """Fill a frozen dataclass from a table. `where` is the dotted name of the table, for messages."""
    hints = typing.get_type_hints(cls)
    known = {item.name: item for item in fields(cast("Any", cls))}
    refuse_unknown(table, tuple(known), f"{where}.")
    missing = [n for n, f in known.items() if f.default is MISSING and f.default_factory is MISSING]
    for name in missing:
        if name not in table:
            raise ConfigError(f"{where}.{name} is required")
    return cls(**{name: convert(hints[name], value, f"{where}.{name}") for name, value in table.items()})


def split(common: type[T], own: type, table: Table, where: str) -> tuple[T, Any]:
    """Bind a plug-in's table to the keys every plug-in has and to its own."""
    shared = {item.name for item in fields(cast("Any", common))}
    own_names = {item.name for item in fields(cast("Any", own))}
    refuse_unknown(table, tuple(shared | own_names), f"{where}.")
    return (
        bind(common, {k: v for k, v in table.items() if k in shared}, where),
        bind(own, {k: v for k, v in table.items() if k not in shared}, where),
    )


def refuse_unknown(table: Table, known: tuple[str, ...], prefix: str) -> None:
    for name in table:
        if name not in known:
            import difflib  # only on the way to an error

            close = difflib.get_close_matches(name, known, n=1)
            meant = f"; did you mean {prefix}{close[0]}?" if close else ""
            raise ConfigError(f"{prefix}{name} is not known{meant}", hint=f"known here: {', '.join(sorted(known))}")


def convert(hint: Any, value: object, key: str) -> object:
    """One value as the type its field declares, or ConfigError naming the key."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return convert(next(a for a in arguments if a is not type(None)), value, key)
    if origin is Literal:
        if value not in arguments:
            raise ConfigError(f"{key} must be one of {', '.join(map(str, arguments))}, not {value!r}")
        return value
    if hint in (Duration, Size):
        return _with_unit(hint, value, key)
    if origin in (tuple, dict):
        return _container(origin, value, key)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not hint:
        raise ConfigError(f"{key} must be {_kind_of_type(hint)}, not {_kind(value)}")
    return value


def _container(origin: type, value: object, key: str) -> object:
    if origin is tuple:
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"{key} must be a list of strings, not {_kind(value)}")
        return tuple(value)
    if not isinstance(value, Mapping) or not all(isinstance(item, str) for item in value.values()):
        raise ConfigError(f"{key} must be a table of strings, not {_kind(value)}")
    return dict(value)


def _with_unit(hint: type[Duration] | type[Size], value: object, key: str) -> object:
    if isinstance(value, hint):
        return value
    example = '"30s"' if hint is Duration else '"2GiB"'
    if not isinstance(value, str):
        raise ConfigError(f"{key} must be written with its unit, as {example}, not {value!r}")
    try:
        return hint.parse(value)
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from None


def _kind(value: object) -> str:
    return _kind_of_type(type(value))


def _kind_of_type(cls: type) -> str:
    names: dict[type, str] = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
    names |= {list: "a list", dict: "a table"}
    return names.get(cls, cls.__name__)

"""TOML to named tuples; unknown keys, wrong types and bad units are refused by name.

    [daemon]                     DaemonConfig, below
    [archive]                    ArchiveConfig, below
    [tracing]                    TracingConfig, below
    [report]                     ReportConfig, below
    [collectors.<name>]          the keys of every collector (CollectorConfig) and the collector's own
    [sinks.<name>]               the keys of every sink (SinkConfig) and the sink's own

Precedence: flag, then file, then default. The environment sets nothing here (the OTLP sink alone fills what is left
unset from OTEL_* variables, because its users expect that: docs/adr/0017). A plug-in owns its `Config`, a named tuple
(dataclasses would bring inspect, ast and tokenize into the daemon: 1.5 MB, docs/adr/0005); `bind` fills it. Types of
keys: str, int, float, bool, Duration, Size, tuple[str, ...], Mapping[str, str], Literal of strings; each `| None` too.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

from sonde.errors import ConfigError
from sonde.units import Duration, Size

T = TypeVar("T")
Table = Mapping[str, object]

SHORTEST_PERIOD = Duration(0.01)
SMALLEST_ARCHIVE = Size(10**6)  # below, what waits to be packed and the log are most of the file

OnUnavailable = Literal["skip", "retry", "fail"]


class DaemonConfig(NamedTuple):
    host: str = ""  # the kernel's node name when empty
    period: Duration = Duration(10)  # default of all collectors
    root: str = "/"  # where the host's /proc and /sys are found, for a daemon in a container
    rpc_address: str = "127.0.0.1:1778"  # empty: no TCP
    http_address: str = "127.0.0.1:1779"  # /metrics and /healthz; empty: off
    certs_dir: str = ""  # server.crt, server.key, ca.crt and ca.crl: rpc_address then speaks mutual TLS; empty: no TLS
    insecure: bool = False  # allow addresses that other machines can reach, where nothing proves who is calling
    log_file: str = ""  # empty: standard error
    log_level: Literal["debug", "info", "warning", "error"] = "info"  # the least that is logged
    log_max_size: Size = Size(10 * 10**6)  # rotated beyond this size
    log_keep: int = 7  # rotated files kept
    labels: Mapping[str, str] = MappingProxyType({})  # put on every series
    flush_deadline: Duration = Duration(1.5)  # how long a stop waits for the sinks
    collectors: tuple[str, ...] = ()  # only these; empty: every one that is on by default


class ArchiveConfig(NamedTuple):
    enabled: bool = True  # keep an archive on disk
    path: str = ""  # empty: archive.db in the state directory
    max_age: Duration = Duration(7 * 86400)  # older values are removed
    max_size: Size = Size(512 * 10**6)  # of the file; beyond it the oldest values are removed
    journal: Literal["auto", "wal", "rollback"] = "auto"  # auto: rollback on a network filesystem


class TracingConfig(NamedTuple):
    enabled: bool = True  # answer training processes that ask for traces (KINETO_USE_DAEMON=1)
    abstract: bool = True  # at the abstract socket that libkineto looks for; processes of this network namespace see it
    socket_dir: str = ""  # also at DIR/dynolog, for containers that mount DIR and set KINETO_IPC_SOCKET_DIR to it
    roots: tuple[str, ...] = ()  # write traces below these only, else where the process' user may; first: the default
    max_file_size: Size = Size(4 * 10**9)  # of a trace that is sent to whoever asked for it


class ReportConfig(NamedTuple):
    rules: str = ""  # a file with the site's thresholds and rules for `sonde report`; empty: those of sonde


class CollectorConfig(NamedTuple):
    """Keys every collector has."""

    enabled: bool | None = None  # unset: as the collector's default
    period: Duration | None = None  # unset: [daemon] period
    on_unavailable: OnUnavailable = "skip"  # nothing to read here: go on without, try every minute, or do not start


class SinkConfig(NamedTuple):
    """Keys every sink has."""

    enabled: bool = True  # false: as if the section were not there
    include: tuple[str, ...] = ()  # shell patterns of metric names; empty: all
    exclude: tuple[str, ...] = ()  # shell patterns too; goes before include
    min_period: Duration = Duration(0)  # at most one frame per source in this time
    queue: int | None = None  # frames kept while the sink cannot deliver; unset: 1000, of a sink that pushes 30000
    queue_memory: Size = Size(32 * 10**6)  # memory they may take, about; beyond either the oldest frame is dropped
    rename: Mapping[str, str] = MappingProxyType({})  # the name a metric has here = the name it gets in this sink


class NoKeys(NamedTuple):
    """For a plug-in that has no keys of its own."""


class Config(NamedTuple):
    """The whole configuration. Plug-in tables stay raw until their plug-in is loaded."""

    daemon: DaemonConfig = DaemonConfig()
    archive: ArchiveConfig = ArchiveConfig()
    tracing: TracingConfig = TracingConfig()
    report: ReportConfig = ReportConfig()
    collectors: Mapping[str, Table] = MappingProxyType({})
    sinks: Mapping[str, Table] = MappingProxyType({})
    source: str = "built-in defaults"


_SECTIONS: dict[str, type] = {
    "daemon": DaemonConfig,
    "archive": ArchiveConfig,
    "tracing": TracingConfig,
    "report": ReportConfig,
}


def read(path: str) -> tuple[Table, str]:
    """The tables of a file, and its path for messages."""
    import tomllib

    try:
        with open(path, "rb") as file:
            return tomllib.load(file), path
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None


def load(path: str) -> Config:
    """The configuration in a file. Plug-in names are checked here; their keys when they are bound."""
    return from_tree(*read(path))


def from_tree(tree: Table, source: str) -> Config:
    from sonde.registry import COLLECTORS, SINKS

    try:
        refuse_unknown(tree, (*_SECTIONS, "collectors", "sinks"), "")
        if "archive" in table(tree, "sinks"):
            raise ConfigError("sinks.archive: the archive has a section of its own", hint="write [archive]")
        for section in _SECTIONS:
            _refuse_misplaced(table(tree, section), section)
        return Config(
            daemon=_daemon(bind(DaemonConfig, table(tree, "daemon"), "daemon")),
            archive=_archive(bind(ArchiveConfig, table(tree, "archive"), "archive")),
            tracing=bind(TracingConfig, table(tree, "tracing"), "tracing"),
            report=bind(ReportConfig, table(tree, "report"), "report"),
            collectors=_plugins(tree, "collectors", COLLECTORS),
            sinks=_plugins(tree, "sinks", SINKS),
            source=source,
        )
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}", hint=error.hint) from None


def _daemon(config: DaemonConfig) -> DaemonConfig:
    if config.period < SHORTEST_PERIOD:
        raise ConfigError(f"daemon.period: the shortest period is {SHORTEST_PERIOD}")
    return config


def _archive(config: ArchiveConfig) -> ArchiveConfig:
    if config.enabled and config.max_size < SMALLEST_ARCHIVE:
        raise ConfigError(
            f"archive.max_size: {config.max_size} is too small for an archive: give it {SMALLEST_ARCHIVE} or more",
            hint="to keep nothing on disk: [archive] enabled = false",
        )
    return config


def _refuse_misplaced(values: Table, section: str) -> None:
    """A key below the wrong heading: what becomes of a line whose own heading is still commented out."""
    for name in values:
        owners = [other for other, cls in _SECTIONS.items() if name in fields(cls)[0]]
        if owners and section not in owners:
            meant = " or ".join(f"{owner}.{name}" for owner in owners)
            raise ConfigError(
                f"{section}.{name} is not known; did you mean {meant}?",
                hint=f"write it below a line with [{owners[0]}]; the heading before it is [{section}]",
            )


def table(tree: Table, key: str, prefix: str = "") -> Table:
    value = tree.get(key, {})
    if not isinstance(value, Mapping):
        raise ConfigError(f"{prefix}{key} must be a table, [{prefix}{key}], not {_kind(value)}")
    return value


def _plugins(tree: Table, key: str, known: Mapping[str, str]) -> Mapping[str, Table]:
    tables = table(tree, key)
    refuse_unknown(tables, tuple(known), f"{key}.")
    return {name: table(tables, name, f"{key}.") for name in tables}


def bind(cls: type[T], values: Table, where: str) -> T:
    """Fill a named tuple from a table. `where` is the dotted name of the table, for messages."""
    hints = typing.get_type_hints(cls)
    known, defaults = fields(cls)
    refuse_unknown(values, known, f"{where}.")
    for name in known:
        if name not in defaults and name not in values:
            raise ConfigError(f"{where}.{name} is required")
    return cls(**{name: convert(hints[name], value, f"{where}.{name}") for name, value in values.items()})


def fields(cls: type) -> tuple[tuple[str, ...], Mapping[str, object]]:
    """The names of a configuration's keys, and the defaults of those that have one."""
    return cls._fields, cls._field_defaults  # type: ignore[attr-defined]


def split(common: type[T], own: type, values: Table, where: str) -> tuple[T, Any]:
    """Bind a plug-in's table to the keys every plug-in has and to its own."""
    shared, own_names = fields(common)[0], fields(own)[0]
    refuse_unknown(values, shared + own_names, f"{where}.")
    return (
        bind(common, {k: v for k, v in values.items() if k in shared}, where),
        bind(own, {k: v for k, v in values.items() if k not in shared}, where),
    )


def refuse_unknown(values: Table, known: tuple[str, ...], prefix: str) -> None:
    for name in values:
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
    if origin in (tuple, Mapping):
        return _container(origin, value, key)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not hint:
        raise ConfigError(f"{key} must be {_kind_of_type(hint)}, not {_kind(value)}")
    return value


def _container(origin: type, value: object, key: str) -> object:
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{key} must be a list of strings, not {_kind(value)}")
        for item in value:
            if not isinstance(item, str):
                raise ConfigError(f"{key} must be a list of strings: {item!r} is {_kind(item)}")
        return tuple(value)
    if not isinstance(value, Mapping):
        raise ConfigError(f"{key} must be a table of strings, not {_kind(value)}")
    for name, item in value.items():
        if not isinstance(item, str):
            raise ConfigError(f"{key} must be a table of strings: {name} is {_kind(item)}")
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

"""What the daemon would refuse at its start or fail at for ever, found in a configuration before it is started."""

from __future__ import annotations

import os
from typing import Any

from sonde.config import Config, SinkConfig, Table, split
from sonde.daemon.pages import check_address, check_addresses
from sonde.daemon.paths import check_root
from sonde.errors import ConfigError, Denied, Unavailable, UsageError
from sonde.hostfs import HostFS
from sonde.model import MetricSpec
from sonde.pipeline.assembly import Plan, construct, plan_collectors
from sonde.pipeline.enrich import Enricher
from sonde.pipeline.selection import Selection, sieve_for
from sonde.registry import COLLECTORS, SINKS, load
from sonde.sinks.linefile import STDERR, STDOUT, LineFile

_SECRETS = ("bearer_token_file", "password_file")


def check(config: Config) -> None:
    """Raise ConfigError naming the file and the key: plug-ins are built, addresses read, labels and names tried."""
    try:
        check_root(config)
        host = HostFS(config.daemon.root)
        for plan in plan_collectors(config):
            _try(plan, host)
        for name, table in config.sinks.items():
            _check_sink(name, table, insecure=config.daemon.insecure)
        Enricher(config.daemon.labels)
        check_addresses(config.daemon)
        if config.daemon.certs_dir:
            _check_certificates(config.daemon.certs_dir)
    except (ConfigError, UsageError) as error:
        raise ConfigError(f"{config.source}: {error}", hint=error.hint) from None


def _check_certificates(directory: str) -> None:
    from sonde.rpc.tls import server_context

    try:
        server_context(directory)
    except Denied:
        pass  # the daemon's alone, and whoever checks is somebody else
    except ConfigError as error:
        raise ConfigError(f"daemon.certs_dir: {error}", hint=error.hint) from None


def _try(plan: Plan, host: HostFS) -> None:
    try:
        construct(plan.cls, host, plan.own).close()
    except Unavailable as error:
        if plan.common.on_unavailable == "fail":
            raise ConfigError(f"collectors.{plan.name} is required (on_unavailable = fail) but {error}") from None


def _check_sink(name: str, table: Table, *, insecure: bool) -> None:
    cls: Any = load(SINKS, name)
    common, own = split(SinkConfig, cls.Config, table, f"sinks.{name}")
    if common.queue is not None and common.queue < 1:
        raise ConfigError(f"sinks.{name}.queue must hold at least one frame")
    sieve_for(name, common)
    _check_names(name, common)
    if hasattr(cls, "page") and hasattr(own, "address"):
        check_address(f"sinks.{name}.address", own.address, insecure=insecure)
    if not common.enabled:
        return
    if hasattr(cls, "check"):
        cls.check(own)
    _check_secrets(name, own)
    if {"path", "max_size", "keep"} <= set(own._fields):
        _check_lines(name, own)


def _check_names(name: str, common: SinkConfig) -> None:
    """Refuse to give a metric the name of another. Every collector is imported for it: too much for the daemon."""
    if not common.rename:
        return
    selection = Selection(common.include, common.exclude)
    declared = _declared()
    for old, new in common.rename.items():
        other = declared.get(new)
        if other is not None and old != new and new not in common.rename and selection.wants(other):
            raise ConfigError(
                f"sinks.{name}.rename.{old}: {new} is the name of another metric",
                hint=f"choose a name that `sonde metrics` does not list, or add {new} to sinks.{name}.exclude",
            )


def _declared() -> dict[str, MetricSpec]:
    classes: list[Any] = [load(COLLECTORS, name) for name in COLLECTORS]
    return {spec.name: spec for cls in classes for spec in cls.metrics}


def _check_secrets(name: str, own: Any) -> None:
    for key in _SECRETS:
        path = getattr(own, key, "")
        if not path:
            continue
        try:
            with open(path, "rb"):
                pass
        except PermissionError:
            pass  # a secret is often the daemon's alone, and whoever checks is somebody else
        except OSError as error:
            raise ConfigError(f"sinks.{name}.{key}: {path}: {error.strerror}") from None


def _check_lines(name: str, own: Any) -> None:
    """A sink that writes lines needs the directory of its file; it makes the file itself."""
    LineFile(name, STDOUT, own.max_size, own.keep).close()  # refuses what cannot be a size or a number of files
    if own.path in (STDOUT, STDERR):
        return
    folder = os.path.dirname(os.path.abspath(own.path))
    if not os.path.isdir(folder):
        raise ConfigError(f"sinks.{name}.path: there is no directory {folder}", hint=f"make it: mkdir -p {folder}")
    if os.path.isdir(own.path):
        raise ConfigError(f"sinks.{name}.path: {own.path} is a directory", hint="name a file")

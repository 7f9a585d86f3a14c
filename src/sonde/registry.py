"""The plug-ins by name, imported only when one is asked for.

One line here is all that a new collector or sink needs beside its own module. The name is also the module's, the
configuration section's and, in camel case, the class'.
"""

from __future__ import annotations

from importlib import import_module

from sonde.errors import ConfigError

COLLECTORS: dict[str, str] = {
    "cpu": "sonde.collectors.cpu:CpuCollector",
    "load": "sonde.collectors.load:LoadCollector",
}

SINKS: dict[str, str] = {}

SCHEDULERS: dict[str, str] = {}


def load(table: dict[str, str], name: str) -> type:
    """Import the class behind a name."""
    try:
        target = table[name]
    except KeyError:
        raise ConfigError(f"no plug-in is called {name!r}; there are {', '.join(sorted(table))}") from None
    module, _, attribute = target.partition(":")
    found = getattr(import_module(module), attribute)
    if not isinstance(found, type):
        raise TypeError(f"{target} is not a class")
    return found

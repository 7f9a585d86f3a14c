"""Where the daemon keeps things: the system's directories for root, XDG's for a user, one directory when told."""

from __future__ import annotations

import os
from typing import NamedTuple


class Paths(NamedTuple):
    state: str  # the archive
    runtime: str  # rpc.sock
    config: str  # the configuration file read when none is named

    @property
    def rpc_socket(self) -> str:
        return os.path.join(self.runtime, "rpc.sock")

    @property
    def archive(self) -> str:
        return os.path.join(self.state, "archive.db")


def default_paths(*, uid: int | None = None, environ: os._Environ[str] | dict[str, str] = os.environ) -> Paths:
    if (os.geteuid() if uid is None else uid) == 0:
        return Paths("/var/lib/sonde", "/run/sonde", "/etc/sonde/sonde.toml")
    home = environ.get("HOME") or "/"
    state = os.path.join(environ.get("XDG_STATE_HOME") or os.path.join(home, ".local/state"), "sonde")
    runtime = environ.get("XDG_RUNTIME_DIR")
    config = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    return Paths(
        state, os.path.join(runtime, "sonde") if runtime else state, os.path.join(config, "sonde", "sonde.toml")
    )


def paths_in(directory: str) -> Paths:
    """Everything in one directory, as `make run` has it."""
    whole = os.path.abspath(directory)
    return Paths(whole, whole, os.path.join(whole, "sonde.toml"))


def state_dir() -> str:
    return default_paths().state

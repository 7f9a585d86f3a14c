"""Where the daemon keeps things: the system's directories for root, XDG's for a user, one directory when told."""

from __future__ import annotations

import os
from typing import NamedTuple

from sonde.config import Config
from sonde.errors import ConfigError

ROOT_HINT = "give the directory that holds the host's /proc"


class Paths(NamedTuple):
    state: str  # the archive
    runtime: str  # rpc.sock
    config: str  # the configuration file read when none is named

    @property
    def rpc_socket(self) -> str:
        return os.path.join(self.runtime, "rpc.sock")

    @property
    def traces(self) -> str:
        return os.path.join(self.state, "traces.json")

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


def flaw_of_root(root: str) -> str:
    """Why nothing of a host can be read below a root; empty when it can.

    A mount of the host's files that was forgotten leaves an empty directory, in which every collector finds nothing.
    """
    proc = os.path.join(root, "proc")
    try:
        return "" if os.listdir(proc) else f"{proc} is empty: the host's /proc is not mounted there"
    except (FileNotFoundError, NotADirectoryError):
        return f"{root} has no proc directory"
    except OSError as error:
        return f"{proc}: {error.strerror}"


def check_root(config: Config) -> None:
    """Refuse a root without a host in it."""
    if flaw := flaw_of_root(config.daemon.root):
        raise ConfigError(f"daemon.root: {flaw}", hint=ROOT_HINT)


def state_dir() -> str:
    return default_paths().state

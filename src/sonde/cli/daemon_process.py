"""The process of the daemon: `sonde daemon` reads the command line and then becomes it.

It runs for months, so it carries only what it needs: no argparse, no site module, one malloc arena, code without
column tables. Together 1.5 MB of 22 (docs/adr/0005). The pid stays the same, as service managers like it.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import NamedTuple

from sonde.cli.main import explain
from sonde.config import Config
from sonde.daemon.paths import check_root, default_paths, paths_in
from sonde.errors import ConfigError, SondeError


class Process(NamedTuple):
    """What the command line has decided."""

    config: str | None  # the file
    state: str | None
    changes: dict[str, object]  # of [daemon]
    archive: bool
    tracing: bool | None = None  # None: as the file says
    dialect: str = ""  # whose flags `words` are; then they are the configuration, and what stands above is not
    words: tuple[str, ...] = ()
    companion: tuple[int, int] | None = None  # of a private daemon: the process it ends with, then removing `state`
    ready: int = -1  # a descriptor that gets a byte when it serves


# A dialect whose flags make a configuration: the module with its `configuration(words) -> Config`.
DIALECTS = {"dynolog": "sonde.dialects.dynolog.flags"}


def become(process: Process) -> int:
    """Replace this process by the daemon's; where that is not possible, be it as it is."""
    command, environ = invocation(process)
    sys.stdout.flush()
    try:
        os.execve(sys.executable, command, environ)  # noqa: S606 - ourselves
    except OSError:
        return run(process)  # the interpreter may not be started a second time: rights were dropped since


def invocation(process: Process) -> tuple[list[str], dict[str, str]]:
    """The words and the environment of the daemon's process."""
    command = [sys.executable, "-S", "-X", "no_debug_ranges", "-m", __name__, json.dumps(process._asdict())]
    # -S leaves out site-packages; what this interpreter can import, the daemon can too.
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path if path)}
    # A thread of ours allocates little: arenas of their own would only spread it over more pages.
    environ.setdefault("MALLOC_ARENA_MAX", "1")
    return command, environ


def run(process: Process) -> int:
    from sonde.daemon import runs
    from sonde.daemon.companion import Companion
    from sonde.daemon.service import Daemon, config_from

    paths = paths_in(process.state) if process.state else default_paths()

    def configuration() -> Config:
        if process.dialect:
            found: Config = import_module(DIALECTS[process.dialect]).configuration(process.words)
            return found
        return config_from(process.config, paths, process.changes, archive=process.archive, tracing=process.tracing)

    config = configuration()
    try:
        check_root(config)
    except ConfigError as error:
        raise ConfigError(f"{config.source}: {error}", hint=error.hint) from None
    if process.companion is None:
        return Daemon(config, paths, reload=configuration).run()
    daemon = Daemon(config, paths, reload=configuration, companion=Companion(*process.companion))
    code = daemon.run(ready=lambda _: _announce(process.ready))
    runs.remove(paths.state)
    return code


def _announce(descriptor: int) -> None:
    """Whoever started us may go on."""
    try:
        os.write(descriptor, b"1")
        os.close(descriptor)
    except OSError:
        pass  # it has been killed meanwhile, and that we see elsewhere


def main() -> int:
    process = Process(**json.loads(sys.argv[1]))
    try:
        with open("/proc/self/comm", "w", encoding="ascii") as file:
            file.write(process.dialect or "sonde")  # what ps and top show
    except OSError:
        pass  # a matter of looks
    try:
        return run(process)
    except SondeError as error:
        return explain(process.dialect or "daemon", error)


if __name__ == "__main__":
    raise SystemExit(main())

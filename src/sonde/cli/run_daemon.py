"""The daemon that the command of `sonde run` speaks to: the node's if it is reached from here, else a private one.

A private daemon takes no abstract name and no port, so that any number of them live beside the node's own and beside a
dynolog. It is no child of the command: a shell that waits for its children would find one it never had.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sonde import netstat
from sonde.address import parse_address
from sonde.agent import wire
from sonde.cli.connection import DEFAULT_PORT
from sonde.cli.daemon_process import Process, invocation
from sonde.daemon import runs
from sonde.daemon.companion import started
from sonde.daemon.paths import default_paths
from sonde.errors import SondeError, Unavailable, UsageError
from sonde.hostfs import HostFS
from sonde.rpc import client

_ASK_SECONDS = 1.0  # a daemon of this node that needs longer is not one to depend on
_START_SECONDS = 10.0
_FIRST_PERSON = 1000  # UID_MIN of login.defs(5); accounts of services are below


class Meeting(NamedTuple):
    """A daemon, and where processes find it."""

    address: str  # of its RPC
    socket_dir: str  # for KINETO_IPC_SOCKET_DIR; empty: at the abstract name
    private: bool = False


def of_this_node(environ: Mapping[str, str]) -> Meeting | None:
    """The daemon that runs already, if processes started from here can speak to it."""
    for address in _addresses(environ):
        try:
            status = client.call(address, "daemon.status", timeout=_ASK_SECONDS)
        except SondeError:
            continue  # nobody, a dynolog, or one that is busy
        names = [str(name) for key, name in dict(status.get("addresses", {})).items() if key.startswith("ipc")]
        for name in sorted(names, key=lambda name: not name.startswith("@")):
            if _is_reached(name):
                return Meeting(address, "" if name.startswith("@") else os.path.dirname(name))
    return None


def _addresses(environ: Mapping[str, str]) -> Iterator[str]:
    named = environ.get("SONDE_DAEMON")
    if named and _is_local(named):
        yield named
        return
    for path in dict.fromkeys((default_paths().rpc_socket, default_paths(uid=0).rpc_socket)):
        if os.path.exists(path):
            yield f"unix:{path}"
    if _is_trusted(netstat.listening_uid(HostFS(), "127.0.0.1", DEFAULT_PORT)):
        yield f"127.0.0.1:{DEFAULT_PORT}"


def _is_trusted(uid: int | None) -> bool:
    """The daemon tells processes of this user what files to write: it must be root's, a service's or the user's own."""
    return uid is not None and (uid < _FIRST_PERSON or uid == os.geteuid())


def _is_local(address: str) -> bool:
    try:
        return parse_address(address, DEFAULT_PORT).is_local
    except UsageError:
        return False


def _is_reached(name: str) -> bool:
    """Does somebody listen there, seen from here? Names are of a network namespace, paths of a mount namespace."""
    folder = os.path.dirname(name)
    if folder and not os.access(folder, os.W_OK | os.X_OK):
        return False  # a client binds a socket of its own in there
    address = wire.daemon_address({"KINETO_IPC_SOCKET_DIR": folder})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(address)
        except OSError:
            return False
    return True


def private(pid: int) -> Meeting:
    """Start a daemon that ends with this process, whatever that becomes. Raises Unavailable."""
    run = runs.create(pid)
    try:
        _start(run, pid)
    except Unavailable:
        runs.remove(run.directory)
        raise
    finally:
        os.close(run.lock)  # the daemon has a copy of its own
    return Meeting(run.address, run.directory, private=True)


def _start(run: runs.Run, pid: int) -> None:
    with open(os.path.join(run.directory, "sonde.toml"), "w", encoding="utf-8") as file:
        file.write(_configuration(run.directory))
    # One descriptor to hear from it, and the lock of the directory: it inherits these two and nothing else.
    hears, tells = os.pipe()
    companion = (pid, started(HostFS(), pid))
    process = Process(None, run.directory, {}, archive=False, tracing=True, companion=companion, ready=tells)
    sys.stdout.flush()
    child = os.fork()
    if not child:
        _detach(process, run)
    os.close(tells)
    try:
        os.waitpid(child, 0)
        ready, _, _ = select.select([hears], [], [], _START_SECONDS)
        if not ready or not os.read(hears, 1):
            raise Unavailable(f"a private daemon could not be started: {_last_words(run.directory, bool(ready))}")
    finally:
        os.close(hears)


def _configuration(directory: str) -> str:
    # JSON's strings are TOML's. Of the collectors only the one about itself: `sonde status` wants to say something.
    return f"""[daemon]
collectors = ["daemon"]
period = "1m"
rpc_address = ""
http_address = ""
log_file = {json.dumps(os.path.join(directory, "log"))}
[tracing]
abstract = false
socket_dir = {json.dumps(directory)}
"""


def _detach(process: Process, run: runs.Run) -> None:
    """In the child: become the daemon, in a session of its own and nobody's child. Does not return."""
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        output = os.open(os.path.join(run.directory, "output"), os.O_WRONLY | os.O_CREAT, 0o600)
        for source, target in ((null, 0), (null, 1), (output, 2)):
            os.dup2(source, target)
        for descriptor in (process.ready, run.lock):
            os.set_inheritable(descriptor, True)
        _close_all_but(process.ready, run.lock)
        os.execve(sys.executable, *invocation(process))  # noqa: S606 - ourselves
    finally:
        os._exit(127)


def _close_all_but(*kept: int) -> None:
    """Above standard error: a pipe or a lock of the caller must not live on in the daemon."""
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor not in kept:
            try:
                os.close(descriptor)
            except OSError:
                pass  # the one that read the directory


def _last_words(directory: str, ended: bool) -> str:
    if not ended:
        return f"it does not answer after {_START_SECONDS:.0f} s"
    try:
        with open(os.path.join(directory, "output"), encoding="utf-8", errors="replace") as file:
            return file.read().strip().replace("\n", "; ")[-500:] or "it ended at once"
    except OSError:
        return "it ended at once"

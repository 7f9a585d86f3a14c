"""How a process stands to libkineto's socket, seen from outside: what keeps it from being asked, from /proc/PID.

    KINETO_USE_DAEMON=1 in its environment, libtorch_cpu.so in its maps, net:[4026531840] as ours, @dynoconfigclient6f…

All is what the kernel shows now, but for the environment: that is the one the program was started with. A variable that
it has set itself is not in there; libkineto's own socket, which is there with the first poll, tells of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from sonde.agent import wire
from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.procstat import Kinship, parse_kinship, parse_stat
from sonde.schedulers.job import parse_environ
from sonde.tracing.libraries import Libraries, libraries_of

ABSTRACT = f"@{wire.DAEMON_NAME}"
SWITCH = "KINETO_USE_DAEMON"
SOCKET_DIR = "KINETO_IPC_SOCKET_DIR"
STOPPED = ("T", "t")
ENDED = ("Z", "X")

YOUNG_SECONDS = 20.0  # a process that found no daemon tries again within 15 s; `import torch` takes a few
_DESCRIPTORS = 4096  # of a process that are looked at
# Num RefCount Protocol Flags Type St Inode Path: `… 00000000 0002 01 31337 @dynoconfigclient6f1c…@`
_CLIENT = re.compile(rb" ([0-9]+) [^\n ]*" + wire.CLIENT_NAME.encode())
_TICKS = os.sysconf("SC_CLK_TCK")


class Circumstances(NamedTuple):
    """None is what may not be read, or cannot be told."""

    kinship: Kinship
    age_seconds: float | None
    libraries: Libraries | None
    environ_read: bool
    switch: str | None  # KINETO_USE_DAEMON when the program was started; None: not set
    socket_dir: str  # KINETO_IPC_SOCKET_DIR, likewise
    same_network: bool | None
    client: bool | None  # has it a socket of libkineto's? A child of fork has its parent's


def circumstances_of(host: HostFS, pid: int) -> Circumstances | None:
    """How a process stands; None when there is none of this id."""
    try:
        stat = host.read(f"proc/{pid}/stat")
        kinship, (_, started) = parse_kinship(stat), parse_stat(stat)
    except (OSError, ParseError):
        return None
    environ = _environ(host, pid)
    return Circumstances(
        kinship,
        _age(host, started),
        libraries_of(host, pid),
        environ is not None,
        (environ or {}).get(SWITCH),
        (environ or {}).get(SOCKET_DIR, ""),
        _same_network(host, pid),
        _has_client(host, pid),
    )


def obstacle(found: Circumstances, addresses: Sequence[str] | None, host: HostFS, pid: int) -> str:
    """Why a process has not registered at any of these addresses (`@dynolog`, `/run/x/dynolog`): the first cause.

    Without any list there is no daemon.
    """
    if found.kinship.state in STOPPED:
        return f"stopped (state {found.kinship.state}): it can be asked once it goes on (kill -CONT {pid})"
    if found.libraries is None:
        return "it may not be seen what it has loaded: another user's process"
    if not found.libraries.framework:
        return "no torch in it (yet)"
    if not found.client and not found.environ_read:
        return f"whether {SWITCH} is set cannot be seen: another user's process"
    if not found.client and found.switch is None:
        return f"{SWITCH} is not set"
    if addresses is None:
        return "no daemon answers"
    if not addresses:
        return "tracing is switched off in the daemon"
    return unreachable(found, addresses, host, pid) or unasked(found)


def unreachable(found: Circumstances, addresses: Sequence[str], host: HostFS, pid: int) -> str:
    """Why the socket a process writes to is none of these; empty when it is, or nobody can tell."""
    if found.socket_dir:
        theirs = os.path.join(found.socket_dir, wire.DAEMON_NAME)
        paths = [address for address in addresses if not address.startswith("@")]
        if any(_same_socket(host, pid, theirs, ours) for ours in paths):
            return ""
        return f"{SOCKET_DIR} is {found.socket_dir}: this daemon listens at {', '.join(addresses)}"
    if not found.environ_read:
        return ""
    if ABSTRACT not in addresses:
        return f"{SOCKET_DIR} is not set: this daemon listens at {', '.join(addresses)} only"
    if found.same_network is False:
        return f"in another network namespace: the socket {ABSTRACT} is not visible; set {SOCKET_DIR}"
    return ""


def is_forked(host: HostFS, found: Circumstances) -> bool:
    """Is it a child of fork? It has its parent's framework at the same address; executed, it would have another.

    Without randomised addresses (setarch -R) a program of the same kind looks the same.
    """
    mine = found.libraries
    parent = libraries_of(host, found.kinship.parent) if found.kinship.parent else None
    return bool(mine and parent and mine.base and mine.base == parent.base)


def unasked(found: Circumstances) -> str:
    if found.age_seconds is not None and found.age_seconds < YOUNG_SECONDS:
        return "it has just started and not asked yet"
    return "it has not asked: is it registered with another daemon, or blocked?"


def _environ(host: HostFS, pid: int) -> dict[str, str] | None:
    try:
        return parse_environ(host.read(f"proc/{pid}/environ"))
    except OSError:
        return None


def _age(host: HostFS, started: int) -> float | None:
    try:
        return float(host.read("proc/uptime").split()[0]) - started / _TICKS
    except (OSError, ValueError, IndexError):
        return None


def _same_network(host: HostFS, pid: int) -> bool | None:
    try:
        return host.link(f"proc/{pid}/ns/net") == host.link("proc/self/ns/net")
    except OSError:
        return None


def _same_socket(host: HostFS, pid: int, theirs: str, ours: str) -> bool:
    """Is it one file, wherever a container has it mounted?"""
    try:
        return os.path.samestat(os.stat(host.path(f"proc/{pid}/root{theirs}")), os.stat(ours))
    except OSError:
        return theirs == ours


def _has_client(host: HostFS, pid: int) -> bool | None:
    """libkineto's socket is among those of its network (/proc/PID/net/unix), and among its descriptors."""
    try:
        inodes = {match[1].decode() for match in _CLIENT.finditer(host.read(f"proc/{pid}/net/unix"))}
        if not inodes:
            return False
        folder = f"proc/{pid}/fd"
        return any(_link(host, f"{folder}/{name}")[8:-1] in inodes for name in host.names(folder)[:_DESCRIPTORS])
    except OSError:
        return None


def _link(host: HostFS, name: str) -> str:
    try:
        return host.link(name)  # socket:[31337]
    except OSError:
        return ""  # closed meanwhile

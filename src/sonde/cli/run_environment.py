"""The environment in which PyTorch asks a daemon for work: the KINETO_* variables, and libkineto's base configuration.

KINETO_USE_DAEMON=1                               be asked for traces; without a daemon each exit takes 10 s longer
KINETO_CONFIG=…/libkineto.conf                    ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1: ask every second, not five
KINETO_IPC_SOCKET_DIR=…/run/812                   where the daemon is, unless it is at the abstract name
SONDE_DAEMON=unix:…/run/812/rpc.sock              for the commands of sonde in there
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import NamedTuple

from sonde.cli.run_daemon import Meeting
from sonde.daemon import runs
from sonde.errors import Unavailable
from sonde.registry import SCHEDULERS, load

POLL_KEY = "ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS"
SYSTEM_CONFIG = "/etc/libkineto.conf"  # libkineto's own default


class Told(NamedTuple):
    environ: dict[str, str]
    said: list[str]  # what was set, and why, a line each


def environment(environ: Mapping[str, str], meeting: Meeting | None, poll_seconds: int, tag: str) -> Told:
    """The environment of a command; without a meeting one in which it does not look for a daemon."""
    told = Told(original(environ), [])
    if tag:
        _name(told, tag)
    if meeting is None:
        for name in ("KINETO_USE_DAEMON", "KINETO_IPC_SOCKET_DIR"):
            told.environ.pop(name, None)
        return told
    kind = "a private daemon" if meeting.private else "the daemon of this node"
    told.said.append(f"{kind} answers on {meeting.address}")
    _set(told, "KINETO_USE_DAEMON", "1")
    _set(told, "KINETO_CONFIG", _config_file(told, meeting, poll_seconds))
    _set(told, "KINETO_IPC_SOCKET_DIR", meeting.socket_dir)
    _set(told, "SONDE_DAEMON", meeting.address)
    return told


def original(environ: Mapping[str, str]) -> dict[str, str]:
    """As this process was given it: in the C locale the interpreter puts LC_CTYPE there for itself (PEP 538)."""
    kept = dict(environ)
    try:
        with open("/proc/self/environ", "rb") as file:
            given = {item.partition(b"=")[0] for item in file.read().split(b"\0")}
    except OSError:
        return kept
    if b"LC_CTYPE" not in given:
        kept.pop("LC_CTYPE", None)
    return kept


def _set(told: Told, name: str, value: str) -> None:
    if value:
        told.environ[name] = value
        told.said.append(f"{name}={value}")
    elif told.environ.pop(name, None) is not None:
        told.said.append(f"{name} is taken out")


def _name(told: Told, tag: str) -> None:
    job = batch_job(told.environ)
    if job:
        told.said.append(f"--tag {tag} is not needed: this is {job}")
    else:
        _set(told, "SONDE_JOB_ID", tag)


def batch_job(environ: Mapping[str, str]) -> str:
    """`slurm job 77` when a batch system has named the job; else nothing."""
    for name in SCHEDULERS:
        if name != "local" and (job := load(SCHEDULERS, name)().job_from_environ(environ)):
            return f"{name} job {job.id.text}"
    return ""


def _config_file(told: Told, meeting: Meeting, poll_seconds: int) -> str:
    """Write libkineto's base configuration; a private daemon removes it at its end."""
    text = with_poll_period(_base_config(told), poll_seconds)
    if meeting.private:
        return _written(os.path.join(meeting.socket_dir, "libkineto.conf"), text)
    # It must be there as long as the command runs, and after that nobody is left to remove it: one for each content.
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return _written(os.path.join(runs.own_place(), f"libkineto-{digest}.conf"), text)


def _base_config(told: Told) -> str:
    """What the user or the system has configured already; read by libkineto from one file only."""
    named = told.environ.get("KINETO_CONFIG", "")
    path = named or SYSTEM_CONFIG
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
    except OSError as error:
        if named:
            told.said.append(f"KINETO_CONFIG={named} is left out: {error.strerror}")
        return ""
    told.said.append(f"{path} is taken over, with {POLL_KEY} replaced")
    return text


def with_poll_period(text: str, seconds: int) -> str:
    """A base configuration with another poll period. It comes first: libkineto stops reading at a line it dislikes."""
    kept = [line for line in text.splitlines() if line.partition("=")[0].strip() != POLL_KEY]
    return "\n".join([f"{POLL_KEY}={seconds}", *kept, ""])


def _written(path: str, text: str) -> str:
    """The path of a file with this content, complete whenever somebody looks."""
    draft = f"{path}.{os.getpid()}"
    try:
        with open(draft, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        os.replace(draft, path)
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}") from None
    return path

"""Who a process is: its user, command, job and rank, and what it computes with; from /proc/PID and what it polls with.

    ada  python train.py  slurm 77  rank 3 of 8  pytorch on a GPU

All is read in our own namespaces: /proc/PID of ours shows a process in any container below us. Of a process that is not
visible at all only its datagrams tell. Reads are bounded, and a process that has ended meanwhile is not an error. A
name service may be slow: ask in a thread.
"""

from __future__ import annotations

import os
import pwd
import time
from functools import lru_cache
from typing import NamedTuple

from sonde.hostfs import HostFS
from sonde.ipc.processes import Process
from sonde.registry import SCHEDULERS, load
from sonde.schedulers.job import NO_RANK, Job, JobId, Rank
from sonde.schedulers.membership import Membership
from sonde.tracing.libraries import PYTORCH, libraries_of

# The first poll comes before `import torch` is over, and before the libraries for a GPU are loaded.
_SETTLED_NS = 30_000_000_000
_ARGUMENTS = 4096  # bytes of a command line that are looked at
_SHOWN = 60  # characters of a command
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")


class Identity(NamedTuple):
    user: str  # the number of one that has no name
    command: str  # short: `python train.py`; empty when it is not known
    job: Job | None
    rank: Rank
    gpu: bool | None  # has it a GPU's libraries loaded? None: not known
    framework: str  # pytorch, mindspore or empty
    ranked_by: str = ""  # the variable that tells the rank


def identify(host: HostFS, pid: int, uid: int) -> Identity:
    """Who a process is, by the host alone. Nothing is known of pid 0 but its user."""
    return identify_by(membership(host), host, pid, uid)


def membership(host: HostFS) -> Membership:
    """The rule of who is in which job, for all batch systems. What it has learned of pods it keeps."""
    return Membership(host, [load(SCHEDULERS, name)() for name in SCHEDULERS])


def identify_by(rule: Membership, host: HostFS, pid: int, uid: int) -> Identity:
    """As identify(), for many processes of a host."""
    if not pid:
        return Identity(user_name(uid), "", None, NO_RANK, None, "")
    seen = rule.ask(pid)
    libraries = libraries_of(host, pid)
    gpu, framework = (None, "") if libraries is None else (libraries.gpu, libraries.framework)
    return Identity(user_name(uid), command_of(host, pid), seen.job, seen.rank, gpu, framework, seen.ranked_by)


def identity_of(process: Process, host: HostFS, rule: Membership | None = None) -> Identity:
    """Who a registered process is; kept with it, once it has had time to load what it needs."""
    known: Identity | None = process.identity
    if known is not None and process.identified_ns - process.first_ns >= _SETTLED_NS:
        return known
    found = identify_by(rule or membership(host), host, process.pid, process.uid)
    if found.job is None and process.slurm_id > 0:  # what it says itself, when nothing else does
        number = str(process.slurm_id)
        found = found._replace(job=Job(JobId("slurm", number), number))
    if not found.framework:
        found = found._replace(framework=PYTORCH)  # it speaks libkineto's language
    process.identity, process.identified_ns = found, time.monotonic_ns()
    return found


@lru_cache(maxsize=1024)
def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


def command_of(host: HostFS, pid: int) -> str:
    """The command of a process, short; `[name]` for one that has none, such as a zombie."""
    try:
        text = parse_command(_beginning(host, f"proc/{pid}/cmdline"))
        return text or f"[{_plain(_beginning(host, f'proc/{pid}/comm'))}]"
    except OSError:
        return ""


def _beginning(host: HostFS, name: str) -> bytes:
    fd = os.open(host.path(name), os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, _ARGUMENTS)
    finally:
        os.close(fd)


def parse_command(data: bytes) -> str:
    """/proc/PID/cmdline, arguments ended by NUL bytes, as a person would say it.

    /opt/venv/bin/python NUL -u NUL /home/ada/train.py NUL --lr NUL 0.1     python train.py
    """
    words = [_plain(word) for word in data.rstrip(b"\0").split(b"\0")]
    first = words[0]
    if first.startswith("/") or " " not in first:  # one with blanks is a title that the process has given itself
        first = first.rpartition("/")[2]
    if first.startswith(("python", "pypy")):
        return _cut(f"{first} {_python_program(words[1:])}")
    if first.lstrip("-") in _SHELLS and len(words) > 1 and not words[1].startswith("-"):
        return _cut(f"{first} {words[1].rpartition('/')[2]}")
    return _cut(first)


def _python_program(words: list[str]) -> str:
    """The script, `-m module` or the beginning of `-c code` behind the interpreter's own options."""
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "-":
            return word.rpartition("/")[2]
        for at, letter in enumerate(word[1:] if not word.startswith("--") else "", 2):
            if letter in "cm":
                return f"-{letter} {word[at:] or next(rest, '')}"
            if letter in "WX":
                if not word[at:]:
                    next(rest, None)  # the option's argument
                break
    return ""


def _plain(word: bytes) -> str:
    """Text that does nothing to a terminal: line breaks and other blanks as one, what cannot be printed as `?`."""
    text = " ".join(word.decode("utf-8", "replace").split())
    return "".join([letter if letter.isprintable() else "?" for letter in text])


def _cut(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"

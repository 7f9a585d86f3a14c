"""The hosts a user means: a job's, from its batch system; those of a node file; or a plain list.

77  76_4  123.pbs  123[4].pbs        a job; a bare number may be one of Slurm, PBS or OAR
@machines  @$PBS_NODEFILE            a file with a host per line
n[1-4],x                             the hosts themselves
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from sonde.errors import ParseError, ReadError, TimedOut, Unavailable, UsageError
from sonde.registry import SCHEDULERS, load
from sonde.schedulers import hostlist
from sonde.schedulers.job import Environ, Job, JobId, Scheduler, TellsTime

# Which batch systems a job's id can be of; what is none of these is a host list. A PBS server's name begins with a
# letter, so 10.0.0.1 is an address.
_SHAPES: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (re.compile(r"[0-9]{1,10}"), ("slurm", "pbs", "oar")),
    (re.compile(r"[0-9]{1,10}(?:_[0-9]{1,10}|\+[0-9]{1,4})"), ("slurm",)),
    (re.compile(r"[0-9]{1,12}(?:\[[0-9]{1,10}\])?\.[A-Za-z][0-9A-Za-z._-]*|[0-9]{1,12}\[[0-9]{1,10}\]"), ("pbs",)),
)
# In the job itself the variables tell, without asking anybody. PBS writes the file on the job's first node only;
# PBS_NODEFILE_LOCAL is a copy that a batch script has made for the others.
_NODE_FILES: Mapping[str, tuple[str, ...]] = {
    "pbs": ("PBS_NODEFILE", "PBS_NODEFILE_LOCAL"),
    "oar": ("OAR_NODEFILE",),
}
_HINT = "give the hosts themselves: n[1-4], or @FILE with one per line"


def hosts_of(text: str, scheduler: str | None = None, *, environ: Environ | None = None) -> tuple[str, ...]:
    """The hosts of a job, node file or list, each once. Asks the batch system's commands: never in a tick.

    With a scheduler the text is a job's id. UsageError when it is nothing of the kind, Unavailable when nobody knows
    the job or it has no hosts, other errors as the batch system's command fails.
    """
    text = text.strip()
    if text.startswith("@") and scheduler is None:
        return _unique(_read(text[1:]), f"{text[1:]} names no host")
    names = (scheduler,) if scheduler is not None else batch_systems(text)
    if not names:
        return _unique(_expanded(text), "no host is named")
    environ = os.environ if environ is None else environ
    systems: list[Scheduler] = [load(SCHEDULERS, name)() for name in names]
    own = _own_hosts(text, systems, environ)
    return own or _asked(text, systems)


def seconds_left(text: str) -> int | None:
    """How long a job may still run, as far as its batch system tells. Asks its commands: never in a tick."""
    for name in batch_systems(text):
        system: TellsTime = load(SCHEDULERS, name)()
        try:
            left = system.seconds_left(text)
        except (Unavailable, ReadError, TimedOut):
            continue  # not installed, or another system's job
        if left is not None:
            return left
    return None


def batch_systems(text: str) -> tuple[str, ...]:
    """Those that a text can be a job's id of; none for what is a host list, or a job's name that its user gave."""
    return next((names for shape, names in _SHAPES if shape.fullmatch(text)), ())


def _unique(hosts: Sequence[str], complaint: str) -> tuple[str, ...]:
    if not hosts:
        raise UsageError(complaint, hint="a list is n[1-4],x; a job its id; @FILE a file with one host per line")
    return tuple(dict.fromkeys(hosts))


def _expanded(text: str) -> list[str]:
    try:
        return hostlist.expand(text)
    except ParseError as error:
        raise UsageError(
            str(error), hint="a list is n[1-4],x; a job its id; @FILE a file with one host per line"
        ) from None


def _read(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return hostlist.parse_node_file(file.read())
    except OSError as error:
        raise UsageError(f"node file {path}: {error.strerror}") from None


def _own_hosts(text: str, systems: Sequence[Scheduler], environ: Environ) -> tuple[str, ...]:
    """The hosts of the job we are in ourselves, when it is the one asked for."""
    for system in systems:
        job = system.job_from_environ(environ)
        if job is None or text not in (job.id.text, job.raw_id, job.id.text.partition(".")[0]):
            continue
        if job.nodes:
            return job.nodes
        for variable in _NODE_FILES.get(system.name, ()):
            try:
                return tuple(_read(environ.get(variable, "")))
            except (UsageError, ParseError):
                continue  # not on this node
    return ()


def _asked(text: str, systems: Sequence[Scheduler]) -> tuple[str, ...]:
    known: list[Job] = []
    said: list[str] = []
    for system in systems:
        job = Job(JobId(system.name, text))
        try:
            described = system.describe(job)
        except (Unavailable, ReadError) as error:
            said.append(str(error).partition("\n")[0])
            continue
        if described != job:
            known.append(described)
        else:
            said.append(f"{system.name} does not know it")
    if len(known) > 1:
        names = " and ".join(job.id.scheduler for job in known)
        raise UsageError(f"{names} both have a job {text}", hint="name the batch system")
    if not known:
        raise Unavailable(f"job {text}: {'; '.join(said)}", hint=_HINT)
    if not known[0].nodes:
        raise Unavailable(f"job {text} of {known[0].id.scheduler} has no hosts (yet)", hint=_HINT)
    return known[0].nodes

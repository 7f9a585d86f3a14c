"""Which processes a recording is about, and whether they still work, from the environment and /proc/PID/{stat,cgroup}.

Inside a batch job it is that job, whichever batch system has started it; otherwise a job its user has named
(SONDE_JOB_ID), the tree of the command that was wrapped, or the trees of given processes.

A recorder that runs beside a job is one of the job's own processes, and the batch script waits for it. So it does not
count itself, nor its own step, nor the srun or mpirun that has started it, nor what waits for one of these: when
nothing else is left, the job has ended, although the batch system does not say so yet. A zombie has ended, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sonde import netstat
from sonde.errors import ParseError, SondeError, Unavailable
from sonde.hostfs import HostFS
from sonde.procstat import parse_kinship, parse_stat
from sonde.registry import SCHEDULERS, load
from sonde.schedulers.discovery import Discovery, Process, Scope
from sonde.schedulers.hosts import hosts_of
from sonde.schedulers.job import Environ, Job, JobId, Scheduler
from sonde.schedulers.membership import Membership

_GENERATIONS = 32
_NAMED = ("SONDE_JOB_ID", "SONDE_TAG")  # what a user sets; the others of local.py are a launcher's, perhaps our own
_NUMBERED = str.isdigit  # a step of srun; batch, extern and interactive are the script's own
# What a batch system keeps beside the user's processes. The extern step of Slurm holds a sleep and nothing else.
_KEEPERS = (b"slurmstepd", b"pbs_mom", b"oarexec", b"oarsub")
_HINT = "give a command (sonde record -- CMD), --pid N or --job ID"


class Followed(NamedTuple):
    """What is recorded. `pids` are the processes at the top of it where no batch system keeps account."""

    job: Job
    pids: tuple[int, ...] = ()
    rank: int | None = None
    own_step: str = ""  # of the recorder, when a batch system has started it apart from the job's script

    @property
    def is_local(self) -> bool:
        """No batch system has a name for it."""
        return self.job.id.scheduler == "local"

    @property
    def schedulers(self) -> list[str]:
        """Those that need to be asked about a process; none: all."""
        return ["local"] if self.is_local else []

    def scope(self) -> Scope:
        return Scope(
            jobs=frozenset((self.job.id.text, self.job.key.text)),
            roots=dict.fromkeys(self.pids, self.job),
            without_pids=frozenset((os.getpid(),)),
            without_steps=frozenset((self.own_step,)) if self.own_step else frozenset(),
        )

    def table(self) -> dict[str, object]:
        """The same for [collectors.job]."""
        scope = self.scope()
        return {
            "only": sorted(scope.jobs),
            "pids": [str(pid) for pid in self.pids],
            "name": self.job.id.text if self.pids else "",
            "without_pids": [str(pid) for pid in scope.without_pids],
            "without_steps": sorted(scope.without_steps),
            "schedulers": self.schedulers,
        }


def node_name(environ: Environ) -> str:
    """The name the job knows this node by: several slurmd of one machine are several nodes."""
    return environ.get("SLURMD_NODENAME") or os.uname().nodename


def batch_job() -> Job | None:
    """The job of a batch system that this process is part of."""
    job = Membership(HostFS(), schedulers()).ask(os.getpid()).job
    return job if job is not None and job.id.scheduler != "local" else None


def find(
    host: HostFS,
    environ: Environ,
    *,
    job_id: str = "",
    pids: Sequence[int] = (),
    command: int = 0,
    name: str = "",
) -> Followed:
    """What to record: given processes under a name, a given job, or the job this process is in. Raises Unavailable.

    A wrapped `command` that is part of a batch job is recorded as that job.
    """
    sight = Membership(host, schedulers()).ask(os.getpid())
    own = sight.job
    if job_id:
        mine = own is not None and job_id in (own.id.text, own.raw_id)
        return _of_batch(own, sight.rank.global_rank) if own and mine else Followed(Job(JobId("", job_id)))
    if own is not None and own.id.scheduler != "local" and not pids:
        return _of_batch(own, sight.rank.global_rank, wrapped=bool(command))
    named = next((environ[key] for key in _NAMED if environ.get(key)), "")
    user = environ.get("USER", "")
    if command:
        return Followed(Job(JobId("local", named or name), user=user), (command,), sight.rank.global_rank)
    if pids:
        check_alive(host, pids)
        return Followed(Job(JobId("local", name), user=user), tuple(pids))
    if not named:
        raise Unavailable("this is no job: there is nothing to record", hint=_HINT)
    return Followed(Job(JobId("local", named), user=user), rank=sight.rank.global_rank)


def _of_batch(job: Job, rank: int | None, *, wrapped: bool = False) -> Followed:
    return Followed(job, rank=rank, own_step=job.step if _NUMBERED(job.step) and not wrapped else "")


def with_nodes(job: Job, environ: Environ) -> Job:
    """The job with its hosts, from its variables and node files; else its batch system is asked, which forks."""
    if job.nodes or job.id.scheduler in ("", "local"):
        return job
    try:
        return job._replace(nodes=hosts_of(job.id.text, job.id.scheduler, environ=environ))
    except SondeError:
        return job  # nobody knows: then none of them can be missing


def schedulers(names: Iterable[str] = ()) -> list[Scheduler]:
    return [load(SCHEDULERS, name)() for name in names or SCHEDULERS]


def check_alive(host: HostFS, pids: Sequence[int]) -> None:
    for pid in pids:
        if not _runs(host, pid):
            raise Unavailable(f"there is no process {pid}", hint="ps lists them; one that has ended is not there")


class Presence:
    """Tells whether work is left. In the normal case that is one read: whoever worked a second ago still does."""

    def __init__(self, host: HostFS, followed: Followed, environ: Environ) -> None:
        self._host = host
        self._discovery = Discovery(host, schedulers(followed.schedulers), followed.scope())
        self._apart = _waiting_for_us(host, environ)
        self._drains = _pipes(host, (os.getpid(), *self._apart))
        self._last: Process | None = None
        self.job: Job | None = None  # what its processes have told of the job
        self.seen = False  # has there ever been work

    def works(self) -> bool:
        """Has the job a process here that is not only there because of us? May be asked once a second."""
        if self._last is None or not self._is_work(self._last):
            self._last = self._searched()
        if self._last is None:
            return False
        self.seen = True
        return True

    def _searched(self) -> Process | None:
        self._discovery.scan()
        while self._discovery.unfinished:
            self._discovery.scan()
        self.job = next((found.job for found in self._discovery.jobs.values()), self.job)
        processes = [process for found in self._discovery.jobs.values() for process in found.processes.values()]
        # The first that was started lives longest: mpirun, a launcher, a main process.
        processes.sort(key=lambda process: process.start)
        return next((process for process in processes if self._is_work(process)), None)

    def _is_work(self, process: Process) -> bool:
        if process.pid in self._apart:
            return False
        try:
            text = self._host.read(f"proc/{process.pid}/stat")
            if parse_stat(text)[1] != process.start or _has_ended(text):
                return False
        except (OSError, ParseError):
            return False
        if _comm(text) in _KEEPERS or (process.step == "extern" and _comm(text) == b"sleep"):
            return False
        return not self._drains or _link(self._host, process.pid, 0) not in self._drains

    def close(self) -> None:
        self._discovery.close()


def _waiting_for_us(host: HostFS, environ: Environ) -> frozenset[int]:
    """Our ancestors, the srun that has started our step, and its ancestors: they end when we do."""
    apart = set(_ancestors(host, os.getpid()))
    launcher = _srun(host, environ)
    if launcher:
        family = {launcher, *_children(host, launcher)}  # srun forks a second one that looks after the first
        apart |= family | set(_ancestors(host, launcher))
    return frozenset(apart)


def _srun(host: HostFS, environ: Environ) -> int:
    """The srun of our own step: it listens on the port that our environment names. 0 when it is on another node."""
    port = environ.get("SLURM_SRUN_COMM_PORT", "")
    if not port.isdigit() or environ.get("SLURM_STEP_ID", "") == "":
        return 0
    owner = netstat.listener(host, environ.get("SLURM_SRUN_COMM_HOST", "0.0.0.0"), int(port))
    return owner.pid if owner is not None and owner.name == "srun" else 0


def _ancestors(host: HostFS, pid: int) -> list[int]:
    found: list[int] = []
    while len(found) < _GENERATIONS:
        try:
            pid = parse_kinship(host.read(f"proc/{pid}/stat")).parent
        except (OSError, ParseError):
            break
        if pid <= 1:
            break
        found.append(pid)
    return found


def _children(host: HostFS, pid: int) -> list[int]:
    try:
        return [int(child) for child in host.text(f"proc/{pid}/task/{pid}/children").split()]
    except OSError:
        return []  # a kernel without CONFIG_PROC_CHILDREN


def _pipes(host: HostFS, pids: Sequence[int]) -> frozenset[str]:
    """Pipes that these write to: a `tee` behind one ends with them."""
    links = (_link(host, pid, fd) for pid in pids for fd in (1, 2))
    return frozenset(link for link in links if link.startswith("pipe:"))


def _link(host: HostFS, pid: int, fd: int) -> str:
    try:
        return host.link(f"proc/{pid}/fd/{fd}")
    except OSError:
        return ""


def _comm(text: bytes) -> bytes:
    return text[text.find(b"(") + 1 : text.rfind(b")")]


def _has_ended(text: bytes) -> bool:
    """State Z or X. A main thread that has ended before its other threads shows Z as well, but has them counted."""
    fields = text[text.rfind(b")") + 2 :].split(None, 18)
    return fields[0] in (b"Z", b"X") and int(fields[17]) <= 1


def _runs(host: HostFS, pid: int) -> bool:
    try:
        return not _has_ended(host.read(f"proc/{pid}/stat"))
    except OSError:
        return False


def about_job(job: Job) -> Mapping[str, object]:
    """A job as recording.json has it."""
    return {
        "scheduler": job.id.scheduler,
        "id": job.id.text,
        "raw_id": job.raw_id,
        "name": job.name,
        "user": job.user,
        "partition": job.partition,
        "account": job.account,
        "nodes": list(job.nodes),
        "walltime_seconds": job.walltime_seconds,
    }

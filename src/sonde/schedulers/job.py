"""Jobs, ranks and what a batch system must be able to tell about them.

A process is recognised by the path of its cgroup (`/slurm/uid_1000/job_77/step_0/task_1`, readable by everyone) or by
its environment (`SLURM_JOB_ID=77`, readable by its owner and root). Both are pure functions here; what needs a command
of the batch system is a method apart, and never called from a tick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol

from sonde.hostfs import HostFS

Environ = Mapping[str, str]


class JobId(NamedTuple):
    scheduler: str
    text: str  # as the batch system's own commands show it: 77, or 123_4 for a member of an array


class Rank(NamedTuple):
    """A process' place among its peers; None where nothing says."""

    global_rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None


NO_RANK = Rank()


class Job(NamedTuple):
    """What is known of a job; empty where nothing says. `step` and `task` are those of the process it was read from."""

    id: JobId
    raw_id: str = ""  # the number in cgroup paths; differs from id.text for a member of an array
    user: str = ""
    uid: int | None = None
    step: str = ""  # 0, 1, batch, extern, interactive
    task: str = ""
    name: str = ""
    partition: str = ""
    account: str = ""
    nodes: tuple[str, ...] = ()
    cgroup: str = ""  # the job's directory, when it was recognised by its cgroup
    walltime_seconds: int | None = None  # how long it may run
    part: str = ""  # of a job that has several directories on a node: which one the process is in (a pod's uid)

    @property
    def key(self) -> JobId:
        """The same for every process of the job, whatever it was recognised by."""
        return JobId(self.id.scheduler, self.raw_id or self.id.text)

    def runs_on(self, host: str) -> bool:
        """Batch systems and kernels differ in whether a node's name has its domain."""
        short = host.partition(".")[0]
        return any(node.partition(".")[0] == short for node in self.nodes)

    def completed(self, other: Job) -> Job:
        """This job with what only the other knows. An array's id is preferred to the bare number."""
        return self._replace(
            id=other.id if self.id.text == self.raw_id else self.id,
            user=self.user or other.user,
            uid=other.uid if self.uid is None else self.uid,
            step=self.step or other.step,
            task=self.task or other.task,
            name=self.name or other.name,
            partition=self.partition or other.partition,
            account=self.account or other.account,
            nodes=self.nodes or other.nodes,
            cgroup=self.cgroup or other.cgroup,
            walltime_seconds=other.walltime_seconds if self.walltime_seconds is None else self.walltime_seconds,
            part=self.part or other.part,
        )


class Scheduler(Protocol):
    """One batch system. Constructed without arguments.

    `environ_marks`: a process whose environment contains none of these bytes is not asked about.
    `cgroup_parents`: shell patterns, relative to a hierarchy, of the directories in which job directories appear.
    `by_session`: a process that shares its session with a process of a job belongs to that job.
    `node_files`: where the batch system itself, not the user, writes the hosts of the job `{id}`, relative to the root.
    """

    name: ClassVar[str]
    environ_marks: ClassVar[tuple[bytes, ...]]
    cgroup_parents: ClassVar[tuple[str, ...]]
    by_session: ClassVar[bool]
    node_files: ClassVar[tuple[str, ...]]

    def job_from_environ(self, environ: Environ) -> Job | None: ...
    def job_from_cgroup(self, path: str) -> Job | None: ...
    def running_here(self) -> Sequence[Job]:
        """The batch system's own list of the jobs on this node. Forks; never in a tick."""
        ...

    def describe(self, job: Job) -> Job:
        """The job with what the batch system knows beyond cgroup and environment. Forks; never in a tick."""
        ...


class ReadsFiles(Protocol):
    """A scheduler for whose jobs more can be told by files of the host or of the process itself."""

    name: ClassVar[str]

    def job_from_files(self, host: HostFS, pid: int, job: Job) -> Job | None:
        """Asked in a scan about a process whose cgroup named the job; must not wait for anybody."""
        ...


class TellsTime(Protocol):
    """A batch system that ends a job when its time is over."""

    def seconds_left(self, text: str) -> int | None:
        """How long the job of this id may still run; None when nothing says. Forks; never in a tick."""
        ...


# In the order in which they are believed: torchrun sets RANK inside a task of srun, srun starts mpirun's daemons.
# PALS is HPE's launcher, common under PBS. PBS_TASKNUM and PBS_NODENUM are no ranks: the first counts whatever the
# pbs_mom of a node has started, the batch script and mpirun's daemon among them, and all ranks below that daemon
# inherit its number; the second counts hosts.
GLOBAL_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "PALS_RANKID")
LOCAL_RANK = (
    "LOCAL_RANK",
    "SLURM_LOCALID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "PALS_LOCAL_RANKID",
)
WORLD_SIZE = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
RANK_MARKS = (b"RANK=", b"SLURM_PROCID=", b"PALS_RANKID=")


def rank_from_environ(environ: Environ) -> Rank:
    """The rank a launcher gave to a process."""
    return Rank(_first(environ, GLOBAL_RANK), _first(environ, LOCAL_RANK), _first(environ, WORLD_SIZE))


def rank_variable(environ: Environ) -> str:
    """The variable the global rank is taken from: below `srun torchrun`, the launcher has SLURM_PROCID and no RANK."""
    return next((name for name in GLOBAL_RANK if _is_number(environ.get(name, ""))), "")


def _first(environ: Environ, names: Sequence[str]) -> int | None:
    return next((int(environ[name]) for name in names if _is_number(environ.get(name, ""))), None)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def parse_environ(data: bytes) -> dict[str, str]:
    """/proc/PID/environ: `NAME=value` ended by NUL bytes. Anything else is left out; the first of a name counts."""
    environ: dict[str, str] = {}
    for item in data.split(b"\0"):
        name, equals, value = item.partition(b"=")
        if name and equals:
            environ.setdefault(name.decode("utf-8", "replace"), value.decode("utf-8", "replace"))
    return environ

"""Which job one process is of, and its rank there, from /proc/PID/{cgroup,environ,stat} and files of its pod.

/proc/812/cgroup    0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_1
/proc/812/environ   SLURM_JOB_ID=77 SLURM_PROCID=1 RANK=1 WORLD_SIZE=4

The cgroup comes first: everyone may read it, and a user cannot set it. The environment completes it, and speaks alone
where no cgroup does. Discovery asks this of every process of a host; on demand it is asked of one, without a scan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.procstat import parse_kinship, parse_stat
from sonde.schedulers import cgroupfs
from sonde.schedulers.job import (
    NO_RANK,
    RANK_MARKS,
    Environ,
    Job,
    JobId,
    Rank,
    ReadsFiles,
    Scheduler,
    parse_environ,
    rank_from_environ,
    rank_variable,
)

_REMEMBERED = 10_000  # cgroup paths whose meaning is kept, and parts whose whole is known
_NOT_A_RANK = ("batch", "extern", "interactive")
_GENERATIONS = 16  # ancestors asked about a process that says nothing itself

Places = list[tuple[str, str, Job]]


class Sight(NamedTuple):
    """What a process shows of itself."""

    job: Job | None
    environ: Environ  # empty when it names neither a job nor, in a job's cgroup, a rank
    inside: Places  # controller, cgroup path and the job that path is of
    hidden: bool = False  # the environment may not be read

    @property
    def rank(self) -> Rank:
        return rank_from_environ(self._of_ranks) if self.environ else NO_RANK

    @property
    def ranked_by(self) -> str:
        """The variable that tells the rank."""
        return rank_variable(self._of_ranks)

    @property
    def _of_ranks(self) -> Environ:
        if self.job is None or self.job.step not in _NOT_A_RANK:
            return self.environ
        # Slurm sets SLURM_PROCID=0 in a batch script too. A RANK that torchrun set there counts.
        return {name: value for name, value in self.environ.items() if not name.startswith("SLURM_")}


_NOTHING = Sight(None, {}, [])


class Membership:
    """The rule. `adopted` is told when a part turns out to be of a larger job, before anybody is said to be in it."""

    def __init__(
        self,
        host: HostFS,
        schedulers: Sequence[Scheduler],
        *,
        adopted: Callable[[JobId, Job], None] | None = None,
    ) -> None:
        self._host = host
        self._schedulers = tuple(schedulers)
        self._adopted = adopted
        self._order = [scheduler.name for scheduler in schedulers]
        self._file_readers: dict[str, ReadsFiles] = {
            scheduler.name: scheduler  # type: ignore[misc]
            for scheduler in schedulers
            if hasattr(scheduler, "job_from_files")
        }
        self._by_cgroup = any(scheduler.cgroup_parents for scheduler in schedulers)
        self._marks = tuple(mark for scheduler in schedulers for mark in scheduler.environ_marks)
        self.by_session = {scheduler.name for scheduler in schedulers if scheduler.by_session}
        self._paths: dict[str, Job | None] = {}
        self._wholes: dict[JobId, Job] = {}  # by the key of a part, the job somebody said it is a part of

    def look(self, pid: int) -> Sight:
        """What a process says itself. OSError when it is gone or hidden, ParseError when its cgroups make no sense."""
        inside: Places = []
        if self._by_cgroup:
            pairs = cgroupfs.parse_membership(self._host.read(f"proc/{pid}/cgroup"))
            inside = [(name, path, job) for name, path in pairs if (job := self._job_of_path(path)) is not None]
        environ, hidden = self._environ(pid, wanted=bool(inside))
        job = _deepest([job for _, _, job in inside])
        told = self._job_of_environ(environ)
        if job is None or (told is not None and self._outranks(told, job)):
            job, inside = told, []
        else:
            job = self._joined(pid, job, told)
        return Sight(job, environ, inside, hidden)

    def ask(self, pid: int) -> Sight:
        """What is known of one process, also when only its session or its pod tells. Nothing of one that is gone."""
        sight = self._seen(pid)
        job = sight.job
        if job is None and self.by_session:
            job = self._job_of_relatives(pid)
        elif job is not None and job.part == job.key.text:  # a pod, and nobody has said what it is a pod of
            job = self._whole_of_relatives(pid, job)
        if not sight.environ and not sight.hidden:  # no job's mark in it, but perhaps a rank
            sight = sight._replace(environ=self._rank_alone(pid))
        return sight._replace(job=job)

    def _seen(self, pid: int) -> Sight:
        try:
            return self.look(pid)
        except (OSError, ParseError):
            return _NOTHING

    def _rank_alone(self, pid: int) -> Environ:
        try:
            data = self._host.read(f"proc/{pid}/environ")
        except OSError:
            return {}
        return parse_environ(data) if any(mark in data for mark in RANK_MARKS) else {}

    def _job_of_relatives(self, pid: int) -> Job | None:
        """The job of the session's leader or, when that has ended, of the nearest ancestor in the session."""
        session = self._session(pid)
        if session in (0, pid):
            return None  # it has left the session it was born in, or that is one of another namespace
        relatives = (session,) if self._host.exists(f"proc/{session}") else self._ancestors(pid)
        for relative in relatives:
            job = self._seen(relative).job if self._session(relative) == session else None
            if job is not None:
                return job._replace(step="", task="") if job.id.scheduler in self.by_session else None
        return None

    def _whole_of_relatives(self, pid: int, job: Job) -> Job:
        for ancestor in self._ancestors(pid):
            seen = self._seen(ancestor).job
            if seen is None or seen.part != job.part:
                break  # out of the pod
            if seen.key != job.key:
                return self._seen(pid).job or job  # it has been noted what the pod is of
        return job

    def _session(self, pid: int) -> int:
        """0 when it cannot be told."""
        try:
            return parse_stat(self._host.read(f"proc/{pid}/stat"))[0]
        except (OSError, ParseError):
            return 0

    def _ancestors(self, pid: int) -> Iterator[int]:
        """The nearest first, as far as they can be seen."""
        for _ in range(_GENERATIONS):
            try:
                pid = parse_kinship(self._host.read(f"proc/{pid}/stat")).parent
            except (OSError, ParseError):
                return
            if pid <= 1:
                return
            yield pid

    def _outranks(self, told: Job, job: Job) -> bool:
        """A batch system that runs in pods: its job is what the user knows, the pod is only where slurmd runs.

        Elsewhere the cgroup is believed: a user can set a variable, but not that.
        """
        return bool(job.part) and self._order.index(told.id.scheduler) < self._order.index(job.id.scheduler)

    def _joined(self, pid: int, job: Job, told: Job | None) -> Job:
        """What the cgroup says, completed by the environment and by files, if they speak of the same job."""
        reader = self._file_readers.get(job.id.scheduler)
        filed = reader.job_from_files(self._host, pid, job) if reader is not None else None
        part = job.key
        for more in (filed, told):
            if more is None or more.id.scheduler != job.id.scheduler:
                continue
            if more.key == job.key or not more.raw_id:
                job = job.completed(more)
            elif job.part and more.part in ("", job.part) and part not in self._wholes:
                self._adopt(part, _whole(more, job))
        whole = self._wholes.get(part)
        if whole is None:
            return job
        step = next((more.step for more in (told, filed) if more is not None and more.step), "")
        return whole._replace(part=job.part, cgroup=job.cgroup, step=step, uid=job.uid)

    def _adopt(self, part: JobId, whole: Job) -> None:
        """From now on, whoever is in this part belongs to the whole."""
        if len(self._wholes) >= _REMEMBERED:
            self._wholes.clear()
        self._wholes[part] = whole
        if self._adopted is not None:
            self._adopted(part, whole)

    def _job_of_path(self, path: str) -> Job | None:
        try:
            return self._paths[path]
        except KeyError:
            pass
        if len(self._paths) >= _REMEMBERED:
            self._paths.clear()
        jobs = (scheduler.job_from_cgroup(path) for scheduler in self._schedulers)
        job = self._paths[path] = next((job for job in jobs if job is not None), None)
        return job

    def _environ(self, pid: int, *, wanted: bool) -> tuple[Environ, bool]:
        """The environment if it may say something, and whether it is hidden."""
        if not self._marks:
            return {}, False  # nobody asks for any
        try:
            data = self._host.read(f"proc/{pid}/environ")
        except PermissionError:
            return {}, True
        marks = self._marks + RANK_MARKS if wanted else self._marks
        return (parse_environ(data) if any(mark in data for mark in marks) else {}), False

    def _job_of_environ(self, environ: Environ) -> Job | None:
        if not environ:
            return None
        jobs = (scheduler.job_from_environ(environ) for scheduler in self._schedulers)
        return next((job for job in jobs if job is not None), None)


def _deepest(jobs: list[Job]) -> Job | None:
    """Slurm's freezer ends at the step where its memory hierarchy goes down to the task."""
    return max(jobs, key=lambda job: (bool(job.step), bool(job.task)), default=None)


def _whole(told: Job, part: Job) -> Job:
    """The job that a process says its part belongs to. Its name is unique within an account only, a namespace; which
    one that is, files of the host tell rather than the process."""
    if part.account and told.account != part.account:
        told = told._replace(account=part.account, raw_id=f"{part.account}/{told.id.text}")
    return told._replace(part="", cgroup="", step="", task="")

"""PBS jobs (OpenPBS, PBS Professional, Torque), from cgroup paths, the PBS_* environment, sessions and qstat.

/pbs_jobs.service/jobid/123.pbs                      cgroup v1 of OpenPBS' cgroups hook, which a site may do without
/pbs_jobs.service/jobs/123[4].pbs                    cgroup v2; member 4 of the array 123[].pbs
/pbs_jobs.slice/pbs_jobs-123.pbs.slice               an older hook; escaped as systemd does
/torque/123.pbs                                      Torque 6
PBS_JOBID=123[4].pbs PBS_JOBNAME=train PBS_QUEUE=gpu
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import ClassVar

from sonde.errors import ParseError, ReadError
from sonde.schedulers.job import Environ, Job, JobId
from sonde.schedulers.listing import Attributes, Jobs, ask, flattened, parse_json, parse_listing, parse_walltime

# With the server's name. A bare number is a job of Slurm, which has a qstat and a plug-in that sets PBS_JOBID.
ID = re.compile(r"[0-9]{1,12}(?:\[[0-9]{1,10}\]|-[0-9]{1,10})?\.[0-9A-Za-z][0-9A-Za-z._-]{0,252}", re.ASCII)
# The first part is the hook's `cgroup_prefix`, which a site may change.
_CGROUP = re.compile(r"(?P<cgroup>/(?:[^/]+\.service/jobid|[^/]+\.service/jobs|torque)/(?P<job>[^/]+))(?:/.*)?")
_SLICE = re.compile(r"(?P<cgroup>/(?P<prefix>pbs[^/]*)\.slice/(?P=prefix)-(?P<job>[^/]+)\.slice)(?:/.*)?")
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")
_VNODE = re.compile(r"[(+]([^:+()\[\]]+)")
_HERE = ("R", "E", "S", "U")  # running, exiting, suspended by the batch system or by the machine's user
_NO_PROJECT = "_pbs_project_default"
# -t lists the members of arrays. Torque's qstat has no -F, and the one over Slurm has no -t either.
_FORMS = (("-t", "-f", "-F", "json"), ("-t", "-f"), ("-f",))
_UNKNOWN = re.compile(r"unknown job|has finished|history job|invalid job id", re.IGNORECASE)
_TIMEOUT = 20.0  # seconds; -f of a server with ten thousand jobs takes its time


class PbsScheduler:
    name: ClassVar[str] = "pbs"
    environ_marks: ClassVar[tuple[bytes, ...]] = (b"PBS_JOBID=",)
    cgroup_parents: ClassVar[tuple[str, ...]] = ("*.service/jobid", "*.service/jobs", "pbs*.slice", "torque")
    # Without the hook this is PBS' own rule: pbs_mom counts and kills the processes whose session is that of one of the
    # job's tasks (injob in src/resmom/linux/mom_mach.c).
    by_session: ClassVar[bool] = True
    node_files: ClassVar[tuple[str, ...]] = ("var/spool/pbs/aux/{id}", "var/spool/torque/aux/{id}")

    def job_from_cgroup(self, path: str) -> Job | None:
        match = _CGROUP.fullmatch(path) or _SLICE.fullmatch(path)
        if match is None:
            return None
        text = _ESCAPED.sub(lambda escaped: chr(int(escaped[1], 16)), match["job"])
        if not ID.fullmatch(text):
            return None
        return Job(id=JobId(self.name, text), raw_id=text, cgroup=match["cgroup"])

    def job_from_environ(self, environ: Environ) -> Job | None:
        # Nothing but pbs_mom sets PBS_JOBID: `qsub -I` leaves the submitting shell as it was, and the login shell it
        # opens on the node is the job's.
        text = environ.get("PBS_JOBID", "")
        if not ID.fullmatch(text):
            return None
        return Job(
            id=JobId(self.name, text),
            raw_id=text,
            user=environ.get("LOGNAME") or environ.get("USER") or environ.get("PBS_O_LOGNAME", ""),
            task=environ.get("PBS_TASKNUM", ""),
            name=environ.get("PBS_JOBNAME", ""),
            partition=environ.get("PBS_QUEUE", ""),
            account=environ.get("PBS_ACCOUNT", ""),
        )

    def running_here(self) -> Sequence[Job]:
        here = os.uname().nodename
        running = {text: found for text, found in self._qstat().items() if found.get("job_state") in _HERE}
        return [job for text, found in running.items() if (job := self.parse_job(text, found)).runs_on(here)]

    def describe(self, job: Job) -> Job:
        try:
            found = self._qstat(job.raw_id or job.id.text)
        except ReadError as error:
            if _UNKNOWN.search(str(error)):
                return job
            raise
        for text, attributes in found.items():
            return job.completed(self.parse_job(text, attributes))
        return job

    def seconds_left(self, text: str) -> int | None:
        """Its walltime less what it has used of it, which the server learns every few minutes only."""
        for found in self._qstat(text).values():
            whole = parse_walltime(found.get("Resource_List.walltime", ""))
            used = parse_walltime(found.get("resources_used.walltime", "0"))
            return None if whole is None or used is None else max(0, whole - used)
        return None

    def _qstat(self, *ids: str) -> Jobs:
        jobs = ask([("qstat", *form, *ids) for form in _FORMS], parse_qstat, timeout=_TIMEOUT)
        # Left out: 123[].pbs, which is an array and never runs itself, and bare numbers, which are Slurm's jobs.
        return {text: found for text, found in jobs.items() if ID.fullmatch(text)}

    def parse_job(self, text: str, found: Attributes) -> Job:
        """A job of qstat. `nodes` are hosts, not vnodes."""
        project = found.get("project", "")
        return Job(
            id=JobId(self.name, text),
            raw_id=text,
            user=found.get("Job_Owner", "").partition("@")[0] or found.get("euser", "").partition("(")[0],
            name=found.get("Job_Name", ""),
            partition=found.get("queue", ""),
            account=found.get("Account_Name", "") or ("" if project == _NO_PROJECT else project),
            nodes=hosts(found.get("exec_host", ""), found.get("exec_vnode", "")),
            walltime_seconds=parse_walltime(found.get("Resource_List.walltime", "")),
        )


def parse_qstat(text: str) -> Jobs:
    """`qstat -f` in either form: JSON has the jobs under `Jobs`, and no `Jobs` when there are none."""
    if not text.lstrip().startswith("{"):
        return parse_listing(text, "qstat")
    jobs = parse_json(text, "qstat").get("Jobs", {})
    if not isinstance(jobs, dict):
        raise ParseError("qstat", text)
    return {name: flattened(job, "qstat") for name, job in jobs.items()}


def hosts(exec_host: str, exec_vnode: str = "") -> tuple[str, ...]:
    """The hosts of `n1/0*8+n2/0*8`, of Torque's `n1/0-7+n1/9` or, without either, of `(n1[0]:ncpus=8)+(n2:ncpus=8)`."""
    names: Iterable[str] = (chunk.partition("/")[0].strip() for chunk in exec_host.split("+"))
    if not exec_host:
        names = _VNODE.findall(exec_vnode)
    return tuple(dict.fromkeys(name for name in names if name))

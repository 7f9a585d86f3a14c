"""Slurm jobs, from cgroup paths, the SLURM_* environment and squeue.

/slurm/uid_1000/job_77/step_0/task_1                            cgroup v1; /slurm_NODE/... with several slurmd
/system.slice/slurmstepd.scope/job_77/step_0/user/task_1        cgroup v2; NODE_slurmstepd.scope likewise
SLURM_JOB_ID=77 SLURM_ARRAY_JOB_ID=76 SLURM_ARRAY_TASK_ID=4     job 76_4, whose cgroup says 77
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import ClassVar

from sonde import command
from sonde.errors import ParseError
from sonde.schedulers import hostlist
from sonde.schedulers.job import Environ, Job, JobId
from sonde.schedulers.listing import parse_walltime

_V1 = re.compile(
    r"(?P<cgroup>/slurm(?:_[^/]+)?/uid_(?P<uid>[0-9]{1,10})/job_(?P<job>[0-9]{1,10}))"
    r"(?:/step_(?P<step>\w+)(?:/task_(?P<task>\w+))?)?(?:/.*)?",
    re.ASCII,
)
_V2 = re.compile(
    r"(?P<cgroup>(?:/[^/]+)*/(?:[^/]+_)?slurmstepd\.scope/job_(?P<job>[0-9]{1,10}))"
    r"(?:/step_(?P<step>\w+)(?:/user(?:/task_(?P<task>\w+))?)?)?(?:/.*)?",
    re.ASCII,
)
# A shell of salloc on a login node has the job's id too. Only what slurmstepd started has one of these.
_STARTED_HERE = ("SLURMD_NODENAME", "SLURM_PROCID", "SLURM_TASK_PID")
# slurm.h: SLURM_INTERACTIVE_STEP, SLURM_BATCH_SCRIPT and SLURM_EXTERN_CONT as a variable shows them.
_SPECIAL_STEPS = {"4294967290": "interactive", "4294967291": "batch", "4294967292": "extern"}
# %i 76_4, %A 77; the name comes last because it may contain the separator.
_FORMAT = "%i|%A|%u|%U|%P|%a|%N|%j"
_TIMEOUT = 10.0  # seconds; squeue waits for a busy controller


class SlurmScheduler:
    name: ClassVar[str] = "slurm"
    environ_marks: ClassVar[tuple[bytes, ...]] = (b"SLURM_JOB_ID=",)
    cgroup_parents: ClassVar[tuple[str, ...]] = (
        "slurm",
        "slurm_*",
        "slurm/uid_*",
        "slurm_*/uid_*",
        "system.slice/slurmstepd.scope",
        "system.slice/*_slurmstepd.scope",
    )
    by_session: ClassVar[bool] = False
    node_files: ClassVar[tuple[str, ...]] = ()

    def job_from_cgroup(self, path: str) -> Job | None:
        if "/job_" not in path:
            return None
        match = _V1.fullmatch(path) or _V2.fullmatch(path)
        if match is None:
            return None
        found = match.groupdict()
        return Job(
            id=JobId(self.name, found["job"]),
            raw_id=found["job"],
            uid=int(found["uid"]) if found.get("uid") else None,
            step=found["step"] or "",
            task=found["task"] or "",
            cgroup=found["cgroup"],
        )

    def job_from_environ(self, environ: Environ) -> Job | None:
        raw_id = environ.get("SLURM_JOB_ID", "")
        if not _is_number(raw_id) or not any(name in environ for name in _STARTED_HERE):
            return None
        array, member = environ.get("SLURM_ARRAY_JOB_ID", ""), environ.get("SLURM_ARRAY_TASK_ID", "")
        in_array = _is_number(array) and _is_number(member)
        uid = environ.get("SLURM_JOB_UID", "")
        return Job(
            id=JobId(self.name, f"{array}_{member}" if in_array else raw_id),
            raw_id=raw_id,
            user=environ.get("SLURM_JOB_USER", ""),
            uid=int(uid) if _is_number(uid) else None,
            step=_step(environ.get("SLURM_STEP_ID", "batch")),  # a batch script has none
            name=environ.get("SLURM_JOB_NAME", ""),
            partition=environ.get("SLURM_JOB_PARTITION", ""),
            account=environ.get("SLURM_JOB_ACCOUNT", ""),
            nodes=_nodes(environ.get("SLURM_JOB_NODELIST", "")),
        )

    def running_here(self) -> Sequence[Job]:
        node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]
        return self._squeue("--states=RUNNING", f"--nodelist={node}")

    def describe(self, job: Job) -> Job:
        jobs = self._squeue(f"--jobs={job.raw_id or job.id.text}")
        return job.completed(jobs[0]) if jobs else job

    def seconds_left(self, text: str) -> int | None:
        """`1-02:03:04` or `2:03`; UNLIMITED, NOT_SET and INVALID say nothing."""
        told = command.run(["squeue", "--noheader", "--format=%L", f"--jobs={text}"], timeout=_TIMEOUT)
        lines = told.split()
        return parse_walltime(lines[0].replace("-", ":")) if lines else None

    def _squeue(self, *options: str) -> list[Job]:
        text = command.run(["squeue", "--noheader", f"--format={_FORMAT}", *options], timeout=_TIMEOUT)
        return [self.parse_squeue(line) for line in text.splitlines() if line.strip()]

    def parse_squeue(self, line: str) -> Job:
        """One line of squeue: `76_4|77|ada|1000|main|physics|n[1-4]|train`."""
        fields = line.split("|", 7)
        if len(fields) != 8 or not fields[0] or not _is_number(fields[1]) or not _is_number(fields[3]):
            raise ParseError("squeue", line)
        text, raw_id, user, uid, partition, account, nodes, name = fields
        return Job(
            id=JobId(self.name, text),
            raw_id=raw_id,
            user=user,
            uid=int(uid),
            name=name,
            partition=partition,
            account="" if account == "(null)" else account,
            nodes=_nodes(nodes),
        )


def _step(text: str) -> str:
    return _SPECIAL_STEPS.get(text, text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10


def _nodes(text: str) -> tuple[str, ...]:
    """The nodes of a job. A list that makes no sense is the user's own variable, and no reason to lose the job."""
    try:
        return tuple(hostlist.expand(text))
    except ParseError:
        return ()

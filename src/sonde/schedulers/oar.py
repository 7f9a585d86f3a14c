"""OAR jobs, from cgroup paths, the OAR_* environment and oarstat.

/oar/ada_1                                                cgroup v1: user and job
/oar.slice/oar-u1000.slice/oar-u1000-j1.slice             cgroup v2: slices of systemd, OAR 3
OAR_JOB_ID=1 OAR_USER=ada OAR_JOB_NAME=train OAR_PROJECT_NAME=physics OAR_JOB_WALLTIME_SECONDS=600
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from typing import ClassVar

from sonde.errors import ParseError
from sonde.schedulers.job import Environ, Job, JobId
from sonde.schedulers.listing import Attributes, Jobs, ask, flattened, parse_json, parse_listing, parse_walltime

# CPUSET_PATH of oar.conf, which is /oar unless a site changes it; below /oardocker/NODE in OAR's own test clusters.
_V1 = re.compile(
    r"(?P<cgroup>(?:/oardocker/[^/]+)?/oar/(?P<user>[^/]+)_(?P<job>[0-9]{1,10}))(?:/.*)?",
    re.ASCII,
)
_V2 = re.compile(
    r"(?P<cgroup>/oar\.slice/oar-u(?P<uid>[0-9]{1,10})\.slice/oar-u(?P=uid)-j(?P<job>[0-9]{1,10})\.slice)(?:/.*)?",
    re.ASCII,
)
_HERE = ("Running", "Finishing", "Suspended", "Resuming")
_NO_PROJECT = "default"
# The JSON form needs a Perl module that OAR only recommends.
_FORMS = (("-J", "-f"), ("-f",))
_TIMEOUT = 20.0  # seconds; it asks the database


class OarScheduler:
    name: ClassVar[str] = "oar"
    environ_marks: ClassVar[tuple[bytes, ...]] = (b"OAR_JOB_ID=",)
    cgroup_parents: ClassVar[tuple[str, ...]] = ("oar", "oardocker/*/oar", "oar.slice", "oar.slice/oar-u*.slice")
    by_session: ClassVar[bool] = False  # every process of a job is in its cgroup
    node_files: ClassVar[tuple[str, ...]] = ("var/lib/oar/{id}",)

    def job_from_cgroup(self, path: str) -> Job | None:
        match = _V1.fullmatch(path) or _V2.fullmatch(path)
        if match is None:
            return None
        found = match.groupdict()
        return Job(
            id=JobId(self.name, found["job"]),
            raw_id=found["job"],
            user=found.get("user") or "",
            uid=int(found["uid"]) if found.get("uid") else None,
            cgroup=found["cgroup"],
        )

    def job_from_environ(self, environ: Environ) -> Job | None:
        # A member of an array has an id of its own, and oarstat shows that. OAR_ARRAY_ID and OAR_ARRAY_INDEX would not
        # tell the first member from a job without an array: each such job is number 1 of the array of its own id.
        text = environ.get("OAR_JOB_ID", "")
        if not _is_number(text):
            return None
        return Job(
            id=JobId(self.name, text),
            raw_id=text,
            user=environ.get("OAR_USER", ""),
            name=environ.get("OAR_JOB_NAME", ""),
            account=_account(environ.get("OAR_PROJECT_NAME", "")),
            walltime_seconds=parse_walltime(environ.get("OAR_JOB_WALLTIME_SECONDS", "")),
        )

    def running_here(self) -> Sequence[Job]:
        here = os.uname().nodename
        running = {text: found for text, found in self._oarstat().items() if found.get("state") in _HERE}
        return [job for text, found in running.items() if (job := self.parse_job(text, found)).runs_on(here)]

    def describe(self, job: Job) -> Job:
        for text, found in self._oarstat("-j", job.raw_id or job.id.text).items():
            return job.completed(self.parse_job(text, found))
        return job  # oarstat says nothing of a job it does not know

    def seconds_left(self, text: str) -> int | None:
        """From its walltime and start. The text form has that in the local time of the server: it says nothing."""
        for found in self._oarstat("-j", text).values():
            whole = parse_walltime(found.get("walltime", ""))
            start = found.get("startTime", "")
            if whole is None or not _is_number(start) or start == "0":
                return None
            return max(0, int(start) + whole - round(time.time()))
        return None

    def _oarstat(self, *options: str) -> Jobs:
        return ask([("oarstat", *form, *options) for form in _FORMS], parse_oarstat, timeout=_TIMEOUT)

    def parse_job(self, text: str, found: Attributes) -> Job:
        """A job of oarstat, whose JSON and text forms call the same by two names."""
        if not _is_number(text):
            raise ParseError("oarstat", text)
        nodes = found.get("assigned_network_address") or found.get("assigned_hostnames", "")
        return Job(
            id=JobId(self.name, text),
            raw_id=text,
            user=found.get("owner", ""),
            name=found.get("name", ""),
            partition=found.get("queue", ""),
            account=_account(found.get("project", "")),
            nodes=tuple(dict.fromkeys(node for node in nodes.split("+") if node)),
            walltime_seconds=parse_walltime(found.get("walltime", "")),
        )


def parse_oarstat(text: str) -> Jobs:
    """`oarstat -f`, as JSON an object by job id, or as text."""
    if not text.lstrip().startswith("{"):
        return parse_listing(text, "oarstat")
    return {name: flattened(job, "oarstat") for name, job in parse_json(text, "oarstat").items()}


def _account(project: str) -> str:
    return "" if project == _NO_PROJECT else project


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10

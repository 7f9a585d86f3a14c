"""Groups of processes without a batch system, from the variables of their launcher.

SONDE_JOB_ID=tune-3 (or SONDE_TAG)          the user named the job
TORCHELASTIC_RUN_ID=6f1c... RANK=3          torchrun
PMIX_NAMESPACE=prterun-host-4711@1          mpirun of Open MPI 5; OMPI_MCA_ess_base_jobid before it
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sonde.schedulers.job import Environ, Job, JobId

_NAMED = ("SONDE_JOB_ID", "SONDE_TAG", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")


class LocalScheduler:
    name: ClassVar[str] = "local"
    environ_marks: ClassVar[tuple[bytes, ...]] = tuple(f"{name}=".encode() for name in _NAMED)
    cgroup_parents: ClassVar[tuple[str, ...]] = ()
    by_session: ClassVar[bool] = False
    node_files: ClassVar[tuple[str, ...]] = ()

    def job_from_cgroup(self, path: str) -> Job | None:
        return None

    def job_from_environ(self, environ: Environ) -> Job | None:
        text = next((environ[name] for name in _NAMED if environ.get(name)), "")
        if text == "none":
            # torchrun's run id when none was given. Two such runs on a host differ in the port of their rendezvous.
            text = f"{environ.get('MASTER_ADDR', '')}:{environ.get('MASTER_PORT', '')}"
        if not text.strip(":"):
            return None
        return Job(
            id=JobId(self.name, text),
            user=environ.get("USER", "") or environ.get("LOGNAME", ""),
            name=environ.get("SONDE_TAG", ""),
        )

    def running_here(self) -> Sequence[Job]:
        return ()  # nobody keeps a list

    def describe(self, job: Job) -> Job:
        return job

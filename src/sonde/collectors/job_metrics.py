"""The metrics of a job: its account's, and what `WALKED` takes from a group of processes where there is no cgroup."""

from __future__ import annotations

import os
from collections.abc import Callable

from sonde.collectors.account_metrics import account_keys
from sonde.collectors.ledger import Group
from sonde.model import Kind, MetricSpec, Unit

_JOB = ("job_id", "scheduler")
INFO = MetricSpec(
    "sonde_job_info",
    Kind.INFO,
    Unit.NONE,
    "A job that has processes on this node; always 1.",
    (*_JOB, "user", "uid", "name", "partition", "account", "nodes"),
)
RANK = MetricSpec(
    "sonde_job_rank_info",
    Kind.INFO,
    Unit.NONE,
    "A rank of a job and the process at the top of its tree; always 1.",
    (*_JOB, "step", "rank", "local_rank", "world_size", "pid"),
)


POD = MetricSpec(
    "sonde_job_pod_info",
    Kind.INFO,
    Unit.NONE,
    "A pod of a job on this node; always 1.",
    (*_JOB, "pod_uid"),
)
PROCESSES = MetricSpec("sonde_job_processes", Kind.GAUGE, Unit.NONE, "Processes of the job, as of the last scan.", _JOB)
KEYS = account_keys("job", _JOB)
CPU = KEYS["cpu_user"][0]
RSS = KEYS["rss"][0]
PEAK = KEYS["peak"][0]
WAITING = KEYS["waiting_cpu"][0]
STALLED = KEYS["stalled_cpu"][0]

_HERTZ = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
WALKED: dict[str, Callable[[Group], int | float]] = {
    "threads": lambda group: group.threads,
    "cpu_user": lambda group: group.user / _HERTZ,
    "cpu_system": lambda group: group.system / _HERTZ,
    "rss": lambda group: group.resident * _PAGE,
    "anonymous": lambda group: (group.resident - group.shared) * _PAGE,
    "swap": lambda group: group.swap_bytes,
    "faults": lambda group: group.minor + group.major,
    "major_faults": lambda group: group.major,
    "read": lambda group: group.read_bytes,
    "written": lambda group: group.written_bytes,
}

"""The metrics of a job, by the keys under which an account gives them, and what gives each key.

The keys of a cgroup are those of cgroup.py; `WALKED` takes the same from a group of walked processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable

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


def _counter(name: str, unit: Unit, text: str, *labels: str) -> MetricSpec:
    return MetricSpec(f"sonde_job_{name}", Kind.COUNTER, unit, text, (*_JOB, *labels))


def _gauge(name: str, unit: Unit, text: str) -> MetricSpec:
    return MetricSpec(f"sonde_job_{name}", Kind.GAUGE, unit, text, _JOB)


PROCESSES = _gauge("processes", Unit.NONE, "Processes of the job, as of the last scan.")
CPU = _counter("cpu_seconds_total", Unit.SECONDS, "CPU time, of processes that have ended too.", "mode")
RSS = _gauge("memory_rss_bytes", Unit.BYTES, "Memory the job's processes have mapped and that is resident.")
WAITING = _counter("pressure_waiting_seconds_total", Unit.SECONDS, "Time some task waited.", "resource")
STALLED = _counter("pressure_stalled_seconds_total", Unit.SECONDS, "Time all tasks waited.", "resource")
LIMIT = _gauge("memory_limit_bytes", Unit.BYTES, "Memory the job's cgroup may hold.")
OOM = _counter("oom_kills_total", Unit.NONE, "Processes the kernel killed for want of memory.")

# The keys of an account, the series each becomes; those of one metric stand together.
KEYS: dict[str, tuple[MetricSpec, tuple[str, ...]]] = {
    "threads": (_gauge("threads", Unit.NONE, "Threads of the job."), ()),
    "cpu_user": (CPU, ("user",)),
    "cpu_system": (CPU, ("system",)),
    "periods": (_counter("cpu_periods_total", Unit.NONE, "Enforcement periods of the CPU limit."), ()),
    "throttled_periods": (
        _counter("cpu_throttled_periods_total", Unit.NONE, "Periods in which the CPU limit was reached."),
        (),
    ),
    "throttled": (_counter("cpu_throttled_seconds_total", Unit.SECONDS, "Time held back by the CPU limit."), ()),
    "rss": (RSS, ()),
    "anonymous": (_gauge("memory_anonymous_bytes", Unit.BYTES, "Resident memory that no file backs."), ()),
    "cache": (_gauge("memory_cache_bytes", Unit.BYTES, "Page cache charged to the job."), ()),
    "swap": (_gauge("memory_swap_bytes", Unit.BYTES, "Memory swapped out."), ()),
    "usage": (_gauge("memory_usage_bytes", Unit.BYTES, "Memory charged to the job, page cache included."), ()),
    "peak": (_gauge("memory_peak_bytes", Unit.BYTES, "The largest usage so far."), ()),
    "limit": (LIMIT, ()),
    "limit_hits": (_counter("memory_limit_hits_total", Unit.NONE, "Times the memory limit was run into."), ()),
    "oom_kills": (OOM, ()),
    "faults": (_counter("page_faults_total", Unit.NONE, "Page faults, major ones included."), ()),
    "major_faults": (_counter("major_page_faults_total", Unit.NONE, "Page faults that had to read storage."), ()),
    "read": (_counter("read_bytes_total", Unit.BYTES, "Bytes fetched from storage."), ()),
    "written": (_counter("written_bytes_total", Unit.BYTES, "Bytes sent to storage."), ()),
    "waiting_cpu": (WAITING, ("cpu",)),
    "waiting_memory": (WAITING, ("memory",)),
    "waiting_io": (WAITING, ("io",)),
    "stalled_cpu": (STALLED, ("cpu",)),
    "stalled_memory": (STALLED, ("memory",)),
    "stalled_io": (STALLED, ("io",)),
}

# Which files give a key, and the controller without which there are none.
_CPU = (("cpuacct.stat", "cpu.stat"), "cpuacct")
_THROTTLE = (("cpu.stat",), "cpu")
_MEMORY = (
    ("memory.stat", "memory.usage_in_bytes", "memory.current", "memory.events", "memory.oom_control", "memory.failcnt"),
    "memory",
)
_IO = (("blkio.throttle.io_service_bytes_recursive", "io.stat"), "blkio")
SOURCES: dict[str, tuple[tuple[str, ...], str]] = {
    **dict.fromkeys(KEYS, _MEMORY),
    **dict.fromkeys(("cpu_user", "cpu_system"), _CPU),
    **dict.fromkeys(("periods", "throttled_periods", "throttled"), _THROTTLE),
    **dict.fromkeys(("read", "written"), _IO),
    "threads": (("pids.current",), "pids"),
}

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

"""The metrics of a cgroup's account, by the keys under which cgroup.py gives them, and what gives each key.

Jobs and containers have the same account under different names: `account_keys` makes the metrics of either.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sonde.model import Gap, Kind, MetricSpec, Quality, Unit

# A key of an account, the metric it becomes a series of, and the labels behind those of the subject.
Keys = dict[str, tuple[MetricSpec, tuple[str, ...]]]


def account_keys(subject: str, labels: tuple[str, ...]) -> Keys:
    """The metrics of `sonde_<subject>_*`; those of one metric stand together."""

    def counter(name: str, unit: Unit, text: str, *more: str) -> MetricSpec:
        return MetricSpec(f"sonde_{subject}_{name}", Kind.COUNTER, unit, text, (*labels, *more))

    def gauge(name: str, unit: Unit, text: str) -> MetricSpec:
        return MetricSpec(f"sonde_{subject}_{name}", Kind.GAUGE, unit, text, labels)

    cpu = counter("cpu_seconds_total", Unit.SECONDS, "CPU time, of processes that have ended too.", "mode")
    waiting = counter("pressure_waiting_seconds_total", Unit.SECONDS, "Time some task waited.", "resource")
    stalled = counter("pressure_stalled_seconds_total", Unit.SECONDS, "Time all tasks waited.", "resource")
    charged = f"Memory charged to the {subject}, page cache included."
    single: dict[str, MetricSpec] = {
        "periods": counter("cpu_periods_total", Unit.NONE, "Enforcement periods of the CPU limit."),
        "throttled_periods": counter(
            "cpu_throttled_periods_total", Unit.NONE, "Periods in which the CPU limit was reached."
        ),
        "throttled": counter("cpu_throttled_seconds_total", Unit.SECONDS, "Time held back by the CPU limit."),
        "rss": gauge(
            "memory_rss_bytes", Unit.BYTES, f"Memory the {subject}'s processes have mapped and that is resident."
        ),
        "anonymous": gauge("memory_anonymous_bytes", Unit.BYTES, "Resident memory that no file backs."),
        "cache": gauge("memory_cache_bytes", Unit.BYTES, f"Page cache charged to the {subject}."),
        "swap": gauge("memory_swap_bytes", Unit.BYTES, "Memory swapped out."),
        "usage": gauge("memory_usage_bytes", Unit.BYTES, charged),
        "peak": gauge("memory_peak_bytes", Unit.BYTES, "The largest usage so far."),
        "limit": gauge("memory_limit_bytes", Unit.BYTES, f"Memory the {subject}'s cgroup may hold."),
        "limit_hits": counter("memory_limit_hits_total", Unit.NONE, "Times the memory limit was run into."),
        "oom_kills": counter("oom_kills_total", Unit.NONE, "Processes the kernel killed for want of memory."),
        "faults": counter("page_faults_total", Unit.NONE, "Page faults, major ones included."),
        "major_faults": counter("major_page_faults_total", Unit.NONE, "Page faults that had to read storage."),
        "read": counter("read_bytes_total", Unit.BYTES, "Bytes fetched from storage."),
        "written": counter("written_bytes_total", Unit.BYTES, "Bytes sent to storage."),
    }
    return {
        "threads": (gauge("threads", Unit.NONE, f"Threads of the {subject}."), ()),
        "cpu_user": (cpu, ("user",)),
        "cpu_system": (cpu, ("system",)),
        **{key: (spec, ()) for key, spec in single.items()},
        **{f"waiting_{resource}": (waiting, (resource,)) for resource in ("cpu", "memory", "io")},
        **{f"stalled_{resource}": (stalled, (resource,)) for resource in ("cpu", "memory", "io")},
    }


# Which files give a key, and the controller without which there are none.
_CPU = (("cpuacct.stat", "cpu.stat"), "cpuacct")
_THROTTLE = (("cpu.stat",), "cpu")
_MEMORY = (
    ("memory.stat", "memory.usage_in_bytes", "memory.current", "memory.events", "memory.oom_control", "memory.failcnt"),
    "memory",
)
_IO = (("blkio.throttle.io_service_bytes_recursive", "io.stat"), "blkio")
_SOURCES: dict[str, tuple[tuple[str, ...], str]] = {
    **dict.fromkeys(("cpu_user", "cpu_system"), _CPU),
    "cpu_usage": (("cpuacct.usage", "cpu.stat"), "cpuacct"),
    **dict.fromkeys(("periods", "throttled_periods", "throttled"), _THROTTLE),
    **dict.fromkeys(("read", "written"), _IO),
    "threads": (("pids.current",), "pids"),
}


def is_pressure(key: str) -> bool:
    """Whether there are such keys is a matter of the host: of cgroup v2."""
    return key.startswith(("waiting_", "stalled_"))


def account_gaps(
    table: Keys, present: Collection[str], labels: tuple[str, ...], missing: Mapping[str, str], subject: str
) -> list[Gap]:
    """What an account does not have, and why; pressure apart."""
    gaps = []
    for key, (spec, extra) in table.items():
        if key in present or is_pressure(key):
            continue
        if key == "limit" and "usage" in present:
            gaps.append(Gap(spec, labels, Quality.BLANK, "no limit is set"))
            continue
        files, controller = _SOURCES.get(key, _MEMORY)
        reasons = [missing[file] for file in files if file in missing]
        cause = reasons[0] if reasons else f"the {subject} is in no cgroup of the {controller} controller"
        gaps.append(Gap(spec, (*labels, *extra), Quality.UNSUPPORTED, cause))
    return gaps

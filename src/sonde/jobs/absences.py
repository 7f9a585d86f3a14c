"""What a recording does not show, why, and what would make it visible: from gaps of the archive and missing series.

node_rapl_package_joules_total  denied  energy_uj is readable by root only since Linux 5.10    → record as root
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from sonde.errors import SondeError
from sonde.jobs.figures.sheet import Sheet


class Absence(NamedTuple):
    what: str
    reason: str
    remedy: str = ""  # empty: nothing would
    hosts: tuple[str, ...] = ()


_DENIED = "record as root, or let the node's daemon do it"
_NAMED = "name the job: sonde record -- CMD, or --pid"
_OWN = "record as the job's own user, or as root"
_CPUFREQ = "a machine that has cpufreq (a virtual one seldom has)"
_COUNTERS = "record with counters, where perf_event_paranoid allows it"
# Subjects a report should have: a figure or curve that tells, the metrics it comes from, and what would show it.
_SUBJECTS: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("CPU time of the job", "cpu_used", ("sonde_job_cpu_", "sonde_process_tree_cpu_"), _NAMED),
    ("memory of the job", "memory_used", ("sonde_job_memory_", "sonde_process_tree_memory_"), _NAMED),
    ("CPU modes of the node", "host_idle_share", ("node_cpu_seconds",), "record with the collector cpu"),
    ("storage traffic of the job", "read_bytes", ("sonde_job_read_", "sonde_process_tree_read_"), _OWN),
    ("pressure", "pressure_cpu", ("node_pressure_", "sonde_job_pressure_"), "a kernel with PSI: boot it with psi=1"),
    ("energy", "energy", ("node_rapl_",), "record as root on a machine with RAPL (not in a virtual machine)"),
    ("frequency of the CPUs", "frequency_share", ("node_cpu_scaling_frequency_",), _CPUFREQ),
)  # fmt: skip


def absences_of(sheet: Sheet, used: Collection[str]) -> list[Absence]:
    """Of what a report uses, which `used` names; and whatever else was denied, for that can be helped."""
    host = (sheet.readings.about.host,)
    found = [Absence(note.partition(": ")[0], note.partition(": ")[2], "", host) for note in sheet.readings.about.notes]
    if sheet.readings.running:
        found.append(Absence("the end", "it is still being recorded", "report again when the job has ended", host))
    found += _from_gaps(sheet, host, used)
    explained = " ".join(row.metric for row in sheet.readings.gaps)
    for what, figure, metrics, remedy in _SUBJECTS:
        if sheet.figures[figure] is None and not any(metric in explained for metric in metrics):
            found.append(Absence(what, "no values were recorded", remedy, host))
    if not sheet.counters and "sonde_perf_" not in explained:
        found.append(Absence("hardware counters", "no values were recorded", _COUNTERS, host))
    if sheet.readings.damaged:
        reason = f"{sheet.readings.damaged} rows of the archive are damaged and were skipped"
        found.append(Absence("some values", reason, "sonde archive check tells which", host))
    return found


def _from_gaps(sheet: Sheet, host: tuple[str, ...], used: Collection[str]) -> Iterable[Absence]:
    """Metrics that miss for the same reason are one absence. What is there and estimated is told as well."""
    names: dict[tuple[str, str], list[str]] = {}
    for row in sheet.readings.gaps:
        if row.quality == "denied" or row.metric in used or row.metric.startswith("sonde_perf_"):
            names.setdefault((row.quality, row.reason), []).append(row.metric)
    for (quality, reason), metrics in names.items():
        told = f"{quality}: {reason}" if quality in ("estimated", "multiplexed", "stale") else reason or quality
        yield Absence(_named(sorted(set(metrics))), told, _DENIED if quality == "denied" else "", host)


def _named(metrics: Sequence[str]) -> str:
    return metrics[0] if len(metrics) == 1 else f"{metrics[0]} and {len(metrics) - 1} more"


def unreadable(host: str, error: SondeError) -> Absence:
    return Absence("all values", str(error), "gather the node again: sonde record recover", (host,))


def merged(absences: Iterable[Absence]) -> list[Absence]:
    """The same absence of several nodes once, with all their names. What can be helped comes first."""
    hosts: dict[tuple[str, str, str], list[str]] = {}
    for absence in absences:
        hosts.setdefault((absence.what, absence.reason, absence.remedy), []).extend(absence.hosts)
    found = [Absence(*key, tuple(dict.fromkeys(names))) for key, names in hosts.items()]
    return sorted(found, key=lambda absence: (not absence.remedy, -len(absence.hosts)))

"""What a job may use of its node: CPUs, quota, memory, container and limits, from its cgroup and /proc/PID.

    /proc/PID/status          Cpus_allowed_list: 0-7          after cpuset and taskset
    cpu.max                   150000 100000                   v2: microseconds of each period; `max`: no quota
    cpu.cfs_quota_us          -1                              v1: no quota
    memory.max                68719476736
    /proc/PID/limits          Max open files            1024                 524288               files

A limit holds for all below it, so the smallest on the way from the job's cgroup up to the root is the one that counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sonde.errors import ParseError, Unavailable
from sonde.jobs.facts.view import Facts, View, fields, integer, parse_list, present
from sonde.schedulers.cgroupfs import UNIFIED, Mount, locate, mounts, parse_membership
from sonde.schedulers.container import container_of

_UNLIMITED = 1 << 62  # v1 shows PAGE_COUNTER_MAX pages for no limit: just below 2**63
_DEEPEST = 32
_LIMIT = re.compile(r"^Max (.+?)  +(\S+) +(\S+)", re.MULTILINE)
# Kept beside the cgroup: the marks that container runtimes leave in the root of a container.
_MARKS = {
    ".dockerenv": "docker",
    "run/.containerenv": "podman",
    "singularity": "singularity",
    ".singularity.d": "apptainer",
}


def read(view: View) -> Facts:
    status = view.text(view.of_subject("status"), "confinement.cpus_allowed")
    groups = _groups(view)
    if status is None and not groups:
        raise Unavailable(f"/proc/{view.subject} cannot be read")
    allowed = fields(status or "").get("Cpus_allowed_list")
    return present(
        {
            "cgroup": max(groups.values(), key=len, default=None),
            "container": container(view, groups),
            "cpus_allowed": allowed,
            "cpus": len(parse_list(allowed)) if allowed else None,
            "memory_nodes_allowed": fields(status or "").get("Mems_allowed_list"),
            **_limits_of_groups(view, groups),
            "limits": limits(view),
        }
    )


def _groups(view: View) -> dict[str, str]:
    """The job's cgroup by controller."""
    data = view.data(view.of_subject("cgroup"), "confinement.cgroup")
    try:
        return dict(parse_membership(data)) if data else {}
    except ParseError as error:
        view.miss("confinement.cgroup", error)
        return {}


def container(view: View, groups: dict[str, str]) -> Facts:
    """The runtime and, for Kubernetes, what kind of pod. Its id changes with every run."""
    for path in groups.values():
        found = container_of(path)
        if found is not None:
            return present({"runtime": found.runtime or "unknown", "pod": found.pod.qos if found.pod else None})
    root = f"proc/{view.subject}/root"
    for mark, runtime in _MARKS.items():
        if view.host.exists(f"{root}/{mark}"):
            return {"runtime": runtime}
    return {}


def _limits_of_groups(view: View, groups: dict[str, str]) -> Facts:
    try:
        mounted = mounts(view.host)
    except (OSError, ParseError) as error:
        view.miss("confinement.cgroup", error)
        return {}

    def smallest(unified: str, controller: str, older: str, read: Callable[[View, str], float | None]) -> float | None:
        """Of the files on the way up, those of v2 or, where the controller is mounted by itself, of v1."""
        for name, file in ((UNIFIED, unified), (controller, older)):
            if name in mounted and name in groups:
                found = [
                    value
                    for folder in _upwards(view, mounted[name], groups[name])
                    if (value := read(view, f"{folder}/{file}")) is not None
                ]
                if found:
                    return min(found)
        return None

    return {
        "cpu_quota": smallest("cpu.max", "cpu", "cpu.cfs_quota_us", _quota),
        "memory_limit_bytes": smallest("memory.max", "memory", "memory.limit_in_bytes", _bytes),
        "memory_high_bytes": smallest("memory.high", "memory", "memory.soft_limit_in_bytes", _bytes),
        "process_limit": smallest("pids.max", "pids", "pids.max", _bytes),
    }


def _upwards(view: View, mount: Mount, cgroup: str) -> list[str]:
    """The directory of a cgroup and those above it, as far as they are visible."""
    folder = mount.directory(cgroup) or locate(view.host, mount, cgroup)
    if folder is None:
        return []
    found = [folder]
    while len(found) < _DEEPEST and found[-1].startswith(mount.point + "/"):
        found.append(found[-1].rpartition("/")[0])
    return found


def _quota(view: View, path: str) -> float | None:
    """CPUs' worth of time; None without a limit."""
    words = (view.text(path) or "").split()
    if path.endswith("cfs_quota_us"):
        words.append(view.text(path.replace("quota", "period")) or "")
    quota, period = (integer(word) for word in words) if len(words) == 2 else (None, None)
    return quota / period if quota and period and quota > 0 else None


def _bytes(view: View, path: str) -> int | None:
    number = view.number(path)
    return number if number is not None and 0 <= number < _UNLIMITED else None


def limits(view: View) -> Facts:
    """Soft and hard of each resource limit (ulimit), as the kernel names them."""
    text = view.text(view.of_subject("limits"), "confinement.limits") or ""
    return {
        name.replace(" ", "_"): {"soft": _amount(soft), "hard": _amount(hard)}
        for name, soft, hard in _LIMIT.findall(text)
    }


def _amount(text: str) -> int | str:
    number = integer(text)
    return text if number is None else number

"""The hardware and software of a node as plain JSON: what a run ran on, so that two runs can be told apart.

    {"host": "n1", "kernel": {"release": "6.1.0-21-amd64", …}, "cpu": {…}, …, "unseen": [{"what": …, "reason": …}]}

Files are read and nothing else: no program is started, no network asked. Each subject is a module of facts/; one that
cannot be read is named in `unseen` and takes nothing else with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from sonde.errors import SondeError
from sonde.hostfs import HostFS
from sonde.jobs.differences import Difference, among, differences
from sonde.jobs.facts import accelerators, confinement, cpu, environment, memory, network, software, storage, system
from sonde.jobs.facts.view import View
from sonde.version import VERSION

__all__ = ["Difference", "among", "differences", "gather"]

FORMAT = 1

_SUBJECTS: dict[str, Callable[[View], Any]] = {
    "kernel": system.kernel,
    "distribution": system.distribution,
    "machine": system.machine,
    "cpu": cpu.read,
    "memory": memory.read,
    "accelerators": accelerators.read,
    "network": network.read,
    "infiniband": network.infiniband,
    "filesystems": storage.filesystems,
    "disks": storage.disks,
    "clock": system.clock,
    "confinement": confinement.read,
    "scheduler": environment.scheduler,
    "environment": environment.read,
}

_PRIVATE = ("confinement", "scheduler", "environment", "software")


def gather(host: HostFS, pids: Sequence[int] = (), *, private: bool = True) -> dict[str, Any]:
    """What this node is. Of `pids`, a job's processes, the first stands for the job: its limits, cgroup, environment.

    Without `private` what belongs to a process is left out: whoever asks may not be the one whose it is.
    """
    view = View(host, str(pids[0]) if pids else "self")
    found: dict[str, Any] = {
        "format": FORMAT,
        "host": view.text("proc/sys/kernel/hostname") or "",
        "time_ns": time.time_ns(),
        "sonde": VERSION,
    }
    subjects: dict[str, Callable[[View], Any]] = {
        **_SUBJECTS,
        "software": lambda view: software.read(view, pids),
    }
    for name, read in subjects.items():
        if name in _PRIVATE and not private:
            continue
        try:
            found[name] = read(view)
        except (SondeError, OSError) as error:
            view.miss(name, error)
    found["unseen"] = [{"what": item.what, "reason": item.reason} for item in view.unseen]
    return found

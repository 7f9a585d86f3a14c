"""What a job asked for on this node, from the variables its batch system has set.

SLURM_JOB_CPUS_PER_NODE=8(x2),4  SLURM_NODEID=2     4 CPUs on this node, the third
SLURM_MEM_PER_NODE=64000                            MiB; or SLURM_MEM_PER_CPU
SLURM_JOB_END_TIME, SLURM_JOB_START_TIME            seconds since the epoch
NCPUS=8                                             PBS
OAR_JOB_WALLTIME_SECONDS=7200, OAR_NODEFILE         OAR: a line per core
"""

from __future__ import annotations

import re

from sonde.schedulers.job import Environ

_RUN = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")
_MIB = 2**20
_NODES = 1_000_000  # more than any machine has

Asked = dict[str, int]


def parse_per_node(text: str, index: int) -> int | None:
    """The number of the node with this index in `8(x2),4`; None when it makes no sense."""
    for part in text.split(","):
        found = _RUN.fullmatch(part)
        if found is None:
            return None
        index -= min(int(found[2] or 1), _NODES)
        if index < 0:
            return int(found[1])
    return None


def asked(scheduler: str, environ: Environ, node: str = "") -> Asked:
    """cpus, memory_bytes, gpus and seconds, each where it is known; of this node, but for the seconds."""
    of = {"slurm": _slurm, "pbs": _pbs, "oar": _oar}.get(scheduler)
    found = of(environ, node) if of is not None else {}
    return {key: value for key, value in found.items() if value is not None}


def _slurm(environ: Environ, node: str) -> dict[str, int | None]:
    index = _number(environ, "SLURM_NODEID") or 0
    cpus = parse_per_node(environ.get("SLURM_JOB_CPUS_PER_NODE", ""), index) or _number(environ, "SLURM_CPUS_ON_NODE")
    memory = _number(environ, "SLURM_MEM_PER_NODE")
    per_cpu = _number(environ, "SLURM_MEM_PER_CPU")
    if memory is None and per_cpu is not None and cpus is not None:
        memory = per_cpu * cpus
    begin, end = _number(environ, "SLURM_JOB_START_TIME"), _number(environ, "SLURM_JOB_END_TIME")
    gpus = environ.get("SLURM_JOB_GPUS", "")
    return {
        "cpus": cpus,
        "memory_bytes": memory * _MIB if memory else None,  # 0: all of the node's
        "gpus": len(gpus.split(",")) if gpus else _number(environ, "SLURM_GPUS_ON_NODE"),
        "seconds": end - begin if begin is not None and end is not None and end > begin else None,
    }


def _pbs(environ: Environ, node: str) -> dict[str, int | None]:
    return {"cpus": _number(environ, "NCPUS"), "seconds": _number(environ, "PBS_WALLTIME")}  # the latter: Torque's


def _oar(environ: Environ, node: str) -> dict[str, int | None]:
    return {"cpus": _lines(environ, node), "seconds": _number(environ, "OAR_JOB_WALLTIME_SECONDS")}


def _lines(environ: Environ, node: str) -> int | None:
    """How often the node file names this node: once for each core."""
    try:
        with open(environ.get("OAR_NODEFILE", ""), encoding="utf-8", errors="replace") as file:
            names = [line.strip().partition(".")[0] for line in file]
    except OSError:
        return None
    return names.count(node.partition(".")[0]) or None


def _number(environ: Environ, name: str) -> int | None:
    text = environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None

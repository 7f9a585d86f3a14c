"""In what nodes or runs differ, of what they are: the contexts side by side, most telling first.

    n3: kernel.release 6.1.0-18-amd64 (others 6.1.0-21-amd64)

What is different on every machine and tells nothing is left out: names, times, addresses of buses, ranks, processes. A
size counts as different beyond one part in a hundred: firmware keeps a little more memory on one board than another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Context = Mapping[str, Any]

ABSENT = "absent"
_TOLERANCE = 0.01  # of sizes
# Never the same on two machines, or only while it is looked at.
_IDLE = re.compile(
    r"format|host|time_ns|sonde|unseen\..*|scheduler\.job|confinement\.cgroup"
    r"|accelerators\.devices\..*\.link|environment\.(redacted|others)"
    r"|environment\.variables\.(HOSTNAME|RANK|LOCAL_RANK|GROUP_RANK|NODE_RANK|MASTER_PORT|TMPDIR|PALS_.*RANKID"
    r"|SLURM_(PROCID|NODEID|LOCALID|GTIDS|TASK_PID|TOPOLOGY_ADDR|LAUNCH_NODE_IPADDR|SRUN_COMM_.*|STEP_LAUNCHER_PORT"
    r"|STEPID|STEP_ID|JOB_ID|JOBID|JOB_START_TIME|JOB_END_TIME|CPU_BIND.*|MEM_BIND.*|STEP_RESV_PORTS|SUBMIT_HOST)"
    r"|(PMI|PMIX|PMI2|OMPI|MPICH|I_MPI|FLUX)_.*(RANK|FD|PORT|NAMESPACE|URI|SERVER|FILE|JOBID|HOSTNAME|TMPDIR).*"
    r"|PBS_(JOBID|NODEFILE|NODENUM|TASKNUM|VNODENUM|JOBCOOKIE|MOMPORT|JOBDIR)|OAR_(JOB_ID|JOBID|NODEFILE|NODE_FILE|KEY)"
    r"|TORCHELASTIC_(RUN_ID|ERROR_FILE|RESTART_COUNT)|KUBERNETES_.*)"
)
# What decides most about how fast a job runs comes first.
_ORDER = (
    *("cpu", "accelerators", "memory", "confinement", "kernel", "infiniband", "network", "machine", "filesystems"),
    *("disks", "software", "environment", "distribution", "clock", "scheduler"),
)


class Group(NamedTuple):
    """Those of which something is the same."""

    value: Any  # ABSENT where it is not known
    hosts: tuple[str, ...]


class Difference(NamedTuple):
    """One fact that is not the same everywhere."""

    subject: str  # dotted: kernel.release
    groups: tuple[Group, ...]  # the largest first; at least two

    @property
    def usual(self) -> Group | None:
        """What more than half of all have; None when there is no such thing."""
        total = sum(len(group.hosts) for group in self.groups)
        first = self.groups[0]
        return first if total > 2 and 2 * len(first.hosts) > total else None

    @property
    def text(self) -> str:
        """`n3: kernel.release 6.1.0-18 (others 6.1.0-21)`; without a majority, who has what."""
        usual = self.usual
        if usual is None:
            sides = "; ".join(f"{_shown(group.value)} on {_listed(group.hosts)}" for group in self.groups)
            return f"{self.subject}: {sides}"
        odd = [group for group in self.groups if group is not usual]
        return "\n".join(
            f"{_listed(group.hosts)}: {self.subject} {_shown(group.value)} (others {_shown(usual.value)})"
            for group in odd
        )


def differences(a: Context, b: Context, names: tuple[str, str] = ("", "")) -> list[Difference]:
    """In what two nodes differ, or one node at two times. `names` are what they are called, else their hosts."""
    first = names[0] or str(a.get("host") or "a")
    second = names[1] or str(b.get("host") or "b")
    if first == second:
        first, second = f"{first} (a)", f"{second} (b)"
    return among({first: a, second: b})


def among(contexts: Mapping[str, Context]) -> list[Difference]:
    """In what many nodes differ: who is not like the others."""
    flat = {host: dict(_flattened(context)) for host, context in contexts.items()}
    subjects = {subject: None for facts in flat.values() for subject in facts}
    found = []
    for subject in subjects:
        groups = _grouped({host: facts.get(subject, ABSENT) for host, facts in flat.items()})
        if len(groups) > 1:
            found.append(Difference(subject, tuple(groups)))
    return _without_parts(sorted(found, key=_weight))


def _grouped(values: Mapping[str, Any]) -> list[Group]:
    groups: list[tuple[Any, list[str]]] = []
    for host, value in values.items():
        for known, hosts in groups:
            if _alike(known, value):
                hosts.append(host)
                break
        else:
            groups.append((value, [host]))
    made = [Group(value, tuple(hosts)) for value, hosts in groups]
    return sorted(made, key=lambda group: -len(group.hosts))


def _alike(one: Any, other: Any) -> bool:
    if type(one) is int and type(other) is int and max(one, other) > 1_000_000:
        return bool(abs(one - other) <= _TOLERANCE * max(one, other))
    return bool(one == other)


def _flattened(context: Context) -> Iterator[tuple[str, Any]]:
    for subject, value in _leaves("", context):
        if not _IDLE.fullmatch(subject):
            yield subject, value


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if path == "accelerators.devices":
        yield from _counted_devices(path, value)
    elif path == "software.programs":
        yield from _programs(path, value)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(f"{path}.{name}" if path else str(name), inner)
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        yield path, "; ".join(sorted(" ".join(map(str, item.values())) for item in value if isinstance(item, Mapping)))
    elif isinstance(value, list):
        yield path, tuple(map(str, value))
    else:
        yield path, value


def _counted_devices(path: str, devices: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Cards by kind: which slot a card is in tells nothing, how many there are and how they are attached does."""
    kinds: dict[str, int] = {}
    for device in devices:
        name = device.get("name") or f"{device.get('vendor')} {device.get('device')}"
        kind = ", ".join(filter(None, (name, device.get("driver"), device.get("max_link"))))
        kinds[kind] = kinds.get(kind, 0) + 1
    yield path, "; ".join(f"{count} × {kind}" for kind, count in sorted(kinds.items()))


def _programs(path: str, programs: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """By the program's name; the number of its processes is for the metrics to tell."""
    for program in programs:
        name = str(program.get("executable", "")).rpartition("/")[2].replace(".", "_")
        for part in ("libraries", "packages"):
            yield from _leaves(f"{path}.{name}.{part}", program.get(part, {}))


def _weight(difference: Difference) -> tuple[int, str]:
    subject = difference.subject.partition(".")[0]
    return (_ORDER.index(subject) if subject in _ORDER else len(_ORDER), difference.subject)


def _without_parts(found: list[Difference]) -> list[Difference]:
    """A device, mount or link that some lack altogether is told once, not once for each of its attributes."""
    absent: dict[tuple[str, tuple[str, ...]], list[Difference]] = {}
    for item in found:
        lacking = next((group.hosts for group in item.groups if group.value == ABSENT), None)
        rest = item.subject.partition(".")[2]
        if lacking is not None and "." in rest:
            absent.setdefault((item.subject.rpartition(".")[0], lacking), []).append(item)
    dropped = {id(item) for items in absent.values() if len(items) > 2 for item in items[1:]}
    return [item for item in found if id(item) not in dropped]


def _shown(value: Any) -> str:
    return " ".join(value) if isinstance(value, tuple) else str(value)


def _listed(hosts: Sequence[str]) -> str:
    return ", ".join(hosts) if len(hosts) <= 4 else f"{', '.join(hosts[:3])} and {len(hosts) - 3} more"

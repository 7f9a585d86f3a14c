"""The context of a node for people: a line per matter, lists cut to what fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sonde.cli.terminal import paint, table
from sonde.jobs.differences import Difference
from sonde.units import human_bytes

_MOST = 8  # entries of a list
_WIDE = 110  # characters of a line
_LIMITS = ("open_files", "processes", "locked_memory", "stack_size", "core_file_size")

Facts = Mapping[str, Any]


def render(context: Facts) -> str:
    rows = [["host", str(context.get("host") or "")]]
    for name, lines in _SUBJECTS.items():
        facts = context.get(name)
        if facts:
            rows += [[name if number == 0 else "", line] for number, line in enumerate(lines(facts))]
    parts = [table([[name, _cut(text)] for name, text in rows if text])]
    unseen = context.get("unseen") or ()
    if unseen:
        parts.append(paint("not seen", "bold"))
        parts.append("\n".join(f"  {item['what']}: {item['reason']}" for item in unseen[:_MOST]))
        if len(unseen) > _MOST:
            parts.append(f"  and {len(unseen) - _MOST} more: --json")
    return "\n".join(parts)


def render_differences(found: Sequence[Difference], nodes: int) -> str:
    if not found:
        return paint(f"{nodes} nodes, no difference", "green")
    head = paint(f"{nodes} nodes, {len(found)} difference{'s' if len(found) > 1 else ''}", "yellow")
    lines = [_cut(line, 200) for item in found for line in item.text.split("\n")]
    return "\n".join([head, *[f"  {line}" for line in lines]])


def _cut(text: str, width: int = _WIDE) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _joined(*parts: object) -> str:
    return ", ".join(str(part) for part in parts if part not in (None, "", (), []))


def _kernel(facts: Facts) -> list[str]:
    return [_joined(facts.get("release"), facts.get("architecture")), str(facts.get("command_line") or "")]


def _machine(facts: Facts) -> list[str]:
    kind = f"virtual machine ({facts.get('hypervisor')})" if facts.get("virtual") else ""
    return [_joined(facts.get("vendor"), facts.get("product"), facts.get("bios"), kind)]


def _cpu(facts: Facts) -> list[str]:
    frequency = facts.get("frequency") or {}
    caches = facts.get("caches") or {}
    weak = [name for name, state in (facts.get("mitigations") or {}).items() if str(state).startswith("Vulnerable")]
    return [
        _joined(facts.get("model_name"), facts.get("microarchitecture"), facts.get("level"), facts.get("target")),
        _joined(
            _counted(facts, "sockets", "socket"),
            _counted(facts, "cores", "core"),
            _counted(facts, "threads", "thread"),
            _counted(facts, "numa_nodes", "NUMA node"),
            f"SMT {facts['smt']}" if "smt" in facts else "",
        ),
        _joined(*[f"{name} {one['instances']} × {human_bytes(one['size_bytes'])}" for name, one in caches.items()]),
        _joined(
            f"governor {frequency['governor']}" if "governor" in frequency else "",
            f"{frequency['min_hertz'] / 1e9:.1f} to {frequency['max_hertz'] / 1e9:.1f} GHz"
            if {"min_hertz", "max_hertz"} <= frequency.keys()
            else "",
            f"boost {frequency['boost']}" if "boost" in frequency else "",
        ),
        f"without a mitigation: {_joined(*weak)}" if weak else "",
    ]


def _counted(facts: Facts, name: str, noun: str) -> str:
    count = facts.get(name)
    return "" if count is None else f"{count} {noun}{'' if count == 1 else 's'}"


def _memory(facts: Facts) -> list[str]:
    dimms = facts.get("dimms") or ()
    pages = {size: count for size, count in (facts.get("huge_pages") or {}).items() if count}
    return [
        _joined(
            human_bytes(facts["total_bytes"]) if "total_bytes" in facts else "",
            f"swap {human_bytes(facts['swap_bytes'])}" if facts.get("swap_bytes") else "no swap",
            f"transparent huge pages {facts.get('transparent_huge_pages', 'unknown')}",
            *[f"{count} pages of {size}" for size, count in pages.items()],
        ),
        _joined(*[f"{one['count']} × {human_bytes(one['size_bytes'])} {one.get('type', '')}".strip() for one in dimms]),
    ]


def _confinement(facts: Facts) -> list[str]:
    limits = facts.get("limits") or {}
    container = facts.get("container") or {}
    return [
        _joined(
            f"CPUs {facts['cpus_allowed']}" if "cpus_allowed" in facts else "",
            f"quota {facts['cpu_quota']:g} CPUs" if "cpu_quota" in facts else "no CPU quota",
            f"memory {human_bytes(facts['memory_limit_bytes'])}"
            if "memory_limit_bytes" in facts
            else "no memory limit",
            f"in a container ({container['runtime']})" if container else "",
        ),
        _joined(*[f"{name.replace('_', ' ')} {limits[name]['soft']}" for name in _LIMITS if name in limits]),
    ]


def _accelerators(facts: Facts) -> list[str]:
    kinds: dict[str, int] = {}
    for one in facts.get("devices") or ():
        name = one.get("name") or f"{one.get('vendor')} {one.get('device')}"
        kinds[name] = kinds.get(name, 0) + 1
    drivers = [f"{name} driver {version}" for name, version in (facts.get("drivers") or {}).items()]
    return [_joined(*[f"{count} × {name}" for name, count in kinds.items()], *drivers)]


def _network(facts: Facts) -> list[str]:
    return [
        f"{name}: "
        + _joined(
            one.get("state"),
            f"{one['bits_per_second'] / 1e9:g} Gbit/s" if "bits_per_second" in one else "",
            f"mtu {one.get('mtu')}",
            one.get("driver"),
        )
        for name, one in list(facts.items())[:_MOST]
    ]


def _infiniband(facts: Facts) -> list[str]:
    return [
        f"{name}: {_joined(one.get('state'), one.get('rate'), one.get('link_layer'), one.get('firmware'))}"
        for name, one in list(facts.items())[:_MOST]
    ]


def _filesystems(facts: Facts) -> list[str]:
    return [
        f"{point}: "
        + _joined(one["type"], human_bytes(one["size_bytes"]) if "size_bytes" in one else one.get("device"))
        for point, one in list(facts.items())[:_MOST]
    ]


def _disks(facts: Facts) -> list[str]:
    spins = {True: "rotational", False: "solid state"}
    return [
        f"{name}: "
        + _joined(
            one.get("model"),
            human_bytes(one["size_bytes"]) if "size_bytes" in one else "",
            spins.get(one.get("rotational", ""), ""),
            f"scheduler {one['scheduler']}" if "scheduler" in one else "",
        )
        for name, one in list(facts.items())[:_MOST]
    ]


def _clock(facts: Facts) -> list[str]:
    return [_joined(facts.get("source"), "synchronised" if facts.get("synchronised") else "")]


def _software(facts: Facts) -> list[str]:
    own = facts.get("interpreter") or {}
    lines = [_joined(f"sonde runs in Python {own.get('version')}", *_versions(own.get("packages")))]
    for one in facts.get("programs") or ():
        told = _joined(*_versions(one.get("packages")), *_versions(one.get("libraries")))
        lines.append(f"{one['executable']} × {one['processes']}{': ' if told else ''}{told}")
    return lines


def _versions(found: Facts | None) -> list[str]:
    return [f"{name} {version}" for name, version in (found or {}).items()]


def _scheduler(facts: Facts) -> list[str]:
    return [_joined(facts.get("name"), f"job {facts['job']}" if "job" in facts else "")]


def _environment(facts: Facts) -> list[str]:
    shown = facts.get("variables") or {}
    few = [f"{name}={value}" for name, value in shown.items() if not name.endswith("PATH")]
    hidden = len(facts.get("others") or ())
    more = f"and {len(few) - _MOST} more; " if len(few) > _MOST else ""
    return [*few[:_MOST], f"{more}{hidden} others are not kept" if hidden else ""]


def _distribution(facts: Facts) -> list[str]:
    return [str(facts.get("name") or _joined(facts.get("id"), facts.get("version")))]


_SUBJECTS: dict[str, Callable[[Facts], list[str]]] = {
    "machine": _machine,
    "cpu": _cpu,
    "memory": _memory,
    "accelerators": _accelerators,
    "infiniband": _infiniband,
    "network": _network,
    "filesystems": _filesystems,
    "disks": _disks,
    "kernel": _kernel,
    "distribution": _distribution,
    "clock": _clock,
    "confinement": _confinement,
    "scheduler": _scheduler,
    "software": _software,
    "environment": _environment,
}

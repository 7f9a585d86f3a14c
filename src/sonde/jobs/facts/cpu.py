"""The CPUs of a node: design, topology, caches, frequency and mitigations, from /proc/cpuinfo and /sys.

    /sys/devices/system/cpu/online                          0-63
    /sys/devices/system/cpu/cpu0/topology/core_cpus_list    0,32         the threads of its core
    /sys/devices/system/cpu/cpu0/cache/index3/size          262144K
    /sys/devices/system/cpu/vulnerabilities/meltdown        Not affected

A cache that is shared is read once for all who share it: of 192 CPUs that is a tenth of the files.
"""

from __future__ import annotations

from sonde.errors import Unavailable
from sonde.jobs.facts import microarchitecture
from sonde.jobs.facts.view import Facts, View, fields, integer, parse_list, present

_SYSTEM = "sys/devices/system/cpu"
_FIRST_CPU = 16384  # bytes of /proc/cpuinfo: those of one CPU are 1.5 to 3 kB
_TYPES = {"Data": "d", "Instruction": "i", "Unified": ""}
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def read(view: View) -> Facts:
    info = fields(view.beginning("proc/cpuinfo", _FIRST_CPU).partition("\n\n")[0])
    online = parse_list(view.text(f"{_SYSTEM}/online") or "")
    if not info and not online:
        raise Unavailable(f"neither /proc/cpuinfo nor /{_SYSTEM} can be read")
    features = set((info.get("flags") or info.get("Features") or "").split())
    return present(
        {
            **_design(info, features),
            **_topology(view, online),
            "smt": view.text(f"{_SYSTEM}/smt/control"),
            "numa_nodes": len(_nodes(view)) or None,
            "isolated": view.text(f"{_SYSTEM}/isolated") or None,
            "caches": caches(view, online),
            "frequency": _frequency(view),
            "mitigations": view.attributes(
                f"{_SYSTEM}/vulnerabilities", view.names(f"{_SYSTEM}/vulnerabilities", "cpu.mitigations")
            ),
            "features": sorted(features),
        }
    )


def _design(info: dict[str, str], features: set[str]) -> Facts:
    return {
        "vendor": info.get("vendor_id") or info.get("CPU implementer"),
        "model_name": info.get("model name"),
        "family": integer(info.get("cpu family", "")),
        "model": integer(info.get("model", "")),
        "stepping": integer(info.get("stepping", "")),
        "microcode": info.get("microcode"),
        "microarchitecture": microarchitecture.named(info),
        "target": microarchitecture.target(info, features),
        "level": microarchitecture.level(features),
    }


def _topology(view: View, online: list[int]) -> Facts:
    packages: set[str] = set()
    cores: set[str] = set()
    for cpu in online:
        found = view.attributes(
            f"{_SYSTEM}/cpu{cpu}/topology", ("physical_package_id", "core_cpus_list", "thread_siblings_list")
        )
        packages.add(found.get("physical_package_id", ""))
        cores.add(found.get("core_cpus_list") or found.get("thread_siblings_list") or "")
    known = online and "" not in packages and "" not in cores
    return {
        "sockets": len(packages) if known else None,
        "cores": len(cores) if known else None,
        "threads": len(online) or None,
        "threads_per_core": max(len(parse_list(core)) for core in cores) if known else None,
        "online": view.text(f"{_SYSTEM}/online"),
        "offline": view.text(f"{_SYSTEM}/offline") or None,
    }


def _nodes(view: View) -> list[str]:
    return [name for name in view.names("sys/devices/system/node") if name[:4] == "node" and name[4:].isdigit()]


def caches(view: View, online: list[int]) -> Facts:
    """Size of one and number of instances, by level and type: L1d, L1i, L2, L3."""
    found: Facts = {}
    covered: dict[str, set[int]] = {}  # by index: the CPUs whose cache has been counted
    for cpu in online:
        folder = f"{_SYSTEM}/cpu{cpu}/cache"
        for index in (name for name in _indexes(view, folder) if cpu not in covered.setdefault(name, set())):
            one = view.attributes(f"{folder}/{index}", ("level", "type", "size", "shared_cpu_list"))
            size = _size(one.get("size", ""))
            if size is None or "level" not in one:
                continue
            covered[index].update(parse_list(one.get("shared_cpu_list", "")))
            name = f"L{one['level']}{_TYPES.get(one.get('type', ''), '')}"
            entry = found.setdefault(name, {"size_bytes": size, "instances": 0})
            entry["instances"] += 1
    return dict(sorted(found.items()))


def _indexes(view: View, folder: str) -> list[str]:
    return [name for name in view.names(folder) if name.startswith("index")]


def _size(text: str) -> int | None:
    number = integer(text[:-1]) if text[-1:] in _UNITS else integer(text)
    return None if number is None else number * _UNITS.get(text[-1:], 1)


def _frequency(view: View) -> Facts:
    policies = [name for name in view.names(f"{_SYSTEM}/cpufreq") if name.startswith("policy")]
    wanted = ("scaling_governor", "scaling_driver", "cpuinfo_min_freq", "cpuinfo_max_freq", "scaling_max_freq")
    rows = [view.attributes(f"{_SYSTEM}/cpufreq/{policy}", wanted) for policy in policies]
    return present(
        {
            "governor": _common(rows, "scaling_governor"),
            "driver": _common(rows, "scaling_driver"),
            "min_hertz": _hertz(rows, "cpuinfo_min_freq"),
            "max_hertz": _hertz(rows, "cpuinfo_max_freq"),
            "limit_hertz": _hertz(rows, "scaling_max_freq"),
            "boost": _boost(view),
        }
    )


def _common(rows: list[dict[str, str]], name: str) -> str | None:
    """What all policies say, or each word of those that differ."""
    return ", ".join(sorted({row[name] for row in rows if name in row})) or None


def _hertz(rows: list[dict[str, str]], name: str) -> int | None:
    """The largest of all policies, in kHz there: cores of two kinds have two ranges."""
    numbers = [number for row in rows if (number := integer(row.get(name, ""))) is not None]
    return max(numbers) * 1000 if numbers else None


def _boost(view: View) -> str | None:
    no_turbo = view.text(f"{_SYSTEM}/intel_pstate/no_turbo")
    if no_turbo is not None:
        return "off" if no_turbo == "1" else "on"
    boost = view.text(f"{_SYSTEM}/cpufreq/boost")
    return None if boost is None else "on" if boost == "1" else "off"

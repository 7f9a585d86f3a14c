"""The memory of a node: how much, on which NUMA node, in which pages, from /proc/meminfo and /sys.

/proc/meminfo                                        MemTotal:       24682416 kB
/sys/devices/system/node/node0/meminfo               Node 0 MemTotal:       24682416 kB
/sys/kernel/mm/transparent_hugepage/enabled          always [madvise] never
/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages    0
"""

from __future__ import annotations

import re

from sonde.errors import Unavailable
from sonde.jobs.facts import dimms
from sonde.jobs.facts.view import Facts, View, fields, kilobytes, present

_NODES = "sys/devices/system/node"
_CHOSEN = re.compile(r"\[(\S+)\]")
_PAGES = "sys/kernel/mm/hugepages"
_TUNABLES = ("overcommit_memory", "swappiness", "zone_reclaim_mode")


def read(view: View) -> Facts:
    text = view.text("proc/meminfo")
    if text is None:
        raise Unavailable("/proc/meminfo cannot be read")
    total = fields(text)
    return present(
        {
            "total_bytes": kilobytes(total.get("MemTotal")),
            "swap_bytes": kilobytes(total.get("SwapTotal")),
            "numa": _numa(view),
            "transparent_huge_pages": _chosen(view, "enabled"),
            "transparent_huge_page_defrag": _chosen(view, "defrag"),
            "huge_pages": _huge_pages(view),
            **{name: view.number(f"proc/sys/vm/{name}") for name in _TUNABLES},
            "numa_balancing": view.number("proc/sys/kernel/numa_balancing"),
            "dimms": dimms.read(view),
        }
    )


def _numa(view: View) -> Facts:
    found = {}
    for name in view.names(_NODES):
        if name[:4] != "node" or not name[4:].isdigit():
            continue
        lines = fields(view.text(f"{_NODES}/{name}/meminfo") or "")
        size = next((value for key, value in lines.items() if key.endswith(" MemTotal")), None)
        found[name[4:]] = present(
            {
                "total_bytes": kilobytes(size),
                "cpus": view.text(f"{_NODES}/{name}/cpulist"),
                "distances": view.text(f"{_NODES}/{name}/distance"),
            }
        )
    return found


def _chosen(view: View, file: str) -> str | None:
    """The word in brackets among those there are."""
    match = _CHOSEN.search(view.text(f"sys/kernel/mm/transparent_hugepage/{file}") or "")
    return match[1] if match else None


def _huge_pages(view: View) -> Facts:
    """How many of each size are set aside."""
    found = {}
    for name in view.names(_PAGES):
        count = view.number(f"{_PAGES}/{name}/nr_hugepages")
        if count is not None:
            found[name.removeprefix("hugepages-")] = count
    return found

"""The event sets of the data files beside this module, one per microarchitecture, and generic.toml for all of them.

    [[match]]                                      which processors it is for: family and models of x86 (a list, or
    family = 6                                     first_model to last_model), implementer and parts of Arm
    models = [0x55]
    [[groups]]                                     what is counted together, so that ratios are of the same moments
    name = "l3"
    events = ["l2_lines_in_all", "l2_trans_l2_wb"]
    [events.l2_lines_in_all]                       what the hardware calls it and how it is selected
    name = "L2_LINES_IN.ALL"
    event = 0xf1
    umask = 0x1f
    [formulas.l3_bandwidth]                        what follows from it; `seconds` is the time counted over
    group = "l3"
    expression = "64 * (l2_lines_in_all + l2_trans_l2_wb) / seconds"

Groups and formulas of generic.toml come first; one of the same name takes their place. Each file names its sources.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sonde.counters.microarchitecture import Cpu
from sonde.errors import ParseError

GENERIC = "generic"
_MARKS = ("in_kernel", "of_tasks")
_IDENTIFIER = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_FOLDER = os.path.dirname(__file__)
# include/uapi/linux/perf_event.h, enum perf_type_id
HARDWARE, SOFTWARE, RAW = 0, 1, 4


class Event(NamedTuple):
    key: str  # the name it has in labels and formulas
    name: str  # what its maker calls it
    type: int
    config: int
    config1: int = 0
    in_kernel: bool = False  # happens in the kernel only: without its part the count would be 0
    of_tasks: bool = False  # means something for tasks only: of a whole CPU, task-clock is the time that passes


class Group(NamedTuple):
    name: str
    events: tuple[Event, ...]


class Derived(NamedTuple):
    """What can be derived: a formula over the events of a group."""

    name: str
    group: str
    expression: str
    unit: str
    help: str


class Catalogue(NamedTuple):
    key: str
    title: str
    vendor: str
    sources: tuple[str, ...]
    caveats: tuple[str, ...]
    groups: tuple[Group, ...]
    formulas: tuple[Derived, ...]


def names() -> list[str]:
    """Every microarchitecture there is a file for, the generic one last."""
    found = sorted(name.removesuffix(".toml") for name in os.listdir(_FOLDER) if name.endswith(".toml"))
    return [*(name for name in found if name != GENERIC), GENERIC]


def find(cpu: Cpu) -> str:
    """The microarchitecture of a processor; the generic one when there is no file for it."""
    if cpu.vendor:
        for name in names():
            table = _head(name)
            if table["vendor"] == cpu.vendor and any(_matches(cpu, match) for match in table.get("match", ())):
                return name
    return GENERIC


def load(name: str) -> Catalogue:
    """The event set of a microarchitecture with what every processor has. Raises KeyError for an unknown name."""
    if name not in names():
        raise KeyError(name)
    own, base = _table(name), _table(GENERIC)
    tables = [base] if name == GENERIC else [base, own]
    vendor = own["vendor"]
    events = {key: _event(key, entry, vendor) for table in tables for key, entry in table.get("events", {}).items()}
    groups = {entry["name"]: entry["events"] for table in tables for entry in table.get("groups", ())}
    formulas = {key: entry for table in tables for key, entry in table.get("formulas", {}).items()}
    try:
        return Catalogue(
            name,
            own["title"],
            vendor,
            tuple(text for table in tables for text in table["sources"]),
            tuple(text for table in tables for text in table.get("caveats", ())),
            tuple(Group(group, tuple(events[key] for key in keys)) for group, keys in groups.items()),
            tuple(
                Derived(key, entry["group"], entry["expression"], entry["unit"], entry["help"])
                for key, entry in formulas.items()
                if _covered(entry["expression"], groups)
            ),
        )
    except KeyError as error:
        raise ParseError(f"counters/{name}.toml", error) from None


def _covered(expression: str, groups: Mapping[str, Iterable[str]]) -> bool:
    """Is all that a formula needs in some group? A group that took the place of a generic one may lack its events."""
    counted = {event for events in groups.values() for event in events}
    return set(_IDENTIFIER.findall(expression)) <= counted | {"seconds", "min", "max"}


def _table(name: str) -> dict[str, Any]:
    import tomllib  # half a megabyte that only counting needs

    return tomllib.loads(_text(name))


def _head(name: str) -> dict[str, Any]:
    """What stands before the groups: whom a file is for. All files take 27 ms to parse, their heads a few."""
    import tomllib

    return tomllib.loads(_text(name).partition("[[groups]]")[0])


def _text(name: str) -> str:
    with open(os.path.join(_FOLDER, f"{name}.toml"), encoding="utf-8") as file:
        return file.read()


def _matches(cpu: Cpu, match: Mapping[str, Any]) -> bool:
    if "implementer" in match:
        return bool(cpu.implementer == match["implementer"] and cpu.part in match["parts"])
    if cpu.family != match["family"] or cpu.stepping not in match.get("steppings", (cpu.stepping,)):
        return False
    if "models" in match:
        return cpu.model in match["models"]
    return bool(match.get("first_model", 0) <= cpu.model <= match.get("last_model", cpu.model))


def _event(key: str, entry: Mapping[str, Any], vendor: str) -> Event:
    for kind, number in (("hardware", HARDWARE), ("software", SOFTWARE)):
        if kind in entry:
            return Event(key, entry["name"], number, entry[kind], 0, *(entry.get(mark, False) for mark in _MARKS))
    config = raw_config(vendor, entry["event"], entry.get("umask", 0), entry.get("cmask", 0))
    return Event(key, entry["name"], RAW, config, entry.get("offcore_response", 0))


def raw_config(vendor: str, event: int, umask: int, cmask: int) -> int:
    """The selector as the kernel takes it: /sys/bus/event_source/devices/*/format.

    x86: event 0-7, umask 8-15, cmask 24-31; AMD has bits 8-11 of the event at 32-35. Arm: the event alone.
    """
    if vendor == "arm":
        return event
    return event & 0xFF | umask << 8 | cmask << 24 | (event >> 8) << 32

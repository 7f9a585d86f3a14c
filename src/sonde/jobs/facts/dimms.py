"""The memory modules of a node, from the SMBIOS table (readable by root) or from EDAC.

    /sys/firmware/dmi/tables/DMI                                structures of type 17, SMBIOS specification 7.18
    /sys/devices/system/edac/mc/mc0/dimm0/{size,dimm_mem_type}  32768 (MiB), Registered-DDR5

Serial numbers are not read: they tell machines apart, and nothing about how fast they are.
"""

from __future__ import annotations

import struct
from typing import Any

from sonde.errors import ParseError
from sonde.jobs.facts.view import Facts, View, integer, present

_TABLE = "sys/firmware/dmi/tables/DMI"
_EDAC = "sys/devices/system/edac/mc"
_MEMORY_DEVICE, _END = 17, 127
_KINDS = {0x18: "DDR3", 0x1A: "DDR4", 0x20: "HBM", 0x21: "HBM2", 0x22: "DDR5", 0x23: "LPDDR5", 0x24: "HBM3"}
_LARGER = 0x7FFF  # the size is in the field that came with version 2.7


def read(view: View) -> list[Facts]:
    """One entry per kind of module, with how many there are; empty when nothing tells."""
    data = view.data(_TABLE)
    if data:
        try:
            return _counted(parse_table(data))
        except ParseError as error:
            view.miss("memory.dimms", error)
    found = _counted(_from_edac(view))
    if not found and view.host.exists(_TABLE):
        view.miss("memory.dimms", f"/{_TABLE} may be read by root only")
    return found


def _counted(modules: list[Facts]) -> list[Facts]:
    kinds: dict[tuple[tuple[str, Any], ...], int] = {}
    for module in modules:
        key = tuple(module.items())
        kinds[key] = kinds.get(key, 0) + 1
    return [{"count": count, **dict(key)} for key, count in kinds.items()]


def parse_table(data: bytes) -> list[Facts]:
    """The modules that are plugged in; ParseError for what is no table."""
    modules: list[Facts] = []
    at = 0
    while at + 4 <= len(data):
        kind, length = data[at], data[at + 1]
        end = data.find(b"\0\0", at + length)  # of the texts that follow the fields
        if length < 4 or end < 0:
            raise ParseError(f"/{_TABLE}", data[at : at + 16], "a structure does not end")
        if kind == _MEMORY_DEVICE:
            module = _module(data[at : at + length], data[at + length : end].split(b"\0"))
            modules += [module] if module else []
        at = end + 2
        if kind == _END:
            break
    return modules


def _module(fields: bytes, texts: list[bytes]) -> Facts | None:
    if len(fields) < 0x1B:
        return None  # of a version before 2.3: neither speed nor maker
    size = int.from_bytes(fields[0x0C:0x0E], "little")
    if size in (0, 0xFFFF):
        return None  # an empty slot, or not known
    if size == _LARGER and len(fields) >= 0x20:
        bytes_ = (struct.unpack_from("<I", fields, 0x1C)[0] & 0x7FFFFFFF) << 20
    else:
        bytes_ = (size & 0x7FFF) << (10 if size & 0x8000 else 20)
    speed = int.from_bytes(fields[0x20:0x22], "little") if len(fields) >= 0x22 else 0
    return present(
        {
            "size_bytes": bytes_,
            "type": _KINDS.get(fields[0x12]),
            "transfers_per_second": (speed or int.from_bytes(fields[0x15:0x17], "little")) * 1_000_000 or None,
            "maker": _text(texts, fields[0x17]),
            "part": _text(texts, fields[0x1A]),
        }
    )


def _text(texts: list[bytes], number: int) -> str | None:
    if not 0 < number <= len(texts):
        return None
    return texts[number - 1].decode("ascii", "replace").strip() or None


def _from_edac(view: View) -> list[Facts]:
    modules = []
    for controller in (name for name in view.names(_EDAC) if name.startswith("mc")):
        for slot in (name for name in view.names(f"{_EDAC}/{controller}") if name.startswith(("dimm", "rank"))):
            found = view.attributes(f"{_EDAC}/{controller}/{slot}", ("size", "dimm_mem_type"))
            size = integer(found.get("size", ""))
            if size:
                modules.append(present({"size_bytes": size * 2**20, "type": found.get("dimm_mem_type")}))
    return modules

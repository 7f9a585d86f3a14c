"""Which processor this is, from /proc/cpuinfo: what the data files are chosen by.

    vendor_id   : GenuineIntel            x86: family, model and stepping, decimal
    cpu family  : 6
    model       : 85
    stepping    : 7

    CPU implementer : 0x41                Arm: the fields of MIDR_EL1, hexadecimal
    CPU part        : 0xd0c

(arch/x86/kernel/cpu/proc.c, arch/arm64/kernel/cpuinfo.c.) Cores of different kinds in one machine are not told apart:
the first one speaks for all.
"""

from __future__ import annotations

from typing import NamedTuple

from sonde.errors import ParseError

_VENDORS = {"GenuineIntel": "intel", "AuthenticAMD": "amd", "HygonGenuine": "hygon"}
_X86 = ("cpu family", "model", "stepping")
_ARM = ("CPU implementer", "CPU part")


class Cpu(NamedTuple):
    """`family`, `model` and `stepping` of an x86 processor, `implementer` and `part` of an Arm one; else 0."""

    vendor: str  # intel, amd, hygon, arm; empty: another
    family: int = 0
    model: int = 0
    stepping: int = 0
    implementer: int = 0
    part: int = 0


def parse_cpuinfo(text: str) -> Cpu:
    """The first processor of the text. One of a kind that has neither family nor part is Cpu("")."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if not colon:
            if fields:
                break  # a blank line ends the first processor
            continue
        fields.setdefault(name.strip(), value.strip())
    try:
        if all(name in fields for name in _X86):
            family, model, stepping = (_number(fields[name]) for name in _X86)
            return Cpu(_VENDORS.get(fields.get("vendor_id", ""), ""), family, model, stepping)
        if all(name in fields for name in _ARM):
            implementer, part = (_number(fields[name]) for name in _ARM)
            return Cpu("arm", implementer=implementer, part=part)
    except ValueError:
        raise ParseError("/proc/cpuinfo", text) from None
    return Cpu("")


def _number(text: str) -> int:
    if not text.isascii() or len(text) > 18:
        raise ValueError(text)
    return int(text, 0)

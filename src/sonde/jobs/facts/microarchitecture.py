"""What a CPU's design is called, from the numbers in /proc/cpuinfo.

    vendor_id : GenuineIntel   cpu family : 6   model : 143        sapphirerapids
    CPU implementer : 0x41     CPU part : 0xd40                    neoverse_v1

Family and model name the silicon also in a virtual machine that hides half of its features. The numbers are those of
arch/x86/include/asm/intel-family.h, of AMD's processor programming references (family and range of models) and of
arch/arm64/include/asm/cputype.h; the names are archspec's where it has one. With the package `archspec` installed the
newest design whose every feature is there is told too: what a compiler may be asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_INTEL = {  # of family 6
    0x2A: "sandybridge",
    0x2D: "sandybridge",
    0x3A: "ivybridge",
    0x3E: "ivybridge",
    0x3C: "haswell",
    0x3F: "haswell",
    0x45: "haswell",
    0x46: "haswell",
    0x3D: "broadwell",
    0x47: "broadwell",
    0x4F: "broadwell",
    0x56: "broadwell",
    0x4E: "skylake",
    0x5E: "skylake",
    0x8E: "kabylake",
    0x9E: "kabylake",
    0xA5: "cometlake",
    0xA6: "cometlake",
    0x6A: "icelake",
    0x6C: "icelake",
    0x7D: "icelake",
    0x7E: "icelake",
    0x8C: "tigerlake",
    0x8D: "tigerlake",
    0xA7: "rocketlake",
    0x97: "alderlake",
    0x9A: "alderlake",
    0xB7: "raptorlake",
    0xBA: "raptorlake",
    0xBF: "raptorlake",
    0x8F: "sapphirerapids",
    0xCF: "emeraldrapids",
    0xAD: "graniterapids",
    0xAE: "graniterapids",
    0xAF: "sierraforest",
    0xAA: "meteorlake",
    0xAC: "meteorlake",
    0x57: "mic_knl",
    0x85: "mic_knl",
}
_SKYLAKE_SERVER = 0x55  # three designs share the number; the stepping tells (arch/x86/kernel/cpu/intel.c)
_AMD = (  # family, first and last model, name
    (0x17, 0x00, 0x2F, "zen"),
    (0x17, 0x30, 0xAF, "zen2"),
    (0x19, 0x00, 0x0F, "zen3"),
    (0x19, 0x10, 0x1F, "zen4"),
    (0x19, 0x20, 0x5F, "zen3"),
    (0x19, 0x60, 0xAF, "zen4"),
    (0x1A, 0x00, 0xFF, "zen5"),
)
_ARM = {  # implementer and part
    (0x41, 0xD07): "cortex_a57",
    (0x41, 0xD08): "cortex_a72",
    (0x41, 0xD0B): "cortex_a76",
    (0x41, 0xD0C): "neoverse_n1",
    (0x41, 0xD40): "neoverse_v1",
    (0x41, 0xD49): "neoverse_n2",
    (0x41, 0xD4F): "neoverse_v2",
    (0x41, 0xD84): "neoverse_v3",
    (0x41, 0xD8E): "neoverse_n3",
    (0x46, 0x001): "a64fx",
    (0x48, 0xD01): "taishan_v110",
    (0x43, 0x0AF): "thunderx2",
    (0xC0, 0xAC3): "ampere1",
}
# Levels of the x86-64 psABI, by the names Linux gives the features in /proc/cpuinfo.
_LEVELS = (
    ("x86-64-v2", "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3"),
    ("x86-64-v3", "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"),
    ("x86-64-v4", "avx512f avx512bw avx512cd avx512dq avx512vl"),
)


def named(info: Mapping[str, str]) -> str | None:
    """The design of the first CPU of /proc/cpuinfo; None when the table does not have it."""
    vendor = info.get("vendor_id", "")
    family, model, stepping = (_number(info.get(name)) for name in ("cpu family", "model", "stepping"))
    if vendor == "GenuineIntel" and family == 6:
        return _skylake_server(stepping) if model == _SKYLAKE_SERVER else _INTEL.get(model)
    if vendor in ("AuthenticAMD", "HygonGenuine"):
        return next((name for of, first, last, name in _AMD if of == family and first <= model <= last), None)
    return _ARM.get((_number(info.get("CPU implementer")), _number(info.get("CPU part"))))


def _skylake_server(stepping: int) -> str:
    return "skylake_avx512" if stepping < 5 else "cascadelake" if stepping < 10 else "cooperlake"


def _number(text: str | None) -> int:
    try:
        return int(text or "", 0)
    except ValueError:
        return -1


def level(features: set[str]) -> str | None:
    """The highest level of x86-64 whose features and those of all below are there."""
    if "lm" not in features:
        return None
    reached = "x86-64"
    for name, needed in _LEVELS:
        if not features.issuperset(needed.split()):
            break
        reached = name
    return reached


def target(info: Mapping[str, str], features: set[str]) -> str | None:
    """The newest x86 design whose every feature is there, as archspec knows them; None without archspec."""
    try:
        from archspec.cpu import TARGETS
    except ImportError:
        return None
    known = features | ({"sse3"} if "pni" in features else set())  # Linux has SSE3 under its first name
    root = TARGETS["x86_64"]
    fitting = [
        item
        for item in TARGETS.values()
        if (item == root or root in item.ancestors)
        and item.vendor in (info.get("vendor_id"), "generic")
        and item.features <= known
    ]
    # A machine that lacks a feature of its own design (switched off, or hidden by a hypervisor) is still of the
    # highest generic level it has, not of the last old design that fits.
    levels = [item for item in fitting if item.vendor == "generic"]
    if not levels or "lm" not in features:
        return None
    highest = max(levels, key=_age)
    return str(max((item for item in fitting if item > highest), key=_age, default=highest).name)


def _age(item: Any) -> tuple[int, int]:
    return len(item.ancestors), len(item.features)

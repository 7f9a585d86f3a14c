"""Kernel, distribution, machine and clock of a node, from /proc, /etc/os-release, DMI and /sys.

/proc/sys/kernel/osrelease                            6.1.0-21-amd64
/proc/cmdline                                         BOOT_IMAGE=/vmlinuz root=/dev/sda1 quiet mitigations=off
/sys/class/dmi/id/{sys_vendor,product_name}           Dell Inc., PowerEdge R760
/sys/devices/system/clocksource/clocksource0/current_clocksource     tsc
"""

from __future__ import annotations

import re

from sonde.errors import Unavailable
from sonde.jobs.facts.secrets import redacted_options
from sonde.jobs.facts.view import Facts, View, fields, present

_KERNEL = "proc/sys/kernel"
_DMI = "sys/class/dmi/id"
_CLOCK = "sys/devices/system/clocksource/clocksource0"
_TIMESYNC = "run/systemd/timesync/synchronized"
# What a DMI vendor or product that is no machine begins with (systemd's detect-virt lists the same firmware names).
_VIRTUAL = (
    ("QEMU", "qemu"),
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("Amazon EC2", "amazon"),
    ("Google Compute Engine", "google"),
    ("VMware", "vmware"),
    ("innotek GmbH", "virtualbox"),
    ("VirtualBox", "virtualbox"),
    ("Xen", "xen"),
    ("Bochs", "bochs"),
    ("Parallels", "parallels"),
    ("Virtual Machine", "hyper-v"),
    ("Firecracker", "firecracker"),
)
_METAL = re.compile(r"\.metal\b")  # instances of EC2 without a hypervisor below them


def kernel(view: View) -> Facts:
    release = view.text(f"{_KERNEL}/osrelease")
    if release is None:
        raise Unavailable(f"/{_KERNEL}/osrelease cannot be read")
    line = view.text("proc/cmdline", "kernel.command_line")
    return present(
        {
            "release": release,
            "version": view.text(f"{_KERNEL}/version"),
            "architecture": view.text(f"{_KERNEL}/arch") or _architecture(view),
            "command_line": redacted_options(line, " ") if line else None,
            "lockdown": _bracketed(view.text("sys/kernel/security/lockdown")),
            "perf_event_paranoid": view.number(f"{_KERNEL}/perf_event_paranoid"),
        }
    )


def _architecture(view: View) -> str | None:
    """/proc/sys/kernel/arch came with Linux 6.1; before, this interpreter's own is the same unless it is a capture."""
    if view.host.root != "/":
        return None
    import os

    return os.uname().machine


def _bracketed(text: str | None) -> str | None:
    match = re.search(r"\[(\w+)\]", text or "")
    return match[1] if match else None


def distribution(view: View) -> Facts:
    text = view.text("etc/os-release") or view.text("usr/lib/os-release")
    if text is None:
        raise Unavailable("/etc/os-release cannot be read")
    found = {name: value.strip("\"'") for name, value in fields(text, "=").items()}
    return present({"id": found.get("ID"), "version": found.get("VERSION_ID"), "name": found.get("PRETTY_NAME")})


def machine(view: View) -> Facts:
    """Who made it, or what it is simulated by. Serial numbers and UUIDs are not read."""
    dmi = view.attributes(_DMI, ("sys_vendor", "product_name", "board_name", "bios_vendor", "bios_version"))
    flags = view.beginning("proc/cpuinfo", 16384)
    hypervisor = _hypervisor(view, dmi, flags)
    return present(
        {
            "vendor": dmi.get("sys_vendor"),
            "product": dmi.get("product_name"),
            "board": dmi.get("board_name"),
            "bios": " ".join(filter(None, (dmi.get("bios_vendor"), dmi.get("bios_version")))) or None,
            "virtual": None if not dmi and not flags else hypervisor is not None,
            "hypervisor": hypervisor,
        }
    )


def _hypervisor(view: View, dmi: dict[str, str], cpuinfo: str) -> str | None:
    told = view.text("sys/hypervisor/type")
    if told:
        return told
    words = f"{dmi.get('sys_vendor', '')}\n{dmi.get('product_name', '')}"
    named = next((name for mark, name in _VIRTUAL if mark in words), None)
    if named and not _METAL.search(words):
        return named
    # CPUID's hypervisor bit: Linux shows it as a feature. Which one it is, the clock source or nothing tells.
    if re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.MULTILINE):
        clocks = view.text(f"{_CLOCK}/available_clocksource") or ""
        known = {"kvm-clock": "kvm", "hyperv_clocksource_tsc_page": "hyper-v", "xen": "xen"}
        return next((name for clock, name in known.items() if clock in clocks), "unknown")
    return None


def clock(view: View) -> Facts:
    source = view.text(f"{_CLOCK}/current_clocksource")
    if source is None:
        raise Unavailable(f"/{_CLOCK}/current_clocksource cannot be read")
    synchronised = view.host.exists(_TIMESYNC) or None
    if synchronised is None:
        view.miss("clock.synchronised", "no file tells: systemd-timesyncd does not run here, chrony leaves none")
    return present(
        {
            "source": source,
            "available": (view.text(f"{_CLOCK}/available_clocksource") or "").split(),
            "synchronised": synchronised,
            "ptp_devices": len(view.names("sys/class/ptp")),
        }
    )

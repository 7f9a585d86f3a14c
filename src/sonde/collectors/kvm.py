"""Exits, wake-ups, page faults and pages of the virtual machines on this host, from /sys/kernel/debug/kvm.

    /sys/kernel/debug/kvm/exits          1829
    /sys/kernel/debug/kvm/4711-12/       the same files for one machine: pid and descriptor of its owner

A file for each statistic, summed over the machines that run (virt/kvm/kvm_main.c, kvm_vm_stats_desc and
kvm_vcpu_stats_desc in arch/x86/kvm/x86.c). When a machine ends, what it counted leaves the sums: they are counters that
begin anew, as after a restart. debugfs must be mounted, and only root may look into it. A kernel that is locked down,
as after Secure Boot, refuses even root those that can be reset, which the counters are (debugfs_locked_down in
fs/debugfs/file.c); the pages stay.
"""

from __future__ import annotations

import re
from typing import ClassVar

from sonde.config import NoKeys
from sonde.errors import Denied, ParseError, Unavailable
from sonde.hostfs import HostFS
from sonde.model import Gap, Kind, Layout, MetricSpec, Quality, Reading, Series, Unit

_FOLDER = "sys/kernel/debug/kvm"
_LOCKED = "refused even to root: the kernel is locked down (kernel_lockdown(7)), as after Secure Boot"
_MACHINE = re.compile(r"[0-9]+-[0-9]+")


def _counter(name: str, text: str) -> MetricSpec:
    return MetricSpec(f"sonde_kvm_{name}_total", Kind.COUNTER, Unit.NONE, text)


COUNTERS = {
    "exits": _counter("exits", "Times a virtual CPU left guest mode."),
    "halt_exits": _counter("halt_exits", "Exits because the guest halted."),
    "io_exits": _counter("io_exits", "Exits for a port of the guest's hardware."),
    "mmio_exits": _counter("mmio_exits", "Exits for memory of the guest's hardware."),
    "irq_exits": _counter("irq_exits", "Exits because the host was interrupted."),
    "irq_window_exits": _counter("irq_window_exits", "Exits to give the guest an interrupt."),
    "signal_exits": _counter("signal_exits", "Exits because the owner was signalled."),
    "insn_emulation": _counter("insn_emulations", "Instructions emulated."),
    "insn_emulation_fail": _counter("insn_emulation_failures", "Instructions that could not be emulated."),
    "hypercalls": _counter("hypercalls", "Calls of the guest to its host."),
    "halt_wakeup": _counter("halt_wakeups", "Times a halted CPU was woken."),
    "halt_successful_poll": _counter("halt_successful_polls", "Halts that ended while the host was polling."),
    "halt_attempted_poll": _counter("halt_attempted_polls", "Halts during which the host polled."),
    "mmu_cache_miss": _counter("mmu_cache_misses", "Shadow pages that had to be made."),
    "mmu_flooded": _counter("mmu_floods", "Shadow pages dropped for being written too often."),
    "remote_tlb_flush": _counter("remote_tlb_flushes", "Address caches flushed on other CPUs."),
    "tlb_flush": _counter("tlb_flushes", "Address caches flushed."),
}
PAGES = MetricSpec("sonde_kvm_pages", Kind.GAUGE, Unit.NONE, "Pages mapped into guests by size.", ("size",))
SIZES = {"pages_4k": "4KiB", "pages_2m": "2MiB", "pages_1g": "1GiB"}
MACHINES = MetricSpec("sonde_kvm_machines", Kind.GAUGE, Unit.NONE, "Virtual machines on this host.")
_FILES: dict[str, Series] = {
    **{file: (spec, ()) for file, spec in COUNTERS.items()},
    **{file: (PAGES, (size,)) for file, size in SIZES.items()},
}


class KvmCollector:
    Config: ClassVar[type] = NoKeys
    metrics: ClassVar[tuple[MetricSpec, ...]] = (*COUNTERS.values(), PAGES, MACHINES)
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: NoKeys) -> None:
        self._host = host
        present = set(_listed(host))
        self._names: list[str] = []
        series: list[Series] = []
        gaps: list[Gap] = []
        for name, answer in host.attributes(_FOLDER, _FILES).items():
            spec, labels = _FILES[name]
            if name not in present:
                gaps.append(Gap(spec, labels, Quality.UNSUPPORTED, "this kernel does not count it"))
            elif isinstance(answer, PermissionError):
                gaps.append(Gap(spec, labels, Quality.DENIED, _LOCKED))
            else:
                self._names.append(name)
                series.append((spec, labels))
        self._layout = Layout([*series, (MACHINES, ())])
        self._gaps = tuple(gaps)

    def collect(self) -> Reading:
        # Not kept open: the text is made once per opening, and there is no seeking (simple_attr_open, fs/libfs.c).
        found = self._host.attributes(_FOLDER, self._names)
        values = [parse_count(name, answer) for name, answer in found.items()]
        values.append(sum(_MACHINE.fullmatch(name) is not None for name in _listed(self._host)))
        return Reading(self._layout, values, (), self._gaps)

    def close(self) -> None:
        pass


def parse_count(source: str, text: bytes | OSError) -> int:
    """A number and a newline."""
    if isinstance(text, OSError):
        raise text
    if not text.strip().isdigit():
        raise ParseError(source, text)
    return int(text)


def _listed(host: HostFS) -> list[str]:
    try:
        return host.names(_FOLDER)
    except PermissionError:
        raise Denied("only root may read the statistics of KVM in debugfs", hint="run the daemon as root") from None
    except FileNotFoundError:
        if not host.exists("sys/module/kvm") and not host.exists("dev/kvm"):
            raise Unavailable("this kernel has no KVM") from None
        hint = "mount -t debugfs debugfs /sys/kernel/debug"
        raise Unavailable("KVM has its statistics in debugfs, which is not mounted", hint=hint) from None

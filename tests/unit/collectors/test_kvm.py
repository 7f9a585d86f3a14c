"""Statistics of virtual machines in debugfs."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.collectors.kvm import COUNTERS, KvmCollector, parse_count
from sonde.config import NoKeys
from sonde.errors import Denied, ParseError, Unavailable
from sonde.hostfs import HostFS
from sonde.model import Quality, Value

FOLDER = "sys/kernel/debug/kvm"


def values(collector: KvmCollector) -> dict[tuple[str, ...], Value]:
    reading = collector.collect()
    return {
        (spec.name.removeprefix("sonde_kvm_"), *labels): value
        for (spec, labels), value in zip(reading.layout, reading.values, strict=True)
    }


def test_every_statistic_has_its_value(captured: Callable[[str], HostFS]) -> None:
    collector = KvmCollector(captured("hypervisor"), NoKeys())
    found = values(collector)
    collector.close()

    assert (found["exits_total",], found["halt_exits_total",], found["mmio_exits_total",]) == (1829, 301, 44)
    assert (found["insn_emulations_total",], found["tlb_flushes_total",]) == (512, 93)
    assert (found["pages", "4KiB"], found["pages", "2MiB"], found["pages", "1GiB"]) == (1042, 511, 3)
    assert found["machines",] == 2
    assert len(found) == len(COUNTERS) + 4


def test_what_a_kernel_does_not_count_is_a_gap(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("hypervisor")
    os.unlink(host.path(f"{FOLDER}/mmu_flooded"))
    collector = KvmCollector(host, NoKeys())
    reading = collector.collect()
    collector.close()

    assert [(gap.spec.name, gap.quality) for gap in reading.gaps] == [
        ("sonde_kvm_mmu_floods_total", Quality.UNSUPPORTED)
    ]
    assert "sonde_kvm_mmu_floods_total" not in {spec.name for spec, _ in reading.layout}


class LockedDown(HostFS):
    """A kernel that refuses files of debugfs that can be written."""

    __slots__ = ()

    def attributes(self, folder: str, names: Iterable[str]) -> dict[str, bytes | OSError]:
        refused = PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        found = super().attributes(folder, names)
        return {name: answer if "pages" in name else refused for name, answer in found.items()}


def test_a_kernel_that_is_locked_down_leaves_the_pages(captured: Callable[[str], HostFS]) -> None:
    collector = KvmCollector(LockedDown(captured("hypervisor").root), NoKeys())
    reading = collector.collect()
    collector.close()

    assert {spec.name for spec, _ in reading.layout} == {"sonde_kvm_pages", "sonde_kvm_machines"}
    assert {gap.quality for gap in reading.gaps} == {Quality.DENIED}
    assert len(reading.gaps) == len(COUNTERS)


class ForRootOnly(HostFS):
    __slots__ = ()

    def names(self, name: str) -> list[str]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)


def test_an_ordinary_user_is_told_what_is_missing(captured: Callable[[str], HostFS]) -> None:
    with pytest.raises(Denied, match="root"):
        KvmCollector(ForRootOnly(captured("hypervisor").root), NoKeys())


def test_without_debugfs_the_next_step_is_to_mount_it(tmp_path: Path) -> None:
    (tmp_path / "sys/module/kvm").mkdir(parents=True)

    with pytest.raises(Unavailable, match="debugfs") as caught:
        KvmCollector(HostFS(str(tmp_path)), NoKeys())

    assert "mount -t debugfs" in caught.value.hint


def test_without_kvm_it_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no KVM"):
        KvmCollector(HostFS(str(tmp_path)), NoKeys())


@given(st.binary(max_size=12))
def test_any_text_is_a_number_or_a_parse_error(text: bytes) -> None:
    try:
        count = parse_count("exits", text)
    except ParseError:
        return

    assert count == int(text)

"""What the doctor says of counters, by the rights and the processor."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.scripted import ScriptedSource

from sonde.cli.doctor_counters import outlook
from sonde.hostfs import HostFS
from sonde.native.perf_event import Attr

CPUINFO = Path(__file__).parents[2] / "fixtures/cpuinfo"


@pytest.fixture
def host(tmp_path: Path) -> HostFS:
    for name, text in {
        "proc/cpuinfo": (CPUINFO / "haswell.txt").read_text(),
        "proc/sys/kernel/perf_event_paranoid": "2\n",
        "sys/bus/event_source/devices/cpu/type": "4\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return HostFS(str(tmp_path))


def test_a_machine_where_everything_can_be_counted_is_ok(host: HostFS) -> None:
    found = outlook(host, ScriptedSource())

    assert found == ("ok", "Intel Haswell: software, core, branch, cache, tlb, l2, l3, memory, topdown", "")


def test_a_user_is_told_what_is_missing_and_what_would_help(host: HostFS) -> None:
    def refused(attr: Attr, pid: int, cpu: int) -> int:
        return errno.EACCES if cpu >= 0 or not attr.user_only else 0

    state, detail, remedy = outlook(host, ScriptedSource(refused=refused))

    assert state == "partly"
    assert detail.endswith("topdown; only user mode; no whole CPUs or cgroups")
    assert "kernel.perf_event_paranoid=0" in remedy


def test_a_virtual_machine_is_told_why_it_has_software_events_only(host: HostFS, tmp_path: Path) -> None:
    (tmp_path / "sys/bus/event_source/devices/cpu/type").unlink()
    (tmp_path / "sys/bus/event_source/devices/cpu").rmdir()

    def refused(attr: Attr, pid: int, cpu: int) -> int:
        return errno.ENOENT if attr.type != 1 else errno.EACCES if not attr.user_only else 0

    state, detail, _ = outlook(host, ScriptedSource(refused=refused))

    assert state == "partly"
    assert detail.startswith("Intel Haswell: software; not core, branch, cache, tlb")
    assert detail.endswith("no hardware counters here: a virtual machine that is not given any; only user mode")


def test_where_nothing_may_be_counted_it_is_denied(host: HostFS) -> None:
    state, detail, remedy = outlook(host, ScriptedSource(refused=lambda attr, pid, cpu: errno.EPERM))

    assert state == "denied"
    assert "although perf_event_paranoid is 2" in detail
    assert "seccomp" in remedy


def test_a_kernel_without_perf_events_has_none(tmp_path: Path) -> None:
    assert outlook(HostFS(str(tmp_path))).state == "absent"

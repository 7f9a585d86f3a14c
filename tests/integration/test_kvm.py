"""A real virtual machine that halts five times, and what the kernel's debugfs and our collector say of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import PATIENCE, require

# One page of memory with `hlt` at its beginning, one CPU in real mode: Documentation/virt/kvm/api.rst.
GUEST = r"""
import ctypes, fcntl, json, mmap, os, struct, sys
from sonde.collectors.kvm import KvmCollector
from sonde.config import NoKeys
from sonde.hostfs import HostFS

CREATE_VM, MMAP_SIZE, CREATE_VCPU, RUN = 0xAE01, 0xAE04, 0xAE41, 0xAE80
SET_MEMORY, GET_SREGS, SET_SREGS, SET_REGS = 0x4020AE46, 0x8138AE83, 0x4138AE84, 0x4090AE82

def look():
    collector = KvmCollector(HostFS(sys.argv[1]), NoKeys())
    reading = collector.collect()
    collector.close()
    values = {f"{spec.name} {' '.join(labels)}".strip(): value
              for (spec, labels), value in zip(reading.layout, reading.values)}
    return values, {gap.spec.name: gap.quality.value for gap in reading.gaps}

before, _ = look()
kvm = os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC)
vm = fcntl.ioctl(kvm, CREATE_VM, 0)
memory = mmap.mmap(-1, 4096)
memory[:1] = b"\xf4"
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
fcntl.ioctl(vm, SET_MEMORY, struct.pack("=IIQQQ", 0, 0, 0, 4096, address))
cpu = fcntl.ioctl(vm, CREATE_VCPU, 0)
run = mmap.mmap(cpu, fcntl.ioctl(kvm, MMAP_SIZE, 0))
special = bytearray(312)
fcntl.ioctl(cpu, GET_SREGS, special)
special[0:8], special[12:14] = bytes(8), bytes(2)  # the code segment begins at 0
fcntl.ioctl(cpu, SET_SREGS, bytes(special))
reasons = []
for _ in range(5):
    fcntl.ioctl(cpu, SET_REGS, bytes(128) + struct.pack("=QQ", 0, 2))
    fcntl.ioctl(cpu, RUN, 0)
    reasons.append(struct.unpack_from("=I", run, 8)[0])
during, gaps = look()
try:
    os.close(os.open(sys.argv[1] + "/sys/kernel/debug/kvm/exits", os.O_RDONLY))
    open_to_root = True
except PermissionError:
    open_to_root = False
print(json.dumps([before, during, gaps, reasons, open_to_root]))
"""
MOUNT = 'set -e; mkdir -p "$1/sys/kernel/debug"; mount -t debugfs debugfs "$1/sys/kernel/debug"; exec "$2" -c "$3" "$1"'


@pytest.fixture
def answer(tmp_path: Path) -> list[Any]:
    require("unshare")
    if os.geteuid() != 0 or not os.access("/dev/kvm", os.R_OK | os.W_OK):
        pytest.skip("needs root and /dev/kvm")
    command = ["unshare", "--mount", "sh", "-c", MOUNT, "sh", str(tmp_path), sys.executable, GUEST]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode and ("debugfs" in done.stderr or "/dev/kvm" in done.stderr or "ioctl(vm" in done.stderr):
        pytest.skip(f"no virtual machine can be made here: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    reply: list[Any] = json.loads(done.stdout)
    return reply


def test_a_machine_and_its_exits_are_counted(answer: list[Any]) -> None:
    before, during, gaps, reasons, open_to_root = answer

    assert set(reasons) == {5}  # KVM_EXIT_HLT
    assert during["sonde_kvm_machines"] - before["sonde_kvm_machines"] == 1
    assert during["sonde_kvm_pages 4KiB"] >= 0  # 0 without two-dimensional paging: kvm_update_page_stats in mmu.c
    if open_to_root:
        assert during["sonde_kvm_exits_total"] - before["sonde_kvm_exits_total"] >= 5
        assert gaps == {}
    else:
        assert gaps["sonde_kvm_exits_total"] == "denied"
        assert "sonde_kvm_exits_total" not in during

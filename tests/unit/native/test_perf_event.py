"""perf_event_open for real: software events, which every Linux has, against what the kernel says elsewhere."""

from __future__ import annotations

import errno
import os
import resource
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.scripted import ScriptedSource

from sonde.errors import Denied
from sonde.native.perf_event import (
    ANYWHERE,
    PARANOID,
    Attr,
    Counts,
    Detached,
    EventGroup,
    Kernel,
    encode_attr,
    refusal,
)

TASK_CLOCK, FAULTS, SWITCHES, MIGRATIONS = (Attr(1, config) for config in (1, 2, 3, 4))

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="counts what only root may")


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


def test_the_attributes_are_laid_out_as_the_header_has_them() -> None:
    attr = Attr(4, 0x1B7, 0x73C000477, inherit=True, user_only=True, disabled=True, enable_on_exec=True)

    packed = encode_attr(attr)

    assert len(packed) == 112
    assert struct.unpack_from("=IIQ", packed) == (4, 112, 0x1B7)
    read_format, flags = struct.unpack_from("=QQ", packed, 32)
    assert read_format == 0b1111  # both times, id, group
    # disabled 0, inherit 1, exclude_kernel 5, exclude_hv 6, enable_on_exec 12
    assert flags == 1 << 0 | 1 << 1 | 1 << 5 | 1 << 6 | 1 << 12
    assert struct.unpack_from("=Q", packed, 56) == (0x73C000477,)  # config1
    assert encode_attr(Attr(1, 1))[40:48] == bytes(8)


def test_cpu_time_is_that_of_getrusage(kernel: Kernel) -> None:
    group = EventGroup(kernel, [TASK_CLOCK, SWITCHES], 0, ANYWHERE)
    before, first = resource.getrusage(resource.RUSAGE_THREAD), group.read()
    until = time.thread_time() + 0.6
    while time.thread_time() < until:
        sum(range(1000))
    after, last = resource.getrusage(resource.RUSAGE_THREAD), group.read()
    group.close()

    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert (last.values[0] - first.values[0]) / 1e9 == pytest.approx(used, rel=0.02)
    assert last.enabled_ns - first.enabled_ns == last.running_ns - first.running_ns > 0


@ROOT
def test_context_switches_are_those_of_the_process_status(kernel: Kernel) -> None:
    group = EventGroup(kernel, [SWITCHES], 0, ANYWHERE)
    before = resource.getrusage(resource.RUSAGE_THREAD)
    for _ in range(200):
        time.sleep(0.0005)
    counted = group.read().values[0]
    after = resource.getrusage(resource.RUSAGE_THREAD)
    group.close()

    switches = after.ru_nvcsw + after.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw
    assert switches >= 200
    assert counted == pytest.approx(switches, rel=0.02)


def test_page_faults_are_those_of_getrusage(kernel: Kernel) -> None:
    group = EventGroup(kernel, [FAULTS], 0, ANYWHERE)
    before = resource.getrusage(resource.RUSAGE_THREAD)
    memory = bytearray(40 * 1024 * 1024)
    memory[::4096] = bytes(len(memory) // 4096)
    counted = group.read().values[0]
    after = resource.getrusage(resource.RUSAGE_THREAD)
    group.close()

    faults = after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt
    assert faults > 0
    assert counted == pytest.approx(faults, rel=0.02)


@ROOT
def test_a_task_that_is_moved_has_migrated(kernel: Kernel) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("one CPU only")
    group = EventGroup(kernel, [MIGRATIONS], 0, ANYWHERE)
    try:
        os.sched_setaffinity(0, {allowed[0]})
        first = group.read().values[0]
        for turn in range(1, 21):
            os.sched_setaffinity(0, {allowed[turn % 2]})
        moved = group.read().values[0] - first
    finally:
        os.sched_setaffinity(0, allowed)
        group.close()

    assert moved == 20


BURN = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    """Starts a child that burns 0.3 s for each line it is given."""
    program = (
        "import subprocess, sys\n"
        "for line in sys.stdin:\n"
        f"    subprocess.run([sys.executable, '-Sc', {BURN!r}]); print('done', flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-Sc", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.communicate(timeout=20)


def test_children_made_later_are_counted_and_stay_counted_when_they_end(
    kernel: Kernel, parent: subprocess.Popen[str]
) -> None:
    assert parent.stdin is not None
    assert parent.stdout is not None
    group = EventGroup(kernel, [TASK_CLOCK._replace(inherit=True)], parent.pid, ANYWHERE)
    for _ in range(2):
        parent.stdin.write("\n")
        parent.stdin.flush()
        parent.stdout.readline()
    seconds = group.read().values[0] / 1e9
    group.close()

    assert 0.6 <= seconds < 1.2


def test_counting_begins_with_the_program(kernel: Kernel) -> None:
    ready, go = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(go)
        until = time.process_time() + 0.2  # before the program: not to be counted
        while time.process_time() < until:
            pass
        os.read(ready, 1)
        os.execv(sys.executable, [sys.executable, "-Sc", BURN])
    os.close(ready)
    attr = TASK_CLOCK._replace(disabled=True, enable_on_exec=True, inherit=True)
    group = EventGroup(kernel, [attr], pid, ANYWHERE)
    time.sleep(0.3)
    waiting = group.read()
    os.write(go, b"x")
    os.close(go)
    _, status, usage = os.wait4(pid, 0)
    counts = group.read()
    group.close()

    assert status == 0
    assert waiting.values == (0,)
    assert 0.3 <= counts.values[0] / 1e9 <= usage.ru_utime + usage.ru_stime - 0.19


def test_a_group_can_be_started_and_stopped(kernel: Kernel) -> None:
    group = EventGroup(kernel, [TASK_CLOCK._replace(disabled=True)], 0, ANYWHERE)
    assert group.read().values == (0,)
    kernel.enable(group.leader)
    sum(range(100_000))
    kernel.disable(group.leader)
    stopped = group.read()
    sum(range(100_000))

    assert stopped.values[0] > 0
    assert group.read() == stopped
    group.close()


def test_descriptors_are_not_left_to_children(kernel: Kernel) -> None:
    group = EventGroup(kernel, [TASK_CLOCK], 0, ANYWHERE)

    assert not os.get_inheritable(group.leader)
    group.close()


def test_a_process_that_is_gone_is_no_such_process(kernel: Kernel) -> None:
    process = subprocess.Popen(["true"])
    process.wait()

    with pytest.raises(ProcessLookupError):
        EventGroup(kernel, [TASK_CLOCK], process.pid, ANYWHERE)


def test_an_event_that_fails_closes_those_before_it_and_tells_its_place() -> None:
    source = ScriptedSource(refused=lambda attr, pid, cpu: errno.ENOENT if attr.config == 9 else 0)

    with pytest.raises(OSError, match="1") as caught:
        EventGroup(source, [Attr(0, 0), Attr(0, 9)], 1, ANYWHERE)

    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, "1")
    assert source.opened == {}


def test_a_group_begins_when_it_is_whole() -> None:
    source = ScriptedSource()
    group = EventGroup(source, [Attr(0, 0), Attr(0, 1)], 1, ANYWHERE)

    assert [attr.disabled for attr, *_ in source.opened.values()] == [True, False]
    assert source.started == {group.leader}
    group.close()


@ROOT
def test_every_member_counts_on_a_whole_cpu(kernel: Kernel) -> None:
    """Against the kernel's own count of context switches of all CPUs (/proc/stat)."""
    online = sorted(os.sched_getaffinity(0))
    if len(online) != os.cpu_count():
        pytest.skip("not all CPUs are ours to look at")

    def switches() -> int:
        return int(Path("/proc/stat").read_text().partition("\nctxt ")[2].split()[0])

    groups = [EventGroup(kernel, [TASK_CLOCK, SWITCHES, FAULTS], ANYWHERE, cpu) for cpu in online]
    before, first = switches(), [group.read() for group in groups]
    for _ in range(300):
        time.sleep(0.001)
    after, last = switches(), [group.read() for group in groups]
    for group in groups:
        group.close()

    counted = sum(new.values[1] - old.values[1] for new, old in zip(last, first, strict=True))
    assert after - before >= 300
    assert counted == pytest.approx(after - before, rel=0.02, abs=20)


def test_counts_come_in_the_order_of_the_events() -> None:
    source = ScriptedSource(lambda attr, pid, cpu, tick: (attr.config * 10 + tick, 500, 250))
    group = EventGroup(source, [Attr(0, 3), Attr(0, 1), Attr(0, 2)], 1, ANYWHERE)

    assert group.read() == Counts(500, 250, (31, 11, 21))
    group.close()


def test_a_group_whose_cpu_went_away_is_detached() -> None:
    source = ScriptedSource()
    group = EventGroup(source, [Attr(0, 0), Attr(0, 1)], ANYWHERE, 1)
    source.gone.add(1)

    with pytest.raises(Detached):
        group.read()
    group.close()


@pytest.mark.parametrize(
    ("level", "whole_cpu", "says"),
    [
        (2, True, "perf_event_paranoid is 2: counting whole CPUs and cgroups needs root, CAP_PERFMON or a level of 0"),
        (3, False, "perf_event_paranoid is 3: counting processes needs root, CAP_PERFMON or a level of 2"),
        (1, False, "although perf_event_paranoid is 1"),
    ],
)
def test_a_refusal_names_the_level_and_the_capability(level: int, whole_cpu: bool, says: str) -> None:
    denied = refusal(level, whole_cpu=whole_cpu)

    assert isinstance(denied, Denied)
    assert says in str(denied)
    assert "CAP_PERFMON" in denied.hint


@ROOT
def test_another_user_may_count_himself_and_not_a_cpu() -> None:
    """As the level of this machine allows: at 2, user mode of one's own processes and nothing more."""
    if int(Path("/", PARANOID).read_text()) != 2:
        pytest.skip("perf_event_paranoid is not 2 here")
    program = """
import os
from sonde.native.perf_event import *
kernel = Kernel()
os.setgroups([]); os.setgid(65534); os.setuid(65534)
user = Attr(1, 1, user_only=True)
tried = {"all": (Attr(1, 1), 0, -1), "user": (user, 0, -1), "cpu": (user, -1, 0), "other": (user, 1, -1)}
for name, (attr, pid, cpu) in tried.items():
    try:
        EventGroup(kernel, [attr], pid, cpu).close()
        print(name, 0)
    except OSError as error:
        print(name, error.errno)
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    said = dict(line.split() for line in out.splitlines())
    assert said["all"] == str(errno.EACCES)
    assert said["user"] == "0"
    assert said["cpu"] == str(errno.EACCES)
    assert said["other"] in (str(errno.EACCES), str(errno.EPERM))

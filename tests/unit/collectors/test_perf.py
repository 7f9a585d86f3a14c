"""Counters of all CPUs, cgroups and trees of processes: for real by software events, the hardware by a script."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.scripted import ScriptedSource, Step

from sonde.collectors.perf import ENABLED, EVENTS, INFO, RATIO, RUNNING, PerfCollector, PerfConfig
from sonde.collectors.perf_events import Meter, cpus
from sonde.collectors.perf_targets import Budget, Tree
from sonde.errors import ConfigError, Denied, ParseError, Unavailable
from sonde.hostfs import HostFS
from sonde.model import Quality, Reading
from sonde.native.perf_event import Attr, Counts
from sonde.units import Duration

CPUINFO = Path(__file__).parents[2] / "fixtures/cpuinfo"
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="counts what only root may")
S = 10**9


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., HostFS]:
    """A host with a processor of the given kind, so many CPUs and the given level of perf_event_paranoid."""

    def make(kind: str = "skylake_sp", online: str = "0-1", level: int = 2) -> HostFS:
        files = {
            "proc/cpuinfo": (CPUINFO / f"{kind}.txt").read_text(),
            "proc/sys/kernel/perf_event_paranoid": f"{level}\n",
            "sys/devices/system/cpu/online": f"{online}\n",
            "sys/bus/event_source/devices/cpu/type": "4\n",
        }
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return HostFS(str(tmp_path))

    return make


def value(reading: Reading, spec: Any, **labels: str) -> float:
    """The one value of a metric whose labels contain these."""
    found = [
        number
        for (one, values), number in zip(reading.layout, reading.values, strict=True)
        if one is spec and labels.items() <= dict(zip(spec.labels, values, strict=True)).items()
    ]
    assert len(found) == 1, (spec, labels, found)
    assert isinstance(found[0], int | float)
    return found[0]


def events(reading: Reading) -> set[str]:
    return {labels[0] for spec, labels in reading.layout if spec is EVENTS}


def core(scale: int = 1) -> Callable[[Attr, int, int, int], Step]:
    """cycles 1000, instructions 2500, anything else 100 per second and CPU, and always on the counters."""

    def course(attr: Attr, pid: int, cpu: int, tick: int) -> Step:
        per_second = {(0, 0): 1000, (0, 1): 2500}.get((attr.type, attr.config), 100)
        return tick * per_second * scale, tick * S, tick * S

    return course


def test_counts_of_all_cpus_are_added_up(machine: Callable[..., HostFS]) -> None:
    source = ScriptedSource(core())
    collector = PerfCollector(machine(online="0-3"), PerfConfig(groups=("core",)), source)

    source.tick = 3
    reading = collector.collect()
    collector.close()

    assert value(reading, EVENTS, event="instructions", group="core", scope="system") == 3 * 4 * 2500
    assert value(reading, EVENTS, event="cycles", mode="all", cpu="") == 3 * 4 * 1000
    assert value(reading, ENABLED, group="core") == value(reading, RUNNING, group="core") == 12.0
    assert value(reading, RATIO, group="core") == 1.0
    assert value(reading, INFO, microarchitecture="skylake_sp") == 1
    assert reading.gaps == ()
    assert source.opened == {}


def test_each_cpu_can_have_series_of_its_own(machine: Callable[..., HostFS]) -> None:
    source = ScriptedSource(lambda attr, pid, cpu, tick: (100 + cpu, S, S))
    collector = PerfCollector(machine(online="0,2"), PerfConfig(groups=("core",), per_cpu=True), source)

    reading = collector.collect()
    collector.close()

    assert value(reading, EVENTS, event="cycles", cpu="0") == 100
    assert value(reading, EVENTS, event="cycles", cpu="2") == 102


def test_a_group_that_shares_the_counters_is_marked_and_its_share_told(machine: Callable[..., HostFS]) -> None:
    source = ScriptedSource(lambda attr, pid, cpu, tick: (500, 8 * S, 2 * S))
    collector = PerfCollector(machine(online="0"), PerfConfig(groups=("core",)), source)

    reading = collector.collect()
    collector.close()

    assert value(reading, EVENTS, event="cycles") == 500  # as it was counted: whoever reads scales
    assert value(reading, RATIO) == 0.25
    assert {gap.labels[0]: gap.quality for gap in reading.gaps} == dict.fromkeys(
        ("cycles", "instructions", "ref_cycles"), Quality.MULTIPLEXED
    )


def test_a_group_that_never_gets_a_counter_has_no_values_until_it_does(machine: Callable[..., HostFS]) -> None:
    source = ScriptedSource(lambda attr, pid, cpu, tick: (70 if tick > 2 else 0, tick * S, (tick - 2) * S * (tick > 2)))
    collector = PerfCollector(machine(online="0"), PerfConfig(groups=("core",)), source)

    never = collector.collect()
    source.tick = 4
    later = collector.collect()
    collector.close()

    assert events(never) == set()
    assert value(never, RATIO) == 0.0
    assert {gap.quality for gap in never.gaps} == {Quality.BLANK}
    assert "NMI watchdog" in never.gaps[0].reason
    assert value(later, EVENTS, event="cycles") == 70
    assert value(later, RATIO) == 0.5


def test_a_group_too_large_for_the_counters_is_counted_in_parts(machine: Callable[..., HostFS]) -> None:
    source = ScriptedSource(core(), counters=2)
    collector = PerfCollector(machine(online="0"), PerfConfig(groups=("flops_dp",)), source)

    reading = collector.collect()
    collector.close()

    groups = [labels[1] for spec, labels in reading.layout if spec is EVENTS]
    assert groups == ["flops_dp", "flops_dp", "flops_dp_2", "flops_dp_2"]
    assert [labels[0] for spec, labels in reading.layout if spec is RATIO] == ["flops_dp", "flops_dp_2"]
    assert reading.gaps == ()


def test_an_event_the_machine_lacks_costs_nothing_else(machine: Callable[..., HostFS]) -> None:
    source = ScriptedSource(core(), refused=lambda attr, pid, cpu: errno.ENOENT if attr[:2] == (0, 9) else 0)
    collector = PerfCollector(machine(online="0"), PerfConfig(groups=("core", "branch")), source)

    reading = collector.collect()
    collector.close()

    assert events(reading) == {"cycles", "instructions", "branches", "branch_misses"}
    assert [(gap.quality, gap.reason) for gap in reading.gaps] == [
        (Quality.UNSUPPORTED, "ref_cycles: the processor or the kernel does not have it")
    ]


def test_a_machine_without_hardware_counters_has_software_events(machine: Callable[..., HostFS]) -> None:
    host = machine()
    shutil.rmtree(host.path("sys/bus/event_source/devices/cpu"))
    source = ScriptedSource(core(), refused=lambda attr, pid, cpu: errno.ENOENT if attr.type != 1 else 0)
    collector = PerfCollector(host, PerfConfig(), source)

    reading = collector.collect()
    collector.close()

    # Not task_clock_ns: of a whole CPU it is the time that passes.
    assert events(reading) == {"context_switches", "cpu_migrations", "page_faults", "major_faults"}
    [gap] = reading.gaps
    assert gap.quality is Quality.UNSUPPORTED
    assert gap.reason.startswith("cycles, instructions, ref_cycles, branches and ")
    assert gap.reason.endswith("no hardware counters here: a virtual machine that is not given any")


def test_with_hardware_groups_only_it_is_unavailable_there(machine: Callable[..., HostFS]) -> None:
    host = machine()
    shutil.rmtree(host.path("sys/bus/event_source/devices/cpu"))
    source = ScriptedSource(core(), refused=lambda attr, pid, cpu: errno.ENOENT if attr.type != 1 else 0)

    with pytest.raises(Unavailable, match="no hardware counters here"):
        PerfCollector(host, PerfConfig(groups=("core",)), source)


def only_user_mode(attr: Attr, pid: int, cpu: int) -> int:
    """perf_event_paranoid 2 for somebody who is not root."""
    return errno.EACCES if not attr.user_only or cpu >= 0 else 0


def test_without_the_right_user_mode_of_processes_is_counted(machine: Callable[..., HostFS]) -> None:
    source = ScriptedSource(core(), refused=only_user_mode)
    host = machine()
    processes(host, {50: (1, 50, 100)})
    collector = PerfCollector(host, PerfConfig(groups=("software", "core"), pids=("50",)), source)

    reading = collector.collect()
    collector.close()

    assert value(reading, EVENTS, event="cycles", mode="user", pid="50", scope="tree") == 1000
    # They happen in the kernel: counted without its part, they would be 0.
    assert not {"context_switches", "cpu_migrations"} & events(reading)
    reasons = {gap.quality: gap.reason for gap in reading.gaps}
    assert reasons.keys() == {Quality.DENIED}
    assert any(gap.reason.startswith("context_switches, cpu_migrations: happens in the kernel") for gap in reading.gaps)
    assert any("perf_event_paranoid is 2: counting whole CPUs" in gap.reason for gap in reading.gaps)


def test_without_the_right_all_cpus_alone_are_denied(machine: Callable[..., HostFS]) -> None:
    with pytest.raises(Denied, match="counting whole CPUs and cgroups needs root, CAP_PERFMON or a level of 0"):
        PerfCollector(machine(), PerfConfig(), ScriptedSource(refused=only_user_mode))


def test_at_level_three_nothing_may_be_counted(machine: Callable[..., HostFS]) -> None:
    source = ScriptedSource(refused=lambda attr, pid, cpu: errno.EACCES)

    with pytest.raises(Denied, match="perf_event_paranoid is 3: counting processes needs root, CAP_PERFMON") as caught:
        PerfCollector(machine(level=3), PerfConfig(), source)
    assert "sysctl kernel.perf_event_paranoid=2" in caught.value.hint


def test_a_seccomp_filter_is_named(machine: Callable[..., HostFS]) -> None:
    source = ScriptedSource(refused=lambda attr, pid, cpu: errno.ENOSYS)

    with pytest.raises(Unavailable, match="Function not implemented") as caught:
        PerfCollector(machine(), PerfConfig(), source)
    assert "seccomp" in caught.value.hint


def test_a_kernel_without_perf_events_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="built without perf events"):
        PerfCollector(HostFS(str(tmp_path)), PerfConfig(), ScriptedSource())


def test_a_group_that_does_not_exist_is_refused_by_name(machine: Callable[..., HostFS]) -> None:
    with pytest.raises(ConfigError, match="Intel Skylake-SP has no group 'flop'") as caught:
        PerfCollector(machine(), PerfConfig(groups=("flop",)), ScriptedSource())
    assert "flops_dp" in caught.value.hint


@pytest.mark.parametrize("pid", ["", "0", "x", "-1", "²", "99999999999"])
def test_what_is_no_process_id_is_refused(pid: str, machine: Callable[..., HostFS]) -> None:
    with pytest.raises(ConfigError, match=r"collectors\.perf\.pids"):
        PerfCollector(machine(), PerfConfig(pids=(pid,)), ScriptedSource())


def test_with_nothing_to_count_it_says_so(machine: Callable[..., HostFS]) -> None:
    with pytest.raises(Unavailable, match="nothing to count"):
        PerfCollector(machine(), PerfConfig(system=False), ScriptedSource())


def test_a_cpu_that_goes_keeps_its_counts_and_one_that_comes_is_added(machine: Callable[..., HostFS]) -> None:
    source = ScriptedSource(lambda attr, pid, cpu, tick: (tick * 100, tick * S, tick * S))
    host = machine(online="0-1")
    collector = PerfCollector(host, PerfConfig(groups=("core",)), source)
    online = Path(host.path("sys/devices/system/cpu/online"))

    source.tick = 2
    both = value(collector.collect(), EVENTS, event="cycles")
    source.gone.add(1)
    online.write_text("0\n")
    source.tick = 5
    one = value(collector.collect(), EVENTS, event="cycles")
    source.gone.clear()
    online.write_text("0-1\n")
    source.course = lambda attr, pid, cpu, tick: ((tick - 5 if cpu == 1 else tick) * 100, tick * S, tick * S)
    source.tick = 6
    again = value(collector.collect(), EVENTS, event="cycles")
    collector.close()

    assert both == 400
    assert one == 500 + 200  # what CPU 1 had counted when it was last read
    assert again == 600 + 200 + 100
    assert source.opened == {}


def test_a_cpu_that_went_before_its_list_did_is_skipped(machine: Callable[..., HostFS]) -> None:
    source = ScriptedSource(core())
    source.gone.add(1)
    collector = PerfCollector(machine(online="0-1"), PerfConfig(groups=("core",)), source)

    reading = collector.collect()
    collector.close()

    assert value(reading, EVENTS, event="cycles") == 1000


def test_counts_that_go_around_or_step_back_only_rise() -> None:
    course = iter([2**64 - 10, 5, 3, 8])
    steps: dict[int, int] = {}
    source = ScriptedSource(lambda attr, pid, cpu, tick: (steps.setdefault(tick, next(course, 0)), tick, tick))
    meter = Meter(source, [Attr(0, 0)], 1, -1)

    totals = []
    for tick in range(1, 5):
        source.tick = tick
        totals.append(meter.read().values[0])
    meter.close()

    # To 2**64 - 10; 15 further, around; back by 2, which is nothing; then 5 on from there.
    assert totals == [2**64 - 10, 2**64 + 5, 2**64 + 5, 2**64 + 10]


def test_a_task_that_has_ended_keeps_what_it_counted() -> None:
    source = ScriptedSource(lambda attr, pid, cpu, tick: (tick * 7, tick, tick))
    meter = Meter(source, [Attr(0, 0)], 1, 3)
    source.tick = 4
    before = meter.read()
    source.gone.add(3)
    source.read = lambda fd, size: b""  # type: ignore[method-assign]

    assert meter.read() == before == Counts(4, 4, (28,))
    assert source.opened == {}


def processes(host: HostFS, table: dict[int, tuple[int, int, int]], threads: int = 1) -> None:
    """Write /proc/PID/{stat,task}: parent, session and start time of each."""
    for pid, (parent, session, start) in table.items():
        for thread in range(threads):
            Path(host.path(f"proc/{pid}/task/{pid + thread}")).mkdir(parents=True, exist_ok=True)
        rest = f"S {parent} {pid} {session} 0 -1 4194304 0 0 0 0 1 2 3 4 20 0 1 0 {start} 1000 10 0"
        Path(host.path(f"proc/{pid}/stat")).write_text(f"{pid} (a) b) {rest}\n")


def attached(source: ScriptedSource) -> list[int]:
    return sorted({pid for _, pid, _, _ in source.opened.values()})


def test_a_tree_is_attached_with_all_its_threads_and_descendants(machine: Callable[..., HostFS]) -> None:
    host, source = machine(), ScriptedSource(core())
    processes(host, {50: (1, 50, 10), 60: (50, 50, 11), 70: (60, 50, 12), 80: (1, 80, 13)}, threads=2)

    collector = PerfCollector(host, PerfConfig(system=False, pids=("50",), groups=("core",)), source)

    assert attached(source) == [50, 51, 60, 61, 70, 71]
    assert all(attr.inherit for attr, *_ in source.opened.values())
    assert value(collector.collect(), EVENTS, event="cycles") == 6000
    collector.close()


def tree(host: HostFS, source: ScriptedSource, limit: int | None = None) -> Tree:
    collector = PerfCollector(host, PerfConfig(groups=("core",)), source)
    possible = collector._possible
    collector.close()
    return Tree(source, possible, Budget(limit), ("tree", "", "", ""), host)


def test_a_child_made_later_has_inherited_its_counters(machine: Callable[..., HostFS]) -> None:
    host, source = machine(), ScriptedSource(core())
    later = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")) + 1000
    processes(host, {50: (1, 50, 10), 60: (50, 50, later), 70: (60, 70, later + 1), 75: (1, 50, later + 2)})
    followed = tree(host, source)

    for pid in (50, 60, 70, 75):
        followed.follow(pid)

    assert attached(source) == [50]  # 75 is an orphan of the session of 50
    followed.close()


def test_a_child_that_is_older_than_the_counting_has_not(machine: Callable[..., HostFS]) -> None:
    host, source = machine(), ScriptedSource(core())
    processes(host, {50: (1, 50, 10), 60: (50, 50, 11)})
    followed = tree(host, source)

    followed.follow(50)
    followed.follow(60)

    assert attached(source) == [50, 60]
    followed.close()


def test_a_rank_of_another_launcher_is_attached_and_so_is_one_that_got_a_used_pid(
    machine: Callable[..., HostFS],
) -> None:
    host, source = machine(), ScriptedSource(core())
    later = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")) + 1000
    processes(host, {50: (1, 50, 10), 90: (2, 90, later)})
    followed = tree(host, source)
    followed.follow(50)
    followed.follow(90)
    count = len(source.opened)

    followed.follow(90)
    assert len(source.opened) == count
    processes(host, {90: (2, 90, later + 50)})
    followed.follow(90)

    assert attached(source) == [50, 90]
    assert len(source.opened) == count + 3
    followed.close()


def test_a_process_that_ends_between_list_and_open_is_skipped(machine: Callable[..., HostFS]) -> None:
    source = ScriptedSource(core(), refused=lambda attr, pid, cpu: errno.ESRCH if pid == 51 else 0)
    host = machine()
    processes(host, {50: (1, 50, 10)}, threads=3)
    followed = tree(host, source)

    followed.follow(50)
    followed.follow(4711)  # was listed, and is gone

    assert attached(source) == [50, 52]
    followed.close()


def test_tasks_beyond_the_descriptors_and_of_others_are_counted_as_such(machine: Callable[..., HostFS]) -> None:
    source = ScriptedSource(core(), refused=lambda attr, pid, cpu: errno.EACCES if pid == 51 else 0)
    host = machine()
    processes(host, {50: (1, 50, 10)}, threads=4)
    followed = tree(host, source, limit=7)  # two tasks of three events

    followed.follow(50)

    assert (len(attached(source)), followed.beyond, followed.denied) == (2, 1, 1)
    followed.close()
    assert source.opened == {}


@pytest.fixture
def slurm(machine: Callable[..., HostFS], tmp_path: Path) -> HostFS:
    """Two jobs of Slurm with cgroup v2, on the machine."""
    shutil.copytree(CPUINFO.parent / "hosts/slurm_v2", tmp_path, symlinks=True, dirs_exist_ok=True)
    host = machine(online="0-1")
    for pid in (300, 301, 310, 311):
        Path(host.path(f"proc/{pid}/task/{pid}")).mkdir(parents=True)
    return host


def test_a_job_is_counted_by_its_cgroup_where_that_is_allowed(slurm: HostFS) -> None:
    source = ScriptedSource(core())
    collector = PerfCollector(slurm, PerfConfig(system=False, jobs=True, groups=("core",)), source)

    reading = collector.collect()
    again = collector.collect()
    whom = {labels[2:5] for spec, labels in reading.layout if spec is EVENTS}
    collector.close()

    assert whom
    assert {(scope, scheduler) for scope, _, scheduler in whom} == {("cgroup", "slurm")}
    assert {cpu for _, cpu in source.cgroups} == {0, 1}
    assert again.layout is reading.layout
    assert source.opened == {}


def test_a_job_is_counted_by_its_processes_where_cgroups_may_not_be(slurm: HostFS) -> None:
    source = ScriptedSource(core(), refused=only_user_mode)
    collector = PerfCollector(slurm, PerfConfig(system=False, jobs=True, groups=("core",)), source)

    reading = collector.collect()
    collector.close()

    shown = {labels[2:5] for spec, labels in reading.layout if spec is EVENTS}
    assert {scope for scope, _, _ in shown} == {"tree"}
    assert all(pid >= 300 and cpu == -1 for _, pid, cpu, _ in source.opened.values())


def test_a_job_that_ends_takes_its_counters_with_it(slurm: HostFS) -> None:
    source = ScriptedSource(core())
    collector = PerfCollector(slurm, PerfConfig(system=False, jobs=True, groups=("core",), scan=Duration(0)), source)
    before = {labels[3] for spec, labels in collector.collect().layout if spec is EVENTS}
    for path in Path(slurm.path("proc")).iterdir():
        if path.name.isdigit() and path.name != "1":
            shutil.rmtree(path)
    stat = Path(slurm.path("proc/stat"))
    stat.write_text(stat.read_text().replace("processes ", "processes 9"))

    after = {labels[3] for spec, labels in collector.collect().layout if spec is EVENTS}
    collector.close()

    assert before
    assert after == set()
    assert source.opened == {}


@pytest.mark.parametrize(("text", "found"), [("0", [0]), ("0-3,8\n", [0, 1, 2, 3, 8])])
def test_lists_of_cpus(text: str, found: list[int]) -> None:
    assert cpus(text) == found


@pytest.mark.parametrize("text", ["", "a", "0-", "-1", "0-99999999999"])
def test_what_is_no_list_of_cpus_is_refused(text: str) -> None:
    if text == "0-":
        assert cpus(text) == [0]
        return
    with pytest.raises(ParseError):
        cpus(text)


BURN = "import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end: pass\n"


@pytest.fixture
def waiting() -> Iterator[subprocess.Popen[str]]:
    """A shell-like process with a second thread that starts what it is told to."""
    program = (
        "import subprocess, sys, threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "print('ready', flush=True)\n"
        "for line in sys.stdin:\n"
        "    subprocess.run([sys.executable, '-Sc', eval(line)]); print('done', flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-Sc", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.communicate(timeout=20)


def test_a_real_tree_is_counted_with_children_that_have_ended(waiting: subprocess.Popen[str]) -> None:
    assert waiting.stdin is not None
    assert waiting.stdout is not None
    collector = PerfCollector(HostFS(), PerfConfig(system=False, pids=(str(waiting.pid),), groups=("software",)))
    first = value(collector.collect(), EVENTS, event="task_clock_ns")
    for _ in range(3):
        waiting.stdin.write(repr(BURN.format(seconds=0.2)) + "\n")
        waiting.stdin.flush()
        waiting.stdout.readline()
    seconds = (value(collector.collect(), EVENTS, event="task_clock_ns") - first) / S
    text = Path(f"/proc/{waiting.pid}/stat").read_text().rpartition(")")[2].split()
    collector.close()

    used = sum(map(int, text[11:15])) / os.sysconf("SC_CLK_TCK")  # its own and its children's, by ticks of 10 ms
    assert seconds >= 0.6
    assert seconds == pytest.approx(used, rel=0.02, abs=0.1)


@ROOT
def test_all_real_cpus_count_a_busy_one() -> None:
    collector = PerfCollector(HostFS(), PerfConfig(groups=("software",)))
    first = collector.collect()
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    last = collector.collect()
    collector.close()

    passed = value(last, ENABLED, scope="system") - value(first, ENABLED, scope="system")
    assert passed >= 0.2
    assert last.layout is first.layout


@pytest.fixture
def cgroup() -> Iterator[str]:
    """A cgroup of the v2 hierarchy, with a process that can be put to work."""
    point = next((p for p in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup") if Path(p, "cgroup.procs").exists()), None)
    if point is None or os.geteuid() != 0:
        pytest.skip("no cgroup v2 that this user may write")
    path = Path(point, f"sonde-test-{os.getpid()}")
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"cgroups cannot be made here: {error}")
    yield str(path)
    path.rmdir()


def test_a_real_cgroup_counts_its_members_and_nobody_else(cgroup: str) -> None:
    from sonde.collectors.perf_events import Probe
    from sonde.collectors.perf_targets import Everywhere
    from sonde.counters import catalogue
    from sonde.native.perf_event import Kernel

    host, kernel = HostFS(), Kernel()
    software = [group for group in catalogue.load("generic").groups if group.name == "software"]
    possible = Probe(kernel, host).possible(software, kernel=True)
    try:
        target = Everywhere(kernel, possible, Budget(), ("cgroup", "1", "slurm", ""), host, cgroup=cgroup.lstrip("/"))
    except OSError as error:
        pytest.skip(f"this kernel does not count this hierarchy: {error}")
    inside = f"open({cgroup + '/cgroup.procs'!r}, 'w').write('0')\n" + BURN.format(seconds=0.3)
    outside = subprocess.Popen([sys.executable, "-Sc", BURN.format(seconds=0.3)])
    subprocess.run([sys.executable, "-Sc", inside], check=True)
    outside.wait()
    [counts] = target.read()
    target.close()

    assert counts.values[0] / S == pytest.approx(0.3, rel=0.1)


@ROOT
def test_an_unprivileged_recorder_counts_what_it_may() -> None:
    program = """
import ctypes, os, sonde.collectors.process, sonde.counters.catalogue
from sonde.collectors.perf import *
from sonde.errors import Denied
from sonde.hostfs import HostFS
kernel = Kernel()
catalogue.load("generic")
found = identify(HostFS())
import sonde.collectors.perf
sonde.collectors.perf.identify = lambda host: found  # our own files may be out of reach for nobody
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    PerfCollector(HostFS(), PerfConfig(), kernel)
except Denied as denied:
    print("denied", denied)
collector = PerfCollector(HostFS(), PerfConfig(pids=(str(os.getpid()),)), kernel)
shown = [labels for spec, labels in collector.collect().layout if spec is EVENTS]
print(*sorted(labels[0] for labels in shown), *{labels[-1] for labels in shown})
"""
    if int(Path("/proc/sys/kernel/perf_event_paranoid").read_text()) != 2:
        pytest.skip("perf_event_paranoid is not 2 here")
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    denied, counted = out.splitlines()
    assert denied.startswith("denied perf_event_paranoid is 2: counting whole CPUs")
    assert {"task_clock_ns", "page_faults"} <= set(counted.split())
    assert "context_switches" not in counted
    assert counted.endswith(" user")


def test_reading_a_tick_is_cheap() -> None:
    collector = PerfCollector(HostFS(), PerfConfig(system=False, pids=(str(os.getpid()),), groups=("software",)))
    collector.collect()
    before = resource.getrusage(resource.RUSAGE_THREAD)
    for _ in range(200):
        collector.collect()
    after = resource.getrusage(resource.RUSAGE_THREAD)
    collector.close()

    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert used / 200 < 0.001

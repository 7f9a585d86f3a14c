"""Trees of real processes: what they used, counted once, while their members come and go."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from sonde.collectors.ledger import Group
from sonde.collectors.offspring import Offspring
from sonde.collectors.proctree import Walker, read_identity
from sonde.hostfs import HostFS

# The children only burn, sleep and end: nothing of another thread's is touched.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

HERTZ = os.sysconf("SC_CLK_TCK")
HOST = HostFS()
ROUNDING = 5  # ticks: user and system time, own and waited for, are each rounded down


def burn(seconds: float) -> None:
    begun = time.process_time()
    while time.process_time() - begun < seconds:
        pass


def spawn(work: Callable[[], None]) -> int:
    """A child that does the work and ends; the caller waits for it."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def each(*works: Callable[[], object]) -> Callable[[], None]:
    """One after the other."""

    def work() -> None:
        for step in works:
            step()

    return work


def nap(seconds: float) -> Callable[[], None]:
    return lambda: time.sleep(seconds)


def use(seconds: float) -> Callable[[], None]:
    return lambda: burn(seconds)


def chain(depth: int, seconds: float, linger: float) -> None:
    """Each burns, starts the next and waits for it; the last lingers."""
    burn(seconds)
    if depth == 1:
        time.sleep(linger)
        return
    os.waitpid(spawn(lambda: chain(depth - 1, seconds, linger)), 0)


class Watched:
    """A tree below a child of the test, ticked until that child has ended."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.walker = Walker(HOST, max_processes=100)
        self.group = Group()
        self.offspring = Offspring(HOST, self.walker)
        self.waited = False
        self.pid = spawn(work)
        assert self.offspring.add(self.pid, self.group)
        self.history: list[int] = []

    def tick(self) -> None:
        self.offspring.scan(frozenset([self.group]))
        self.walker.tick()
        self.history.append(self.ticks)

    @property
    def ticks(self) -> int:
        return self.group.user + self.group.system

    def until_ended(self, period: float = 0.02) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            self.tick()
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
            time.sleep(period)
        self.tick()  # the zombie still has its account
        self.reap()

    def reap(self) -> resource.struct_rusage:
        if not self.waited:
            os.waitpid(self.pid, 0)
            self.waited = True
        return resource.getrusage(resource.RUSAGE_CHILDREN)

    @property
    def truth(self) -> tuple[float, int]:
        """CPU seconds and minor faults of the tree, by the kernel's own account of it."""
        after = self.reap()
        seconds = after.ru_utime + after.ru_stime - self.before.ru_utime - self.before.ru_stime
        return seconds, after.ru_minflt - self.before.ru_minflt

    def close(self) -> None:
        if not self.waited:
            os.kill(self.pid, signal.SIGKILL)
            self.reap()
        self.walker.close()


@pytest.fixture
def watched() -> Iterator[Callable[[Callable[[], None]], Watched]]:
    made: list[Watched] = []

    def make(work: Callable[[], None]) -> Watched:
        made.append(Watched(work))
        return made[-1]

    yield make
    for tree in made:
        tree.close()


Make = Callable[[Callable[[], None]], Watched]


def test_in_a_chain_of_depth_four_each_process_is_counted_once(watched: Make) -> None:
    tree = watched(lambda: chain(4, 0.1, linger=1.0))
    time.sleep(0.9)
    tree.tick()

    assert tree.group.processes == 4
    assert tree.ticks == pytest.approx(0.4 * HERTZ, abs=4 * 2)


def test_what_children_used_before_they_ended_is_not_lost_and_not_counted_twice(watched: Make) -> None:
    def work() -> None:
        for _ in range(5):
            os.waitpid(spawn(lambda: burn(0.06)), 0)
        chain(3, 0.05, linger=0.1)

    tree = watched(work)
    tree.until_ended()

    seconds, faults = tree.truth
    assert tree.group.minor == faults  # to the last one
    assert tree.ticks == pytest.approx(seconds * HERTZ, abs=ROUNDING)
    assert tree.history == sorted(tree.history)


def test_one_exiting_child_disturbs_nothing(watched: Make) -> None:
    def work() -> None:
        short, long = spawn(lambda: burn(0.05)), spawn(lambda: time.sleep(30))
        os.waitpid(short, 0)
        try:
            burn(0.2)
        finally:
            os.kill(long, signal.SIGKILL)
            os.waitpid(long, 0)

    tree = watched(work)
    tree.until_ended()

    seconds, faults = tree.truth
    assert tree.group.minor == faults
    assert tree.ticks == pytest.approx(seconds * HERTZ, abs=ROUNDING)
    assert tree.group.processes == 1  # the zombie, until the next tick
    tree.walker.tick()
    assert (tree.group.processes, tree.group.threads, tree.group.resident) == (0, 0, 0)
    assert tree.group.minor == faults


def test_children_of_a_parent_that_ignores_sigchld_keep_what_was_seen(watched: Make) -> None:
    def work() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        spawn(each(use(0.3), nap(0.3)))
        time.sleep(1.2)

    tree = watched(work)
    tree.until_ended()

    assert tree.ticks == pytest.approx(0.3 * HERTZ, abs=ROUNDING)
    assert tree.history == sorted(tree.history)


def test_an_orphan_of_a_double_fork_stays_in_the_tree(watched: Make) -> None:
    def work() -> None:
        def middle() -> None:
            spawn(each(use(0.2), nap(0.5)))
            time.sleep(0.1)

        os.waitpid(spawn(middle), 0)
        time.sleep(0.4)

    tree = watched(work)
    for _ in range(40):
        tree.tick()
        time.sleep(0.02)
    orphan = [member for member in tree.walker.members.values() if member.parent == 1]
    tree.until_ended()

    assert len(orphan) <= 1
    assert tree.ticks == pytest.approx(0.2 * HERTZ, abs=ROUNDING)
    assert tree.history == sorted(tree.history)


def test_a_daemon_that_detached_unseen_is_found_by_its_session(watched: Make) -> None:
    def work() -> None:
        os.setsid()
        os.waitpid(spawn(each(lambda: spawn(nap(3)))), 0)
        time.sleep(3)

    tree = watched(work)
    time.sleep(0.3)
    assert tree.offspring.add(tree.pid, tree.group)  # it leads its session by now
    tree.tick()

    pids = set(tree.walker.members) - {tree.pid}
    assert len(pids) == 1
    os.kill(pids.pop(), signal.SIGKILL)


def test_system_time_counts_as_well(watched: Make) -> None:
    def work() -> None:
        begun = os.times().system
        while os.times().system - begun < 0.2:
            os.stat("/")

    tree = watched(work)
    tree.until_ended()

    assert tree.group.system >= 0.2 * HERTZ - 2


def test_bytes_written_by_a_waited_for_child_count_once(
    watched: Make, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("io") / "file"
    size = 4 << 20

    def write() -> None:
        with path.open("wb") as file:
            file.write(b"x" * size)
            file.flush()
            os.fsync(file.fileno())
        time.sleep(0.2)

    tree = watched(each(lambda: os.waitpid(spawn(write), 0), nap(0.2)))
    tree.until_ended()

    if tree.group.written_bytes == 0:
        pytest.skip("this filesystem has no storage behind it")
    assert size <= tree.group.written_bytes < 1.5 * size


def test_a_reused_pid_is_another_process(watched: Make) -> None:
    tree = watched(lambda: time.sleep(30))
    identity = read_identity(HOST, tree.pid)
    assert identity is not None
    stranger = Group()

    assert tree.walker.follow(tree.pid, identity[2], stranger)  # known: stays where it is
    assert stranger.processes == 0
    assert tree.walker.follow(tree.pid, identity[2] + 1, stranger)  # the same id with another start
    assert (tree.group.processes, stranger.processes) == (0, 1)
    tree.walker.tick()
    assert (stranger.processes, stranger.minor) == (1, 0) or stranger.processes == 0


def test_beyond_the_descriptor_limit_processes_are_opened_at_each_tick(
    watched: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (512, 512))
    before = len(os.listdir("/proc/self/fd"))
    tree = watched(lambda: chain(3, 0.05, linger=0.3))
    tree.until_ended()

    seconds, faults = tree.truth
    assert len(os.listdir("/proc/self/fd")) == before
    assert tree.group.minor == faults
    assert tree.ticks == pytest.approx(seconds * HERTZ, abs=ROUNDING)


def test_there_are_no_more_members_than_allowed(watched: Make) -> None:
    tree = watched(lambda: chain(3, 0.0, linger=5))
    tree.walker._max = 2
    time.sleep(0.3)
    tree.tick()

    assert (tree.group.processes, tree.walker.refused) == (2, 1)


def test_a_sleeper_is_not_read_again_until_it_ran(watched: Make) -> None:
    tree = watched(each(nap(0.6), use(0.1), nap(30)))
    time.sleep(0.3)
    tree.tick()
    member = tree.walker.members[tree.pid]
    idle, before = member.idle, tree.ticks
    time.sleep(0.8)
    tree.tick()

    assert idle
    assert tree.ticks - before == pytest.approx(0.1 * HERTZ, abs=ROUNDING)


def test_gauges_follow_the_members(watched: Make) -> None:
    def hold() -> None:
        held = bytearray(50 << 20)
        time.sleep(30)
        del held

    tree = watched(hold)
    time.sleep(0.5)
    tree.tick()

    assert tree.group.resident * os.sysconf("SC_PAGE_SIZE") > 50 << 20
    assert tree.group.threads == 1
    assert tree.group.fds >= 3
    assert tree.group.voluntary > 0
    tree.walker.drop(tree.group)
    assert (tree.group.resident, tree.group.threads, tree.group.fds, tree.group.processes) == (0, 0, 0, 0)

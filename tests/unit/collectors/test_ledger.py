"""Totals that survive the end of processes, against a model of what the kernel does with their accounts."""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.collectors.ledger import Group, Ledger, Member
from sonde.collectors.procfs import Stat

INIT = 1


class Task:
    def __init__(self, pid: int, parent: int) -> None:
        self.pid, self.parent, self.zombie, self.ignores, self.subreaper = pid, parent, False, False, False
        self.own, self.waited, self.moved = [7, 0, 0, 0], [0, 0, 0, 0], [0, 0]


class Kernel:
    """fork, exit, wait and /proc/PID/stat as kernel/exit.c has them; pids are never reused here."""

    def __init__(self) -> None:
        self.tasks: dict[int, Task] = {}
        self.next = 100
        self.spent = 0  # by everybody, ever
        self.transferred = 0
        self.lost = False  # somebody ended without being waited for within the tree
        self.root = self.fork(INIT)

    def fork(self, parent: int) -> int:
        pid, self.next = self.next, self.next + 1
        self.tasks[pid] = Task(pid, parent)
        self.spent += 7
        return pid

    def burn(self, pid: int, amounts: list[int]) -> None:
        task = self.tasks[pid]
        task.own = [one + other for one, other in zip(task.own, amounts, strict=True)]
        task.moved[0] += amounts[0]
        self.spent += sum(amounts)
        self.transferred += amounts[0]

    def exit(self, pid: int) -> None:
        task = self.tasks[pid]
        task.zombie = True
        for child in [other for other in self.tasks.values() if other.parent == pid]:
            child.parent = self._reaper(task)
            if child.parent == INIT:
                self.lost = True
                if child.zombie:
                    del self.tasks[child.pid]
        parent = self.tasks.get(task.parent)
        if parent is None or parent.ignores:
            self.lost |= task.parent != INIT or pid != self.root
            del self.tasks[pid]

    def _reaper(self, task: Task) -> int:
        above = self.tasks.get(task.parent)
        while above is not None:
            if above.subreaper and not above.zombie:
                return above.pid
            above = self.tasks.get(above.parent)
        return INIT

    def wait(self, pid: int) -> None:
        task = self.tasks[pid]
        for child in [other for other in self.tasks.values() if other.parent == pid and other.zombie]:
            task.waited = [sum(three) for three in zip(task.waited, child.own, child.waited, strict=True)]
            task.moved = [one + other for one, other in zip(task.moved, child.moved, strict=True)]
            del self.tasks[child.pid]

    def stat(self, pid: int) -> Stat | None:
        task = self.tasks.get(pid)
        if task is None:
            return None
        own, waited = task.own, task.waited
        state = b"Z" if task.zombie else b"S"
        mine, theirs = (own[0], own[1], own[2], own[3]), (waited[0], waited[1], waited[2], waited[3])
        return Stat(state, mine, theirs, task.parent, 0, 1, pid)


class Observer:
    """Reads the model as the walker reads /proc; `between` runs between any two readings."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.group = Group()
        self.ledger = Ledger(self.read)
        self.between: Callable[[], None] = lambda: None

    @property
    def total(self) -> int:
        return self.group.minor + self.group.major + self.group.user + self.group.system

    def follow_everybody(self) -> None:
        for pid in self.kernel.tasks:
            if pid not in self.ledger.members:
                self.ledger.members[pid] = Member(pid, pid, self.group, 0)
                self.group.processes += 1

    def read(self, member: Member) -> Stat | None:
        self.between()
        return self.kernel.stat(member.pid)

    def tick(self) -> None:
        gone = {}
        for member in list(self.ledger.members.values()):
            task = self.kernel.tasks.get(member.pid)
            if task is not None:
                self.ledger.move(member, (task.moved[0], task.moved[1]))
            stat = self.read(member)
            if stat is None:
                gone[member.pid] = member
            else:
                self.ledger.account(member, stat)
        self.ledger.close_tick(gone)


def disturb(kernel: Kernel, chance: random.Random, *, orphans: bool) -> None:
    """Something happens to a random process: mostly work, sometimes birth, death or a wait."""
    living = [task for task in kernel.tasks.values() if not task.zombie]
    if not living:
        return
    task = chance.choice(living)
    happening = chance.randrange(6)
    if happening == 0 and len(living) < 12:
        kernel.fork(task.pid)
    elif happening == 1 and task.pid != kernel.root:
        has_children = any(other.parent == task.pid for other in kernel.tasks.values())
        if orphans or not has_children:
            kernel.exit(task.pid)
    elif happening == 2:
        kernel.wait(task.pid)
    else:
        kernel.burn(task.pid, [chance.randrange(1, 5), chance.randrange(2), chance.randrange(40), chance.randrange(9)])


def everybody_waits(kernel: Kernel) -> None:
    for task in sorted(kernel.tasks.values(), key=lambda task: -task.pid):
        if task.pid in kernel.tasks and not task.zombie:
            kernel.wait(task.pid)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_what_every_process_spent_is_counted_exactly_once_whenever_it_ends_and_is_waited_for(seed: int) -> None:
    chance = random.Random(seed)
    kernel = Kernel()
    observer = Observer(kernel)
    highest = 0
    for _ in range(12):
        for _ in range(chance.randrange(12)):
            disturb(kernel, chance, orphans=False)
        if chance.randrange(3):
            observer.follow_everybody()
        noisy = chance.randrange(2)
        observer.between = (lambda: disturb(kernel, chance, orphans=False)) if noisy else (lambda: None)
        observer.tick()
        assert observer.total >= highest
        highest = observer.total

    observer.between = lambda: None
    everybody_waits(kernel)
    observer.follow_everybody()
    observer.tick()
    observer.tick()

    assert observer.total == kernel.spent
    assert observer.group.read_bytes == kernel.transferred


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_orphans_subreapers_and_ignored_children_are_never_counted_twice_nor_backwards(seed: int) -> None:
    chance = random.Random(seed)
    kernel = Kernel()
    kernel.tasks[kernel.root].subreaper = bool(chance.randrange(2))
    observer = Observer(kernel)
    highest = 0
    for _ in range(15):
        for _ in range(chance.randrange(10)):
            disturb(kernel, chance, orphans=True)
        for task in kernel.tasks.values():
            task.ignores = task.ignores or not chance.randrange(20)
        observer.follow_everybody()
        observer.tick()
        assert highest <= observer.total <= kernel.spent
        highest = observer.total


def test_a_member_of_another_group_that_is_waited_for_is_not_counted_in_its_parents_group() -> None:
    kernel = Kernel()
    child = kernel.fork(kernel.root)
    outer, inner = Group(), Group()
    observer = Observer(kernel)
    observer.ledger.members[kernel.root] = Member(kernel.root, kernel.root, outer, 0)
    observer.ledger.members[child] = Member(child, child, inner, 1)
    kernel.burn(child, [1, 0, 50, 5])
    observer.tick()
    kernel.exit(child)
    kernel.wait(kernel.root)
    observer.tick()

    assert (inner.user, inner.system) == (50, 5)
    assert (outer.user, outer.system) == (0, 0)

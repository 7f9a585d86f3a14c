"""The process ids that came and went."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sonde.errors import ParseError, Unavailable
from sonde.hostfs import HostFS
from sonde.schedulers.pids import PidTable, parse_forks


@pytest.fixture
def host(scratch: Callable[[str], HostFS]) -> HostFS:
    return scratch("slurm_v2")


def set_forks(host: HostFS, count: int) -> None:
    Path(host.path("proc/stat")).write_text(f"cpu  0\nprocesses {count}\nprocs_running 1\n")


def test_only_new_ids_are_presented(host: HostFS) -> None:
    table = PidTable(host)
    first = table.changes()
    Path(host.path("proc/400")).mkdir()
    second = table.changes()
    Path(host.path("proc/400")).rmdir()
    third = table.changes()

    assert first == ([1, 300, 301, 310, 311], [])
    assert second == ([400], [])
    assert third == ([], [400])


def test_ids_are_presented_again_on_request_while_they_last(host: HostFS) -> None:
    table = PidTable(host)
    table.changes()
    table.again([310, 999])

    assert table.changes() == ([310], [])
    assert table.changes() == ([], [])


def test_once_ids_may_have_been_reused_all_are_new(host: HostFS) -> None:
    Path(host.path("proc/sys/kernel/pid_max")).write_text("32768\n")
    set_forks(host, 5000)
    table = PidTable(host)
    table.changes()
    set_forks(host, 5000 + 16383)
    before = table.changes()
    set_forks(host, 5000 + 16384)
    after = table.changes()

    assert before == ([], [])
    assert after == ([1, 300, 301, 310, 311], [])


def test_proc_is_not_listed_when_nobody_can_have_come_or_gone(host: HostFS) -> None:
    load = Path(host.path("proc/loadavg"))
    load.write_text("0.03 0.07 0.03 2/85 2118\n")
    table = PidTable(host)
    table.changes()
    Path(host.path("proc/400")).mkdir()
    unchanged = table.changes()
    load.write_text("0.03 0.07 0.03 2/86 2118\n")
    after_more_threads = table.changes()
    Path(host.path("proc/401")).mkdir()
    set_forks(host, 5001)
    after_a_fork = table.changes()

    assert unchanged == ([], [])
    assert after_more_threads == ([400], [])
    assert after_a_fork == ([401], [])


def test_without_proc_it_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="/proc"):
        PidTable(HostFS(str(tmp_path)))


def test_forks_are_read_or_refused() -> None:
    assert parse_forks(b"cpu 1\nprocesses 2118\nprocs_running 1\n") == 2118
    assert parse_forks(b"cpu 1\n") == 0
    with pytest.raises(ParseError):
        parse_forks(b"cpu 1\nprocesses x\n")

"""The accounting files of a job's cgroup."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.collectors.cgroup import (
    SLOW,
    V1_MEMORY,
    V2_CPU,
    Account,
    Keyed,
    Limit,
    Number,
    Part,
    Pressure,
    Reshaped,
    Scalar,
    Transfers,
    Vanished,
    _blkio,
    _io_stat,
)
from sonde.errors import ParseError
from sonde.hostfs import HostFile, HostFS
from sonde.schedulers.cgroupfs import mounts

V1 = "/slurm/uid_1000/job_77"
V1_CGROUPS = dict.fromkeys(("cpu", "cpuacct", "memory", "freezer"), V1)
LEAVES = [f"{V1}/step_batch/task_0", f"{V1}/step_0/task_0", f"{V1}/step_0/task_1", f"{V1}/step_9/gone"]
V2 = {"": "/system.slice/slurmstepd.scope/job_88"}


def numbers(account: Account) -> dict[str, Number]:
    return dict(zip(account.keys, account.read(), strict=True))


def test_every_number_of_a_v1_job(captured: Callable[[str], HostFS]) -> None:
    host = captured("slurm_v1")
    account = Account(host, mounts(host), V1_CGROUPS, LEAVES)
    found = numbers(account)
    account.close()

    assert found == {
        "cpu_user": 57.64,
        "cpu_system": 22.02,
        "periods": 40,
        "throttled_periods": 7,
        "throttled": 1.5,
        "rss": 7659520 + 3448832,
        "anonymous": 7659520,
        "cache": 59867136,
        "swap": 4096,
        "faults": 1720698,
        "major_faults": 910,
        "usage": 67526656,
        "peak": 122638336,
        "limit": 4294967296,
        "limit_hits": 3,
        "oom_kills": 1,
    }
    assert account.missing == {}


def test_every_number_of_a_v2_job(captured: Callable[[str], HostFS]) -> None:
    host = captured("slurm_v2")
    account = Account(host, mounts(host), V2, ())
    found = numbers(account)
    account.close()

    assert found == {
        "cpu_usage": 5.5,
        "cpu_user": 4.0,
        "cpu_system": 1.5,
        "periods": 10,
        "throttled_periods": 2,
        "throttled": 0.25,
        "rss": 73400320 + 10485760,
        "anonymous": 73400320,
        "cache": 20971520,
        "faults": 123456,
        "major_faults": 12,
        "usage": 104857600,
        "peak": 209715200,
        "swap": 8192,
        "limit": 1073741824,
        "limit_hits": 5,
        "oom_kills": 1,
        "read": 1004096,
        "written": 8192,
        "threads": 42,
        "waiting_cpu": 1.5,
        "stalled_cpu": 0.5,
        "waiting_memory": 0.0,
        "stalled_memory": 0.0,
        "waiting_io": 0.25,
        "stalled_io": 0.1,
    }


def test_keys_of_one_file_are_not_added_to_those_of_another() -> None:
    part = Keyed(b"total_cache 1\ntotal_rss 10\ntotal_mapped_file 100\ntotal_swap 1000\n", V1_MEMORY)

    values = part.parse(b"total_cache 1\ntotal_rss 10\ntotal_mapped_file 100\ntotal_swap 1000\n")

    assert dict(zip(part.keys, values, strict=True)) == {"rss": 110, "anonymous": 10, "cache": 1, "swap": 1000}


def test_a_file_that_cannot_be_read_takes_only_its_own_keys_away(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("slurm_v2")
    directory = Path(host.path("sys/fs/cgroup" + V2[""]))
    (directory / "memory.stat").write_text("odd")
    (directory / "io.stat").unlink()
    account = Account(host, mounts(host), V2, ())
    account.close()

    assert {"cpu_user", "usage", "waiting_io"} <= set(account.keys)
    assert not {"rss", "faults", "read", "written"} & set(account.keys)
    assert set(account.missing) == {"memory.stat"}


def test_a_limit_that_is_lifted_or_set_reshapes_the_account(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("slurm_v2")
    account = Account(host, mounts(host), V2, ())
    path = Path(host.path("sys/fs/cgroup" + V2[""] + "/memory.max"))
    path.write_text("max\n")
    for _ in range(SLOW - 1):
        account.read()

    with pytest.raises(Reshaped):
        account.read()
    account.close()


@pytest.mark.parametrize("text", [b"max\n", b"9223372036854771712\n"])
def test_no_limit_is_no_value(text: bytes) -> None:
    assert Limit(text, "limit").keys == ()


class Removed(HostFile):
    """A file of a cgroup that is removed after the first reading."""

    def read(self) -> bytes:
        if self._enough < 0:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        self._enough = -self._enough
        return os.pread(self._fd, 16384, 0)


class HostThatRemoves(HostFS):
    __slots__ = ()

    def record(self, name: str) -> HostFile:
        kept = super().record(name)
        removed = Removed(kept.path, os.dup(kept._fd), iterated=False)
        kept.close()
        return removed


def test_a_cgroup_that_is_removed_has_vanished(captured: Callable[[str], HostFS]) -> None:
    host = HostThatRemoves(captured("slurm_v2").root)
    account = Account(host, mounts(host), V2, ())

    with pytest.raises(Vanished):
        account.read()
    account.close()


def test_oom_kills_of_a_task_that_has_ended_stay_counted(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("slurm_v1")
    memory = Path(host.path("sys/fs/cgroup/memory" + V1))
    account = Account(host, mounts(host), V1_CGROUPS, LEAVES)
    before = numbers(account)["oom_kills"]
    (memory / "step_0/task_0/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    after = [numbers(account)["oom_kills"] for _ in range(4)][-1]
    (memory / "step_1").mkdir()
    (memory / "step_1/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n")
    account.add_leaves([f"{V1}/step_1"])
    added = numbers(account)["oom_kills"]
    account.close()

    assert (before, after, added) == (1, 3, 8)


def test_blkio_and_io_stat_are_summed_over_devices() -> None:
    v1 = b"8:0 Read 10\n8:0 Write 20\n8:0 Sync 1\n8:0 Total 30\n259:0 Read 5\n259:0 Write 7\nTotal 42\n"

    assert _blkio(v1) == (15, 27)
    assert _io_stat(b"8:0 rbytes=1 wbytes=2 rios=3\n253:0 \n") == (1, 2)
    assert _io_stat(b"") == (0, 0)


PARTS: list[tuple[Callable[[bytes], Part], bytes]] = [
    (lambda text: Keyed(text, V2_CPU), b"usage_usec 9\nuser_usec 5\nsystem_usec 4\n"),
    (lambda text: Scalar(text, "usage"), b"104857600\n"),
    (lambda text: Limit(text, "limit"), b"1073741824\n"),
    (lambda text: Transfers(text, _blkio), b"8:0 Read 4096\n8:0 Write 0\nTotal 4096\n"),
    (lambda text: Transfers(text, _io_stat), b"8:0 rbytes=4096 wbytes=0 rios=1 wios=0\n"),
    (
        lambda text: Pressure(text, "io"),
        b"some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0 a=0 b=0 total=0\n",
    ),
]


@pytest.mark.parametrize(("make", "text"), PARTS)
def test_mutated_text_is_parsed_or_refused(make: Callable[[bytes], Part], text: bytes) -> None:
    part = make(text)

    @given(st.integers(0, len(text)), st.integers(0, len(text)), st.binary(max_size=4))
    def check(start: int, end: int, inserted: bytes) -> None:
        try:
            values = part.parse(text[:start] + inserted + text[end:])
        except (ParseError, Reshaped):
            return
        assert len(values) == len(part.keys)

    check()

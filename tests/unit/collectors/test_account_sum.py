"""The accounts of several pods as one."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from sonde.collectors.account_sum import Sum
from sonde.collectors.cgroup import Number, Reshaped, Vanished
from sonde.hostfs import HostFile, HostFS
from sonde.schedulers.cgroupfs import mounts

SLICES = "/kubepods.slice/kubepods-burstable.slice"
ONE = f"{SLICES}/kubepods-burstable-pod1f2e3d4c_5b6a_4789_8abc_def012345678.slice"
TWO = f"{SLICES}/kubepods-burstable-pod2a3b4c5d_6e7f_4801_9abc_0123456789ab.slice"
PARTS = {"one": {"": ONE}, "two": {"": TWO}}


def numbers(account: Sum) -> dict[str, Number]:
    return dict(zip(account.keys, account.read(), strict=True))


@pytest.fixture
def both(scratch: Callable[[str], HostFS]) -> tuple[HostFS, Sum]:
    host = scratch("kube_systemd")
    account = Sum(host, mounts(host))
    account.follow(PARTS, ())
    return host, account


def end(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What kernfs answers for a directory that was removed."""
    real = HostFile.read

    def read(file: HostFile) -> bytes:
        if part in file.path:
            raise OSError(errno.ENODEV, "No such device")
        return real(file)

    monkeypatch.setattr(HostFile, "read", read)


def test_parts_are_added_up(both: tuple[HostFS, Sum]) -> None:
    found = numbers(both[1])
    both[1].close()

    assert (found["cpu_usage"], found["cpu_user"]) == (120.0, 90.0)
    assert (found["threads"], found["limit"], found["oom_kills"]) == (52, 16 << 30, 1)


def test_counters_of_an_ended_part_stay_and_levels_go(
    both: tuple[HostFS, Sum], monkeypatch: pytest.MonkeyPatch
) -> None:
    account = both[1]
    account.read()
    end(ONE, monkeypatch)
    found = numbers(account)
    account.follow(PARTS, ())  # a scan that still knows of it
    again = numbers(account)
    parts = account.parts
    account.close()

    assert (found["cpu_usage"], found["threads"], found["limit"]) == (120.0, 12, 8 << 30)
    assert again == found
    assert parts == ["two"]


def test_with_the_last_part_the_job_has_vanished(both: tuple[HostFS, Sum], monkeypatch: pytest.MonkeyPatch) -> None:
    end("kubepods", monkeypatch)

    with pytest.raises(Vanished):
        both[1].read()


def test_a_key_that_one_part_lacks_is_no_key_of_the_sum(both: tuple[HostFS, Sum]) -> None:
    host, account = both
    Path(host.path(f"sys/fs/cgroup{TWO}/memory.max")).write_text("max\n")
    for _ in range(20):
        try:
            account.read()
        except Reshaped:
            break
    found = numbers(account)
    account.close()

    assert "limit" not in found
    assert found["cpu_usage"] == 120.0


def test_a_part_that_comes_later_is_added(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("kube_systemd")
    account = Sum(host, mounts(host))
    account.follow({"one": PARTS["one"]}, ())
    before = numbers(account)["cpu_usage"]
    account.follow(PARTS, ())
    after = numbers(account)["cpu_usage"]
    account.close()

    assert (before, after) == (90.0, 120.0)

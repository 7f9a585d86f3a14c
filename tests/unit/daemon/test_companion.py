"""The process that a private daemon ends with."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from sonde.daemon.companion import Companion, follow, started
from sonde.hostfs import HostFS

if TYPE_CHECKING:
    from tests.conftest import RunningLoop

HOST = HostFS()


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as sleeping:
        yield sleeping
        sleeping.kill()


@pytest.fixture
def followed(loop: RunningLoop) -> Callable[[Companion], threading.Event]:
    def start(companion: Companion) -> threading.Event:
        ended = threading.Event()
        loop.call(lambda: follow(loop, HOST, companion, ended.set))
        return ended

    return start


def refuse(*_: object) -> int:
    raise OSError(38, "Function not implemented")


@pytest.mark.parametrize("kernel", ["5.3", "5.2"])
def test_the_end_of_the_process_is_noticed(
    process: subprocess.Popen[bytes],
    followed: Callable[[Companion], threading.Event],
    kernel: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if kernel == "5.2":
        monkeypatch.setattr(os, "pidfd_open", refuse)
    ended = followed(Companion(process.pid, started(HOST, process.pid)))
    early = ended.wait(0.2)
    process.kill()
    process.wait()

    assert not early
    assert ended.wait(5)


def test_one_that_has_ended_already_or_whose_pid_is_anothers_now_is_noticed_at_once(
    process: subprocess.Popen[bytes], followed: Callable[[Companion], threading.Event]
) -> None:
    another = followed(Companion(process.pid, started(HOST, process.pid) - 1))
    process.kill()
    process.wait()
    gone = followed(Companion(process.pid, 1))

    assert another.wait(5)
    assert gone.wait(5)

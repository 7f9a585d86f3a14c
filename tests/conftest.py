"""Fixtures every tier uses: captured hosts, and a writable copy of one."""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import pytest
from tests.authority import Authority

from sonde.hostfs import HostFS
from sonde.loop import Loop

collect_ignore = ["fixtures/hosts"]  # no tests in there, and sysfs has links that lead in circles
HOSTS = Path(__file__).parent / "fixtures" / "hosts"
T = TypeVar("T")

# A shell starts what it sends to the background with SIGINT ignored, and what is ignored stays so in every program that
# is started from there (execve(2)): Ctrl-C would be tested on programs that cannot hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def captured() -> Callable[[str], HostFS]:
    """A captured host by name, read-only by convention; tests/fixtures/hosts/README.md tells where each comes from."""
    return lambda name: HostFS(str(HOSTS / name))


@pytest.fixture
def scratch(tmp_path: Path) -> Callable[[str], HostFS]:
    """A writable copy of a captured host, for devices that come, go and count backwards."""

    def copy(name: str) -> HostFS:
        shutil.copytree(HOSTS / name, tmp_path / name, symlinks=True)
        return HostFS(str(tmp_path / name))

    return copy


class RunningLoop(Loop):
    """A loop that runs in a thread of its own."""

    def call(self, function: Callable[[], T]) -> T:
        """Call in the loop's thread and wait for the result."""
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001 - the waiting thread gets it
                future.set_exception(error)

        self.post(work)
        return future.result(timeout=20)


@pytest.fixture
def loop() -> Iterator[RunningLoop]:
    loop = RunningLoop()
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    yield loop
    loop.stop()
    thread.join(20)
    assert not thread.is_alive()
    loop.close()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Signs certificates that a client trusts who is given its `ca`."""
    return Authority(tmp_path_factory.mktemp("authority"))

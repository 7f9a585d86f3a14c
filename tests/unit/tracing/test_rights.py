"""Files looked at with the rights of another user: in a thread that has them, and in no other."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lacking import lacking
from tests.publicly import open_to_all

from sonde.errors import Denied, Unavailable
from sonde.hostfs import HostFS
from sonde.tracing.rights import (
    Rights,
    check_directory,
    is_running,
    rights_of,
    root_of,
    twin_of,
    with_rights,
)

SOMEBODY = Rights(54321, 54322, (54323, 54324))


@pytest.fixture(autouse=True)
def as_root() -> None:
    if os.geteuid():
        lacking("only root can take on another user's rights")


@pytest.fixture
def root() -> Iterator[int]:
    fd = os.open("/", os.O_PATH | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def credentials() -> list[list[str]]:
    """Uid, Gid and Groups of the calling thread."""
    text = Path("/proc/thread-self/status").read_text()
    return [line.split()[1:] for line in text.splitlines() if line.startswith(("Uid:", "Gid:", "Groups:"))]


def test_only_the_working_thread_has_the_rights() -> None:
    others: list[list[list[str]]] = []

    def work() -> list[list[str]]:
        looking = threading.Thread(target=lambda: others.append(before))
        looking.start()
        looking.join()
        return credentials()

    before = credentials()
    inside = with_rights(SOMEBODY, work)

    assert inside == [["54321"] * 4, ["54322"] * 4, ["54323", "54324"]]
    assert credentials() == before
    assert os.geteuid() == 0


def test_what_the_user_may_not_read_is_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)

    with pytest.raises(PermissionError):
        with_rights(SOMEBODY, secret.read_text)


def test_what_work_returns_and_raises_comes_back() -> None:
    assert with_rights(SOMEBODY, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        with_rights(SOMEBODY, lambda: 1 // 0)


def test_the_groups_are_those_the_process_has() -> None:
    with subprocess.Popen(["sleep", "20"], user=54321, group=54322, extra_groups=[54323], cwd="/") as process:
        rights = rights_of(HostFS(), process.pid, 54321, 54322)
        process.kill()

    assert rights == Rights(54321, 54322, (54323,))


def test_a_directory_is_tried_with_the_rights_of_the_user(tmp_path: Path, root: int) -> None:
    open_to_all(tmp_path)
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    os.chown(own, SOMEBODY.uid, SOMEBODY.gid)
    others = tmp_path / "others"
    others.mkdir(mode=0o755)
    (tmp_path / "file").write_text("")

    with_rights(SOMEBODY, lambda: check_directory(root, str(own)))

    with pytest.raises(Denied, match="cannot be written to by the process' user"):
        with_rights(SOMEBODY, lambda: check_directory(root, str(others)))
    with pytest.raises(Unavailable, match="does not exist"):
        with_rights(SOMEBODY, lambda: check_directory(root, str(tmp_path / "none")))
    with pytest.raises(Unavailable, match="Not a directory"):
        with_rights(SOMEBODY, lambda: check_directory(root, str(tmp_path / "file")))
    assert list(own.iterdir()) == []


def test_a_process_that_has_ended_leaves_our_root_or_none() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass

    os.close(root_of(HostFS(), process.pid, "self"))
    with pytest.raises(Unavailable, match="the filesystem it saw is gone"):
        root_of(HostFS(), process.pid, "")


def test_a_process_in_a_mount_namespace_of_its_own_sees_other_files() -> None:
    command = ["unshare", "-m", sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()

        assert twin_of(HostFS(), process.pid) == ""
        assert twin_of(HostFS(), os.getpid()) == "self"


OBSERVER = """
import sys
from sonde.hostfs import HostFS
from sonde.tracing.rights import twin_of
print(twin_of(HostFS(), int(sys.argv[1])))
"""


def test_a_process_that_sees_what_process_1_sees_has_a_twin_though_we_see_something_else() -> None:
    script = f'sleep 20 & unshare -m {sys.executable} -c "$1" $!; kill $!'
    namespace = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", script, "sh", OBSERVER]
    told = subprocess.run(namespace, capture_output=True, text=True, timeout=20)

    assert told.stdout.strip() == "1", told.stderr


def test_a_daemon_that_may_not_be_another_user_says_so() -> None:
    def be_somebody_and_try_another() -> int:
        return with_rights(Rights(SOMEBODY.uid + 1, SOMEBODY.gid), lambda: 1)

    # The thread is somebody's, the process still root's: what it has not, it cannot give.
    with pytest.raises(Denied, match="may not act for user 54322: setgroups: Operation not permitted"):
        with_rights(SOMEBODY, be_somebody_and_try_another)


def test_another_process_of_the_same_number_is_another_process() -> None:
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])

    assert is_running(HostFS(), os.getpid(), ticks)
    assert not is_running(HostFS(), os.getpid(), ticks - 1)

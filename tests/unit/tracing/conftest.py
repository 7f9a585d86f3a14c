"""Processes to identify: real ones that look like training, and trees of /proc for what cannot be started here."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.trainee import LIBTORCH, Trainee, start_trainee

from sonde.hostfs import HostFS
from sonde.ipc.endpoint import Endpoint
from sonde.ipc.processes import Process, Processes

if TYPE_CHECKING:
    from tests.conftest import RunningLoop


class Scene:
    """A table of processes behind a socket, and the trainees that speak to it."""

    def __init__(self, loop: RunningLoop, folder: Path) -> None:
        self.loop = loop
        self.folder = folder
        self.host = HostFS()
        self.processes = Processes(loop, self.host)
        self.endpoint = Endpoint(loop, self.processes.handle)
        self.address = f"@sonde-test-{uuid.uuid4().hex}@"
        self.trainees: list[Trainee] = []
        loop.call(lambda: self.endpoint.listen(self.address.replace("@", "\0").encode()))

    def trainee(
        self,
        environ: Mapping[str, str] | None = None,
        *,
        libraries: Sequence[str] = (LIBTORCH,),
        wrapper: Sequence[str] = (),
    ) -> Trainee:
        found = start_trainee(self.address, self.folder, environ or {}, libraries=libraries, wrapper=wrapper)
        self.trainees.append(found)
        return found

    def process(self, trainee: Trainee) -> Process:
        found = self.processes.get(trainee.pid)
        assert found is not None
        return found

    def close(self) -> None:
        self.loop.call(self.endpoint.close)
        self.loop.call(self.processes.close)
        for trainee in self.trainees:
            trainee.end()


@pytest.fixture
def scene(loop: RunningLoop, tmp_path: Path) -> Iterator[Scene]:
    found = Scene(loop, tmp_path)
    yield found
    found.close()


MAPS = (
    "7f33c3800000-7f33d7de5000 r-xp 00000000 fe:00 226 /venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so\n"
)


class Tree:
    """A /proc that is written down. `maps` of different processes have different addresses, as randomised."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.host = HostFS(str(root))
        (root / "proc").mkdir()
        (root / "proc/uptime").write_text("1000.00 900.00\n")
        self.link("self/ns/net", "net:[1]")

    def link(self, name: str, target: str) -> None:
        path = self.root / "proc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def add(
        self,
        pid: int,
        parent: int = 1,
        *,
        command: str = "python train.py",
        torch: bool = True,
        base: int = 0,
        state: str = "S",
        session: int = 0,
        cgroup: str = "/",
        network: str = "net:[1]",
        uid: int = 1000,
        started: int = 1000,
        environ: Mapping[str, str] | None = None,
    ) -> int:
        """`base` is the process whose addresses it has: its parent's, when it is a child of fork."""
        folder = self.root / f"proc/{pid}"
        folder.mkdir()
        numbers = " ".join(map(str, [parent, pid, session or pid, *[0] * 15, started, *[0] * 30]))
        (folder / "stat").write_text(f"{pid} (python) {state} {numbers}\n")
        (folder / "status").write_text(f"Name:\tpython\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nNSpid:\t{pid}\n")
        (folder / "cgroup").write_text(f"0::{cgroup}\n")
        (folder / "cmdline").write_text(command.replace(" ", "\0") + "\0")
        (folder / "environ").write_text("".join([f"{name}={value}\0" for name, value in (environ or {}).items()]))
        (folder / "maps").write_text(MAPS.replace("7f33c380", f"7f33{base or pid:04x}") if torch else "")
        self.link(f"{pid}/ns/net", network)
        return pid


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)

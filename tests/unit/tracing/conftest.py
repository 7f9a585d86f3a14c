"""Processes to identify: real ones that look like training, and trees of /proc for what cannot be started here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sonde.hostfs import HostFS
from sonde.ipc.endpoint import Endpoint
from sonde.ipc.processes import Process, Processes

if TYPE_CHECKING:
    from tests.conftest import RunningLoop

# Maps what it is given, as the loader maps a library, then does what each line says: `poll KINDS JOB PID…` asks the
# daemon once, `fork` makes a child that ends with it and prints the child's pid.
TRAINEE = """
import ctypes, mmap, os, signal, socket, sys
from sonde.agent import wire
address, *libraries = sys.argv[1:]
files = [open(path, "rb") for path in libraries]
kept = [mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) for file in files]
sock = None
print("ready", flush=True)
for line in sys.stdin:
    word, *numbers = line.split()
    if word == "fork":
        if not os.fork():
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
            print(os.getpid(), flush=True)  # only now: it would outlive a parent that ends before
            signal.pause()
        continue
    if sock is None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sock.bind(wire.client_address("-test-%d" % os.getpid()))
        sock.settimeout(5)
    kinds, job_id, *pids = map(int, numbers)
    name = address.replace("@", "\\0").encode()
    sock.sendto(wire.pack_request(wire.Request(kinds, job_id, tuple(pids) or (os.getpid(),))), name)
    print(repr(wire.parse_config(wire.parse(sock.recv(65536))[1])), flush=True)
"""
LIBTORCH = "libtorch_cpu.so"


class Trainee:
    def __init__(self, child: subprocess.Popen[str]) -> None:
        self.child = child
        self.pid = child.pid

    def say(self, words: str) -> str:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(words + "\n")
        self.child.stdin.flush()
        return self.child.stdout.readline().strip()

    def poll(self, kinds: int = 3, job_id: int = 0, *pids: int) -> None:
        assert self.say(f"poll {kinds} {job_id} {' '.join(map(str, pids))}") == "''"

    def fork(self) -> int:
        return int(self.say("fork"))

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)


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
        paths = [self.folder / name for name in libraries]
        for path in paths:
            path.write_bytes(b"\0" * 4096)
        inherited = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        child = subprocess.Popen(
            [*wrapper, sys.executable, "-c", TRAINEE, self.address, *map(str, paths)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**inherited, **(environ or {})},
        )
        found = Trainee(child)
        self.trainees.append(found)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        return found

    def process(self, trainee: Trainee) -> Process:
        found = self.processes.get(trainee.pid)
        assert found is not None
        return found

    def close(self) -> None:
        self.loop.call(self.endpoint.close)
        self.loop.call(self.processes.close)
        for trainee in self.trainees:
            trainee.signal(signal.SIGKILL)
            trainee.child.communicate()


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

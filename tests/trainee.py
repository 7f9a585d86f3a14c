"""A process that looks like training and speaks libkineto's language, without PyTorch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

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

    def end(self) -> None:
        self.signal(signal.SIGKILL)
        self.child.communicate()


def start_trainee(
    address: str,
    folder: Path,
    environ: Mapping[str, str],
    *,
    libraries: Sequence[str] = (LIBTORCH,),
    wrapper: Sequence[str] = (),
) -> Trainee:
    """Polls `address`, with @ for NUL; its `libraries` are files of these names in `folder`."""
    paths = [folder / name for name in libraries]
    for path in paths:
        path.write_bytes(b"\0" * 4096)
    inherited = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    child = subprocess.Popen(
        [*wrapper, sys.executable, "-c", TRAINEE, address, *map(str, paths)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**inherited, **environ},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return Trainee(child)

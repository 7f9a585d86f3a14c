"""A Slurm cluster whose nodes are hosts of their own on one machine: network, name, processes and /tmp of each.

A node is a set of namespaces (namespaces(7)) that live as long as their first process: when that is killed, the kernel
ends everything in them and takes their network apart. All nodes are on one Ethernet, a bridge in namespaces of its own;
`login` is the one that users sit at and the controller runs on. What they share is one directory, as clusters share
/etc/slurm: SHARED.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.integration.conftest import require
from tests.lacking import lacking

SHARED = "/mnt"  # where every node sees the directory of the cluster
SONDE = str(Path(sys.executable).with_name("sonde"))
PATIENCE = 60.0  # seconds; a machine of two cores may be busy
_NETWORK = "10.99.7"
# The first process of a node inherits orphans, as slurmstepd is one, and must take note of their ends.
_INIT = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
while True:
    try:
        os.wait()
    except ChildProcessError:
        time.sleep(0.2)
"""
_SETUP = """
set -e
hostname "$NODE"
ip link set lo up
mount --bind "$FOLDER" {shared}
mount --bind "$FOLDER/hosts" /etc/hosts
mkdir "$FOLDER/tmp.$NODE"
mount -t tmpfs -o mode=1777 tmpfs "$FOLDER/tmp.$NODE"
# A checkout below /tmp must be seen in there too: its programs run on the node.
case "$ROOT" in /tmp/*)
  mkdir -p "$FOLDER/tmp.$NODE/${{ROOT#/tmp/}}"
  mount --bind "$ROOT" "$FOLDER/tmp.$NODE/${{ROOT#/tmp/}}"
esac
mount --move "$FOLDER/tmp.$NODE" /tmp
mount -t tmpfs -o mode=755 tmpfs /run
exec "$PYTHON" -S -c "$INIT"
"""


def root_only() -> None:
    if os.geteuid():
        lacking("hosts of the tests are made by root")


ROOT = Path(__file__).parents[1]


class Node:
    """One host. Its commands run in its namespaces."""

    def __init__(self, name: str, address: str, folder: Path) -> None:
        self.name = name
        self.address = address
        environ = {
            "NODE": name,
            "FOLDER": str(folder),
            "INIT": _INIT,
            "PYTHON": sys.executable,
            "ROOT": str(ROOT),
            **_path(),
        }
        command = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        setup = _SETUP.format(shared=SHARED)
        with (folder / "log" / f"{name}.node").open("wb") as log:
            self._holder = subprocess.Popen([*command, "sh", "-c", setup], env=environ, stdout=log, stderr=log)
        self.pid = self._first()
        self._started: list[subprocess.Popen[bytes]] = []

    def _first(self) -> int:
        """The pid of its first process, once that has set everything up."""
        until = time.monotonic() + PATIENCE
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        while True:
            pid = children.read_text().split()
            if pid and Path(f"/proc/{pid[0]}/comm").read_text().startswith("python"):
                return int(pid[0])
            assert self._holder.poll() is None, f"{self.name} did not start"
            assert time.monotonic() < until, f"{self.name} did not start"
            time.sleep(0.01)

    def _words(self, *words: str) -> list[str]:
        spaces = ("--net", "--uts", "--mount", "--pid")
        return ["nsenter", f"--target={self.pid}", *spaces, f"--wd={SHARED}", "--", *words]

    def start(self, name: str, *words: str, environ: Mapping[str, str] | None = None) -> None:
        """Start a program that stays; `end` ends it."""
        shell = f'echo $$ >/run/{name}.pid; exec "$@" >{SHARED}/log/{name}.{self.name} 2>&1'
        command = self._words("sh", "-c", shell, name, *words)
        self._started.append(subprocess.Popen(command, env={**os.environ, **(environ or {})}))

    def end(self, name: str, signal: str = "TERM") -> None:
        self.run("sh", "-c", f"kill -{signal} $(cat /run/{name}.pid)")

    def run(
        self, *words: str, environ: Mapping[str, str] | None = None, timeout: float = PATIENCE
    ) -> subprocess.CompletedProcess[str]:
        command = self._words(*words)
        given = {**os.environ, **(environ or {})}
        return subprocess.run(command, env=given, capture_output=True, text=True, timeout=timeout)

    def stop(self) -> None:
        """Kill its first process: the kernel ends all others."""
        self._holder.kill()
        self._holder.wait()
        for process in self._started:
            process.wait(PATIENCE)


def _path() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"}


class Cluster:
    """`login`, n1, n2, …, with Slurm, and a sonde daemon with certificates on each of the latter."""

    def __init__(self, folder: Path, count: int) -> None:
        for program in ("munged", "slurmctld", "slurmd", "unshare", "nsenter", "ip"):
            require(program)
        self.folder = folder
        self.names = [f"n{number}" for number in range(1, count + 1)]
        self.nodes: dict[str, Node] = {}
        self._switch: Node | None = None
        self.environ = {"SLURM_CONF": f"{SHARED}/slurm.conf", "PYTHONPATH": os.pathsep.join(sys.path)}
        for name in ("log", "munge", "state", "meet", *(f"spool.{node}" for node in self.names)):
            (folder / name).mkdir()
        self._addresses = {name: f"{_NETWORK}.{number}" for number, name in enumerate(["login", *self.names], 1)}
        hosts = [f"{address} {name}" for name, address in self._addresses.items()]
        (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts]) + "\n")
        (folder / "slurm.conf").write_text("\n".join(self._slurm_conf()) + "\n")

    @property
    def login(self) -> Node:
        return self.nodes["login"]

    def _slurm_conf(self) -> list[str]:
        nodes = [
            f"NodeName={name} NodeAddr={self._addresses[name]} CPUs=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1"
            " RealMemory=2000 State=UNKNOWN"
            for name in self.names
        ]
        return [
            "ClusterName=test",
            f"SlurmctldHost=login({self._addresses['login']})",
            "SlurmUser=root",
            "SlurmdUser=root",
            "AuthType=auth/munge",
            f"AuthInfo=socket={SHARED}/munge/sock",
            "CredType=cred/munge",
            f"StateSaveLocation={SHARED}/state",
            f"SlurmdSpoolDir={SHARED}/spool.%n",
            "SlurmctldPidFile=/run/slurmctld.pid",
            "SlurmdPidFile=/run/slurmd.pid",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "MpiDefault=none",
            "SwitchType=switch/none",
            "ReturnToService=2",
            "SlurmdParameters=config_overrides",  # the nodes have what is said here, not what the machine has
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core",
            "SchedulerType=sched/builtin",
            *nodes,
            f"PartitionName=main Nodes={','.join(self.names)} Default=YES MaxTime=INFINITE State=UP",
        ]

    def start(self) -> None:
        self._connect()
        munge = self.folder / "munge"
        munge.chmod(0o711)
        (munge / "key").touch(mode=0o600)
        (munge / "key").write_bytes(os.urandom(128))
        files = [f"--{name}-file={SHARED}/munge/{name}" for name in ("key", "pid", "log", "seed")]
        self.login.start("munged", "munged", "--foreground", "--force", f"--socket={SHARED}/munge/sock", *files)
        self.wait_for((munge / "sock").exists)
        self.login.start("slurmctld", "slurmctld", "-c", "-D", environ=self.environ)
        for name in self.names:
            self.nodes[name].start("slurmd", "slurmd", "-D", environ=self.environ)
        everyone = str(len(self.names))
        self.wait_for(lambda: self.login_run("sinfo", "-h", "-t", "idle", "-o", "%D").stdout.strip() == everyone)

    def _connect(self) -> None:
        """An Ethernet: each node has an eth0, whose other end is at the switch."""
        self._switch = Node("switch", "", self.folder)
        self._at_switch("ip", "link", "add", "bridge", "type", "bridge")
        self._at_switch("ip", "link", "set", "bridge", "up")
        for name, address in self._addresses.items():
            node = self.nodes[name] = Node(name, address, self.folder)
            peer = ("peer", "name", "eth0", "netns", str(node.pid))
            # Made by the machine's own ip: a pid means a process of its namespace.
            switch = str(self._switch.pid)
            _checked(["ip", "link", "add", f"to-{name}", "netns", switch, "type", "veth", *peer])
            self._at_switch("ip", "link", "set", f"to-{name}", "master", "bridge", "up")
            for words in (["address", "add", f"{address}/24", "dev", "eth0"], ["link", "set", "eth0", "up"]):
                done = node.run("ip", *words)
                assert done.returncode == 0, done.stderr

    def _at_switch(self, *words: str) -> None:
        assert self._switch is not None
        done = self._switch.run(*words)
        assert done.returncode == 0, done.stderr

    def certify(self, *users: str) -> None:
        """An authority, a certificate for each node, and one for each user."""
        authority = ("--dir", f"{SHARED}/authority")
        for words in (["init"], ["host", *self.names], ["client", *users]):
            done = self.sonde("certs", *words, *authority)
            assert done.returncode == 0, done.stderr

    def certificates(self, user: str) -> str:
        return f"{SHARED}/authority/clients/{user}"

    def start_daemons(self) -> None:
        """Reached from elsewhere with a certificate only; what they write is on their own nodes."""
        for name in self.names:
            node = self.nodes[name]
            certs = ("--certs-dir", f"{SHARED}/authority/hosts/{name}", "--rpc-address", f"{node.address}:1778")
            rest = ("--http-address", "", "--collectors", "load", "--no-archive", "--tracing", "--state", "/tmp/sonde")
            node.start("sonde", SONDE, "daemon", *certs, *rest, environ=self.environ)
        for name in self.names:
            # The files of a node are seen through its first process.
            socket = Path(f"/proc/{self.nodes[name].pid}/root/tmp/sonde/rpc.sock")
            self.wait_for(socket.exists)

    def login_run(self, *words: str, timeout: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        return self.login.run(*words, environ=self.environ, timeout=timeout)

    def sonde(self, *words: str, timeout: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        """A command of the user at the login node."""
        return self.login_run(SONDE, *words, timeout=timeout)

    def submit(self, script: str, *options: str) -> str:
        """The id of a batch job, once it runs."""
        path = self.folder / f"job-{time.monotonic_ns()}.sh"
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)
        log = f"--output={SHARED}/log/job-%j"
        done = self.login_run("sbatch", "--parsable", log, *options, f"{SHARED}/{path.name}")
        assert done.returncode == 0, done.stderr
        job = done.stdout.strip()
        self.wait_for(lambda: "RUNNING" in self.login_run("squeue", "-h", "-j", job, "-o", "%T").stdout)
        return job

    def registered(self, name: str) -> int:
        """How many processes a node's daemon knows."""
        found = self.nodes[name].run(SONDE, "processes", "--json", environ={**self.environ, **_OWN_DAEMON})
        return len(json.loads(found.stdout or "[]"))

    def wait_for(self, true: Callable[[], object]) -> None:
        until = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < until, self.logs()
            time.sleep(0.1)

    def logs(self) -> str:
        return "\n".join(f"{path}:\n{path.read_text()[-1500:]}" for path in sorted((self.folder / "log").iterdir()))

    def stop(self) -> None:
        for node in reversed(self.nodes.values()):
            node.stop()
        if self._switch is not None:
            self._switch.stop()


_OWN_DAEMON = {"SONDE_DAEMON": "unix:/tmp/sonde/rpc.sock"}


def _checked(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr

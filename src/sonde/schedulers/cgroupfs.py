"""Which cgroup hierarchies this host has and where a process is in them, from mountinfo and /proc/PID/cgroup.

35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory        v1: controllers in the last field
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw            v2: one hierarchy, named "" here
4:memory:/slurm/uid_0/job_77/step_0                                             /proc/PID/cgroup, v1
0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_0                     /proc/PID/cgroup, v2
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import NamedTuple

from sonde.errors import ParseError
from sonde.hostfs import HostFS

UNIFIED = ""  # the name of the v2 hierarchy, as /proc/PID/cgroup has it
_V1_OPTIONS = {"rw", "ro", "xattr", "noprefix", "clone_children", "cpuset_v2_mode", "favordynmods", "none"}
_WATCHED = ("freezer", "memory", "cpuset", "cpuacct")  # freezer is what batch systems track processes with
_DEPTH = 5  # directories above a pod's that the kubelet or a batch system makes
_ESCAPED = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    point: str  # relative to the host's root: sys/fs/cgroup/memory
    top: str  # the cgroup that is visible as the mount point; "/" but for a container's bind mount

    def directory(self, cgroup: str) -> str | None:
        """Where a cgroup of this hierarchy is, relative to the host's root; None when it is not visible here."""
        if cgroup.startswith("/.."):
            return None  # outside of our cgroup namespace
        if self.top in ("", "/"):
            return self.point + cgroup.rstrip("/")
        if cgroup == self.top or cgroup.startswith(self.top + "/"):
            return self.point + cgroup[len(self.top) :]
        return None


def mounts(host: HostFS) -> dict[str, Mount]:
    """The mounts by controller, the v2 hierarchy as UNIFIED; empty when the host has no cgroups."""
    try:
        text = host.read("proc/self/mountinfo")
    except FileNotFoundError:
        return {}
    # In a container that sees the host below /host, its own table names /host/sys/fs/cgroup/... beside the container's
    # own /sys/fs/cgroup, which shows another part of the tree.
    below = host.root[1:]
    decoded = text.decode("utf-8", "replace")
    found = parse_mountinfo(decoded, below) or parse_mountinfo(decoded)
    return {name: mount._replace(point=mount.point.removeprefix(below)) for name, mount in found.items()}


def locate(host: HostFS, mount: Mount, cgroup: str) -> str | None:
    """The directory of a cgroup, if it can be seen.

    From a cgroup namespace of our own, other cgroups read /../../kubepods-…; how many directories lie between the mount
    point and the first name is not known. So it is looked for, and taken if there is only one of that name.
    """
    directory = mount.directory(cgroup)
    if directory is not None:
        return directory if host.exists(directory) else None
    name = cgroup.rpartition("/..")[2].lstrip("/")
    if not name:
        return None
    point = glob.escape(host.path(mount.point))
    for depth in range(_DEPTH):
        found = glob.glob(f"{point}/{'*/' * depth}{glob.escape(name)}")
        if found:
            return found[0].removeprefix(host.root) if len(found) == 1 else None
    return None


def parse_mountinfo(text: str, below: str = "") -> dict[str, Mount]:
    """The mounts whose points begin with `below`."""
    found: dict[str, Mount] = {}
    for line in text.splitlines():
        left, dash, right = line.partition(" - ")
        fields, rest = left.split(" "), right.split(" ")
        if not dash or len(fields) < 6 or len(rest) < 3:
            raise ParseError("mountinfo", line)
        mount = Mount(_unescaped(fields[4]).strip("/"), _unescaped(fields[3]))
        if not mount.point.startswith(below):
            continue
        if rest[0] == "cgroup2":
            found.setdefault(UNIFIED, mount)
        elif rest[0] == "cgroup":
            for option in rest[-1].split(","):
                if option not in _V1_OPTIONS and "=" not in option:
                    found.setdefault(option, mount)
    return found


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text) if "\\" in text else text


def parse_membership(data: bytes) -> list[tuple[str, str]]:
    """The (controller, path) pairs of /proc/PID/cgroup; a named v1 hierarchy without controllers is left out."""
    pairs = []
    for line in data.decode("utf-8", "replace").split("\n"):
        if not line:
            continue
        number, colon, rest = line.partition(":")
        controllers, second, path = rest.partition(":")
        if not colon or not second or not number.isdigit() or not path.startswith("/"):
            raise ParseError("/proc/PID/cgroup", line)
        pairs += [(name, path) for name in controllers.split(",") if "=" not in name]
    return pairs


class Watch:
    """Notices that a directory appeared or vanished among the parents of job directories, one parent per call.

    The link count of a cgroup directory is that of its subdirectories plus two (fs/kernfs/inode.c); its mtime does
    not move. fstat of a kept descriptor costs half of a stat. Two changes that cancel out are left to the next scan.
    """

    def __init__(self, host: HostFS, mounts: Mapping[str, Mount], patterns: Sequence[str]) -> None:
        # A job has its directory in every v1 hierarchy the batch system uses; one of them is enough.
        first = next((name for name in _WATCHED if name in mounts), None)
        points = [mounts[name].point for name in (UNIFIED, first) if name is not None and name in mounts]
        self._patterns = [glob.escape(host.path(point)) + "/" + pattern for point in points for pattern in patterns]
        # The mount points too, so that the first parent is noticed.
        self._points = [host.path(point) for point in points] if patterns else []
        self._watched: dict[str, tuple[int, int]] = {}  # descriptor and link count
        self._turn: Iterator[tuple[int, int]] = iter(())
        self.renew()

    def renew(self) -> None:
        """Find the parents anew and take note of how many directories each has."""
        paths = {*self._points, *(path for pattern in self._patterns for path in glob.iglob(pattern))}
        fds = {path: fd for path, (fd, _) in self._watched.items()}
        for path in fds.keys() - paths:
            os.close(fds.pop(path))
        self._watched = {}
        for path in sorted(paths):
            try:
                fd = fds[path] if path in fds else os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError:
                continue  # gone since it was listed
            self._watched[path] = (fd, os.fstat(fd).st_nlink)
        self._turn = cycle(self._watched.values())

    def refresh(self) -> None:
        """Find the parents anew if any of them has changed; a new parent changes its own."""
        if any(os.fstat(fd).st_nlink != links for fd, links in self._watched.values()):
            self.renew()

    def disturbed(self) -> bool:
        """Look at the next parent in turn: cheap enough for every tick."""
        for fd, links in self._turn:
            return os.fstat(fd).st_nlink != links
        return False

    def close(self) -> None:
        for fd, _ in self._watched.values():
            os.close(fd)
        self._watched = {}
        self._turn = iter(())

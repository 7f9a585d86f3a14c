"""Which container and which pod a process is in, from the path of its cgroup.

/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1f2e_….slice/cri-containerd-6b0c….scope   systemd driver
/kubepods/burstable/pod1f2e-…/6b0c…                                                                      cgroupfs driver
/system.slice/containerd.service/kubepods-pod1f2e_….slice:cri-containerd:6b0c…    the two drivers mixed up
/docker/6b0c…   /system.slice/docker-6b0c….scope   /machine.slice/libpod-6b0c….scope/container   /default/6b0c…

The forms are those of the kubelet (pkg/kubelet/cm), containerd's CRI plug-in, CRI-O, Docker, Podman and nerdctl. Who
watches from a cgroup namespace of its own sees the others as /../../kubepods-…: what stands after the dots is the same.
A container in a container is the inner one. conmon, which watches over a container, is not in it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_UID = r"(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})"  # the latter for a static pod
_SYSTEMD_POD = re.compile(rf"/(?:[^/]+-)?kubepods(?:-(?P<qos>burstable|besteffort))?-pod{_UID}\.slice(?=[:/]|\Z)")
_CGROUPFS_POD = re.compile(rf"/(?:kubepods|\.\.|kubepods/(?P<qos>burstable|besteffort))/pod{_UID}(?=/|\Z)")

_RUNTIMES = {
    "cri-containerd": "containerd",
    "crio": "cri-o",
    "docker": "docker",
    "libpod": "podman",
    "libpod-payload": "podman",
    "nerdctl": "containerd",
}
_NAMED = re.compile(rf"(?:.*:)?(?P<prefix>{'|'.join(_RUNTIMES)})[-:](?P<id>[0-9a-f]{{64}})(?:\.scope)?")
_BARE = re.compile(r"[0-9a-f]{64}")
_POD_DIRECTORY = re.compile(rf"pod{_UID}")

# Where the directories of pods and of containers appear, as shell patterns relative to a hierarchy.
POD_PARENTS = (
    "kubepods.slice",
    "kubepods.slice/kubepods-burstable.slice",
    "kubepods.slice/kubepods-besteffort.slice",
    "kubepods",
    "kubepods/burstable",
    "kubepods/besteffort",
)
CONTAINER_PARENTS = (
    *POD_PARENTS,
    "kubepods.slice/kubepods-pod*.slice",
    "kubepods.slice/kubepods-*.slice/kubepods-*-pod*.slice",
    "kubepods/pod*",
    "kubepods/b*/pod*",
    "docker",
    "machine.slice",
    "libpod_parent",
    "system.slice",
)


class Pod(NamedTuple):
    uid: str  # with hyphens, as the API shows it
    qos: str  # guaranteed, burstable, besteffort; empty when the path does not tell
    cgroup: str  # its directory


class Container(NamedTuple):
    id: str
    runtime: str  # containerd, cri-o, docker, podman; empty when the path does not tell
    pod: Pod | None
    cgroup: str  # its directory


def pod_of(path: str) -> Pod | None:
    """The innermost pod of a cgroup path."""
    if "pod" not in path:
        return None
    found = [*_SYSTEMD_POD.finditer(path), *_CGROUPFS_POD.finditer(path)]
    match = max(found, key=lambda match: match.start(), default=None)
    if match is None:
        return None
    end = match.end()
    if path[end : end + 1] == ":":  # one directory for pod and container
        end = (path + "/").index("/", end)
    qos = match["qos"] or ("" if match[0].startswith("/..") else "guaranteed")
    return Pod(match["uid"].replace("_", "-"), qos, path[:end])


def container_of(path: str) -> Container | None:
    """The innermost container of a cgroup path."""
    names = path.split("/")
    for last in range(len(names) - 1, 0, -1):
        found = _named(names[last], names[last - 1])
        if found is not None:
            directory = "/".join(names[: last + 1])
            return Container(*found, pod_of(directory), directory)
    return None


def _named(name: str, parent: str) -> tuple[str, str] | None:
    """Id and runtime, if a directory of this name is a container's."""
    if len(name) < 64:
        return None
    match = _NAMED.fullmatch(name)
    if match is not None:
        return match["id"], _RUNTIMES[match["prefix"]]
    if _BARE.fullmatch(name) is None:
        return None
    if parent == "docker":
        return name, "docker"
    # Under a pod of the cgroupfs driver any runtime may be meant; elsewhere it is ctr's and nerdctl's /NAMESPACE/ID.
    return name, "" if _POD_DIRECTORY.fullmatch(parent) or parent in ("", "..") else "containerd"

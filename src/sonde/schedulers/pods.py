"""Names of the pods and containers on this node, without asking the API server.

/var/log/containers/train-0_ml_worker-6b0c….log        pod, namespace, container and container id
/var/log/pods/ml_train-0_1f2e-…/                       namespace, pod, pod uid
POD_NAME=train-0 POD_NAMESPACE=ml HOSTNAME=train-0     what the pod's manifest passes on, and what the kubelet sets
/etc/podinfo/labels: batch.kubernetes.io/job-name="train"            a downward API volume, if the manifest mounts one
1811 1790 254:1 /lib/kubelet/pods/1f2e-…/containers/worker/0a1b2c3d /dev/termination-log rw …     /proc/PID/mountinfo

The log directories are the kubelet's (kubernetes.io/docs/concepts/cluster-administration/logging). What lies in files
of a container is its user's word: it is read without ever leaving the container's root or waiting for anybody.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import NamedTuple

from sonde.hostfs import HostFS
from sonde.schedulers.job import Environ

_CONTAINER_LOG = re.compile(r"(?P<pod>[^_/]+)_(?P<namespace>[^_/]+)_(?P<name>[^_/]+)-(?P<id>[0-9a-f]{64})\.log")
_POD_LOGS = re.compile(r"(?P<namespace>[^_/]+)_(?P<pod>[^_/]+)_(?P<uid>[0-9a-f]{32}|[0-9a-f-]{36})")
_TERMINATION_LOG = re.compile(
    rb" \S*/pods/[0-9a-f-]{32,36}/containers/([a-z0-9-]{1,63})/[0-9a-f]+ /dev/termination-log "
)
_LABEL = re.compile(r'([^\s="]{1,317})="((?:[^"\\]|\\.)*)"')
_FOLDERS = ("etc/podinfo", "etc/pod-info", "podinfo")
_LARGEST = 65536  # bytes of a labels file; a pod's metadata ends at 256 KB
_LINKS = 8  # a downward API volume needs two
_REMEMBERED = 10_000  # pods and containers whose names were looked for
_TRIES = 3


class Names(NamedTuple):
    """Empty where nothing tells."""

    namespace: str = ""
    pod: str = ""
    container: str = ""

    def completed(self, other: Names) -> Names:
        return Names(self.namespace or other.namespace, self.pod or other.pod, self.container or other.container)


def names_from_environ(environ: Environ) -> Names:
    """POD_NAME and its like are set by manifests by custom; HOSTNAME by the kubelet."""
    if "KUBERNETES_SERVICE_HOST" not in environ:
        return Names()
    return Names(
        environ.get("POD_NAMESPACE", "") or environ.get("NAMESPACE", ""),
        environ.get("POD_NAME", "") or environ.get("HOSTNAME", ""),
        environ.get("CONTAINER_NAME", ""),
    )


class LogNames:
    """The names in the kubelet's log directories, read again when somebody asks for one that is not known yet."""

    def __init__(self) -> None:
        self._pods: dict[str, Names] = {}
        self._containers: dict[str, Names] = {}
        self._tries: dict[str, int] = {}

    def of_pod(self, host: HostFS, uid: str) -> Names:
        if uid not in self._pods and self._worth_a_try(uid):
            self._pods = {match["uid"]: Names(match["namespace"], match["pod"]) for match in _listed(host, "pods")}
        return self._pods.get(uid, Names())

    def of_container(self, host: HostFS, container: str) -> Names:
        if container not in self._containers and self._worth_a_try(container):
            found = _listed(host, "containers")
            self._containers = {match["id"]: Names(match["namespace"], match["pod"], match["name"]) for match in found}
        return self._containers.get(container, Names())

    def _worth_a_try(self, key: str) -> bool:
        """The link of a container's log appears a moment after its first process, or never: Docker's have none."""
        if len(self._tries) >= _REMEMBERED:
            self._tries.clear()
        self._tries[key] = self._tries.get(key, 0) + 1
        return self._tries[key] <= _TRIES


def _listed(host: HostFS, kind: str) -> list[re.Match[str]]:
    try:
        names = host.names(f"var/log/{kind}")
    except OSError:
        return []  # no Kubernetes, or /var/log of the host is not to be seen from here
    pattern = _CONTAINER_LOG if kind == "containers" else _POD_LOGS
    return [match for name in names if (match := pattern.fullmatch(name)) is not None]


def container_name(host: HostFS, pid: int) -> str:
    """The container's name in its pod: the kubelet mounts a file below it at /dev/termination-log."""
    try:
        match = _TERMINATION_LOG.search(host.read(f"proc/{pid}/mountinfo"))
    except OSError:
        return ""
    return match[1].decode() if match is not None else ""


def read_labels(host: HostFS, pid: int) -> dict[str, str]:
    """The pod's labels and annotations from its downward API volume; empty when it has none, or we may not look."""
    try:
        mounts = host.read(f"proc/{pid}/mountinfo").decode("utf-8", "replace")
    except OSError:
        return {}
    # The kubelet makes the volume a tmpfs. Anything else there is not its word, and might make us wait for a server.
    folder = next((name for name in _FOLDERS if re.search(rf" /{name} [^\n]* - tmpfs ", mounts)), None)
    if folder is None:
        return {}
    labels: dict[str, str] = {}
    for name in ("annotations", "labels"):
        labels |= parse_labels(_read_inside(host.path(f"proc/{pid}/root"), f"{folder}/{name}"))
    return labels


def parse_labels(data: bytes) -> dict[str, str]:
    """Lines of `key="value"`, quoted as Go does; what is no such line is left out."""
    found = (_LABEL.fullmatch(line) for line in data.decode("utf-8", "replace").split("\n"))
    return {match[1]: re.sub(r"\\(.)", r"\1", match[2]) for match in found if match is not None}


def _read_inside(root: str, name: str) -> bytes:
    """A regular file below a root its owner has power over; empty when there is none."""
    try:
        path = _Inside(root)
    except OSError:
        return b""
    try:
        return path.read(name.split("/"))
    except OSError:
        return b""
    finally:
        path.close()


class _Inside:
    """A walk below a directory that follows links by hand, so that none leads out of it, as the kernel lets them."""

    def __init__(self, root: str) -> None:
        self._fds = [os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]  # from the root down to where we are
        self._links = _LINKS

    def read(self, parts: list[str]) -> bytes:
        while parts:
            part, *parts = parts
            if part == "..":
                self._rise(max(1, len(self._fds) - 1))
            elif part not in ("", "."):
                parts = self._enter(part) + parts
        last = self._fds[-1]
        if not stat.S_ISREG(os.fstat(last).st_mode):
            return b""  # not a pipe, for which we would wait
        fd = os.open(f"/proc/self/fd/{last}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.read(fd, _LARGEST)
        finally:
            os.close(fd)

    def _enter(self, part: str) -> list[str]:
        """Go down one name; for a link, give the names to be gone instead."""
        fd = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fds[-1])
        if not stat.S_ISLNK(os.fstat(fd).st_mode):
            self._fds.append(fd)
            return []
        try:
            target = os.readlink("", dir_fd=fd)
        finally:
            os.close(fd)
        self._links -= 1
        if self._links < 0:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), part)
        if target.startswith("/"):
            self._rise(1)
        return target.split("/")

    def _rise(self, depth: int) -> None:
        while len(self._fds) > depth:
            os.close(self._fds.pop())

    def close(self) -> None:
        self._rise(0)

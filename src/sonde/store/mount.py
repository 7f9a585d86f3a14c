"""The type of the filesystem a path is on, from /proc/self/mountinfo.

`36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`: the fifth field is the mount point
(spaces as \\040), the type follows the dash (proc_pid_mountinfo(5)).
"""

from __future__ import annotations

import os
import re

from sonde.hostfs import HostFS

# Shared between machines, or not coherent for shared memory maps: SQLite's write-ahead log must not be used there
# (sqlite.org/wal.html: all processes must be on the same host).
_NETWORK = re.compile(
    r"9p|afs|beegfs|ceph|cifs|dvs|fuse.*|gfs2?|glusterfs|gpfs|lustre|nfs4?|ocfs2|orangefs|panfs|pvfs2|smb3|smbfs"
    r"|vboxsf|virtiofs|vmhgfs|wekafs"
)
_ESCAPE = re.compile(r"\\([0-7]{3})")


def filesystem_type(path: str, host: HostFS | None = None) -> str:
    """`ext4`, `nfs4`, `fuse.sshfs`; empty when the kernel does not tell."""
    try:
        text = (host or HostFS()).read("proc/self/mountinfo").decode("utf-8", "surrogateescape")
    except OSError:
        return ""
    return parse_mountinfo(text, os.path.realpath(path))


def parse_mountinfo(text: str, path: str) -> str:
    """The type of the innermost mount that holds the path; of two on one point the later hides the earlier."""
    best, found = -1, ""
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        fields = before.split(" ")
        if not dash or len(fields) < 5:
            continue
        point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            best, found = len(point), after.split(" ", 1)[0]
    return found


def is_network(filesystem: str) -> bool:
    """Whether files there may be used by several machines at once. What a FUSE server does with them nobody knows."""
    return _NETWORK.fullmatch(filesystem) is not None

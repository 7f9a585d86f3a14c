"""Filesystems and disks of a node, from /proc/PID/mountinfo and /sys/block.

    27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
    /sys/block/nvme0n1/queue/{rotational,scheduler,nr_requests,read_ahead_kb}     0, [none] mq-deadline, 1023, 128
    /sys/block/nvme0n1/device/model                                               SAMSUNG MZQL23T8HCLS-00A07

Only a filesystem that answers by itself is asked for its size: a server that is away would hold us for ever. What is
mounted below /proc, /sys and the like, by container runtimes and by systemd for itself is of no interest here.
"""

from __future__ import annotations

import re

from sonde.collectors.filesystem import FilesystemConfig, Mount, below_no_other, parse_mounts
from sonde.errors import Unavailable
from sonde.jobs.facts.secrets import redacted_options
from sonde.jobs.facts.view import Facts, View, integer, present

_KINDS = re.compile(FilesystemConfig().fs_types_exclude.replace("|overlay", "").replace("hugetlbfs|", ""))
_POINTS = re.compile(r"/(proc|sys|run|dev(?!/shm)|var/lib/(docker|containers|containerd|kubelet)|snap)(/.*)?")
_CHOSEN = re.compile(r"\[(\S+)\]")
_DISK = re.compile(r"(?!loop|ram|zram|fd|sr|dm-|md)[a-z].*|md[0-9]+")
_MOST = 64  # mounts; an autofs of homes has hundreds


def filesystems(view: View) -> Facts:
    """By mount point; one that is mounted over counts once."""
    try:
        text = view.host.read(view.of_subject("mountinfo"))
        mounts = below_no_other(parse_mounts(text))
    except OSError as error:
        raise Unavailable(f"/{view.of_subject('mountinfo')}: {error.strerror}") from None
    options = {line.partition(b" ")[0]: line for line in text.split(b"\n")}
    found: Facts = {}
    for mount in mounts:
        if _interesting(mount):
            found[mount.labels[1]] = _filesystem(view, mount, options[mount.identity])
    if len(found) > _MOST:
        view.miss("filesystems", f"{len(found)} mounts: the first {_MOST} are shown")
    return dict(list(found.items())[:_MOST])


def _interesting(mount: Mount) -> bool:
    _, point, kind = mount.labels
    return _KINDS.fullmatch(kind) is None and _POINTS.fullmatch(point) is None


def _filesystem(view: View, mount: Mount, line: bytes) -> Facts:
    device, point, kind = mount.labels
    left, _, right = line.decode("utf-8", "replace").partition(" - ")
    own, of_super = left.split(" ")[5], right.split(" ", 2)[2]
    size = None
    if mount.local:
        try:
            answer = view.host.statvfs(mount.path)
            size = answer.f_blocks * answer.f_frsize
        except OSError as error:
            view.miss(f"filesystems.{point}.size_bytes", error)
    else:
        view.miss(f"filesystems.{point}.size_bytes", f"{kind} is not asked: it may not answer")
    joined = ",".join(dict.fromkeys([*own.split(","), *of_super.split(",")]))
    # The addresses of client and server are in the options of network filesystems; they differ between nodes.
    kept = [
        part for part in joined.split(",") if not part.startswith(("clientaddr=", "lowerdir=", "upperdir=", "workdir="))
    ]
    return present(
        {
            "type": kind,
            "device": redacted_options(device, ","),
            "size_bytes": size or None,
            "options": redacted_options(",".join(kept), ","),
        }
    )


def disks(view: View) -> Facts:
    names = view.names("sys/block", "disks")
    return {name: _disk(view, f"sys/block/{name}") for name in names if _DISK.fullmatch(name)}


def _disk(view: View, folder: str) -> Facts:
    queue = view.attributes(
        f"{folder}/queue", ("rotational", "scheduler", "nr_requests", "read_ahead_kb", "write_cache")
    )
    sectors = view.number(f"{folder}/size")
    scheduler = _CHOSEN.search(queue.get("scheduler", ""))
    return present(
        {
            "model": view.text(f"{folder}/device/model") or None,
            # Sectors are 512 bytes here whatever the disk says: Documentation/ABI/stable/sysfs-block.
            "size_bytes": sectors * 512 if sectors else None,
            "rotational": {"0": False, "1": True}.get(queue.get("rotational", "")),
            "scheduler": scheduler[1] if scheduler else queue.get("scheduler"),
            "queue_depth": integer(queue.get("nr_requests", "")),
            "read_ahead_bytes": _kibibytes(queue.get("read_ahead_kb", "")),
            "write_cache": queue.get("write_cache"),
        }
    )


def _kibibytes(text: str) -> int | None:
    number = integer(text)
    return None if number is None else number * 1024

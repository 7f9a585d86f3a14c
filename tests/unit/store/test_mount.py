from __future__ import annotations

from pathlib import Path

import pytest

from sonde.config import ArchiveConfig
from sonde.hostfs import HostFS
from sonde.store import mount, schema

MOUNTS = """\
21 28 0:19 / /sys rw,nosuid shared:7 - sysfs sysfs rw
28 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 28 0:33 / /home rw,relatime shared:9 - nfs4 server:/home rw,vers=4.2
41 40 0:34 / /home/my\\040data rw - lustre mgs@tcp:/fs rw
42 28 0:35 / /mnt rw - fuse.sshfs user@host: rw
43 40 0:36 / /home rw - tmpfs none rw
short line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/sonde", "ext4"),
        ("/home/my data/x", "lustre"),
        ("/mnt", "fuse.sshfs"),
        ("/mntx", "ext4"),
        ("/home/user", "tmpfs"),
    ],
)
def test_the_innermost_and_newest_mount_counts(path: str, kind: str) -> None:
    assert mount.parse_mountinfo(MOUNTS, path) == kind


def test_a_host_that_does_not_tell_has_no_type(tmp_path: Path) -> None:
    assert mount.filesystem_type("/", HostFS(str(tmp_path))) == ""


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "lustre", "gpfs", "cifs", "fuse.sshfs", "fuseblk", "9p"])
def test_network_filesystems_get_no_write_ahead_log(kind: str) -> None:
    assert mount.is_network(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", ""])
def test_local_filesystems_get_one(kind: str) -> None:
    assert not mount.is_network(kind)


def test_the_journal_can_be_chosen(tmp_path: Path) -> None:
    assert ArchiveConfig().journal == "auto"
    assert schema.use_wal(str(tmp_path / "a.db"), "wal")
    assert not schema.use_wal(str(tmp_path / "a.db"), "rollback")

"""mountinfo and /proc/PID/cgroup."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.schedulers.cgroupfs import UNIFIED, Mount, Watch, mounts, parse_membership, parse_mountinfo


def test_controllers_mounted_together_share_a_mount(captured: Callable[[str], HostFS]) -> None:
    found = mounts(captured("slurm_v1"))

    assert found["cpu"] == found["cpuacct"] == Mount("sys/fs/cgroup/cpu,cpuacct", "/")
    assert found[UNIFIED].point == "sys/fs/cgroup/unified"
    assert set(found) == {"cpu", "cpuacct", "memory", "freezer", UNIFIED}


def test_a_host_with_v2_only_has_one_hierarchy(captured: Callable[[str], HostFS]) -> None:
    assert mounts(captured("slurm_v2")) == {UNIFIED: Mount("sys/fs/cgroup", "/")}


def test_a_host_seen_from_a_container_is_found_below_its_root(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    line = f"31 22 0:28 / {tmp_path}/sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    (tmp_path / "proc/self/mountinfo").write_text(line)

    assert mounts(HostFS(str(tmp_path)))[UNIFIED].point == "sys/fs/cgroup"


@pytest.mark.parametrize(
    ("top", "cgroup", "directory"),
    [
        ("/", "/slurm/job_1", "m/slurm/job_1"),
        ("/", "/", "m"),
        ("/docker/x", "/docker/x/job_1", "m/job_1"),
        ("/docker/x", "/docker/x", "m"),
        ("/docker/x", "/docker/xy/job_1", None),
        ("/", "/../job_1", None),
    ],
)
def test_a_cgroup_is_found_below_its_mount(top: str, cgroup: str, directory: str | None) -> None:
    assert Mount("m", top).directory(cgroup) == directory


def test_escaped_blanks_in_a_mount_point_are_undone() -> None:
    text = "31 22 0:28 / /my\\040cgroup rw - cgroup2 cgroup2 rw"

    assert parse_mountinfo(text)[UNIFIED].point == "my cgroup"


def test_membership_names_controllers_and_paths() -> None:
    data = b"9:name=systemd:/x\n2:cpu,cpuacct:/a:b\n0::/c\n"

    assert parse_membership(data) == [("cpu", "/a:b"), ("cpuacct", "/a:b"), ("", "/c")]


@given(st.one_of(st.binary(max_size=100), st.text(alphabet="0:/a,=\n", max_size=40).map(str.encode)))
def test_any_bytes_are_a_membership_or_a_parse_error(data: bytes) -> None:
    try:
        pairs = parse_membership(data)
    except ParseError:
        return

    assert all(path.startswith("/") for _, path in pairs)


@given(st.text(alphabet="0 :/-acgroup2,\\\n", max_size=80))
def test_any_text_is_a_mount_table_or_a_parse_error(text: str) -> None:
    try:
        parse_mountinfo(text)
    except ParseError:
        pass


def test_a_new_job_directory_disturbs_the_watch(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("slurm_v1")
    watch = Watch(host, mounts(host), ["slurm", "slurm/uid_*"])
    calm = [watch.disturbed() for _ in range(8)]
    Path(host.path("sys/fs/cgroup/freezer/slurm/uid_1000/job_78")).mkdir()
    disturbed = [watch.disturbed() for _ in range(8)]
    watch.renew()
    renewed = [watch.disturbed() for _ in range(8)]
    watch.close()

    assert not any(calm)
    assert any(disturbed)
    assert not any(renewed)
    assert not watch.disturbed()

"""/proc/1/mountinfo and statvfs."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.collectors.filesystem import MEASURED, FilesystemCollector, FilesystemConfig, parse_mounts
from sonde.errors import ConfigError, ParseError
from sonde.hostfs import HostFS
from sonde.model import Gap, Quality, Reading, Value
from sonde.units import Duration

HOME = ("nas:/export/home", "/home", "nfs4")
SOFTWARE = ("nas:/export/software", "/software", "nfs4")
LUSTRE = ("10.1.0.1@o2ib:10.1.0.2@o2ib:/lustre", "/lustre", "lustre")
GROUP = ("store:/my\\040group", "/data/my group", "fuse.sshfs")
SCRATCH = ("/dev/mapper/vg-scratch", "/scratch", "xfs")
MOUNTINFO = rb"""29 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
50 29 0:52 / /home rw,nosuid,relatime shared:40 - nfs4 nas:/export/home rw,vers=4.2,hard,proto=tcp
53 29 0:55 / /data/my\040group rw,nosuid - fuse.sshfs store:/my\040group rw,user_id=0,group_id=0
"""
SHORT = FilesystemConfig(deadline=Duration(0.1))


def statistics(blocks: int) -> os.statvfs_result:
    # f_bsize, f_frsize, f_blocks, f_bfree, f_bavail, f_files, f_ffree, f_favail, f_flag, f_namemax
    return os.statvfs_result((1 << 20, 4096, blocks, blocks // 2, blocks // 4, 1000, 900, 900, 0, 255))


class Server(HostFS):
    """A host whose mounts answer as told: with 1,000 blocks, with an error, or only once they are released."""

    __slots__ = ("asked", "errors", "hanging")

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.asked: list[str] = []
        self.errors: dict[str, int] = {}
        self.hanging: dict[str, threading.Event] = {}

    def statvfs(self, name: str) -> os.statvfs_result:
        self.asked.append(name)
        if name in self.hanging:
            self.hanging[name].wait(30)
        if name in self.errors:
            raise OSError(self.errors[name], os.strerror(self.errors[name]))
        return statistics(1000)

    def hang(self, *names: str) -> None:
        self.hanging |= {name: threading.Event() for name in names}

    def release(self, name: str) -> None:
        self.hanging.pop(name).set()


@pytest.fixture
def server(scratch: Callable[[str], HostFS]) -> Iterator[Server]:
    host = Server(scratch("big").root)
    yield host
    for name in list(host.hanging):
        host.release(name)
    for thread in threading.enumerate():
        if thread.name == "statvfs":
            thread.join(5)


def by_series(reading: Reading) -> dict[tuple[str, ...], Value]:
    return {(s.name, *labels): value for (s, labels), value in zip(reading.layout, reading.values, strict=True)}


def measured(reading: Reading) -> set[tuple[str, ...]]:
    return {labels for spec, labels in reading.layout if spec.name == "node_filesystem_size_bytes"}


def failing(reading: Reading) -> set[tuple[str, ...]]:
    return {tuple(labels) for (name, *labels), value in by_series(reading).items() if "error" in name and value}


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_sizes_are_in_bytes_of_the_fragment_size(server: Server) -> None:
    collector = FilesystemCollector(server, FilesystemConfig())

    values = by_series(collector.collect())
    collector.close()

    assert values["node_filesystem_size_bytes", *SCRATCH] == 1000 * 4096
    assert values["node_filesystem_free_bytes", *SCRATCH] == 500 * 4096
    assert values["node_filesystem_avail_bytes", *SCRATCH] == 250 * 4096
    assert values["node_filesystem_files", *SCRATCH] == 1000
    assert values["node_filesystem_files_free", *SCRATCH] == 900
    assert values["node_filesystem_device_error", *SCRATCH] == 0


def test_a_real_mount_is_asked(captured: Callable[[str], HostFS]) -> None:
    host = captured("vm")
    collector = FilesystemCollector(host, FilesystemConfig())

    values = by_series(collector.collect())

    real = os.statvfs(host.root)
    assert values["node_filesystem_size_bytes", "/dev/vda", "/", "ext4"] == real.f_blocks * real.f_frsize
    assert len(values) == 7


def test_pseudo_filesystems_and_system_directories_are_left_out(server: Server) -> None:
    collector = FilesystemCollector(server, FilesystemConfig())

    points = {labels[1] for _, labels in collector.collect().layout}
    collector.close()

    assert points == {"/", "/boot/efi", "/scratch", "/tmp", "/home", "/software", "/lustre", "/data/my group"}


def test_the_exclusions_are_matched_whole(server: Server) -> None:
    config = FilesystemConfig(mount_points_exclude="/|/home.*", fs_types_exclude="nfs|tmpfs|fuse.*|lustre|.*overlay.*")
    collector = FilesystemCollector(server, config)

    points = {labels[1] for _, labels in collector.collect().layout}
    collector.close()

    assert points == {"/proc", "/sys", "/dev", "/boot/efi", "/scratch", "/software"}


@pytest.mark.parametrize("config", [FilesystemConfig(mount_points_exclude="*"), FilesystemConfig(fs_types_exclude="*")])
def test_a_bad_pattern_is_a_configuration_error(server: Server, config: FilesystemConfig) -> None:
    with pytest.raises(ConfigError, match=r"collectors\.filesystem\..*_exclude"):
        FilesystemCollector(server, config)


def test_the_mount_point_is_decoded_and_the_device_is_not(server: Server) -> None:
    collector = FilesystemCollector(server, FilesystemConfig())

    reading = collector.collect()
    collector.close()

    assert GROUP in measured(reading)
    assert "/data/my group" in server.asked


def test_a_mount_made_twice_is_reported_once(server: Server) -> None:
    collector = FilesystemCollector(server, FilesystemConfig())

    reading = collector.collect()
    collector.close()

    assert server.asked.count("/scratch") == 1
    assert SCRATCH in measured(reading)


def test_read_only_is_the_mount_or_its_filesystem(server: Server) -> None:
    info = Path(server.path("proc/1/mountinfo"))
    info.write_text(info.read_text().replace("lustre rw,flock", "lustre ro,flock"))
    collector = FilesystemCollector(server, FilesystemConfig())

    values = by_series(collector.collect())
    collector.close()

    readonly = {labels[1] for (name, *labels), value in values.items() if "readonly" in name and value}
    assert readonly == {"/software", "/lustre"}


def test_our_own_mounts_are_read_when_those_of_the_first_process_are_hidden(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    os.rename(host.path("proc/1"), host.path("proc/self"))

    reading = FilesystemCollector(host, FilesystemConfig()).collect()

    assert measured(reading) == {("/dev/vda", "/", "ext4")}


def test_a_mount_with_options_as_long_as_a_page_hides_no_other(server: Server) -> None:
    info = Path(server.path("proc/1/mountinfo"))
    layers = ":".join(f"/layers/{number}" for number in range(290))
    text = f"60 29 0:90 / /var/lib/docker/overlay2/a/merged rw - overlay overlay rw,lowerdir={layers}\n"
    info.write_text(text + info.read_text())
    collector = FilesystemCollector(server, FilesystemConfig())

    reading = collector.collect()
    collector.close()

    assert len(measured(reading)) == 8


def test_a_mount_that_goes_leaves_the_layout(server: Server) -> None:
    collector = FilesystemCollector(server, FilesystemConfig())
    info = Path(server.path("proc/1/mountinfo"))
    before, text = collector.collect(), info.read_text()
    info.write_text("".join(line for line in text.splitlines(keepends=True) if "/scratch" not in line))

    without = collector.collect()
    info.write_text(text)
    again = collector.collect()
    collector.close()

    assert measured(without) == measured(before) - {SCRATCH}
    assert by_series(again) == by_series(before)


def test_the_layout_is_kept_while_the_mounts_are_the_same(server: Server) -> None:
    collector = FilesystemCollector(server, FilesystemConfig())

    first, second = collector.collect(), collector.collect()
    collector.close()

    assert first.layout is second.layout


@pytest.mark.parametrize(
    ("point", "number", "quality"),
    [
        ("/home", errno.ESTALE, Quality.BLANK),
        ("/home", errno.EACCES, Quality.DENIED),
        ("/scratch", errno.EIO, Quality.BLANK),
    ],
)
def test_a_mount_that_fails_is_an_error_and_a_gap(server: Server, point: str, number: int, quality: Quality) -> None:
    server.errors[point] = number
    collector = FilesystemCollector(server, FilesystemConfig())

    reading = collector.collect()
    collector.close()

    assert {labels[1] for labels in failing(reading)} == {point}
    assert point not in {labels[1] for labels in measured(reading)}
    assert {(gap.labels[1], gap.quality) for gap in reading.gaps} == {(point, quality)}
    assert len(reading.gaps) == 6
    assert os.strerror(number) in reading.gaps[0].reason


def test_a_mount_that_hangs_is_given_up_after_the_deadline(server: Server) -> None:
    server.hang("/home")
    collector = FilesystemCollector(server, SHORT)

    reading = collector.collect()
    collector.close()

    assert failing(reading) == {HOME}
    assert measured(reading) >= {SCRATCH, SOFTWARE, LUSTRE, GROUP}
    assert reading.gaps == [Gap(spec, HOME, Quality.STALE, "statfs has not answered for 0 s") for spec in MEASURED]


def test_a_hanging_mount_is_asked_only_once(server: Server) -> None:
    server.hang("/home")
    collector = FilesystemCollector(server, SHORT)
    collector.collect()
    begun = time.monotonic()

    readings = [collector.collect() for _ in range(5)]
    took = time.monotonic() - begun
    collector.close()

    assert server.asked.count("/home") == 1
    assert took < 5 * SHORT.deadline
    assert all(failing(reading) == {HOME} for reading in readings)
    assert readings[0].layout is readings[-1].layout


def test_a_mount_that_comes_back_is_asked_again(server: Server) -> None:
    server.hang("/home")
    collector = FilesystemCollector(server, SHORT)
    collector.collect()
    server.release("/home")
    until(lambda: failing(collector.collect()) == set())

    reading = collector.collect()
    collector.close()

    assert HOME in measured(reading)
    assert reading.gaps == []
    assert server.asked.count("/home") >= 2


def test_many_hanging_mounts_take_two_deadlines_together(server: Server) -> None:
    server.hang("/home", "/software", "/lustre", "/data/my group")
    collector = FilesystemCollector(server, FilesystemConfig(deadline=Duration(0.3)))
    begun = time.monotonic()

    reading = collector.collect()
    took = time.monotonic() - begun
    collector.close()

    assert failing(reading) == {HOME, SOFTWARE, LUSTRE, GROUP}
    assert SCRATCH in measured(reading)
    assert 0.6 <= took < 1.1


def test_another_mount_in_the_place_of_a_hanging_one_is_asked(server: Server) -> None:
    server.hang("/home")
    collector = FilesystemCollector(server, SHORT)
    collector.collect()
    old = server.hanging.pop("/home")  # umount -l, then mount: the old thread goes on hanging
    info = Path(server.path("proc/1/mountinfo"))
    info.write_text(info.read_text().replace("50 29 0:52", "77 29 0:60"))

    reading = collector.collect()
    collector.close()
    old.set()

    assert HOME in measured(reading)
    assert failing(reading) == set()


def test_a_local_mount_below_a_hanging_one_is_not_waited_for(server: Server) -> None:
    info = Path(server.path("proc/1/mountinfo"))
    info.write_text(info.read_text() + "99 50 0:70 / /home/me/ram rw - tmpfs ram rw\n")
    server.hang("/home", "/home/me/ram")
    collector = FilesystemCollector(server, SHORT)

    reading = collector.collect()
    collector.close()

    assert failing(reading) == {HOME, ("ram", "/home/me/ram", "tmpfs")}
    assert SCRATCH in measured(reading)


def test_local_mounts_need_no_thread(scratch: Callable[[str], HostFS]) -> None:
    before = threading.active_count()
    collector = FilesystemCollector(Server(scratch("vm").root), FilesystemConfig())

    collector.collect()

    assert threading.active_count() == before


def test_where_all_mounts_are_local_the_collector_shares_a_thread(scratch: Callable[[str], HostFS]) -> None:
    local = FilesystemCollector(Server(scratch("vm").root), FilesystemConfig())
    remote = FilesystemCollector(Server(scratch("big").root), FilesystemConfig())

    assert (local.blocks, remote.blocks) == (False, True)


def test_a_mount_that_can_hang_is_not_asked_in_a_shared_thread(scratch: Callable[[str], HostFS]) -> None:
    host = Server(scratch("vm").root)
    collector = FilesystemCollector(host, FilesystemConfig())
    alone = measured(collector.collect())
    with open(host.path("proc/1/mountinfo"), "a", encoding="ascii") as file:
        file.write("96 27 0:52 / /nas rw - nfs4 nas:/home rw\n")
    asked_before = len(host.asked)
    first = collector.collect()
    asked_shared = host.asked[asked_before:]
    second = collector.collect()
    collector.close()

    assert "/nas" not in asked_shared
    assert collector.blocks
    assert measured(first) == alone
    assert measured(second) == alone | {("nas:/home", "/nas", "nfs4")}


def test_the_helper_thread_is_reused_and_ends_with_the_collector(server: Server) -> None:
    before = threading.active_count()
    collector = FilesystemCollector(server, FilesystemConfig())

    for _ in range(5):
        collector.collect()
    during = threading.active_count()
    collector.close()

    assert during == before + 1
    assert threading.active_count() == before


def test_bytes_that_are_not_text_are_kept_for_the_kernel() -> None:
    (mount,) = parse_mounts(b"29 1 8:1 / /mnt\\134\\377 rw - ext4 /dev/sda rw\n")

    assert os.fsencode(mount.path) == b"/mnt\\\xff"
    assert mount.labels == ("/dev/sda", "/mnt\\\ufffd", "ext4")


@pytest.mark.parametrize(
    "text", [b"x", b"29 1 8:1 / / rw", b"29 1 8:1 / / rw - ext4 /dev/sda", b"29 1 8:1 / /\\000 rw - ext4 /dev/sda rw"]
)
def test_odd_text_is_a_parse_error(text: bytes) -> None:
    with pytest.raises(ParseError):
        parse_mounts(text)


def mutated(text: bytes) -> st.SearchStrategy[bytes]:
    odd = st.binary(max_size=8) | st.sampled_from([b"\\000", b"\\377", b"\0", b"\n", b" ", b" - ", b"ext4"])
    place = st.integers(0, len(text))
    return st.binary(max_size=100) | st.builds(
        lambda at, length, new: text[:at] + new + text[at + length :], place, st.integers(0, 30), odd
    )


@settings(max_examples=200, deadline=None)
@given(text=mutated(MOUNTINFO))
def test_any_text_gives_values_or_a_parse_error(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    root = tmp_path_factory.getbasetemp() / "filesystem"
    (root / "proc/1").mkdir(parents=True, exist_ok=True)
    (root / "proc/1/mountinfo").write_bytes(text)
    collector = FilesystemCollector(Server(str(root)), FilesystemConfig())

    try:
        reading = collector.collect()
    except ParseError:
        return
    finally:
        collector.close()

    assert len(reading.values) == len(reading.layout)

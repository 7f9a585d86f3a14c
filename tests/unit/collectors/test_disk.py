"""/proc/diskstats and udev's database."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.collectors.disk import (
    COUNTS,
    INFO,
    SECTORS,
    TIMES,
    Device,
    DiskCollector,
    DiskConfig,
    facts_of,
    parse_devices,
    parse_udev,
)
from sonde.errors import ConfigError, ParseError
from sonde.hostfs import HostFS
from sonde.model import Kind, Reading, Value

VDA = " 254       0 vda 31246 8269 2356082 10004 4004 12347 1147608 2437 0 4784 12768 3292 40 74448 305 407 20\n"
DISKSTATS = (VDA + VDA.replace("vda", "vdb").replace(" 0 vdb", " 16 vdb")).encode()


def by_series(reading: Reading) -> dict[tuple[str, ...], Value]:
    return {(s.name, *labels): value for (s, labels), value in zip(reading.layout, reading.values, strict=True)}


def devices(reading: Reading) -> set[str]:
    return {labels[0] for _, labels in reading.layout}


def test_all_numbers_of_a_line_are_metrics(captured: Callable[[str], HostFS]) -> None:
    values = by_series(DiskCollector(captured("vm"), DiskConfig()).collect())

    found = {name.removeprefix("node_disk_"): v for (name, *labels), v in values.items() if labels == ["vda"]}
    assert found == {
        "reads_completed_total": 31246,
        "reads_merged_total": 8269,
        "read_bytes_total": 2356082 * 512,
        "read_time_seconds_total": 10.004,
        "writes_completed_total": 4004,
        "writes_merged_total": 12347,
        "written_bytes_total": 1147608 * 512,
        "write_time_seconds_total": 2.437,
        "io_now": 0,
        "io_time_seconds_total": 4.784,
        "io_time_weighted_seconds_total": 12.768,
        "discards_completed_total": 3292,
        "discards_merged_total": 40,
        "discarded_sectors_total": 74448,
        "discard_time_seconds_total": 0.305,
        "flush_requests_total": 407,
        "flush_requests_time_seconds_total": 0.02,
    }


def test_loop_devices_and_partitions_are_left_out(captured: Callable[[str], HostFS]) -> None:
    assert devices(DiskCollector(captured("vm"), DiskConfig()).collect()) == {"vda", "zram0"}
    assert devices(DiskCollector(captured("big"), DiskConfig()).collect()) == {
        "nvme0n1",
        "nvme1n1",
        "nvme2n1",
        "nvme3n1",
        "sda",
        "dm-0",
        "md127",
    }


def test_the_exclusion_is_matched_whole(captured: Callable[[str], HostFS]) -> None:
    reading = DiskCollector(captured("big"), DiskConfig(exclude="nvme|sd.*|md127")).collect()

    assert {"nvme0n1", "nvme0n1p1", "loop0", "dm-0"} <= devices(reading)
    assert not {"sda", "sda1", "md127"} & devices(reading)


def test_a_bad_pattern_is_a_configuration_error(captured: Callable[[str], HostFS]) -> None:
    with pytest.raises(ConfigError, match=r"collectors\.disk\.exclude"):
        DiskCollector(captured("vm"), DiskConfig(exclude="["))


def test_requests_in_flight_are_a_gauge_and_the_rest_counters() -> None:
    kinds = {spec.name: spec.kind for group in (COUNTS, SECTORS, TIMES) for _, spec in group}

    assert [name for name, kind in kinds.items() if kind is not Kind.COUNTER] == ["node_disk_io_now"]
    assert len(kinds) == 17


def test_what_udev_knows_becomes_labels(captured: Callable[[str], HostFS]) -> None:
    values = by_series(DiskCollector(captured("big"), DiskConfig()).collect())

    path, model = "pci-0000:41:00.0-nvme-1", "NVME DISK 3840G"
    assert values["node_disk_info", "nvme0n1", "259", "0", path, "eui.0001", model, "S0001", "1.2"] == 1
    assert values["node_disk_info", "md127", "9", "127", "", "", "", "", ""] == 1
    assert values["node_disk_filesystem_info", "dm-0", "xfs", "filesystem", "0a1b2c3d", ""] == 1
    assert values["node_disk_device_mapper_info", "dm-0", "vg-scratch", "LVM-0001", "vg", "scratch", ""] == 1
    assert values["node_disk_ata_rotation_rate_rpm", "sda"] == 7200
    assert values["node_disk_ata_write_cache", "sda"] == 1
    assert values["node_disk_ata_write_cache_enabled", "sda"] == 0


def test_udev_may_write_after_the_device_came(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("big")
    collector = DiskCollector(host, DiskConfig())
    collector.collect()
    Path(host.path("run/udev/data/b9:127")).write_text("E:ID_MODEL=ARRAY\n")
    os.utime(host.path("run/udev/data"), ns=(1, 1))
    for _ in range(9):
        collector.collect()

    values = by_series(collector.collect())

    assert values["node_disk_info", "md127", "9", "127", "", "", "ARRAY", "", ""] == 1


@pytest.mark.parametrize(("width", "metrics"), [(14, 11), (18, 15), (20, 17), (22, 17)])
def test_older_and_newer_kernels_have_fewer_and_more_numbers(tmp_path: Path, width: int, metrics: int) -> None:
    (tmp_path / "proc").mkdir()
    tokens = [*VDA.split(), "1", "2"][:width]
    (tmp_path / "proc/diskstats").write_text(" ".join(tokens) + "\n")

    reading = DiskCollector(HostFS(str(tmp_path)), DiskConfig()).collect()

    assert len({spec for spec, _ in reading.layout} - {INFO}) == metrics


def test_a_disk_that_comes_and_goes_changes_the_layout(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    collector = DiskCollector(host, DiskConfig())
    path = Path(host.path("proc/diskstats"))
    before, text = collector.collect(), path.read_text()
    path.write_text(text + VDA.replace("vda", "vdb").replace(" 0 vdb", " 16 vdb"))

    with_it = collector.collect()
    path.write_text(text)
    without = collector.collect()

    assert devices(with_it) == {"vda", "vdb", "zram0"}
    assert by_series(without) == by_series(before)
    assert without.layout is collector.collect().layout


def test_a_left_out_device_replaced_by_a_wanted_one_is_seen(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    collector = DiskCollector(host, DiskConfig())
    collector.collect()
    path = Path(host.path("proc/diskstats"))
    path.write_text(path.read_text().replace("loop7", "sdb"))

    assert devices(collector.collect()) == {"sdb", "vda", "zram0"}


def test_a_counter_that_steps_back_is_passed_on(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    collector = DiskCollector(host, DiskConfig())
    before = collector.collect()
    path = Path(host.path("proc/diskstats"))
    path.write_text(path.read_text().replace("vda 31246", "vda 5"))

    after = collector.collect()

    assert after.layout is before.layout
    assert by_series(after)["node_disk_reads_completed_total", "vda"] == 5


def test_a_host_without_disks_has_no_series(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/diskstats").write_bytes(b"")

    reading = DiskCollector(HostFS(str(tmp_path)), DiskConfig()).collect()

    assert (len(reading.layout), list(reading.values)) == (0, [])


@pytest.mark.parametrize("text", [b"1 2 sda 3\n", b"x 0 sda" + b" 1" * 17 + b"\n", DISKSTATS.replace(b"vdb", b"vda")])
def test_odd_text_is_a_parse_error(text: bytes) -> None:
    with pytest.raises(ParseError):
        parse_devices(text)


def mutated(text: bytes) -> st.SearchStrategy[bytes]:
    odd = st.binary(max_size=8) | st.sampled_from([b"-1", b"nan", b"9" * 400, b"9" * 5000, b"\n", b" ", b"vd"])
    place = st.integers(0, len(text))
    return st.binary(max_size=100) | st.builds(
        lambda at, length, new: text[:at] + new + text[at + length :], place, st.integers(0, 30), odd
    )


@settings(max_examples=200, deadline=None)
@given(text=mutated(DISKSTATS))
def test_any_text_gives_values_or_a_parse_error(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    root = tmp_path_factory.getbasetemp() / "disk"
    (root / "proc").mkdir(parents=True, exist_ok=True)
    (root / "proc/diskstats").write_bytes(DISKSTATS)
    collector = DiskCollector(HostFS(str(root)), DiskConfig())
    reading = collector.collect()
    (root / "proc/diskstats").write_bytes(text)

    try:
        reading = collector.collect()
    except ParseError:
        pass

    assert len(reading.values) == len(reading.layout)


@given(text=mutated(b"S:x\nE:ID_ATA=1\nE:ID_ATA_ROTATION_RATE_RPM=7200\nE:ID_FS_TYPE=ext4\n"))
def test_any_udev_text_gives_facts(text: bytes) -> None:
    facts = facts_of(Device("8", "0", "sda", 17), parse_udev(text))

    assert all(len(labels) == len(spec.labels) for spec, labels, _ in facts)

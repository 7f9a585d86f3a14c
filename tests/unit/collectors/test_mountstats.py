"""Statistics of NFS mounts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.collectors.mountstats import (
    BACKLOG,
    CONNECT,
    IDLE,
    SENDS,
    SLOTS,
    MountstatsCollector,
    parse_mountstats,
)
from sonde.config import NoKeys
from sonde.errors import ParseError, Unavailable
from sonde.hostfs import HostFS
from sonde.model import Value

HOME = ("nas:/home", "tcp", "10.0.0.2")
SCRATCH = ("fast:/scratch", "tcp", "10.0.0.3")
HEAD = b"device nas:/x mounted on /x with fstype nfs4 statvers=1.1\n"


def collected(host: HostFS) -> dict[tuple[str, ...], Value]:
    collector = MountstatsCollector(host, NoKeys())
    reading = collector.collect()
    collector.close()
    return {
        (spec.name.removeprefix("node_mountstats_nfs_"), *labels): value
        for (spec, labels), value in zip(reading.layout, reading.values, strict=True)
    }


def test_bytes_events_transport_and_operations_of_a_mount(captured: Callable[[str], HostFS]) -> None:
    found = collected(captured("storage"))

    assert found["age_seconds_total", *HOME] == 13968
    assert found["read_bytes_total", *HOME] == 1000 * 1000003
    assert found["write_pages_total", *HOME] == 1000 * 1000003 + 7
    assert found["event_vfs_file_release_total", *HOME] == 1017
    assert found["event_truncation_total", *HOME] == 1019  # the one before is not counted any more
    assert found["event_pnfs_write_total", *HOME] == 1026
    assert (found["transport_bind_total", *HOME], found["transport_idle_time_seconds", *HOME]) == (1, 11)
    assert (found["transport_sends_total", *HOME], found["transport_receives_total", *HOME]) == (6428, 6427)
    assert found["transport_pending_queue_total", *HOME] == 5726
    assert found["operations_requests_total", *HOME, "READ"] == 1001
    assert found["operations_response_time_seconds_total", *HOME, "WRITE"] == 3.002


def test_an_export_mounted_twice_counts_once(captured: Callable[[str], HostFS]) -> None:
    found = collected(captured("storage"))

    assert {key[1:4] for key in found} == {HOME, SCRATCH}


def test_several_connections_are_added_up() -> None:
    text = HEAD + b"\txprt:\ttcp 1 0 1 0 9 10 10 0 0 2 5 1 1\n\txprt:\ttcp 2 0 3 0 4 30 30 0 0 3 4 1 1\n"

    (mount,) = parse_mountstats(text)

    assert {spec: mount.values[spec, ()] for spec in (CONNECT, IDLE, SENDS, BACKLOG, SLOTS)} == {
        CONNECT: 4,
        IDLE: 4,
        SENDS: 40,
        BACKLOG: 5,
        SLOTS: 5,
    }


@pytest.mark.parametrize(
    ("line", "absent"),
    [
        (b"udp 832 0 6428 6428 0 12154 7 24 26 5726", {CONNECT, IDLE}),
        (b"rdma 0 0 1 0 3 6428 6428 0 12154 7 1 2 3 4 5 6 7 8 9", {SLOTS}),
    ],
)
def test_what_a_transport_does_not_count_is_absent(line: bytes, absent: set[object]) -> None:
    (mount,) = parse_mountstats(HEAD + b"\txprt:\t" + line + b"\n")

    assert (mount.values[SENDS, ()], mount.values[BACKLOG, ()]) == (6428, 7)
    assert not absent & {spec for spec, _ in mount.values}


def test_a_mount_that_goes_leaves_the_others(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("storage")
    collector = MountstatsCollector(host, NoKeys())
    collector.collect()
    path = Path(host.path("proc/77/mountstats"))
    path.write_text(path.read_text().partition("device fast:/scratch")[0])
    reading = collector.collect()
    again = collector.collect()
    collector.close()

    assert {labels[:3] for _, labels in reading.layout} == {HOME}
    assert again.layout is reading.layout


def test_the_hosts_mounts_are_preferred_to_our_own(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("storage")
    folder = Path(host.path("proc/1"))
    folder.mkdir()
    (folder / "mountstats").write_bytes(HEAD + b"\tage:\t7\n")
    (folder / "mountinfo").write_text("1 1 0:1 / /x rw - nfs4 nas:/x rw,addr=10.9.9.9\n")

    assert collected(host) == {("age_seconds_total", "nas:/x", "", "10.9.9.9"): 7}


def test_without_nfs_it_is_unavailable(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("storage")
    Path(host.path("proc/77/mountstats")).write_text("device proc mounted on /proc with fstype proc\n")

    with pytest.raises(Unavailable, match="no NFS"):
        MountstatsCollector(host, NoKeys())


TEXT = (
    HEAD + b"\tage:\t5\n\tbytes:\t1 2 3 4 5 6 7 8\n\txprt:\ttcp 1 2 3 4\n\tper-op statistics\n\tREAD: 1 2 3 4 5 6 7 8\n"
)


@given(
    st.binary(max_size=60)
    | st.tuples(st.integers(len(HEAD), len(TEXT)), st.binary(max_size=3)).map(
        lambda cut: TEXT[: cut[0]] + cut[1] + TEXT[cut[0] :]
    )
)
def test_any_text_is_mounts_or_a_parse_error(text: bytes) -> None:
    try:
        mounts = parse_mountstats(text)
    except ParseError:
        return

    assert all(isinstance(value, int | float) for mount in mounts for value in mount.values.values())

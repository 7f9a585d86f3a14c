"""Recordings that nobody has finished."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sonde.config import ArchiveConfig
from sonde.errors import Unavailable, UsageError
from sonde.hostfs import HostFS
from sonde.jobs.interrupted import followed_again, own_part, recover, resumed_about
from sonde.jobs.recorder import hold
from sonde.jobs.recording import About, open_node, write_about
from sonde.model import Frame, Kind, Layout, MetricSpec, Unit
from sonde.store.archive import Archive

LOAD = MetricSpec("node_load1", Kind.GAUGE, Unit.NONE, "Load.")
NS = 10**9


def node(path: Path, host: str = "n1", *, ticks: int = 3, **more: object) -> Path:
    directory = path / host
    directory.mkdir(parents=True)
    write_about(str(directory), About(host, begun_ns=time.time_ns(), period_ns=NS, **more))  # type: ignore[arg-type]
    if ticks:
        archive = Archive(str(directory / "archive.db"), ArchiveConfig(), host=host, boot_id="")
        layout = Layout([(LOAD, ())])
        begun = time.time_ns()
        for tick in range(ticks):
            archive.write([Frame("load", begun + tick * NS, 0, NS, layout, (0.5,))])
        archive.abandon()  # as a killed process does
    return directory


def test_a_part_ends_with_the_last_value_in_its_archive(tmp_path: Path) -> None:
    directory = node(tmp_path)
    (done,) = recover(str(tmp_path))
    found = open_node(str(directory))

    assert done.ended_ns == found.about.ended_ns
    assert found.about.ended_by == "crash"
    with found.archive() as archive:
        span = archive.span()
    assert span is not None
    assert span.end_ns == found.about.ended_ns


def test_a_part_without_any_value_ends_as_it_begins(tmp_path: Path) -> None:
    about = open_node(str(node(tmp_path, ticks=0))).about
    (done,) = recover(str(tmp_path))

    assert done.ended_ns == about.begun_ns


def test_what_has_ended_is_left_as_it_is(tmp_path: Path) -> None:
    node(tmp_path, ended_ns=5, ended_by="job")

    assert recover(str(tmp_path)) == []


def test_one_that_is_being_recorded_is_not_finished(tmp_path: Path) -> None:
    directory = node(tmp_path)
    node(tmp_path, "n2")
    lock = hold(str(directory))
    first, second = recover(str(tmp_path))
    os.close(lock)

    assert "being recorded" in first.error
    assert second.ended_ns is not None


def test_a_damaged_archive_is_named_and_the_others_are_finished(tmp_path: Path) -> None:
    directory = node(tmp_path)
    node(tmp_path, "n2")
    (directory / "archive.db").write_bytes(b"garbage" * 1000)
    first, second = recover(str(tmp_path))

    assert first.ended_ns is None
    assert "archive.db" in first.error
    assert second.ended_ns is not None


def test_only_a_part_of_this_node_that_has_not_ended_is_gone_on_with(tmp_path: Path) -> None:
    node(tmp_path, "n1", ended_ns=5, ended_by="job")
    node(tmp_path, "n2", ended_ns=5, ended_by="crash")

    with pytest.raises(UsageError, match=r"has ended \(job\)"):
        own_part(str(tmp_path), "n1")
    with pytest.raises(UsageError, match="nothing of n3"):
        own_part(str(tmp_path), "n3")
    assert own_part(str(tmp_path), "n2").host == "n2"


def test_the_processes_are_those_that_were_there_before(tmp_path: Path) -> None:
    begun_ns = time.time_ns()
    mine = About(
        "n1", begun_ns=begun_ns, period_ns=NS, pids=(os.getpid(), 999999999), job={"scheduler": "local", "id": "x"}
    )
    long_ago = mine._replace(begun_ns=begun_ns - 30 * 86400 * NS)  # before this process was started

    assert followed_again(HostFS(), mine, "").pids == (os.getpid(),)
    assert followed_again(HostFS(), long_ago, "").pids == ()


def test_after_a_restart_of_the_node_nothing_is_left() -> None:
    with pytest.raises(Unavailable, match="restarted"):
        followed_again(HostFS(), About("n1", 1, NS, boot_id="a"), "b")


def test_what_was_missed_is_noted(tmp_path: Path) -> None:
    node(tmp_path, ended_ns=5, ended_by="crash", notes=["before"])
    about = resumed_about(own_part(str(tmp_path), "n1"))

    assert (about.ended_ns, about.ended_by, about.notes[0]) == (None, "", "before")
    assert about.notes[1].startswith("nothing was recorded from ")

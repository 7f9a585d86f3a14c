"""The recorder of one node."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from sonde.config import CollectorConfig, split
from sonde.errors import SondeError, Unavailable, UsageError
from sonde.jobs.follow import Followed
from sonde.jobs.recorder import (
    DEFAULT,
    Held,
    Pipeline,
    Plan,
    Recorder,
    check_plan,
    configuration,
    hold,
    is_held,
    unused,
)
from sonde.jobs.recording import About, open_node
from sonde.registry import COLLECTORS, load
from sonde.schedulers.job import Job, JobId
from sonde.units import Duration

MINE = Followed(Job(JobId("local", "mine")), (os.getpid(),))
BATCH = Followed(Job(JobId("slurm", "76_4"), raw_id="77"), own_step="1")


def about() -> About:
    return About("n1", begun_ns=time.time_ns(), period_ns=10**8)


@pytest.mark.parametrize("followed", [MINE, BATCH])
@pytest.mark.parametrize("period", ["10ms", "1s", "30s"])
def test_every_collector_takes_the_configuration(followed: Followed, period: str) -> None:
    config = configuration(Plan(followed, Duration.parse(period)), "n1")

    for name in config.daemon.collectors:
        cls = load(COLLECTORS, name)
        split(CollectorConfig, cls.Config, config.collectors.get(name, {}), name)  # type: ignore[attr-defined]
    assert config.daemon.collectors == tuple(name for name in DEFAULT if name in COLLECTORS)


def test_what_changes_slowly_is_read_less_often_than_asked_for() -> None:
    config = configuration(Plan(MINE, Duration(0.1)), "n1")

    assert config.collectors["filesystem"]["period"] == "30s"
    assert "cpu" not in config.collectors


def test_given_processes_are_one_job_for_every_collector() -> None:
    config = configuration(Plan(MINE, Duration(1)), "n1")

    assert config.collectors["job"]["pids"] == config.collectors["process"]["pids"] == [str(os.getpid())]
    assert config.collectors["process"]["jobs"] is False


def test_a_job_of_a_batch_system_is_asked_for_by_both_its_ids() -> None:
    config = configuration(Plan(BATCH, Duration(1)), "n1")

    assert config.collectors["job"]["only"] == config.collectors["process"]["only"] == ["76_4", "77"]
    assert config.collectors["job"]["without_steps"] == ["1"]


def test_a_period_or_a_collector_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="10ms"):
        check_plan(Plan(MINE, Duration(0.001)))
    with pytest.raises(UsageError, match="'cups'"):
        check_plan(Plan(MINE, Duration(1), ("cups",)))


def test_it_says_when_it_began_and_how_it_ended(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "n1"), about())
    recorder.start(
        Pipeline(Plan(MINE, Duration(0.1), ("load",)), "n1", recorder.sink()), lambda: {"asked": {"cpus": 4}}
    )
    begun = open_node(str(tmp_path / "n1")).about
    time.sleep(0.35)
    recorder.finish("command", exit_code=3)
    recorder.close()
    node = open_node(str(tmp_path / "n1"))

    assert begun.ended_ns is None
    assert (node.about.ended_by, node.about.exit_code, node.about.asked) == ("command", 3, {"cpus": 4})
    with node.archive() as archive:
        span = archive.span()
        assert archive.host() == "n1"
    assert span is not None
    assert span.end_ns - span.start_ns > 0.3e9  # with a last look at the end


def test_the_pipeline_takes_a_last_look(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "n1"), about())
    recorder.start(Pipeline(Plan(MINE, Duration(60), ("load",)), "n1", recorder.sink()))
    time.sleep(0.2)
    recorder.finish("command")
    recorder.close()
    with open_node(str(tmp_path / "n1")).archive() as archive:
        summary = archive.summary()

    assert summary.ticks == 2


def test_a_directory_has_one_recorder(tmp_path: Path) -> None:
    lock = hold(str(tmp_path))
    with pytest.raises(Held, match=f"process {os.getpid()}"):
        Recorder(str(tmp_path), about())
    during = is_held(str(tmp_path))
    os.close(lock)

    assert (during, is_held(str(tmp_path)), is_held(str(tmp_path / "none"))) == (True, False, False)


def test_a_lock_that_a_killed_recorder_has_left_holds_nobody_up(tmp_path: Path) -> None:
    """With perfmon everybody waits for it forever."""
    (tmp_path / "recording.lock").write_text("4711\n")
    os.close(hold(str(tmp_path)))

    assert (tmp_path / "recording.lock").read_text() == f"{os.getpid()}\n"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="file/n1"):
        hold(str(tmp_path / "file/n1"))


def test_an_unnamed_directory_is_numbered_when_this_node_has_used_it(tmp_path: Path) -> None:
    stem = str(tmp_path / "sonde-77")
    first = unused(stem, "n1")
    for name in ("sonde-77/n1", "sonde-77-2/n1"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "recording.json").write_text("{}")
    third = unused(stem, "n1")
    other = unused(stem, "n2")
    lock = hold(str(tmp_path / "sonde-77/n1"))
    held = unused(stem, "n1")
    os.close(lock)

    assert (first, third, other, held) == (stem, f"{stem}-3", stem, stem)


def test_values_that_could_not_be_written_are_an_error_and_a_note(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "n1"), about())
    (tmp_path / "n1/archive.db").mkdir()  # no archive can be opened there
    recorder.start(Pipeline(Plan(MINE, Duration(0.1), ("load",)), "n1", recorder.sink()))
    time.sleep(0.2)
    with pytest.raises(SondeError, match="could not be written"):
        recorder.finish("command")
    recorder.close()

    written = json.loads((tmp_path / "n1/recording.json").read_text())
    assert "could not be written" in written["notes"][-1]
    assert written["ended_by"] == "command"

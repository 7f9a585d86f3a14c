"""What a daemon's archive has of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from sonde.config import ArchiveConfig
from sonde.errors import Unavailable
from sonde.jobs.excerpt import Excerpt, copy
from sonde.model import Event, Frame, Gap, Kind, Layout, MetricSpec, Quality, Unit
from sonde.sinks.archive import ArchiveSink
from sonde.store.query import parse_selector
from sonde.store.reader import ArchiveReader

NS = 10**9
BEGUN = 1_790_000_000 * NS
LOAD = MetricSpec("node_load1", Kind.GAUGE, Unit.NONE, "Load.")
THREADS = MetricSpec("sonde_job_threads", Kind.GAUGE, Unit.NONE, "Threads.", ("job_id", "scheduler"))
HOST = Layout([(LOAD, ())])
JOBS = Layout([(THREADS, ("77", "slurm")), (THREADS, ("78", "slurm"))])


@pytest.fixture
def archive(tmp_path: Path) -> str:
    """Ten seconds of two jobs."""
    path = str(tmp_path / "daemon.db")
    sink = ArchiveSink(path, _unbounded(), host="n1", boot_id="")
    for tick in range(10):
        at = BEGUN + tick * NS
        gone = (Event(at, "job.end", {"job_id": "78"}),) if tick == 5 else ()
        gaps = (Gap(LOAD, (), Quality.DENIED, "why not"),)
        sink.write(
            [Frame("load", at, 0, NS, HOST, (tick,), (), gaps), Frame("job", at, 0, NS, JOBS, (tick, 100), gone)]
        )
    sink.close()
    return path


def _unbounded() -> ArchiveConfig:
    from sonde.units import Duration, Size

    return ArchiveConfig(max_age=Duration(100 * 365 * 86400), max_size=Size(10**12))


def test_the_values_of_its_time_are_copied_and_those_of_other_jobs_are_not(tmp_path: Path, archive: str) -> None:
    target = str(tmp_path / "mine.db")
    copy(archive, ArchiveSink(target, _unbounded(), host="n1", boot_id=""), BEGUN + 3 * NS, BEGUN + 6 * NS, ("77",))
    with ArchiveReader(target) as reader:
        load = reader.read(parse_selector("node_load1"), 0, 2**62)
        threads = reader.read(parse_selector("sonde_job_threads"), 0, 2**62)
        events = reader.events(0, 2**62)
        gaps = reader.gaps(0, 2**62)

    assert [points.values for points in load] == [[3, 4, 5, 6]]
    assert [(dict(points.series.labels)["job_id"], points.values) for points in threads] == [("77", [3, 4, 5, 6])]
    assert events == []
    assert [row.reason for row in gaps] == ["why not"]


def test_without_an_archive_it_does_not_begin(tmp_path: Path) -> None:
    sink = ArchiveSink(str(tmp_path / "mine.db"), _unbounded(), host="n1", boot_id="")
    with pytest.raises(Unavailable):
        Excerpt(str(tmp_path / "none.db"), sink, ("77",)).start()


def test_an_archive_that_is_gone_at_the_end_is_said(tmp_path: Path, archive: str) -> None:
    excerpt = Excerpt(archive, ArchiveSink(str(tmp_path / "mine.db"), _unbounded(), host="n1", boot_id=""), ("77",))
    excerpt.start()
    Path(archive).unlink()

    assert "could not be copied" in excerpt.stop(BEGUN, BEGUN + NS).lost

"""What a node's daemon has recorded during a job, taken out of its archive: no second reader runs beside the job.

Of series that name a job only those of this one are taken; of all others, everything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from typing import Any

from sonde.errors import SondeError
from sonde.jobs.recorder import Harvest
from sonde.model import EMPTY_LAYOUT, Event, Frame, Layout
from sonde.pipeline.replay import Pace, Replay
from sonde.pipeline.selection import Selection, Sieve
from sonde.shape import picker
from sonde.sinks.archive import ArchiveSink
from sonde.store import history
from sonde.store.reader import ArchiveReader

_PATIENCE = 30.0  # seconds that a disk may be full


class Excerpt:
    """A source of a recording: does nothing until its end, and then copies."""

    def __init__(self, archive: str, sink: ArchiveSink, job_ids: Collection[str]) -> None:
        self._archive = archive
        self._sink = sink
        self._job_ids = job_ids

    def start(self) -> None:
        """Raises Unavailable or Denied when there is no archive that this user may read."""
        ArchiveReader(self._archive).close()

    def stop(self, begun_ns: int, ended_ns: int) -> Harvest:
        try:
            count = copy(self._archive, self._sink, begun_ns, ended_ns, self._job_ids)
        except SondeError as error:
            return Harvest(lost=f"{self._archive} could not be copied: {error}")
        return Harvest((f"taken from the daemon's archive, {self._archive}: {count} readings",))


def copy(archive: str, sink: ArchiveSink, since_ns: int, until_ns: int, job_ids: Collection[str]) -> int:
    """Copy what an archive has of a span into a sink, and close that; how many frames there were."""
    with ArchiveReader(archive) as reader, closing(sink):
        taken = _OfJob(job_ids).taken(history.frames(reader, since_ns, until_ns))
        replay = Replay(sink, Sieve(Selection()), Pace(0.0, time.monotonic, time.sleep), patience=_PATIENCE)
        for _ in replay.run(taken):
            pass
        return replay.counts.delivered


class _OfJob:
    """Leaves out the series and events of other jobs; what is left is worked out once per layout."""

    def __init__(self, job_ids: Collection[str]) -> None:
        self._ids = frozenset(job_ids)
        self._plans: dict[Layout, tuple[Layout, Callable[[Any], Any]]] = {}

    def taken(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        for frame in frames:
            layout, pick = self._plans.get(frame.layout) or self._plan(frame.layout)
            events = tuple(event for event in frame.events if self._is_ours(event))
            if layout is frame.layout and len(events) == len(frame.events):
                yield frame
            elif layout or events:
                yield frame._replace(layout=layout, values=pick(frame.values), events=events)

    def _plan(self, layout: Layout) -> tuple[Layout, Callable[[Any], Any]]:
        kept = [index for index, (spec, labels) in enumerate(layout) if self._wants(spec.labels, labels)]
        chosen = layout if len(kept) == len(layout) else Layout(layout[index] for index in kept)
        plan = self._plans[layout] = (chosen or EMPTY_LAYOUT, picker(kept))
        return plan

    def _wants(self, names: tuple[str, ...], labels: tuple[str, ...]) -> bool:
        return "job_id" not in names or labels[names.index("job_id")] in ("", *self._ids)

    def _is_ours(self, event: Event) -> bool:
        return event.attrs.get("job_id", None) in (None, *self._ids)

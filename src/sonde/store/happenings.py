"""Events and gaps as rows of the archive: an event each, a gap only when it begins, changes or ends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import attrgetter

from sonde.model import Event, Frame, Gap

Statement = tuple[str, tuple[object, ...]]
_EVENTS = attrgetter("events")
_GAPS = attrgetter("gaps")
_Key = tuple[str, str, str, str]  # metric, labels as JSON, quality, reason

_EVENT = "INSERT INTO event (time_ns, source, name, attrs) VALUES (?, ?, ?, ?)"
_OPENED = "INSERT INTO gap (from_ns, source, metric, labels, quality, reason) VALUES (?, ?, ?, ?, ?, ?)"
_CLOSED = (
    "UPDATE gap SET to_ns = ?"
    " WHERE to_ns IS NULL AND source = ? AND metric = ? AND labels = ? AND quality = ? AND reason = ?"
)


class Changes:
    """What a batch changes: statements to run, and what is true once they are committed."""

    __slots__ = ("gaps", "statements")

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self.gaps: dict[str, Sequence[Gap]] = {}

    def __bool__(self) -> bool:
        return bool(self.statements)


NOTHING = Changes()


class Happenings:
    """Remembers which gaps are open. `changes` only looks; `done` remembers, after the commit."""

    def __init__(self) -> None:
        self._gaps: dict[str, Sequence[Gap]] = {}  # by source, as the last committed frame gave them; none is empty

    def changes(self, frames: Sequence[Frame]) -> Changes:
        if not self._gaps and not any(map(_EVENTS, frames)) and not any(map(_GAPS, frames)):
            return NOTHING
        found = Changes()
        known = self._gaps
        for frame in frames:
            if frame.events:
                found.statements += [event_row(frame.source, event) for event in frame.events]
            before = found.gaps[frame.source] if frame.source in found.gaps else known.get(frame.source, ())
            if frame.gaps is not before:  # collectors keep the tuple while nothing changes
                self._compare(found, frame, before)
        return found

    @staticmethod
    def _compare(found: Changes, frame: Frame, before: Sequence[Gap]) -> None:
        old = {_key(gap): gap for gap in before}
        new = {_key(gap): gap for gap in frame.gaps}
        for key in old.keys() - new.keys():
            found.statements.append((_CLOSED, (frame.time_ns, frame.source, *key)))
        for key in new.keys() - old.keys():
            found.statements.append((_OPENED, (frame.time_ns, frame.source, *key)))
        found.gaps[frame.source] = frame.gaps

    def done(self, changes: Changes) -> None:
        for source, gaps in changes.gaps.items():
            if gaps:
                self._gaps[source] = gaps
            else:
                self._gaps.pop(source, None)


def event_row(source: str, event: Event) -> Statement:
    return _EVENT, (event.time_ns, source, event.name, json.dumps(event.attrs))


def _key(gap: Gap) -> _Key:
    return gap.spec.name, json.dumps(gap.labels), gap.quality.value, gap.reason

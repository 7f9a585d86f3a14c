"""A recording into VictoriaMetrics, Mimir or Prometheus by remote write, with its own times and a series per node.

Nodes take turns: some minutes of each, so that no server sees the time go back by more than that. Prometheus takes
nothing that is an hour older than the newest it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from sonde.clock import NS
from sonde.config import SinkConfig
from sonde.errors import Denied, Unavailable, UsageError
from sonde.jobs.recording import Node, Recording
from sonde.model import Frame
from sonde.pipeline.replay import Counts, Pace, Replay
from sonde.pipeline.selection import sieve_for
from sonde.sinks.remote_write import RemoteWriteConfig, RemoteWriteSink
from sonde.store import history
from sonde.store.query import Selector, Span
from sonde.store.reader import ArchiveReader

_TURN_NS = 300 * NS


class Sent(NamedTuple):
    counts: Counts
    nodes: int
    damaged: int
    notes: list[tuple[str, str]]  # host and text


class _Player(NamedTuple):
    node: Node
    reader: ArchiveReader
    replay: Replay
    span: Span


def send(
    recording: Recording,
    config: RemoteWriteConfig,
    selectors: Sequence[Selector],
    *,
    patience: float,
    tell: Callable[[float], None],
) -> Sent:
    """Raises TimedOut when the server stays away for longer than `patience`."""
    notes = [(host, "this node of the job has left no recording") for host in recording.missing]
    wanted = SinkConfig(include=_patterns(selectors))
    with ExitStack() as resources:
        players = [
            player for node in recording.nodes if (player := _player(node, config, wanted, patience, resources, notes))
        ]
        if not players:
            raise Unavailable(f"{recording.path} has no values")
        begin = min(player.span.start_ns for player in players)
        end = max(player.span.end_ns for player in players)
        for turn in range(begin, end + 1, _TURN_NS):
            for player in players:
                _play(player, turn, min(turn + _TURN_NS, end + 1) - 1)
            tell(min(1.0, (turn + _TURN_NS - begin) / (end - begin + 1)))
        damaged = sum(player.reader.damaged for player in players)
        return Sent(_sum([player.replay.counts for player in players]), len(players), damaged, notes)


def _patterns(selectors: Sequence[Selector]) -> tuple[str, ...]:
    if any(selector.matchers for selector in selectors):
        raise UsageError("--url sends whole metrics", hint="write --select without braces, or write a file instead")
    return tuple(selector.metric for selector in selectors)


def _player(
    node: Node,
    config: RemoteWriteConfig,
    wanted: SinkConfig,
    patience: float,
    resources: ExitStack,
    notes: list[tuple[str, str]],
) -> _Player | None:
    try:
        reader = resources.enter_context(node.archive())
    except Denied:
        raise
    except Unavailable as error:
        notes.append((node.host, f"no values were kept: {error}"))
        return None
    span = reader.span()
    if span is None:
        notes.append((node.host, "no values were kept"))
        return None
    offset_ns = node.about.offset_ns
    sink = RemoteWriteSink(config, host=node.host)
    resources.callback(sink.close)
    pace = Pace(0.0, time.monotonic, time.sleep)
    replay = Replay(sink, sieve_for("remote_write", wanted), pace, patience=patience)
    return _Player(node, reader, replay, Span(span.start_ns - offset_ns, span.end_ns - offset_ns))


def _play(player: _Player, since_ns: int, until_ns: int) -> None:
    offset_ns = player.node.about.offset_ns
    frames: Iterable[Frame] = history.frames(player.reader, since_ns + offset_ns, until_ns + offset_ns)
    for _ in player.replay.run(_moved(frames, offset_ns) if offset_ns else frames):
        pass


def _moved(frames: Iterable[Frame], offset_ns: int) -> Iterator[Frame]:
    for frame in frames:
        yield frame._replace(time_ns=frame.time_ns - offset_ns)


def _sum(counts: Sequence[Counts]) -> Counts:
    reasons = [one.reason for one in counts if one.reason]
    return Counts(
        sum(one.frames for one in counts),
        sum(one.delivered for one in counts),
        sum(one.rejected for one in counts),
        sum(one.retries for one in counts),
        max(one.reached_ns for one in counts),
        reasons[-1] if reasons else "",
    )

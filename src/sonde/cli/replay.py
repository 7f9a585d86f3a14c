"""Send the history of an archive through a sink, with its own times.

sonde replay /var/lib/sonde/archive.db --to jsonl --set path=history.jsonl
sonde replay archive.db --to jsonl --since 2h --speed 10                 ten times as fast as it was
sonde replay archive.db --to archive --set path=small.db --set 'include=["node_cpu_*"]'
sonde replay archive.db --to jsonl --config /etc/sonde/sonde.toml        filters and keys of [sinks.jsonl]

A daemon's archive can be replayed while the daemon writes it. What a sink cannot take now is tried again for
--patience; what it refuses for good is counted, and the exit code is 1.
What is replayed twice is stored twice, unless the receiver knows that it has it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

from sonde import config as configuration
from sonde.cli.arguments import duration
from sonde.cli.moments import parse_span
from sonde.cli.progress import Progress
from sonde.clock import iso
from sonde.config import ArchiveConfig, SinkConfig, split
from sonde.errors import SondeError, Unavailable, UsageError
from sonde.model import Frame, Layout, Sink
from sonde.pipeline.replay import Counts, Pace, Replay
from sonde.pipeline.selection import Selection, sieve_for
from sonde.registry import SINKS, load
from sonde.store import history
from sonde.store.query import Span
from sonde.store.reader import ArchiveReader
from sonde.units import Duration, Size

# A daemon's sinks remove what is old or too much. A copy must not lose its beginning while its end is written.
_UNBOUNDED: dict[str, object] = {"max_age": Duration(100 * 365 * 86400), "max_size": Size(10**15)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("archive", metavar="ARCHIVE", help="the file to read")
    parser.add_argument("--to", required=True, metavar="SINK", help=f"one of {', '.join(sorted(SINKS))}")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the sink's section")
    parser.add_argument("--config", metavar="FILE", help="take the sink's section from this file")
    parser.add_argument("--since", default="", metavar="WHEN", help="how long ago, or a time in UTC (default: all)")
    parser.add_argument("--until", default="", metavar="WHEN", help="likewise (default now)")
    parser.add_argument("--speed", type=_speed, default=0.0, help="max (default), or times as fast as it was: 1, 10")
    parser.add_argument(
        "--patience", type=duration, default=Duration(60), metavar="DURATION", help="for a sink that fails (60s)"
    )
    parser.add_argument("--json", action="store_true", help="print the counts as an object, on standard error")


def run(args: argparse.Namespace) -> int:
    common, own = _settings(args)
    if not os.path.exists(args.archive):
        raise Unavailable(
            f"no archive at {args.archive}", hint="name the file a daemon writes, as /var/lib/sonde/archive.db"
        )
    with ArchiveReader(args.archive) as reader:
        span = _span(args, reader)
        with closing(_sink(args, own, reader)) as sink:
            pace = Pace(args.speed, time.monotonic, time.sleep)
            replay = Replay(sink, sieve_for(args.to, common), pace, patience=float(args.patience))
            return _replayed(args, replay, reader, span, _Filter(common))


class _Filter:
    """Sees whether the keys include and exclude let any metric pass: events pass always and would look like success."""

    def __init__(self, common: SinkConfig) -> None:
        self._selection = Selection(common.include, common.exclude)
        self._blocked: dict[str, Layout] = {}  # of a source, what nothing passed of
        self.open = self._selection.everything

    def watched(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        for frame in frames:
            if not self.open and self._blocked.get(frame.source) is not frame.layout:
                self._blocked[frame.source] = frame.layout
                self.open = any(self._selection.wants(spec) for spec, _ in frame.layout)
            yield frame


def _replayed(args: argparse.Namespace, replay: Replay, reader: ArchiveReader, span: Span, passing: _Filter) -> int:
    length = max(1, span.end_ns - span.start_ns)
    begun = time.monotonic()
    try:
        with Progress("replay") as progress:
            for counts in replay.run(passing.watched(history.frames(reader, *span))):
                progress.show((counts.reached_ns - span.start_ns) / length, f"{counts.delivered} frames")
    except (SondeError, KeyboardInterrupt):
        _tell(args, replay.counts, reader, time.monotonic() - begun)
        if replay.counts.reached_ns:
            print(f"  go on with --since {iso(replay.counts.reached_ns, digits=9)}", file=sys.stderr)
        raise
    _tell(args, replay.counts, reader, time.monotonic() - begun)
    if not passing.open:
        raise Unavailable(
            "include and exclude let no metric of that time pass",
            hint=f"sonde query --list --archive {reader.path} shows what there is",
        )
    return 1 if replay.counts.rejected or reader.damaged else 0


def _span(args: argparse.Namespace, reader: ArchiveReader) -> Span:
    whole = reader.span()
    if whole is None:
        raise Unavailable(f"{reader.path} has no values yet")
    if not args.since and not args.until:
        return whole
    asked = parse_span(args.since or "36500d", args.until, time.time_ns())
    inside = Span(max(asked.start_ns, whole.start_ns), min(asked.end_ns, whole.end_ns))
    if inside.start_ns > inside.end_ns:
        covered = f"{iso(whole.start_ns)} to {iso(whole.end_ns)}"
        raise Unavailable("the archive has nothing of that time", hint=f"it covers {covered}")
    return inside


def _settings(args: argparse.Namespace) -> tuple[SinkConfig, Any]:
    """The keys every sink has and the sink's own, from the file and from --set."""
    if args.to not in SINKS:
        raise UsageError(f"no sink is called {args.to!r}", hint=f"there are {', '.join(sorted(SINKS))}")
    cls: Any = load(SINKS, args.to)
    if cls.inline:
        raise UsageError(f"{args.to} shows only what is now: it has no place for the past")
    if getattr(cls, "reads_host", False):
        raise UsageError(f"{args.to} tells increments of this host, as they happen: it has no place for the past")
    table: dict[str, object] = {key: value for key, value in _UNBOUNDED.items() if key in cls.Config._fields}
    if args.config:
        table |= configuration.load(args.config).sinks.get(args.to, {})
    table |= dict(map(assignment, args.set))
    return split(SinkConfig, cls.Config, table, f"sinks.{args.to}")


def assignment(text: str) -> tuple[str, object]:
    """`keep=3`, `include=["node_*"]`: a value of TOML; what is none is a string."""
    import tomllib

    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--set {text!r} is not KEY=VALUE", hint="as in --set path=history.jsonl")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


def _sink(args: argparse.Namespace, own: Any, reader: ArchiveReader) -> Sink:
    if isinstance(own, ArchiveConfig):
        return _copy(own, reader)
    sink: Sink = load(SINKS, args.to)(own, host=reader.host())
    return sink


def _copy(config: ArchiveConfig, reader: ArchiveReader) -> Sink:
    from sonde.sinks.archive import ArchiveSink

    if not config.path:
        raise UsageError("to which file?", hint="--set path=copy.db")
    if os.path.exists(config.path) and os.path.samefile(config.path, reader.path):
        raise UsageError(f"{config.path} is the archive that is read")
    return ArchiveSink(config.path, config, host=reader.host(), boot_id="")


def _speed(text: str) -> float:
    if text == "max":
        return 0.0
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0.001 <= speed <= 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no speed: write max, 1 or 10")
    return speed


def _tell(args: argparse.Namespace, counts: Counts, reader: ArchiveReader, seconds: float) -> None:
    """On standard error: standard output may be the sink's."""
    told = {"archive": reader.path, "damaged": reader.damaged, "seconds": round(seconds, 3)} | counts._asdict()
    if args.json:
        print(json.dumps(told), file=sys.stderr)
        return
    print(f"{counts.delivered} frames delivered in {seconds:.1f} s", file=sys.stderr)
    _tell_if(counts.rejected, f"{counts.rejected} refused by the sink for good: {counts.reason}")
    _tell_if(counts.retries, f"{counts.retries} tries failed and were made again")
    _tell_if(reader.damaged, f"{reader.damaged} damaged rows were left out; sonde archive check tells which")


def _tell_if(count: int, text: str) -> None:
    if count:
        print(text, file=sys.stderr)

"""A recording on disk: a directory with one subdirectory per node, each whole in itself.

    RECORDING/
      n1/recording.json     what was recorded, of which job, from when to when, and how it ended
      n1/archive.db         the values: the daemon's own archive, readable while it is written
      n1/context.json       the hardware and software of the node
      n2/…

A node writes its own subdirectory and nothing else, wherever that is; gathering is copying. So no filesystem must be
shared, nobody waits for anybody, and what a killed recorder has written is as good as what a finished one has.
`recording.json` is replaced as a whole, at the beginning and at the end: without an end, the node was interrupted.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sonde.errors import ParseError, ReadError, UsageError
from sonde.store.reader import ArchiveReader

FORMAT = 1
ABOUT, ARCHIVE, CONTEXT = "recording.json", "archive.db", "context.json"


class About(NamedTuple):
    """What `recording.json` says. Times are Unix nanoseconds of the node's own clock."""

    host: str
    begun_ns: int
    period_ns: int
    ended_ns: int | None = None  # None: interrupted, or still running
    ended_by: str = ""  # command, job, pid, signal, ipc; crash: nobody has ended it
    exit_code: int | None = None  # of the command that was wrapped; -N: signal N has ended it
    command: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()  # the processes it was told to follow, with all below them
    job: Mapping[str, Any] | None = (
        None  # scheduler, id, raw_id, name, user, partition, account, nodes, walltime_seconds
    )
    asked: Mapping[str, Any] | None = (
        None  # what the job asked for: cpus, memory_bytes, gpus, seconds; where it is known
    )
    rank: int | None = None
    uid: int = 0
    boot_id: str = ""
    clock: Mapping[str, int] | None = None  # offset_ns and bound_ns against whoever gathered; None: not measured
    labels: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()  # what could not be seen, and what would make it visible
    version: str = ""  # of sonde
    format: int = FORMAT

    @property
    def offset_ns(self) -> int:
        """What the node's clock is ahead of the gatherer's."""
        return self.clock["offset_ns"] if self.clock else 0


class Node:
    """One node of a recording."""

    def __init__(self, directory: str, about: About) -> None:
        self.directory = directory
        self.about = about

    @property
    def host(self) -> str:
        return self.about.host

    @property
    def archive_path(self) -> str:
        return os.path.join(self.directory, ARCHIVE)

    def archive(self) -> ArchiveReader:
        return ArchiveReader(self.archive_path)

    def context(self) -> dict[str, Any] | None:
        """The hardware and software of the node; None when it was not written."""
        try:
            return _object(os.path.join(self.directory, CONTEXT))
        except FileNotFoundError:
            return None


class Recording:
    """All nodes of it, by host. Those a job had and that are not there are named, and nothing else."""

    def __init__(self, path: str, nodes: Sequence[Node]) -> None:
        self.path = path
        self.nodes = sorted(nodes, key=lambda node: _natural(node.host))

    @property
    def job(self) -> Mapping[str, Any] | None:
        return next((node.about.job for node in self.nodes if node.about.job), None)

    @property
    def missing(self) -> list[str]:
        """The hosts of the job that have left nothing."""
        expected = list((self.job or {}).get("nodes") or ())
        there = {_short(node.host) for node in self.nodes}
        return [host for host in expected if _short(host) not in there]

    @property
    def name(self) -> str:
        """The job's id, else the name of the directory."""
        job = self.job
        return str(job["id"]) if job else os.path.basename(os.path.abspath(self.path))


def open_recording(path: str) -> Recording:
    """The recording in a directory; one node's own directory is a recording of one. UsageError when it is none."""
    if os.path.exists(os.path.join(path, ABOUT)):
        return Recording(path, [open_node(path)])
    try:
        nodes = [open_node(folder) for folder in _folders(path)]
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    if not nodes:
        raise UsageError(f"{path} is not a recording", hint="give the directory that sonde record has written")
    return Recording(path, nodes)


def open_node(directory: str) -> Node:
    """A node's directory. Raises FileNotFoundError, or ParseError for what is damaged."""
    path = os.path.join(directory, ABOUT)
    return Node(directory, parse_about(_object(path), path))


def _folders(path: str) -> Iterator[str]:
    with os.scandir(path) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir() and os.path.exists(os.path.join(entry.path, ABOUT)):
                yield entry.path


def parse_about(record: Mapping[str, Any], source: str) -> About:
    """What a recording.json says; fields of later versions are passed over."""
    known = {name: record[name] for name in About._fields if name in record}
    try:
        about = About(**known)
    except TypeError as error:
        raise ParseError(source, record, str(error)) from None
    if not isinstance(about.format, int) or about.format > FORMAT:
        raise ReadError(f"{source} is of format {about.format}, this sonde reads up to {FORMAT}", hint="upgrade sonde")
    numbers = (about.begun_ns, about.period_ns)
    if not isinstance(about.host, str) or not all(isinstance(number, int) for number in numbers):
        raise ParseError(source, record, "host, begun_ns or period_ns is of the wrong kind")
    return about._replace(command=tuple(about.command), pids=tuple(about.pids), notes=tuple(about.notes))


def write_about(directory: str, about: About) -> None:
    """Replace recording.json: whole or not at all."""
    write_json(os.path.join(directory, ABOUT), about._asdict())


def write_json(path: str, value: Mapping[str, Any]) -> None:
    part = f"{path}.part"
    with open(part, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def _object(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ParseError(path, text, str(error)) from None
    if not isinstance(found, dict):
        raise ParseError(path, text, "not an object")
    return found


def _short(host: str) -> str:
    return host.partition(".")[0]


def _natural(host: str) -> list[tuple[int, str]]:
    """n2 before n10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", host)]

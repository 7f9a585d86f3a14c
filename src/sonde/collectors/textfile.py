"""Metrics that scripts and cron jobs leave behind, from *.prom files in a directory.

    # HELP backup_age_seconds Seconds since the last backup.
    # TYPE backup_age_seconds gauge
    backup_age_seconds{target="home"} 3600

The files are in the Prometheus text format 0.0.4. A file counts whole or not at all: one that cannot be read, is half
written, carries timestamps, repeats a series of an earlier file or takes a name of sonde's is left out with the reason,
and node_textfile_scrape_error is 1. A file is parsed again only when its time, size or inode changed.

The samples of histograms and summaries travel as they stand in the file (`x_bucket`, `x_sum`, `x_count`, quantiles).
"""

from __future__ import annotations

import errno
import logging
import math
import os
import re
import stat
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from sonde.errors import ParseError, Unavailable
from sonde.hostfs import HostFS
from sonde.model import EMPTY_LAYOUT, Gap, Kind, Labels, Layout, MetricSpec, Quality, Reading, Series, Unit
from sonde.units import Size

log = logging.getLogger(__name__)

MTIME = MetricSpec(
    "node_textfile_mtime_seconds",
    Kind.GAUGE,
    Unit.SECONDS,
    "Unixtime mtime of textfiles successfully read.",
    ("file",),
)
SCRAPE_ERROR = MetricSpec(
    "node_textfile_scrape_error",
    Kind.GAUGE,
    Unit.NONE,
    "1 if there was an error opening or reading a file, 0 otherwise.",
)
_KINDS = {
    "counter": Kind.COUNTER,
    "gauge": Kind.GAUGE,
    "untyped": Kind.UNTYPED,
    "summary": Kind.GAUGE,  # its quantiles; sum and count are counters
    "histogram": Kind.UNTYPED,
}
_PARTS = {"_sum": ("summary", "histogram"), "_count": ("summary", "histogram"), "_bucket": ("histogram",)}
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\[\\"n])*)"[ \t]*(?:,|(?=\}))')
_CLOSE = re.compile(r"[ \t]*\}")
_BLANK = re.compile(r"[ \t]+")
_NUMBER = re.compile(r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|inf|infinity|nan)", re.ASCII | re.IGNORECASE)
_WHOLE = re.compile(r"[-+]?\d{1,18}", re.ASCII)
_ESCAPE = re.compile(r"\\(.)")

Pairs = tuple[tuple[str, str], ...]


class Point(NamedTuple):
    """A sample line, with what the lines before it say of its metric."""

    name: str
    labels: Pairs  # sorted by name, without the empty ones: to Prometheus those are absent
    value: int | float  # may be NaN
    kind: Kind
    help: str
    stamped: bool


class TextfileConfig(NamedTuple):
    directory: str = ""  # empty: the collector is off
    max_size: Size = Size(2**20)  # of one file


class _File(NamedTuple):
    stamp: tuple[int, int, int]  # mtime in ns, size, inode
    points: tuple[Point, ...] = ()
    refusal: str = ""  # empty when the file counts
    quality: Quality = Quality.BLANK  # of what a refused file should have given


_UNREAD = (0, 0, 0)  # the stamp of what could not be opened: tried again at every tick


class TextfileCollector:
    Config: ClassVar[type] = TextfileConfig
    metrics: ClassVar[tuple[MetricSpec, ...]] = (SCRAPE_ERROR, MTIME)  # those of the files come on top
    blocks: ClassVar[bool] = True  # the directory may be on a network

    def __init__(self, host: HostFS, config: TextfileConfig) -> None:
        if not config.directory:
            raise Unavailable("no directory is configured", hint="set directory in [collectors.textfile]")
        # The directory is not touched here: a dead mount must not keep the daemon from starting.
        self._directory = config.directory.rstrip("/") + "/"
        self._path = host.path(self._directory.lstrip("/"))
        self._max_size = config.max_size
        self._files: dict[str, _File] | None = None
        self._specs: dict[tuple[str, Kind, str, Labels], MetricSpec] = {}
        self._layout = EMPTY_LAYOUT
        self._values: list[int | float] = []
        self._gaps: tuple[Gap, ...] = ()
        self._told: dict[str, str] = {}  # of files that are left out, the reason that the log has

    def collect(self) -> Reading:
        files = self._look()
        if files != self._files:
            self._arrange(files)
            self._files = files
        return Reading(self._layout, self._values, (), self._gaps)

    def _look(self) -> dict[str, _File]:
        """The files of the directory as they are now; those that did not change as they were parsed before."""
        try:
            names = sorted(name for name in os.listdir(self._path) if name.endswith(".prom"))
        except OSError as error:
            return {"": _unread(error)}
        known = self._files or {}
        files = {}
        for name in names:
            try:
                found = os.stat(self._path + name)
                before = known.get(name)
                files[name] = before if before and before.stamp == _stamp(found) else self._parse(name)
            except FileNotFoundError:
                continue  # taken away since it was listed
            except OSError as error:
                files[name] = _unread(error)
        return files

    def _parse(self, name: str) -> _File:
        # Without O_NONBLOCK, opening a named pipe would wait for a writer that may never come.
        fd = os.open(self._path + name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                return _File(_stamp(found), refusal="not a regular file")
            text = b"".join(_chunks(fd, self._max_size + 1))
        finally:
            os.close(fd)
        if len(text) > self._max_size:
            return _File(_stamp(found), refusal=f"larger than max_size, {self._max_size}")
        try:
            points = tuple(parse_exposition(self._shown(name), text))
        except ParseError as error:
            return _File(_stamp(found), refusal=str(error))
        return _File(_stamp(found), points, _refusal(points))

    def _arrange(self, files: dict[str, _File]) -> None:
        refused = {name: (file.refusal, file.quality) for name, file in files.items() if file.refusal}
        accepted = {name: file for name, file in files.items() if not file.refusal}
        for name, reason in _conflicts(accepted).items():
            refused[name] = (reason, Quality.BLANK)
            del accepted[name]
        reasons = {self._shown(name): why for name, (why, _) in refused.items()}
        for shown, why in reasons.items() - self._told.items():
            log.warning("textfile: %s is left out: %s", shown, why)
        self._told = reasons
        rows: list[tuple[Series, int | float]] = [((SCRAPE_ERROR, ()), int(bool(refused)))]
        # Whole seconds, as node_exporter has them.
        rows += [((MTIME, (self._shown(name),)), file.stamp[0] // 10**9) for name, file in accepted.items()]
        gaps = [Gap(MTIME, (self._shown(name),), quality, why) for name, (why, quality) in refused.items()]
        for series, value in self._samples(accepted):
            if math.isnan(value):
                gaps.append(Gap(*series, Quality.BLANK, "the file says NaN"))
            else:
                rows.append((series, value))
        if [series for series, _ in rows] != list(self._layout):
            self._layout = Layout(series for series, _ in rows)
        self._values = [value for _, value in rows]
        self._gaps = tuple(gaps)

    def _samples(self, accepted: dict[str, _File]) -> Iterator[tuple[Series, int | float]]:
        """The series of all files, those of one metric together whatever file they come from."""
        metrics: dict[str, list[tuple[str, Point]]] = {}
        for name, file in accepted.items():
            for point in file.points:
                metrics.setdefault(point.name, []).append((name, point))
        specs = {}
        for points in metrics.values():
            spec = self._spec(points)
            specs[spec.name, spec.kind, spec.help, spec.labels] = spec
            for _, point in points:
                given = dict(point.labels)
                yield (spec, tuple(given.get(label, "") for label in spec.labels)), point.value
        self._specs = specs

    def _spec(self, points: Sequence[tuple[str, Point]]) -> MetricSpec:
        name, first = points[0]
        labels = tuple(sorted({label for _, point in points for label, _ in point.labels}))
        text = first.help or f"Metric read from {self._shown(name)}."
        # The same object for the same declaration: series are compared by it, and sinks cache by the layout.
        known = self._specs.get((first.name, first.kind, text, labels))
        return known or MetricSpec(first.name, first.kind, Unit.NONE, text, labels)

    def _shown(self, name: str) -> str:
        # A file name may be any bytes, a label must be text.
        return self._directory + os.fsencode(name).decode("utf-8", "backslashreplace")

    def close(self) -> None:
        pass  # nothing is kept open


def _stamp(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_mtime_ns, found.st_size, found.st_ino


def _unread(error: OSError) -> _File:
    denied = error.errno in (errno.EACCES, errno.EPERM)
    return _File(_UNREAD, (), error.strerror or str(error), Quality.DENIED if denied else Quality.BLANK)


def _chunks(fd: int, limit: int) -> Iterator[bytes]:
    while limit > 0 and (data := os.read(fd, min(limit, 65536))):
        limit -= len(data)
        yield data


def _refusal(points: tuple[Point, ...]) -> str:
    """Why a file that reads well is not taken; empty when it is."""
    for point in points:
        if point.stamped:
            return f"{point.name} has a timestamp; the time of a sample is the time it is read"
        if point.name.startswith("sonde_") or point.name in (MTIME.name, SCRAPE_ERROR.name):
            return f"{point.name} is a name of sonde's own"
    return ""


def _conflicts(files: dict[str, _File]) -> dict[str, str]:
    """Which files contradict an earlier one, and how."""
    conflicts: dict[str, str] = {}
    series: dict[tuple[str, Pairs], str] = {}
    kinds: dict[str, tuple[Kind, str]] = {}
    for name, file in files.items():
        reason = ""
        for point in file.points:
            kind, owner = kinds.get(point.name, (point.kind, name))
            if kind is not point.kind:
                reason = f"{point.name} is a {point.kind.value} here and a {kind.value} in {owner}"
            elif (point.name, point.labels) in series:
                reason = f"{point.name}{dict(point.labels) or ''} is in {series[point.name, point.labels]} already"
        if reason:
            conflicts[name] = reason
            continue
        for point in file.points:
            kinds[point.name] = (point.kind, name)
            series[point.name, point.labels] = name
    return conflicts


def parse_exposition(source: str, text: bytes) -> Iterator[Point]:
    """The sample lines of a file in the text format; ParseError names the line."""
    try:
        lines = text.decode().split("\n")
    except UnicodeDecodeError:
        raise ParseError(f"{source}, not UTF-8", text) from None
    if lines.pop():  # a writer was interrupted, or is still at it
        raise ParseError(f"{source}, the last line has no end", text[-80:])
    return _parse_lines(source, lines)


def _parse_lines(source: str, lines: list[str]) -> Iterator[Point]:
    types: dict[str, str] = {}
    helps: dict[str, str] = {}
    seen: set[tuple[str, Pairs]] = set()
    names: set[str] = set()
    for number, line in enumerate(lines, start=1):
        line = line.strip(" \t")
        where = f"{source} line {number}"
        if line.startswith("#"):
            _parse_comment(where, line, types, helps, names)
        elif line:
            name, labels, value, stamped = parse_sample(where, line)
            if (name, labels) in seen:
                raise ParseError(f"{where}, the same series again", line)
            seen.add((name, labels))
            family, kind = _family(name, types)
            names |= {name, family}
            yield Point(name, labels, value, kind, helps.get(family, ""), stamped)


def _family(name: str, types: dict[str, str]) -> tuple[str, Kind]:
    if name in types:
        return name, _KINDS[types[name]]
    for ending, owners in _PARTS.items():
        family = name.removesuffix(ending)
        if family != name and types.get(family) in owners:
            return family, Kind.COUNTER
    return name, Kind.UNTYPED


def _parse_comment(where: str, line: str, types: dict[str, str], helps: dict[str, str], names: set[str]) -> None:
    words = _BLANK.split(line[1:].strip(" \t"), 2)
    if words[0] not in ("HELP", "TYPE"):
        return
    if len(words) < 2 or not _NAME.fullmatch(words[1]):
        raise ParseError(where, line)
    keyword, name, rest = (*words, "")[:3]
    table = helps if keyword == "HELP" else types
    if name in table or (table is types and (rest not in _KINDS or name in names)):
        raise ParseError(where, line)
    table[name] = _unescape(rest) if table is helps else rest


def parse_sample(where: str, line: str) -> tuple[str, Pairs, int | float, bool]:
    """Name, labels, value, and whether a timestamp follows, of a line like `name{label="text"} 1.5`."""
    match = _NAME.match(line)
    if match is None:
        raise ParseError(where, line)
    labels, position = _parse_labels(where, line, match.end())
    rest = line[position:]
    words = _BLANK.split(rest.strip(" \t"))
    separated = rest[:1] in (" ", "\t") or line[position - 1] == "}"
    if not separated or len(words) > 2 or (len(words) == 2 and not _WHOLE.fullmatch(words[1])):
        raise ParseError(where, line)
    return match[0], labels, _parse_value(where, words[0]), len(words) == 2


def _parse_labels(where: str, line: str, position: int) -> tuple[Pairs, int]:
    opening = _BLANK.match(line, position)
    start = opening.end() if opening else position
    if line[start : start + 1] != "{":
        return (), position
    labels: dict[str, str] = {}
    start += 1
    while (closing := _CLOSE.match(line, start)) is None:
        match = _LABEL.match(line, start)
        if match is None or match[1] in labels or match[1] == "__name__":
            raise ParseError(where, line)
        labels[match[1]] = _unescape(match[2])
        start = match.end()
    return tuple(sorted((name, value) for name, value in labels.items() if value)), closing.end()


def _parse_value(where: str, text: str) -> int | float:
    if _WHOLE.fullmatch(text):
        return int(text)
    if not _NUMBER.fullmatch(text):
        raise ParseError(where, text)
    value = float(text)
    if math.isinf(value) and text[-1].isdigit():  # 1e999 is no infinity, it is a mistake
        raise ParseError(where, text)
    return value


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], text) if "\\" in text else text

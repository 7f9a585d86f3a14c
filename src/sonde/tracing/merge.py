"""Several traces as one: ranks become processes of one timeline, their clocks aligned, in a file a viewer takes.

    {"schemaVersion":1,"displayTimeUnit":"ms","baseTimeNanoseconds":1790857026000000000,"traceEvents":[
    {"ph":"X","cat":"user_annotation","name":"gloo:all_reduce","pid":1,"tid":28511,"ts":3944420977229.959,…},
    {"ph":"X","cat":"user_annotation","name":"gloo:all_reduce","pid":1001,"tid":28513,"ts":3944420977231.120,…},
    {"ph":"M","name":"process_name","pid":1001,"tid":0,"args":{"name":"rank 1 · n2 · pid 813 · python"}},
    …],"parts":{"rank 0":{"host":"n1",…},"rank 1":{…}}}

Perfetto and Chrome tell processes apart by `pid` and arrows by `id`: the same number in two parts would be the same
process and the same arrow. Only these, the times and the names of processes are changed; the rest of an event is
copied as it was written.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from sonde.errors import SondeError, UsageError
from sonde.tracing.chrome import Trace, nanoseconds

_PIDS = 1000  # numbers for the processes of a part, as far as they reach; rank 3 begins at 3001
_RANKS = 1_000_000  # ranks beyond are numbered as those without one: a pid has 32 bits in Perfetto
_IDS = 1 << 32  # libkineto's ids are below; two ranges of this many per part stay exact in a viewer's doubles
MERGED = "merged"  # the key before the events that tells a merged trace from others: how many it was made of
_BATCH = 1 << 10  # events written at once
_LEVEL = 3  # zlib: of a trace to 9 %, at twice the speed of the usual 6, which comes to 7 %


class Part(NamedTuple):
    path: str
    rank: int | None
    host: str
    pid: int  # as the host knows it; 0: not known
    shift_ns: int  # added to its times
    bound_ns: int | None = None  # how far from the truth the shift may be


def merge(parts: Sequence[Part], target: str, *, progress: Callable[[float], None] | None = None) -> int:
    """Write the merged trace and return the number of its events. `progress` hears how much is done, 0 to 1.

    The target is there whole or not at all; one that ends in .gz is compressed. ParseError for a part that is no trace.
    """
    ordered = sorted(parts, key=lambda part: (part.rank is None, part.rank or 0))
    starts = [_base_ns(part) + part.shift_ns for part in ordered]
    base = max(0, min(starts, default=0))
    if os.path.exists(target) and any(os.path.samefile(part.path, target) for part in ordered):
        raise UsageError(f"{target} is one of the traces", hint="write to another file")
    with _written(target) as write:
        head = f'"schemaVersion":1,"displayTimeUnit":"ms","baseTimeNanoseconds":{base},"{MERGED}":{len(ordered)}'
        write(f'{{{head},"traceEvents":[')
        merged = _Merged(write)
        for number, (part, start) in enumerate(zip(ordered, starts, strict=True)):
            for share in merged.add(part, start - base):
                if progress:
                    progress((number + share) / len(ordered))
        write(f'\n],"parts":{json.dumps(merged.metadata)},"traceName":{json.dumps(os.path.basename(target))}}}\n')
    return merged.events


class _Merged:
    """The events written so far, and the numbers given away."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self.events = 0
        self.metadata: dict[str, dict[str, Any]] = {}
        self._write = write
        self._next_pid = 1
        self._next_place = 0

    def add(self, part: Part, offset_ns: int) -> Iterator[float]:
        """All events of a part, then the names of its processes. Tells how much of it was read, now and then."""
        if part.rank is not None and part.rank < _RANKS:
            self._next_pid = max(self._next_pid, part.rank * _PIDS + 1)
        renumbered = _Renumbered(part, offset_ns, self._next_pid, len(self.metadata))
        with Trace(part.path) as trace:
            batch: list[str] = []
            for found in trace.events():
                if text := renumbered.text(found):
                    batch.append(text)
                if len(batch) == _BATCH:
                    self._put(batch)
                    batch = []
                    yield trace.share
            self._put(batch)
            self._put(renumbered.names(self._next_place))
            self.metadata[self._key(part)] = renumbered.metadata() | {"events": trace.count, "trace": trace.metadata}
        self._next_place += len(renumbered.processes)
        # A round number again for a part without a rank, and for a second one of the same.
        self._next_pid = -(-(self._next_pid + len(renumbered.processes)) // _PIDS) * _PIDS + 1

    def _put(self, texts: list[str]) -> None:
        if texts:
            self._write((",\n" if self.events else "\n") + ",\n".join(texts))
            self.events += len(texts)

    def _key(self, part: Part) -> str:
        told = _label(part) if part.pid else os.path.basename(part.path)
        key = wanted = told if part.rank is None else f"rank {part.rank}"
        again = 2
        while key in self.metadata:
            key, again = f"{wanted} ({again})", again + 1
        return key


class _Renumbered:
    """The events of one part, with the numbers they have in the merged trace."""

    def __init__(self, part: Part, offset_ns: int, first_pid: int, number: int) -> None:
        self._part = part
        self._offset_ns = offset_ns
        self._first_pid = first_pid
        self._first_id = number * 2 * _IDS
        self._texts: dict[str | None, _Process] = {}  # by the text of a pid
        self._ids: dict[str, str] = {}
        self.processes: dict[str | int | None, _Process] = {}  # by what the part calls them

    def text(self, found: re.Match[str]) -> str:
        """An event as it is written; empty for what is said in other words."""
        phase, pid, ts, id1, bind, id2 = found.group("ph", "pid", "ts", "id", "bind_id", "id2")
        process = self._texts.get(pid) or self._process(pid)
        if phase == '"M"' and process.noted(found):
            return ""
        if pid is None or ts is None or id1 is not None or bind is not None or id2 is not None:
            return self._edited(found, process)
        new_pid = process.number
        text = found.string
        start, end = found.span("event")
        pid_start, pid_end = found.span("pid")
        ts_start, ts_end = found.span("ts")
        new_ts = self._time(ts)
        if pid_end < ts_start:
            return f"{text[start:pid_start]}{new_pid}{text[pid_end:ts_start]}{new_ts}{text[ts_end:end]}"
        return f"{text[start:ts_start]}{new_ts}{text[ts_end:pid_start]}{new_pid}{text[pid_end:end]}"

    def names(self, place: int) -> list[str]:
        """What a viewer shall call the processes, in the order of the part."""
        ordered = sorted(self.processes.values(), key=lambda process: process.sort_index)
        named: list[dict[str, Any]] = []
        for process in ordered:
            about = {"ph": "M", "pid": int(process.number), "tid": 0}
            named.append({**about, "name": "process_name", "args": {"name": process.title(self._part)}})
            named.append({**about, "name": "process_sort_index", "args": {"sort_index": place}})
            place += 1
        return [json.dumps(event, ensure_ascii=False, separators=(",", ":")) for event in named]

    def metadata(self) -> dict[str, Any]:
        part = self._part
        told: dict[str, Any] = {"rank": part.rank, "host": part.host, "pid": part.pid, "shift_ns": part.shift_ns}
        if part.bound_ns is not None:
            told["bound_ns"] = part.bound_ns
        return told | {
            "file": os.path.basename(part.path),
            "pids": {process.number: own for own, process in self.processes.items()},
        }

    def _edited(self, found: re.Match[str], process: _Process) -> str:
        """What has ids, or has no pid or time: any number of changes, in any order."""
        text = found.string
        start, end = found.span("event")
        if not text[start + 1 : end - 1].strip():
            return ""  # an empty object: some writers end a list with one, to be spared the last comma
        edits = [] if found["pid"] else [(start + 1, start + 1, f'"pid":{process.number},')]
        for group, new in (
            ("pid", lambda _: process.number),
            ("ts", self._time),
            ("id", self._id),
            ("bind_id", self._id),
            ("id2", self._id2),
        ):
            if found[group]:
                edits.append((*found.span(group), new(found[group])))
        pieces = []
        for edit_start, edit_end, replacement in sorted(edits):
            pieces += [text[start:edit_start], replacement]
            start = edit_end
        return "".join(pieces) + text[start:end]

    def _process(self, pid: str | None) -> _Process:
        own = None if pid is None else json.loads(pid)
        if isinstance(own, str) and own.isdecimal() and len(own) < 20:
            own = int(own)  # "812" and 812 are the same process for a viewer
        elif isinstance(own, float):
            own = int(own) if own.is_integer() else pid
        process = self.processes.get(own)
        if process is None:
            process = self.processes[own] = _Process(own, self._first_pid + len(self.processes))
        self._texts[pid] = process
        return process

    def _time(self, text: str) -> str:
        """A time in microseconds, moved; to the nanosecond, as libkineto has it."""
        if not self._offset_ns:
            return text
        moved = nanoseconds(text, self._part.path) + self._offset_ns
        sign, digits = ("-", str(-moved)) if moved < 0 else ("", str(moved))
        return f"{sign}{digits[:-3] or '0'}.{digits[-3:]:0>3}"

    def _id(self, text: str) -> str:
        """A number of this part alone. Small ones keep their last 32 bits; addresses and names get the next one."""
        if text.isdecimal() and len(text) < 11 and int(text) < _IDS:
            return str(self._first_id + int(text))
        new = self._ids.get(text)
        if new is None:
            new = self._ids[text] = str(self._first_id + _IDS + len(self._ids))
        return new

    def _id2(self, text: str) -> str:
        ids = json.loads(text)
        if "global" in ids:
            ids["global"] = hex(int(self._id(json.dumps(ids["global"]))))
        return json.dumps(ids)  # one that is local belongs to its process


class _Process:
    """A process of a part, and what the part says about it."""

    def __init__(self, own: str | int | None, number: int) -> None:
        self.number = str(number)
        self.sort_index: float = number + (1 << 40)  # behind those of which the part says where they belong
        self._own = own
        self._name = own if isinstance(own, str) else ""
        self._labels = ""

    def noted(self, found: re.Match[str]) -> bool:
        """Take note of what it is called; True when the merged trace says it in other words."""
        about = found["name"]
        if about not in ('"process_name"', '"process_sort_index"', '"process_labels"'):
            return False
        arguments = json.loads(found["event"]).get("args")
        if isinstance(arguments, dict):
            self._name = str(arguments.get("name", self._name))
            self._labels = str(arguments.get("labels", self._labels))
            index = arguments.get("sort_index")
            self.sort_index = index if isinstance(index, int | float) else self.sort_index
        return about != '"process_labels"'

    def title(self, part: Part) -> str:
        """`rank 0 · n1 · pid 812 · python`; libkineto calls those of a GPU like the process that used it."""
        device = "" if self._labels == "CPU" else self._labels
        if not part.pid and isinstance(self._own, int) and not device:
            part = part._replace(pid=self._own)
        return " · ".join([text for text in (_label(part), self._name or "unnamed", device) if text])


def _label(part: Part) -> str:
    """`rank 0 · n1 · pid 812`"""
    texts = (f"rank {part.rank}" if part.rank is not None else "", part.host, f"pid {part.pid}" if part.pid else "")
    return " · ".join([text for text in texts if text])


def refuse_others(trace: Trace) -> None:
    """Raise for a file that is no trace of one process, by what it has before its events."""
    if MERGED in trace.metadata:
        raise UsageError(f"{trace.path} is merged already", hint="merge the traces it was made of, all at once")
    if not trace.has_events:
        hint = "give it with --manifest" if "manifest" in trace.metadata else "sonde trace writes traces"
        raise UsageError(f"{trace.path} is not a trace: it has no traceEvents", hint=hint)


def _base_ns(part: Part) -> int:
    """Before the first event is written all bases must be known. libkineto writes it before the events."""
    with Trace(part.path) as trace:
        trace.begin()
        refuse_others(trace)
        if "baseTimeNanoseconds" not in trace.metadata:
            for _ in trace.events():
                pass
        return trace.base_ns


@contextmanager
def _written(target: str) -> Iterator[Callable[[str], object]]:
    """What is written goes to a file beside the target, which takes its place at the end."""
    temporary = f"{target}.{os.getpid()}.tmp"
    try:
        with open(temporary, "xb", buffering=_BATCH) as file:
            packed = zlib.compressobj(_LEVEL, wbits=31) if target.endswith(".gz") else None

            def write(text: str) -> None:
                data = text.encode("utf-8", "replace")
                file.write(packed.compress(data) if packed else data)

            yield write
            if packed:
                file.write(packed.flush())
        os.replace(temporary, target)
    except FileExistsError:
        raise SondeError(f"{temporary} is in the way", hint="remove it") from None
    except OSError as error:
        _removed(temporary)
        raise SondeError(f"cannot write {target}: {error.strerror or error}") from None
    except BaseException:
        _removed(temporary)
        raise


def _removed(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass

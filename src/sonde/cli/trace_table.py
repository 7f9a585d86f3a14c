"""What became of every rank: a verdict each, the table that ends a trace, and the exit code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.cli.ranks import folded
from sonde.cli.terminal import paint, table
from sonde.cli.trace_check import Lack
from sonde.cli.trace_gather import Gathered, Key, key_of
from sonde.cli.trace_hosts import ENDED, Message, Node
from sonde.errors import TimedOut
from sonde.units import human_bytes, human_seconds

if TYPE_CHECKING:
    from sonde.tracing.summary import Summary

_HEADER = ("rank", "host", "pid", "file", "size", "events", "start skew", "verdict")
_WORDS = {"timed-out": "timed out"}
# What was asked for beside operators, by its name in trace.start.
_CONTENTS = {
    "shapes": "shapes",
    "memory": "allocations",
    "stacks": "stacks",
    "flops": "floating-point operations",
    "modules": "modules",
}


class Row(NamedTuple):
    """One rank, process, or host that could not be asked."""

    rank: int | None
    host: str
    pid: int | None
    verdict: str
    ok: bool = False
    late: bool = False  # it was a time-out and nothing else
    state: str = ""
    path: str = ""  # on its host
    file: str = ""  # in the output directory
    size: int | None = None  # bytes of the trace
    stored: int | None = None  # bytes of `file`, which is compressed
    sha256: str = ""
    events: int | None = None
    operators: int | None = None
    first_ns: int | None = None  # its first operator, by our clock
    last_ns: int | None = None
    skew_ns: int | None = None  # behind the earliest of all
    target: Mapping[str, Any] = {}  # as its daemon tells it
    process: Mapping[str, Any] = {}


def rows_of(nodes: Sequence[Node], gathered: Mapping[Key, Gathered], lacking: Sequence[Lack]) -> list[Row]:
    """A row for everything that was asked for, by rank."""
    rows = [row for node in nodes for row in _of_node(node, gathered)]
    rows += [Row(lack.rank, lack.host, lack.pid, f"not traced: {lack.reason}") for lack in lacking]
    rows = skewed(by_rank(rows))
    return apart(rows) if any(node.asked_for.get("steps") for node in nodes) else rows


def by_rank(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.rank is None, row.rank or 0, row.host, row.pid or 0))


def _of_node(node: Node, gathered: Mapping[Key, Gathered]) -> list[Row]:
    if node.foreign:
        return _of_dynolog(node)
    if node.session is None and not node.found:
        return [] if node.error is None else [_unasked(node, None)]
    rows = [_of_target(node, target, gathered.get(key_of(node, target))) for target in node.targets]
    told = {(target["pid"], target["own_pid"]) for target in node.targets}
    return rows + [_unasked(node, one) for one in node.found if (one["pid"], one["own_pid"]) not in told]


def _unasked(node: Node, process: Message | None) -> Row:
    """A host that did not answer, or a process of one that was not armed."""
    one = process or {}
    if node.error is not None:
        why = str(node.error)
    elif not one.get("may_trace", True):
        why = f"belongs to {one['user']}"
    else:
        why = "it has gone, or there are more than --limit"
    late = isinstance(node.error, TimedOut)
    verdict = why if process is None else f"not armed: {why}"
    return Row(one.get("rank"), node.name, one.get("pid") or one.get("own_pid"), verdict, late=late, process=one)


def _of_dynolog(node: Node) -> list[Row]:
    if node.error is not None:
        return [Row(None, node.name, None, f"dynolog: {node.error}")]
    if not node.matched:
        return [Row(None, node.name, None, "dynolog: it knows no such process")]
    return [
        Row(None, node.name, entry["pid"], entry["verdict"], state=entry["state"], path=entry["path"])
        for entry in node.matched
    ]


def _of_target(node: Node, target: Message, gathered: Gathered | None) -> Row:
    row = Row(
        target["rank"],
        node.name,
        target["pid"] or target["own_pid"],
        _verdict(node, target),
        late=target["state"] == "timed-out",
        state=target["state"],
        path=target["path"] or "",
        size=target["size"],
        target=target,
        process=node.process_of(target),
    )
    if gathered is None:
        return row
    if gathered.error or gathered.summary is None:
        return row._replace(verdict=gathered.error, file=gathered.file)
    summary = gathered.summary
    wrong = _not_the_steps(node, summary.optimizer_steps)
    return row._replace(
        verdict=wrong or ": ".join(["ok", *_blemishes(target, node.asked_for, summary)]),
        ok=not wrong,
        file=gathered.file,
        size=gathered.size,
        stored=gathered.stored,
        sha256=gathered.sha256,
        events=summary.events,
        operators=summary.operators,
        first_ns=None if summary.first_ns is None else summary.first_ns - node.offset_ns,
        last_ns=None if summary.last_ns is None else summary.last_ns - node.offset_ns,
    )


def _not_the_steps(node: Node, found: int) -> str:
    """What is to be said of a trace of steps that has fewer than were asked for, or none.

    There may be more: PyTorch stops recording in a thread, and goes on with its steps meanwhile. By one fewer, because
    the step in which a trace begins or ends need not be whole.
    """
    asked = node.asked_for
    wanted, kinds = asked.get("steps") or 0, asked.get("activities") or ("user_annotation",)
    if "user_annotation" not in kinds or found >= max(min(wanted, 1), wanted - 1):
        return ""
    return f"recorded {found or 'no'} optimizer step{'s' if found > 1 else ''} instead of {wanted}"


def _blemishes(target: Message, asked: Message, summary: Summary) -> list[str]:
    """What is to be said of a trace that is there."""
    late_ns = target.get("late_ns") or 0
    absent = [word for name, word in _CONTENTS.items() if asked.get(name) and name not in summary.contents]
    return [
        *([f"began {human_seconds(late_ns / 1e9)} late, it had not polled in time"] if late_ns > 0 else []),
        *([target["reason"]] if target["reason"] else []),
        *([f"PyTorch recorded no {', no '.join(absent)}"] if absent and summary.operators else []),
        *(["no operator was recorded"] if not summary.operators else []),
    ]


def _verdict(node: Node, target: Message) -> str:
    state = target["state"]
    if state not in ENDED and node.error is not None:
        return f"{state}, then no news: {node.error}"
    word = _WORDS.get(state, str(state))
    return f"{word}: {target['reason']}" if target["reason"] else word


def skewed(rows: Sequence[Row]) -> list[Row]:
    """With how much later than the earliest each began."""
    begun = [row.first_ns for row in rows if row.first_ns is not None]
    earliest = min(begun, default=0)
    return [row if row.first_ns is None else row._replace(skew_ns=row.first_ns - earliest) for row in rows]


def apart(rows: Sequence[Row]) -> list[Row]:
    """With a word on those that recorded their steps when the earliest was over.

    Ranks hear of a request at their own polls. When a multiple of --round-up comes between two of these, the later rank
    takes the next multiple; nobody says so. Ranks that wait for one another make the same step at the same time.
    """
    begun = [row for row in rows if row.first_ns is not None and row.last_ns is not None and row.ok]
    over_ns = min(begun, key=lambda row: row.first_ns or 0).last_ns or 0 if begun else 0
    said = (
        "other steps than the first to begin, if ranks wait for one another: with a larger --round-up all hear in time"
    )
    return [
        row._replace(verdict=f"{row.verdict}: {said}") if row in begun and (row.first_ns or 0) > over_ns else row
        for row in rows
    ]


def expected(rows: Sequence[Row]) -> int:
    """How many traces there should be. A host that could not be asked is one, unless ranks are missing."""
    nowhere = any(not row.host for row in rows)
    return sum(not nowhere or row.rank is not None or row.pid is not None for row in rows)


def exit_code(rows: Sequence[Row]) -> int:
    """0 all wrote, 4 what is missing was a time-out, 1 otherwise, 3 there was nothing."""
    if not rows:
        return 3
    bad = [row for row in rows if not row.ok]
    if not bad:
        return 0
    return 4 if all(row.late for row in bad) else 1


def rendered(rows: Sequence[Row]) -> str:
    """The table. Ranks that are nowhere are told in one row per reason."""
    cells = [_cells(row) for row in rows if row.host]
    nowhere: dict[str, list[int]] = {}
    for row in rows:
        if not row.host and row.rank is not None:
            nowhere.setdefault(row.verdict, []).append(row.rank)
    cells += [[folded(ranks), "", "", "", "", "", "", paint(verdict, "red")] for verdict, ranks in nowhere.items()]
    return table(cells, header=_HEADER, right=(0, 2, 4, 5, 6))


def _cells(row: Row) -> list[str]:
    size = row.stored if row.file else row.size  # of the file that is named
    return [
        "" if row.rank is None else str(row.rank),
        row.host,
        str(row.pid or ""),
        row.file or (row.path if row.state == "written" else ""),
        "" if size is None else human_bytes(size),
        "" if row.events is None else f"{row.events}",
        "" if row.skew_ns is None else human_seconds(row.skew_ns / 1e9),
        paint(row.verdict, "green" if row.ok else "red"),
    ]


def as_object(row: Row) -> dict[str, Any]:
    return row._asdict()

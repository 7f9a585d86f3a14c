"""What is in a trace file, in one line: how many events and operators, and when the first and the last ran.

Summary(events=1251, operators=980, first_ns=1794801446974076771, last_ns=1794801446979101423,
        base_ns=1790857026000000000, trace_id="965A83D44FC14ED8A2A097430A36EDA2", optimizer_steps=10,
        contents={"shapes"})
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from sonde.tracing.chrome import Trace, nanoseconds


class Summary(NamedTuple):
    events: int
    operators: int  # complete events of the category cpu_op
    first_ns: int | None  # when the first operator began; Unix time of the host that was traced, None without one
    last_ns: int | None  # when the last one ended
    base_ns: int  # 0: the file has none, and the times are those in it
    trace_id: str
    optimizer_steps: int = 0  # annotations that torch.optim puts around each, as `Optimizer.step#SGD.step`
    contents: frozenset[str] = frozenset()  # of what was looked for beside operators, what there is


# What an event has in it when a recording with the option has recorded it, by the option's name in trace.start.
MARKS = {
    "shapes": '"Input Dims"',
    "memory": '"[memory]"',
    "stacks": '"python_function"',
    "flops": '"flops"',
    "modules": '"Python module id"',
}


def summarise(path: str, looked_for: Collection[str] = ()) -> Summary:
    """Read the whole file in bounded memory; ParseError when it is no trace or ends too early.

    `looked_for` are names of MARKS.
    """
    operators = steps = 0
    first: int | None = None
    last: int | None = None
    unseen = {name: MARKS[name] for name in looked_for}
    with Trace(path) as trace:
        for found in trace.events():
            if unseen:
                _look(found, unseen)
            kind, phase, begin, duration = found.group("cat", "ph", "ts", "dur")
            if kind == '"user_annotation"' and (found.group("name") or "").startswith('"Optimizer.step#'):
                steps += 1
            if kind != '"cpu_op"' or phase != '"X"' or begin is None:
                continue
            operators += 1
            begin_ns = nanoseconds(begin, path)
            end_ns = begin_ns + (nanoseconds(duration, path) if duration is not None else 0)
            first = begin_ns if first is None or begin_ns < first else first
            last = end_ns if last is None or end_ns > last else last
        base = trace.base_ns
        return Summary(
            trace.count,
            operators,
            None if first is None else base + first,
            None if last is None else base + last,
            base,
            str(trace.metadata.get("trace_id", "")),
            steps,
            frozenset(looked_for) - unseen.keys(),
        )


def _look(found: re.Match[str], unseen: dict[str, str]) -> None:
    """Take out what an event shows to be there."""
    text, (start, end) = found.string, found.span("event")
    for name, mark in tuple(unseen.items()):
        if text.find(mark, start, end) >= 0:
            del unseen[name]

"""What `dyno gputrace` sends and prints: dynolog's command for a trace, cli/src/commands/gputrace.rs.

    {"fn": "setKinetOnDemandRequest", "config": "ACTIVITIES_LOG_FILE=/tmp/t.json\\n…", "pids": [0], …}

    Matched 2 processes
    Trace output files will be written to:
        /tmp/t_812.json
        /tmp/t_813.json

The lines are what scripts read, so their words are dyno's. A file is named only when its process was triggered: dyno
names also those of processes that were busy or beyond the limit, and they never come.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sonde.errors import SondeError, UsageError
from sonde.tracing import kineto
from sonde.tracing.kineto import Options, config_text, written_path

NO_MATCH = "No processes were matched"
_SNAPSHOT = "/tmp/memory_snapshot_{}.pickle"  # noqa: S108 - where libkineto writes it, whatever it was asked for
_ABOUT_SNAPSHOTS = """
Memory profiles may take 4-5 mins to export.

To view them please drag and drop the file to https://docs.pytorch.org/memory_viz
For more info please see https://pytorch.org/blog/understanding-gpu-memory-1/"""


class Ask(NamedTuple):
    """A request for traces, with dyno's defaults."""

    options: Options
    job_id: int = 0
    pids: tuple[int, ...] = (0,)  # none, or 0: every process of the job
    process_limit: int = 3


class Result(NamedTuple):
    """The daemon's answer, as far as it is acted upon."""

    matched: tuple[int, ...]
    triggered: tuple[int, ...]
    busy: int


def check(options: Options) -> None:
    """Raise UsageError for what libkineto would lose or misread, except for two things that dyno lets pass.

    A relative path is one in the working directory of each process, and no rounding up begins at the next step.
    """
    path = options.log_file
    if path and path == path.lstrip():
        path = os.path.join("/", path)
    kineto.check(options._replace(log_file=path, round_up=max(1, options.round_up)))


def request_text(ask: Ask) -> bytes:
    """The request's JSON, laid out as dyno sends it, but with quotes and backslashes escaped: dyno fails at those."""
    pids = ",".join(map(str, ask.pids))
    text = f"""
{{
    "fn": "setKinetOnDemandRequest",
    "config": {json.dumps(config_text(ask.options), ensure_ascii=False)},
    "job_id": {ask.job_id},
    "pids": [{pids}],
    "process_limit": {ask.process_limit}
}}"""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{ask.options.log_file!r} is not UTF-8, and cannot be said in JSON") from None


def parse_result(reply: Mapping[str, object]) -> Result:
    """What a reply says; SondeError for one that is a refusal."""
    matched = reply.get("processesMatched")
    if not isinstance(matched, list):
        raise SondeError(f"the daemon did not take the request: {reply.get('status', 'it gave no reason')}")
    triggered, busy = reply.get("activityProfilersTriggered"), reply.get("activityProfilersBusy")
    return Result(_numbers(matched), _numbers(triggered), busy if isinstance(busy, int) else 0)


def _numbers(value: object) -> tuple[int, ...]:
    return tuple(item for item in value if isinstance(item, int)) if isinstance(value, list) else ()


def result_lines(options: Options, result: Result) -> Iterator[str]:
    """What is printed below the response."""
    if not result.matched:
        yield f"{NO_MATCH}, please check --job-id or --pids flags"
        return
    yield f"Matched {len(result.matched)} processes"
    if not result.triggered:
        return
    yield "Trace output files will be written to:"
    for pid in result.triggered:
        yield f"    {written_path(options.log_file, pid)}"
        if options.snapshot:
            yield f"      Or {_SNAPSHOT.format(pid)}"
    if options.snapshot:
        yield _ABOUT_SNAPSHOTS


def notes(options: Options, result: Result, limit: int) -> Iterator[str]:
    """What dyno keeps to itself."""
    left_out = [pid for pid in result.matched if pid not in result.triggered]
    if left_out:
        reasons = []
        if result.busy:
            reasons.append(f"{result.busy} busy with an earlier request")
        if len(left_out) > result.busy:
            reasons.append(f"{len(left_out) - result.busy} beyond --process-limit {limit}")
        yield f"not traced: {', '.join(map(str, left_out))} ({', '.join(reasons)})"
    if result.triggered and not os.path.isabs(options.log_file):
        yield f"{options.log_file} is below the working directory of each process, not below this one"

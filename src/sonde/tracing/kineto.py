"""The configuration text that libkineto takes for a trace: what can be asked for, and what had better not be.

    ACTIVITIES_LOG_FILE=/tmp/trace.json
    PROFILE_START_TIME=0
    ACTIVITIES_DURATION_MSECS=500
    PROFILE_REPORT_INPUT_SHAPES=false
    PROFILE_WITH_STACK=false
    …

One `KEY=VALUE` per line; `#` begins a comment wherever it stands, and a value with a second `=` ends the reading, so a
path must have neither. Keys, their order and the names of files are those of dynolog's command `dyno gputrace`.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from sonde.errors import UsageError

# The activities torch 2.13 understands (libkineto ActivityType.cpp); the first 18 are recorded when none is named.
ACTIVITIES = (
    "cpu_op",
    "user_annotation",
    "gpu_user_annotation",
    "gpu_memcpy",
    "gpu_memset",
    "kernel",
    "external_correlation",
    "cuda_runtime",
    "cuda_driver",
    "cpu_instant_event",
    "python_function",
    "overhead",
    "mtia_runtime",
    "mtia_ccp_events",
    "mtia_insight",
    "cuda_sync",
    "cuda_event",
    "mtia_counters",
    "glow_runtime",
    "cuda_profiler_range",
    "hpu_op",
    "xpu_runtime",
    "xpu_driver",
    "collective_comm",
    "xpu_scope_profiler",
)
_UNWRITABLE = {"=": "an equals sign", "#": "a number sign", "\n": "a line break", "\r": "a line break", "\0": "a NUL"}


class Options(NamedTuple):
    """What a trace records, and when. Steps go before the duration, as in libkineto."""

    log_file: str  # absolute, ends in .json; each process puts its own pid before that
    duration_ms: int = 500
    start_ms: int = 0  # Unix time in milliseconds; 0: as soon as the process can
    steps: int = 0  # > 0: that many optimizer steps instead of a duration
    at_step: int = 0  # the step it begins at; one that has passed begins at once
    round_up: int = 1  # begin at the next multiple of this
    # Asked before its first step, libkineto records its default of 500 ms instead; with this it ignores the request
    # (AsyncActivityProfilerHandler.cpp, scheduleTrace), which can be made again. dyno lets it.
    only_steps: bool = False
    warmup_seconds: int | None = None  # None: libkineto's own, 5
    shapes: bool = False
    memory: bool = False  # PROFILE_PROFILE_MEMORY: allocations in the trace
    snapshot: bool = False  # PROFILE_MEMORY: a memory snapshot beside the trace, as `dyno --profile-memory` asks for
    stacks: bool = False
    flops: bool = False
    modules: bool = False
    activities: tuple[str, ...] = ()  # none: libkineto's default


def config_text(options: Options) -> str:
    """The text, without a line break at its end. What check() refuses must not come here."""
    lines = [f"ACTIVITIES_LOG_FILE={options.log_file}"]
    if options.steps > 0:
        lines += [
            f"PROFILE_START_ITERATION={options.at_step}",
            f"PROFILE_START_ITERATION_ROUNDUP={options.round_up}",
            f"ACTIVITIES_ITERATIONS={options.steps}",
        ]
        if options.only_steps:
            lines.append("ACTIVITIES_DURATION_MSECS=0")
    else:
        lines += [f"PROFILE_START_TIME={options.start_ms}", f"ACTIVITIES_DURATION_MSECS={options.duration_ms}"]
    lines.append(f"PROFILE_REPORT_INPUT_SHAPES={_word(options.shapes)}")
    if options.memory or options.snapshot:
        lines.append("PROFILE_PROFILE_MEMORY=true")
    if options.snapshot:
        lines += ["PROFILE_MEMORY=true", f"PROFILE_MEMORY_DURATION_MSECS={options.duration_ms}"]
    lines += [
        f"PROFILE_WITH_STACK={_word(options.stacks)}",
        f"PROFILE_WITH_FLOPS={_word(options.flops)}",
        f"PROFILE_WITH_MODULES={_word(options.modules)}",
    ]
    if options.warmup_seconds is not None:
        lines.append(f"ACTIVITIES_WARMUP_PERIOD_SECS={options.warmup_seconds}")
    if options.activities:
        lines.append(f"ACTIVITY_TYPES={','.join(options.activities)}")
    return "\n".join(lines)


def check(options: Options) -> None:
    """Raise UsageError for what libkineto would lose, misread or do harm with."""
    check_path(options.log_file)
    if options.steps <= 0 and options.duration_ms <= 0:
        raise UsageError("a trace lasts at least 1 ms or one step")
    if options.snapshot and options.steps > 0:
        raise UsageError("a memory snapshot is taken over a duration, not over steps", hint="leave out --steps")
    if options.at_step < 0 or options.round_up < 1:
        raise UsageError("a trace begins at a step from 0, or at a multiple of a number from 1")
    for name in options.activities:
        if name not in ACTIVITIES:
            raise UsageError(f"{name!r} is not an activity", hint=f"there are: {', '.join(ACTIVITIES)}")


def check_path(path: str) -> None:
    """A path that libkineto reads as it was meant, and whose file gets the pid in its name."""
    for character, name in _UNWRITABLE.items():
        if character in path:
            raise UsageError(
                f"{path!r} has {name} in it: libkineto would read it as something else",
                hint="give a path of letters, digits, dots, dashes and underscores",
            )
    if not os.path.isabs(path):
        raise UsageError(f"{path!r} is not an absolute path", hint="the process has a working directory of its own")
    if path != path.strip():
        raise UsageError(f"{path!r} begins or ends with a blank: libkineto would cut it off")
    if not path.endswith(".json") or path.count(".json") > 1:
        raise UsageError(
            f"{path!r} must end in .json, and have that once: the pid of each process is put before it",
            hint="without it all processes would write into one file",
        )


def written_path(log_file: str, own_pid: int) -> str:
    """The file a process writes: its own pid, as it knows itself, before `.json`."""
    head, dot, tail = log_file.partition(".pt.trace.json")
    if not dot:
        head, dot, tail = log_file.partition(".json")
    return f"{head}_{own_pid}{dot}{tail}" if dot else log_file


def _word(value: bool) -> str:
    return "true" if value else "false"

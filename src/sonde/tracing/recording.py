"""What a caller wants recorded, as `trace.start` has it, and the text a process gets when it asks.

    {"duration_ms":500,"start_ns":0,"directory":"/tmp","stacks":true}      half a second, as soon as possible
    {"steps":10,"round_up":100}                                            ten steps, from the next multiple of 100

The text is made at the moment of its delivery, because only then the earliest start is known: libkineto looks once a
second whether a start is due, and drops a request whose start has come too near without telling anybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sonde.errors import RpcError, UsageError
from sonde.tracing import kineto

EARLIEST_NS = 1_100_000_000  # from delivery; 1.05 s was taken 5 times of 5 by torch 2.13, 0.6 s refused 4 times of 5
GPU_WARMUP = 5  # seconds, libkineto's own: CUPTI takes its time to set up
LONGEST_MS = 3_600_000
LONGEST_TIMEOUT = 86_400


class Recording(NamedTuple):
    """The arguments of trace.start that say what, when and where."""

    duration_ms: int = 500
    start_ns: int = 0  # 0: as soon as each process can
    not_before_ns: int = 0  # no process is told earlier; with steps: after one common boundary, before the next
    steps: int = 0
    at_step: int = 0
    round_up: int = 1
    directory: str = ""  # empty: the default of the daemon
    shapes: bool = False
    memory: bool = False
    snapshot: bool = False
    stacks: bool = False
    flops: bool = False
    modules: bool = False
    activities: tuple[str, ...] = ()
    warmup_seconds: int | None = None  # None: by what the process has
    timeout_seconds: float = 60.0
    limit: int = 1000


def parse_recording(request: Mapping[str, object], directory: str) -> Recording:
    """The recording a request asks for, in the given directory unless it names one. Raises RpcError."""
    given = {name: request[name] for name in Recording._fields if request.get(name) is not None}
    recording = Recording(**{name: _value(name, value) for name, value in given.items()})
    recording = recording._replace(directory=recording.directory or directory)
    try:
        kineto.check(options(recording, "check", 0, 0))
    except UsageError as error:
        raise RpcError("bad-recording", str(error), hint=error.hint) from None
    return recording


def options(recording: Recording, name: str, start_ms: int, warmup: int) -> kineto.Options:
    same = {name: value for name, value in recording._asdict().items() if name in kineto.Options._fields}
    own = {
        "log_file": f"{recording.directory.rstrip('/')}/{name}.json",
        "start_ms": start_ms,
        "only_steps": True,
        "warmup_seconds": None if recording.steps else warmup,
    }
    return kineto.Options(**{**same, **own})


def warmup_of(recording: Recording, *, gpu: bool | None) -> int:
    """Seconds of warm-up: none where there is no GPU, because there is nothing to warm up."""
    if recording.warmup_seconds is not None:
        return recording.warmup_seconds
    return 0 if gpu is False else GPU_WARMUP


def start_for(recording: Recording, now_ns: int, warmup: int) -> int:
    """When a process that asks now can begin: at the common start, or as early after it as libkineto allows."""
    earliest = now_ns + EARLIEST_NS + warmup * 10**9
    return max(recording.start_ns, -(-earliest // 10**6) * 10**6)  # libkineto counts in milliseconds


def _value(name: str, value: object) -> Any:
    default = Recording._field_defaults[name]
    if name == "activities":
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise _refusal(name, "a list of strings", value)
        return tuple(value)
    if isinstance(default, bool | str):
        if type(value) is not type(default):
            raise _refusal(name, "true or false" if isinstance(default, bool) else "a string", value)
        return value
    if type(value) is not int and not (name == "timeout_seconds" and type(value) is float):
        raise _refusal(name, "a whole number", value)
    low, high = RANGES.get(name, (0, 2**31 - 1))
    if not low <= value <= high:
        raise RpcError("bad-recording", f"{name} must be from {low} to {high}, not {value!r:.40}")
    return value


RANGES = {
    "duration_ms": (1, LONGEST_MS),
    "start_ns": (0, 2**63 - 1),
    "not_before_ns": (0, 2**63 - 1),
    "round_up": (1, 2**31 - 1),
    "warmup_seconds": (0, 600),
    "timeout_seconds": (1, LONGEST_TIMEOUT),
    "limit": (1, 4096),
}


def _refusal(name: str, wanted: str, value: object) -> RpcError:
    return RpcError("bad-request", f"{name} must be {wanted}, not {value!r:.80}")

"""Why a target came no further, in words for the one who asked, as far as it can be seen from outside the process."""

from __future__ import annotations

import time

from sonde.agent import wire
from sonde.clock import NS
from sonde.ipc.processes import Process
from sonde.tracing import target
from sonde.tracing.target import Target

DROPPED_NS = 3 * NS  # a request that was taken up has its temporary file one second before the start

NO_STEP = (
    "its step has not come in time, or it makes none: it would be recorded when it comes, and until then the process "
    "may take no other request"
)
UNFINISHED = "the file was not completed: PyTorch has given it up, or a large trace takes longer (--timeout)"
_ENDED = {
    target.REQUESTED: "before it asked for the request",
    target.DELIVERED: "before its trace began",
    target.STARTED: "while it was being traced: PyTorch keeps nothing of such a trace",
}


def ended(one: Target) -> str:
    return f"the process ended {_ENDED[one.state]}"


def dropped(one: Target) -> str:
    """Why a request that was fetched came to nothing, as far as can be seen."""
    if one.came_late:
        late = ((one.begun_ns or 0) - (one.start_ns or 0)) / NS
        return (
            f"PyTorch dropped the request, its start was in the past: it came to it {late:.1f} s late. "
            "Was the process stopped, or the host overloaded? Ask again"
        )
    process = one.process
    if process is not None and not process.kinds & wire.ACTIVITIES:
        return "PyTorch did not take the request up: a profiler was started in the process before"
    if process is not None and time.monotonic_ns() - process.polled_ns > DROPPED_NS:
        return f"PyTorch did not take the request up: {silence(process)}"
    return (
        "PyTorch did not take the request up, most likely because it came to it after its start: its log says why "
        "(KINETO_LOG_LEVEL=1)"
    )


def silence(process: Process | None) -> str:
    if process is None:
        return "the process has ended"
    ago = (time.monotonic_ns() - process.polled_ns) / NS
    return f"it has not asked for {ago:.0f} s: is it stopped? (sonde doctor trace {process.pid or ''})"

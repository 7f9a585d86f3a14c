"""One process of a trace: how far it has come, or why it went no further.

requested → delivered → started → written
requested, delivered, started → failed, timed-out, cancelled, lost;  refused: never armed
"""

from __future__ import annotations

from typing import Any

from sonde.ipc.processes import Offer, Process

REQUESTED = "requested"
DELIVERED = "delivered"
STARTED = "started"
WRITTEN = "written"
REFUSED = "refused"
FAILED = "failed"
TIMED_OUT = "timed-out"
CANCELLED = "cancelled"
LOST = "lost"
ACTIVE = (REQUESTED, DELIVERED, STARTED)

# What is told of a target and written down, in the order of its life.
FIELDS = (
    "pid",
    "own_pid",
    "uid",
    "gid",
    "started",
    "twin",
    "rank",
    "job",
    "state",
    "reason",
    "path",
    "size",
    "requested_ns",
    "delivered_ns",
    "start_ns",
    "started_ns",
    "written_ns",
    "deadline_ns",
    "late_ns",
)


class Target:
    """Changed by the loop's thread only. Times are Unix nanoseconds; None where it has not come to that."""

    __slots__ = (*FIELDS, "begun_ns", "offer", "process", "text")

    def __init__(self, process: Process, path: str, now_ns: int) -> None:
        self.process: Process | None = process  # None: it has ended, or another daemon has armed it
        self.pid = process.pid or None
        self.own_pid = process.own_name
        self.uid = process.uid
        self.gid = process.gid
        self.started = process.started  # clock ticks since boot: tells it from a later process of the same number
        self.twin = ""  # who sees the same files when it has ended
        self.rank: int | None = None
        self.job: dict[str, str] | None = None
        self.state = REQUESTED
        self.reason = ""
        self.path = path
        self.size: int | None = None
        self.requested_ns = now_ns
        self.delivered_ns: int | None = None
        self.start_ns: int | None = None  # when it will begin; None: as early as it can, or at a step
        self.started_ns: int | None = None
        self.offer: Offer | None = None  # as the process has it, while it does
        self.text = ""  # what it was handed
        self.begun_ns: int | None = None  # its temporary file; not told: without a start it says nothing
        self.written_ns: int | None = None
        self.deadline_ns = 0
        self.late_ns = 0  # how much later than the common start it begins

    @property
    def active(self) -> bool:
        return self.state in ACTIVE

    @property
    def came_late(self) -> bool:
        """Did PyTorch come to the request only after its start?"""
        return bool(self.start_ns) and self.begun_ns is not None and self.begun_ns > (self.start_ns or 0)

    def withdraw(self) -> None:
        """Offer the process nothing more; a request of dyno that waits until this one is over stays."""
        if self.process is not None and self.process.offer is self.offer:
            self.process.offer = None
        self.offer = None

    def end(self, state: str, reason: str = "") -> None:
        self.state, self.reason = state, reason

    def reply(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in FIELDS}

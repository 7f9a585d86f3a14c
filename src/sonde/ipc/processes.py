"""The processes that ask for work: registered with their first datagram, gone within a moment of their exit.

A process is who the kernel says it is: the pid of the sender's credentials, in our own namespace. What it calls itself
(its own pid list, which a container numbers differently) is kept, because libkineto names its files after it, and is
never taken for identity. Its end is seen through a pidfd (pidfd_open(2)); only a process that is not visible from here,
in a pid namespace beside ours, has to be forgotten by time.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from sonde.agent import wire
from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.ipc.endpoint import Address, Sender
from sonde.loop import READ, Loop, Timer
from sonde.procstat import parse_stat

log = logging.getLogger(__name__)

_LIMIT = 4096  # processes
_USER_LIMIT = 1024  # of one user other than root, so that nobody fills the table for all
_KEPT_NS = 60_000_000_000  # an invisible process is forgotten after this long without a word, as in dynolog
_NAMES = 64  # pids that a process is known by; libkineto sends its own and at most ten ancestors'
_SAID = 512  # bytes of a datagram that is remembered; one of libkineto has at most 100
_NOTHING = wire.pack_config("")

Key = int | Address
Offer = Callable[["Process"], "str | None"]  # makes the text of a configuration at its delivery; None: not yet


class Process:
    """One process that speaks libkineto's protocol. Changed by the loop's thread only."""

    __slots__ = (
        "address",
        "first_ns",
        "gid",
        "gpu",
        "identified_ns",
        "identity",
        "kinds",
        "names",
        "offer",
        "pid",
        "pidfd",
        "poll_ns",
        "polled_ns",
        "polls",
        "said",
        "session",
        "skips",
        "slurm_id",
        "started",
        "uid",
    )

    def __init__(self, sender: Sender, now_ns: int) -> None:
        self.pid = sender.pid  # 0: not visible from here
        self.uid = sender.uid
        self.gid = sender.gid
        self.address = sender.address
        self.started = 0  # clock ticks since boot, of /proc/PID/stat; 0: not known
        self.names: tuple[int, ...] = ()  # what it calls itself and its ancestors
        self.slurm_id = 0  # SLURM_JOB_ID as libkineto reads it; 0: none
        self.gpu = -1
        self.kinds = 0  # what it takes a configuration for: without wire.ACTIVITIES a profiler runs already
        self.first_ns = now_ns  # monotonic
        self.polled_ns = now_ns  # monotonic
        self.polls = 0
        self.poll_ns = 0  # between its last two polls; 0: not known
        self.said = b""  # its last request as it came, when it is one to be recognised by
        self.pidfd = -1
        self.offer: Offer | None = None  # waits for the next poll
        self.session = ""  # the trace of ours that it is in
        self.skips = 0  # polls that are not answered, because an old answer waits for it: see unixdiag.py
        self.identity: Any = None  # a tracing.identity.Identity, made on first need: this layer only keeps it
        self.identified_ns = 0  # monotonic

    @property
    def key(self) -> Key:
        return self.pid or self.address

    @property
    def own_name(self) -> int:
        """The pid it knows itself by, and puts into the names of its files."""
        return self.names[0] if self.names else self.pid


class Processes:
    """The table, and the handler of the endpoint. `arrived` and `departed` are told of each process once."""

    def __init__(
        self,
        loop: Loop,
        host: HostFS,
        *,
        arrived: Callable[[Process], None] | None = None,
        departed: Callable[[Process], None] | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._loop = loop
        self._host = host
        self._arrived = arrived
        self.departed = departed
        self._clock = clock
        self._table: dict[Key, Process] = {}
        self._said: dict[bytes, Process] = {}
        self._sweep: Timer | None = None
        self.refused = 0  # processes beyond the limits

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[Process]:
        return iter(tuple(self._table.values()))

    def get(self, key: Key) -> Process | None:
        return self._table.get(key)

    def handle(self, sender: Sender, kind: bytes, payload: bytes) -> bytes | None:
        """The endpoint's handler. Raises WireError for what makes no sense."""
        if kind == wire.REQUEST:
            return self._asked(sender, wire.parse_request(payload))
        if kind == wire.CONTEXT:
            return self._introduced(sender, wire.parse_context(payload))
        raise wire.WireError(f"unknown type {kind!r}")

    def repeated(self, said: bytes, address: Address) -> bytes | None:
        """The answer to a poll that is the same as the last one of its process; None when it has to be read."""
        process = self._said.get(said)
        if process is None or process.offer is not None or process.address != address:
            return None
        now = self._clock()
        process.poll_ns = now - process.polled_ns
        process.polled_ns = now
        process.polls += 1
        return _NOTHING

    def read_anew(self, process: Process) -> None:
        """Read the next poll of a process, even if it says what the last one said: we think otherwise by now."""
        self._said.pop(process.said, None)
        process.said = b""

    def _note(self, process: Process, address: Address) -> None:
        """It has polled."""
        now = self._clock()
        if process.address != address:
            # Another program in the same process (execve(2)).
            process.address, process.first_ns, process.identity = address, now, None
        elif process.polls:
            process.poll_ns = now - process.polled_ns
        process.polled_ns = now
        process.polls += 1

    def _asked(self, sender: Sender, request: wire.Request) -> bytes | None:
        process = self._table.get(sender.pid or sender.address)
        names = request.pids[:_NAMES]
        if process is None:
            process = self._registered(sender, names, request.job_id)
            if process is None:
                return _NOTHING
        elif process.names != names or process.slurm_id != request.job_id:
            process.names, process.slurm_id = names, request.job_id  # it was reparented, or told us less before
        self._note(process, sender.address)
        process.kinds = request.kinds
        self._remember(process, sender)
        if process.skips:
            process.skips -= 1
            return None
        offer = process.offer
        if offer is None or not request.kinds & wire.ACTIVITIES:
            return _NOTHING
        process.offer = None  # handed out once, unless it says otherwise
        text = offer(process)
        if text is None:
            process.offer = offer
        return wire.pack_config(text or "")

    def _remember(self, process: Process, sender: Sender) -> None:
        self._said.pop(process.said, None)
        # Those that are not visible from here have no pid: two of them may say the same.
        process.said = sender.said if sender.pid and len(sender.said) <= _SAID else b""
        if process.said:
            self._said[process.said] = process

    def _introduced(self, sender: Sender, context: wire.Context) -> bytes:
        process = self._table.get(sender.pid or sender.address)
        if process is None:
            process = self._registered(sender, (context.pid,), context.job_id)
        if process is not None:
            process.gpu = context.gpu
        same = [other for other in self if (other.slurm_id, other.gpu) == (context.job_id, context.gpu)]
        return wire.pack_count(len(same))

    def _registered(self, sender: Sender, names: tuple[int, ...], job_id: int) -> Process | None:
        if not self._has_room(sender.uid):
            self.refused += 1
            return None
        process = Process(sender, self._clock())
        process.names, process.slurm_id = names, job_id
        if sender.pid and not self._follow(process):
            return None  # it has ended since it asked
        self._table[process.key] = process
        if not sender.pid:
            self._plan_sweep()
        if self._arrived is not None:
            self._arrived(process)
        return process

    def _has_room(self, uid: int) -> bool:
        if len(self._table) >= _LIMIT:
            return False
        return not uid or sum(process.uid == uid for process in self._table.values()) < _USER_LIMIT

    def _follow(self, process: Process) -> bool:
        """Be told of its end; False when it has come already."""
        try:
            process.pidfd = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return False
        except OSError as error:  # no descriptors left, or a kernel before 5.3
            log.warning(
                "pid %d cannot be followed (%s): it is forgotten a minute after its last word", process.pid, error
            )
            self._plan_sweep()
            return True
        process.started = self._started(process.pid)
        self._loop.register(process.pidfd, READ, lambda _events: self._forget(process))
        return True

    def _started(self, pid: int) -> int:
        try:
            return parse_stat(self._host.read(f"proc/{pid}/stat"))[1]
        except (OSError, ParseError):
            return 0

    def _forget(self, process: Process) -> None:
        if self._table.pop(process.key, None) is None:
            return
        self._said.pop(process.said, None)
        self._let_go(process)
        if self.departed is not None:
            self.departed(process)

    def _let_go(self, process: Process) -> None:
        if process.pidfd >= 0:
            self._loop.unregister(process.pidfd)
            os.close(process.pidfd)
            process.pidfd = -1

    def _plan_sweep(self) -> None:
        if self._sweep is None:
            self._sweep = self._loop.call_at(time.monotonic() + _KEPT_NS / 1e9, self._forget_silent)

    def _forget_silent(self) -> None:
        self._sweep = None
        now = self._clock()
        unfollowed = [process for process in self if process.pidfd < 0]
        silent = [process for process in unfollowed if now - process.polled_ns >= _KEPT_NS]
        for process in silent:
            self._forget(process)
        if len(silent) < len(unfollowed):
            self._plan_sweep()

    def matching(self, job_id: int, pids: Collection[int]) -> list[Process]:
        """dynolog's choice among a job's processes: those that a pid names or is an ancestor of; all for none or 0."""
        wanted = set(pids)
        everyone = wanted <= {0}
        found = [
            process
            for process in self
            if process.slurm_id == job_id
            and (everyone or process.pid in wanted or not wanted.isdisjoint(process.names))
        ]
        return sorted(found, key=lambda process: sorted(process.names))

    def close(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        for process in self:
            self._let_go(process)
        self._table.clear()
        self._said.clear()

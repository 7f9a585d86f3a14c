"""Traces under way: a session per request, a target per process, each followed from the request to its file.

What is known of a target is seen, not assumed. It is delivered when the process has fetched it; started when libkineto
has made its temporary file and the time has come; written when that file has its final name. The end of the process,
the deadline and a cancellation end a target with a reason. Everything here belongs to the loop's thread; files are
looked at by a thread of their own (watch.py).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sonde.agent import wire
from sonde.clock import NS
from sonde.errors import RpcError
from sonde.hostfs import HostFS
from sonde.ipc.processes import Process, Processes
from sonde.loop import Loop, Timer
from sonde.rpc.peer import Peer
from sonde.rpc.server import Pending
from sonde.tracing import kineto, reasons, target
from sonde.tracing.recording import Recording, options, start_for, warmup_of
from sonde.tracing.target import Target
from sonde.tracing.watch import Key, Seen, Wanted, Watch

log = logging.getLogger(__name__)

_POLL_NS = 5 * NS  # libkineto's period until it was observed
_UNHEARD_NS = 12 * NS  # beyond its period: its own back-off, at most 10.2 s, is over by then
_LATE_SECONDS = 600.0  # that a file is still looked for when its time was over
_KEPT = 200  # sessions remembered
_WAITERS = 64  # long polls of one session


class Plan(NamedTuple):
    """A process that is to be armed: what was found out about it beforehand, in a thread that may wait."""

    process: Process
    gpu: bool | None = None
    rank: int | None = None
    job: dict[str, str] | None = None
    twin: str = ""
    behind: bool = False  # an answer that came too late waits for it
    refusal: str = ""  # why it is not armed


class Session:
    def __init__(self, name: str, peer: Peer, recording: Recording, now_ns: int) -> None:
        self.name = name
        self.uid = peer.uid
        self.created_ns = now_ns
        self.recording = recording
        # Nobody shall be able to guess it: /tmp is everybody's.
        self.file_name = f"sonde-{name}-{os.urandom(8).hex()}"
        self.version = 1
        self.targets: list[Target] = []
        self.waiters: list[tuple[Pending, Timer]] = []

    @property
    def active(self) -> bool:
        return any(one.active for one in self.targets)

    def reply(self) -> dict[str, Any]:
        return {
            "session": self.name,
            "uid": self.uid,
            "created_ns": self.created_ns,
            "state": "active" if self.active else "done",
            "version": self.version,
            "config": self.recording._asdict(),
            "targets": [one.reply() for one in self.targets],
        }


class Sessions:
    """All sessions of this daemon.

    `changed` is told when something should be written down, `abandoned` of a target whose temporary file is left over.
    """

    def __init__(
        self,
        loop: Loop,
        host: HostFS,
        processes: Processes,
        *,
        changed: Callable[[], None] = lambda: None,
        abandoned: Callable[[Target], None] = lambda one: None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._loop = loop
        self._processes = processes
        self._changed = changed
        self._abandoned = abandoned
        self._clock = clock
        self._table: dict[str, Session] = {}
        self._watch = Watch(loop, host, self._seen)
        self._alarm: Timer | None = None
        processes.departed = self._departed

    def __iter__(self) -> Iterator[Session]:
        return iter(tuple(reversed(self._table.values())))

    def restore(self, sessions: Iterable[Session]) -> None:
        """Take over what an earlier daemon has written down. Its targets are lost: nobody followed them."""
        for session in sessions:
            self._table.setdefault(session.name, session)

    def get(self, name: str, peer: Peer) -> Session:
        """The session of a caller. One of somebody else does not exist for it."""
        session = self._table.get(name)
        if session is None or peer.uid is None or peer.uid not in (0, session.uid):
            raise RpcError(
                "no-session", f"there is no session {name[:80]!r} of yours", hint="list them: sonde trace list"
            )
        return session

    def has(self, name: str) -> bool:
        return name in self._table

    def start(self, name: str, recording: Recording, plans: Sequence[Plan], peer: Peer) -> Session:
        """Arm the processes, at most `limit` of them."""
        if name in self._table:
            raise RpcError("exists", f"there is a session {name!r} already", hint="choose another id")
        session = Session(name, peer, recording, self._clock())
        armed = 0
        for plan in plans:
            one = self._target(session, plan)
            refusal = plan.refusal or self._refusal(plan.process)
            if not refusal and armed >= recording.limit:
                refusal = f"beyond the limit of {recording.limit} processes"
            if refusal:
                one.end(target.REFUSED, refusal)
            else:
                armed += 1
                self._arm(session, one, plan)
            session.targets.append(one)
        self._table[name] = session
        self._forget_old()
        self._note(session)
        self._plan_alarm()
        return session

    def _target(self, session: Session, plan: Plan) -> Target:
        log_file = options(session.recording, session.file_name, 0, 0).log_file
        one = Target(plan.process, kineto.written_path(log_file, plan.process.own_name), session.created_ns)
        one.rank, one.job, one.twin = plan.rank, plan.job, plan.twin
        one.start_ns = session.recording.start_ns or None
        return one

    def _refusal(self, process: Process) -> str:
        if self._processes.get(process.key) is not process:
            return "the process has ended"
        if process.offer is not None:
            other = f"session {process.session}" if process.session else "a request of dyno"
            return f"another request waits for its next poll ({other})"
        if process.session:
            return f"it is in session {process.session}"
        return ""

    def _arm(self, session: Session, one: Target, plan: Plan) -> None:
        process = plan.process
        process.session = session.name
        process.skips = int(plan.behind)  # it reads the old one instead, and is in step again
        process.offer = one.offer = lambda _process: self._deliver(session, one, plan)
        period = process.poll_ns or _POLL_NS
        one.deadline_ns = max(self._clock(), session.recording.not_before_ns) + period + _UNHEARD_NS
        if not process.kinds & wire.ACTIVITIES:
            one.reason = "a profiler is active in the process: the request waits"
            one.deadline_ns = self._clock() + int(session.recording.timeout_seconds * NS)

    def _deliver(self, session: Session, one: Target, plan: Plan) -> str | None:
        """The text for a process that asks now; None while it is too early."""
        recording, now = session.recording, self._clock()
        if now < recording.not_before_ns:
            return None
        warmup = warmup_of(recording, gpu=plan.gpu)
        timeout = int(recording.timeout_seconds * NS)
        one.state, one.reason, one.delivered_ns = target.DELIVERED, "", now
        if recording.steps:
            one.deadline_ns = now + timeout
            self._repeat(one, plan.process)
        else:
            one.start_ns = start_for(recording, now, warmup)
            one.late_ns = one.start_ns - recording.start_ns if recording.start_ns else 0
            one.deadline_ns = one.start_ns + recording.duration_ms * 10**6 + timeout
        wanted = Wanted((session.name, one.own_pid), plan.process.pid, one.uid, one.path, one.twin)
        self._watch.add(wanted)
        self._note(session)
        self._plan_alarm()
        text = kineto.config_text(options(recording, session.file_name, (one.start_ns or 0) // 10**6, warmup))
        one.text = f"{text}\nREQUEST_TRACE_ID={int.from_bytes(os.urandom(8), 'little')}\n"
        return one.text

    def _repeat(self, one: Target, process: Process) -> None:
        """Offer a request for steps at every poll, until it is taken up.

        PyTorch ignores it before its first step, and when it has one that waits for its step already; it does not say
        which. While it records, it polls as one that takes none.
        """

        def again(_process: Process) -> str:
            if one.state != target.DELIVERED or one.begun_ns is not None:
                return ""
            self._repeat(one, process)
            return one.text

        process.offer = one.offer = again

    def _seen(self, key: Key, seen: Seen) -> None:
        """The watching thread has seen a file appear, or a filesystem vanish."""
        session, one = self._find(key)
        if session is None or one is None or one.state not in (*target.ACTIVE, target.TIMED_OUT):
            self._watch.remove(key)
            return
        if seen.written_ns is not None:
            one.started_ns = one.started_ns or one.start_ns
            late = "it was written after the time was over" if one.state == target.TIMED_OUT else ""
            one.state, one.reason = target.WRITTEN, late
            one.written_ns, one.size = seen.written_ns, seen.size
            self._over(session, one)
        elif seen.begun_ns is not None and one.state == target.DELIVERED:
            one.begun_ns = seen.begun_ns
            self._taken_up(session, one, seen.begun_ns)
        elif seen.gone and one.process is None:
            self._watch.remove(key)
            self._ended(session, one)

    def _taken_up(self, session: Session, one: Target, begun_ns: int) -> None:
        """With a start of its own it is taken up a second before; without, it begins with its first step."""
        if one.came_late:
            self._plan_alarm()  # libkineto makes the file before it looks at the time: it will drop the request
            return
        wait = ((one.start_ns or 0) - self._clock()) / NS
        if wait > 0:
            self._loop.call_at(time.monotonic() + wait, lambda: self._begin(session, one, one.start_ns))
        else:
            self._begin(session, one, one.start_ns or begun_ns)

    def _begin(self, session: Session, one: Target, when_ns: int | None) -> None:
        if one.state == target.DELIVERED:
            one.state, one.started_ns = target.STARTED, when_ns
            one.withdraw()
            self._note(session)
            self._plan_alarm()

    def _find(self, key: Key) -> tuple[Session | None, Target | None]:
        name, own_pid = key
        session = self._table.get(name)
        if session is None:
            return None, None
        return session, next((one for one in session.targets if one.own_pid == own_pid), None)

    def _departed(self, process: Process) -> None:
        """A process has ended. Its file may just have got its name: that is looked at once more."""
        for session in tuple(self._table.values()):
            for one in session.targets:
                if one.process is process:
                    one.process = None
                    self._left(session, one)

    def _left(self, session: Session, one: Target) -> None:
        if one.state == target.REQUESTED:
            self._ended(session, one)
        elif one.state in (*target.ACTIVE, target.TIMED_OUT):
            self._loop.call_at(time.monotonic() + 0.3, lambda: self._ended(session, one))

    def _ended(self, session: Session, one: Target) -> None:
        if one.active:
            one.end(target.FAILED, reasons.ended(one))
            self._over(session, one)
        if one.state in (target.FAILED, target.TIMED_OUT):
            self._watch.remove((session.name, one.own_pid))
            self._abandoned(one)  # what it had begun, nobody will finish

    def _over(self, session: Session, one: Target) -> None:
        """A target has come to its end, whichever. A file that comes later still counts: nobody can call it back."""
        one.withdraw()
        key = (session.name, one.own_pid)
        if one.state == target.TIMED_OUT and one.delivered_ns is not None:
            self._loop.call_at(time.monotonic() + _LATE_SECONDS, lambda: self._watch.remove(key))
        else:
            self._watch.remove(key)
        process = one.process
        if process is not None and process.session == session.name:
            process.session = ""
            if one.state == target.WRITTEN:
                process.kinds |= wire.ACTIVITIES  # its last poll was during the trace; now it would take another
                self._processes.read_anew(process)
        self._note(session)

    def cancel(self, session: Session) -> None:
        """Take back what nobody has fetched yet."""
        for one in session.targets:
            if one.state == target.REQUESTED:
                one.end(target.CANCELLED)
                self._over(session, one)
            elif one.active:
                one.withdraw()
                one.reason = "delivered before it was cancelled: libkineto cannot be called back"
                self._note(session)

    def _plan_alarm(self) -> None:
        """Wake up for the next deadline, or to see that a request was dropped."""
        due = [self._due(one) for session in self._table.values() for one in session.targets if one.active]
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if due:
            seconds = max(0.0, (min(due) - self._clock()) / NS)
            self._alarm = self._loop.call_at(time.monotonic() + seconds + 0.01, self._check)

    @staticmethod
    def _due(one: Target) -> int:
        if one.state != target.DELIVERED or not one.start_ns:
            return one.deadline_ns
        # What polls as one that records is believed, whatever the clock of a file server says of its file.
        poll = ((one.process.poll_ns or _POLL_NS) if one.process and one.came_late else 0) + NS
        return min(one.deadline_ns, one.start_ns + max(reasons.DROPPED_NS, poll))

    def _check(self) -> None:
        self._alarm = None
        now = self._clock()
        for session in tuple(self._table.values()):
            for one in session.targets:
                if one.active and self._due(one) <= now:
                    self._expire(session, one, now)
        self._plan_alarm()

    def _expire(self, session: Session, one: Target, now: int) -> None:
        if one.state == target.REQUESTED:
            one.end(target.TIMED_OUT, one.reason or reasons.silence(one.process))
        elif one.state == target.DELIVERED and now < one.deadline_ns:
            if one.came_late and one.process is not None and not one.process.kinds & wire.ACTIVITIES:
                self._begin(session, one, one.start_ns)
                return
            one.end(target.FAILED, reasons.dropped(one))
        elif one.state == target.DELIVERED:
            one.end(target.TIMED_OUT, reasons.NO_STEP)
        else:
            one.end(target.TIMED_OUT, reasons.UNFINISHED)
        self._over(session, one)

    def _note(self, session: Session) -> None:
        """Something has changed: tell those who wait."""
        session.version += 1
        waiters, session.waiters = session.waiters, []
        for pending, timer in waiters:
            timer.cancel()
            pending.resolve(session.reply())
        self._changed()

    def show(self, session: Session, version: int, seconds: float) -> dict[str, Any] | Pending:
        """The session; or, when it is the version the caller knows, once it changes or the time is over."""
        if session.version != version or seconds <= 0 or not session.active:
            return session.reply()
        while len(session.waiters) >= _WAITERS:
            pending, timer = session.waiters.pop(0)
            timer.cancel()
            pending.resolve(session.reply())
        pending = Pending(seconds + 5)
        timer = self._loop.call_at(time.monotonic() + seconds, lambda: self._answer(session, pending))
        session.waiters.append((pending, timer))
        return pending

    @staticmethod
    def _answer(session: Session, pending: Pending) -> None:
        session.waiters = [waiter for waiter in session.waiters if waiter[0] is not pending]
        pending.resolve(session.reply())

    def _forget_old(self) -> None:
        over = [name for name, session in self._table.items() if not session.active]
        for name in over[: max(0, len(self._table) - _KEPT)]:
            del self._table[name]

    def close(self) -> None:
        self._watch.close()
        if self._alarm is not None:
            self._alarm.cancel()

"""The functions of the RPC that ask processes for traces: trace.check, start, show, list, cancel, fetch and remove.

docs/rpc.md says what each takes and gives. Whatever may wait (a directory on a server, the files of many processes) is
done in a thread; what changes anything is done in the loop's.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

from sonde.config import TracingConfig
from sonde.errors import RpcError, SondeError
from sonde.hostfs import HostFS
from sonde.ipc.processes import Process, Processes
from sonde.loop import Loop
from sonde.rpc.codec import Message
from sonde.rpc.feed import Feed
from sonde.rpc.peer import Peer
from sonde.rpc.server import Finish, Pending
from sonde.tracing import target
from sonde.tracing.choice import Choice, chosen, missing, parse_choice
from sonde.tracing.identity import user_name
from sonde.tracing.journal import Journal
from sonde.tracing.listing import listed
from sonde.tracing.on_demand import may_drive
from sonde.tracing.recording import Recording, parse_recording
from sonde.tracing.rights import Rights, check_directory, rights_of, root_of, twin_of, with_rights
from sonde.tracing.sessions import Plan, Session, Sessions
from sonde.tracing.target import Target
from sonde.tracing.transfer import open_trace, remove_trace, send
from sonde.unixdiag import unread

_DIRECTORY = "/tmp"  # noqa: S108 - what newer PyTorch takes without being told; names in it cannot be guessed
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONGEST_WAIT = 20.0  # seconds


class Tracing:
    """Answers for one daemon."""

    def __init__(
        self,
        loop: Loop,
        host: HostFS,
        processes: Processes,
        config: TracingConfig,
        journal: Journal,
        *,
        hostname: str,
        addresses: Sequence[str],
    ) -> None:
        self._host = host
        self._processes = processes
        self._config = config
        self._hostname = hostname
        self._addresses = list(addresses)
        self._journal = journal
        self._sessions = Sessions(loop, host, processes, changed=self._save, abandoned=self._tidy)
        self._sessions.restore(journal.load())

    def _save(self) -> None:
        self._journal.save(reversed(tuple(self._sessions)))

    def _tidy(self, one: Target) -> None:
        """Remove what a process has left behind that ended while it was traced."""
        threading.Thread(target=remove_trace, args=(self._host, one), name="trace-tidy", daemon=True).start()

    def check(self, request: Message, peer: Peer) -> Message:
        """trace.check, in a thread."""
        choice = parse_choice(request)
        found = self._chosen(choice, peer)
        return {
            **self._here(),
            "found": listed(found, self._host, peer),
            "missing": self._missing(choice, peer),
        }

    def _here(self) -> dict[str, Any]:
        return {"host": self._hostname, "ipc": self._addresses}

    def _chosen(self, choice: Choice, peer: Peer) -> list[Process]:
        found = chosen(self._processes, choice, self._host)
        # All means all of the caller's; who names a process of somebody else is told that it may not.
        return [process for process in found if may_drive(peer, process)] if choice.all else found

    def _missing(self, choice: Choice, peer: Peer) -> list[dict[str, Any]]:
        if peer.uid is None:
            return []  # what runs here is nothing for strangers
        uid = peer.uid if choice.all else None
        found = missing(self._host, choice, list(self._processes), uid=uid, addresses=self._addresses)
        return [one._asdict() for one in found]

    def start(self, request: Message, peer: Peer) -> Finish:
        """trace.start: what can be found out is found out in a thread, then the loop arms."""
        name = _name(request)
        if self._sessions.has(name):
            raise RpcError("exists", f"there is a session {name!r} already", hint="choose another id")
        choice = parse_choice(request)
        recording = parse_recording(request, self._config.roots[0] if self._config.roots else _DIRECTORY)
        checked: dict[object, str] = {}
        found = self._chosen(choice, peer)
        behind = _behind(found)
        entries = {(one["pid"], one["own_pid"]): one for one in listed(found, self._host, peer)}
        plans = [
            self._plan(process, entries[process.pid or None, process.own_name], recording, checked) for process in found
        ]
        plans = [plan._replace(behind=plan.process in behind) for plan in plans]
        plans.sort(key=lambda plan: (plan.rank is None, plan.rank or 0, plan.process.pid))
        absent = self._missing(choice, peer)
        return lambda: {
            **self._here(),
            **self._shown(self._sessions.start(name, recording, plans, peer)),
            "missing": absent,
        }

    def _plan(self, process: Process, entry: Message, recording: Recording, checked: dict[object, str]) -> Plan:
        """What is to be done with a process, of which `entry` is what the list of processes shows."""
        twin = twin_of(self._host, process.pid)
        plan = Plan(process, entry["gpu"], entry["rank"], entry["job"], twin)
        if not entry["may_trace"]:
            return plan._replace(refusal=f"it is a process of {entry['user']}: only {entry['user']} and root may")
        if recording.snapshot and not entry["gpu"]:
            return plan._replace(refusal="without a GPU PyTorch never writes a memory snapshot, and spins")
        rights = rights_of(self._host, process.pid, process.uid, process.gid)
        key = (rights, twin) if twin else process.key
        if key not in checked:
            checked[key] = self._flaw(process, rights, recording.directory)
        return plan._replace(refusal=checked[key])

    def _flaw(self, process: Process, rights: Rights, directory: str) -> str:
        """Why the process could not write into a directory; empty when it can."""
        try:
            root = root_of(self._host, process.pid, "" if process.pid else "self")
            try:
                with_rights(rights, lambda: check_directory(root, directory))
                self._confine(root, directory)
            finally:
                os.close(root)
        except SondeError as error:
            return str(error)
        return ""

    def _confine(self, root: int, directory: str) -> None:
        """Refuse a directory that is, whatever links lead to it, not below a configured root."""
        if not self._config.roots:
            return
        fd = os.open(directory.lstrip("/") or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root)
        try:
            real = os.readlink(f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)
        if not any(real == one or real.startswith(f"{one.rstrip('/')}/") for one in self._config.roots):
            raise SondeError(f"{directory} is not below {' or '.join(self._config.roots)} (tracing.roots)")

    def _shown(self, session: Session) -> dict[str, Any]:
        return {**session.reply(), "user": user_name(session.uid) if session.uid is not None else ""}

    def show(self, request: Message, peer: Peer) -> Message | Pending:
        session = self._sessions.get(_name(request), peer)
        version, seconds = request.get("version", 0), request.get("wait_seconds", 0)
        if type(version) is not int or not isinstance(seconds, int | float) or isinstance(seconds, bool):
            raise RpcError("bad-request", "version and wait_seconds are numbers")
        return self._sessions.show(session, version, min(float(seconds), _LONGEST_WAIT))

    def list(self, request: Message, peer: Peer) -> Message:
        mine = [one for one in self._sessions if peer.uid is not None and peer.uid in (0, one.uid)]
        return {**self._here(), "sessions": [self._shown(one) for one in mine]}

    def cancel(self, request: Message, peer: Peer) -> Message:
        session = self._sessions.get(_name(request), peer)
        self._sessions.cancel(session)
        return self._shown(session)

    def fetch(self, request: Message, peer: Peer) -> Feed:
        session = self._sessions.get(_name(request), peer)
        one = self._target(session, request.get("pid"))
        if one.state not in (target.WRITTEN, target.LOST):
            raise RpcError("not-written", f"pid {one.pid or one.own_pid}: {one.state} {one.reason}".rstrip())
        limit = self._config.max_file_size

        def make(put: Callable[[Message], None]) -> None:
            send(open_trace(self._host, one), limit, put)

        return Feed(make)

    @staticmethod
    def _target(session: Session, pid: object) -> Target:
        for one in session.targets:
            if pid is not None and pid in (one.pid, one.own_pid):
                return one
        raise RpcError("bad-request", f"session {session.name} has no process {pid!r:.20}")

    def remove(self, request: Message, peer: Peer) -> Message:
        """trace.remove, in a thread."""
        session = self._sessions.get(_name(request), peer)
        # What has timed out may still be writing: a part that is taken away from it is a trace that never comes.
        over = [one for one in session.targets if one.state in (target.WRITTEN, target.FAILED, target.LOST)]
        removed = [remove_trace(self._host, one) for one in over]
        return {"removed": [path for path in removed if path]}

    def close(self) -> None:
        self._sessions.close()


def _behind(processes: Sequence[Process]) -> set[Process]:
    """Those for whom an answer waits that came too late: a request would reach them one poll later."""
    names = {os.fsencode(process.address): process for process in processes}
    try:
        return {names[name] for name, waiting in unread(names).items() if waiting}
    except OSError:
        return set()  # a kernel that cannot be asked


def _name(request: Message) -> str:
    name = request.get("session")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RpcError("bad-request", "session must be 1 to 64 letters, digits, dashes and underscores")
    return name

"""dynolog's request for a trace, word for word: setKinetOnDemandRequest, answered as dynolog answers it.

    {"fn":"setKinetOnDemandRequest","config":"ACTIVITIES_LOG_FILE=/tmp/t.json\\n…","job_id":0,"pids":[0],"process_limit":3}
    {"activityProfilersBusy":0,"activityProfilersTriggered":[812],"eventProfilersBusy":0,"eventProfilersTriggered":[],
     "processesMatched":[812]}

The real `dyno` prints what it gets: fields, their names and their order of meaning are dynolog's. Three things differ.
A caller drives its own processes only, and those of other users are not matched; a launcher comes after its ranks, so
that a limit is spent on these; and what dynolog dies of (a wrong type) is answered as it answers other wrong types.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sonde.agent import wire
from sonde.hostfs import HostFS
from sonde.ipc.processes import Process, Processes
from sonde.rpc.peer import Peer

if TYPE_CHECKING:
    from sonde.tracing.identity import Identity

DEFAULT_LIMIT = 1000  # of the server; the dyno command sends 3
_FAILED = {"status": "failed"}
_INT32 = range(-(2**31), 2**31)

Reply = dict[str, Any]


class TypeMismatch(Exception):
    """A field that has another type; the message is the one dynolog's JSON library gives."""

    def __init__(self, wanted: str, value: object) -> None:
        super().__init__(f"[json.exception.type_error.302] type must be {wanted}, but is {_kind(value)}")


class OnDemand:
    """Arms processes with configurations. Belongs to the loop's thread."""

    def __init__(self, processes: Processes, host: HostFS, trace_id: Callable[[], int] | None = None) -> None:
        self._processes = processes
        self._host = host
        self._trace_id = trace_id or (lambda: int.from_bytes(os.urandom(8), "little"))

    def request(self, request: Mapping[str, object], peer: Peer) -> Reply:
        """setKinetOnDemandRequest."""
        if "config" not in request or "pids" not in request:
            return dict(_FAILED)
        try:
            config = _text(request["config"])
            pids = _integers(request["pids"])
            job_id = _integer(request.get("job_id", 0))
            limit = _integer(request.get("process_limit", DEFAULT_LIMIT))
            wire.pack_config(_delivered(config, 2**64 - 1))  # what cannot be sent would cost a process its answer
        except (TypeMismatch, wire.WireError) as error:
            return {"status": f"failed with exception = {error}"}
        return self._armed(config, job_id, pids, limit, peer)

    def _armed(self, config: str, job_id: int, pids: list[int], limit: int, peer: Peer) -> Reply:
        found = [process for process in self._processes.matching(job_id, pids) if may_drive(peer, process)]
        triggered: list[int] = []
        busy = 0
        for process in found if len(found) <= limit else self._ranks_first(found):
            if process.offer is not None:
                busy += 1
            elif len(triggered) < limit:
                process.offer = self._offer(config)
                triggered.append(process.own_name)
        return {
            "activityProfilersBusy": busy,
            "activityProfilersTriggered": triggered,
            "eventProfilersBusy": 0,
            "eventProfilersTriggered": [],
            "processesMatched": [process.own_name for process in found],
        }

    def _ranks_first(self, found: Sequence[Process]) -> list[Process]:
        """A limit is not to be spent on torchrun, which registers like its ranks and records nothing of interest."""
        from sonde.tracing.family import Family, launchers

        above = launchers(Family(self._host), [(one.pid, self._rank_of(one.pid)) for one in found if one.pid])
        return sorted(found, key=lambda process: process.pid in above)

    def _rank_of(self, pid: int) -> Identity:
        """A process as far as its environment tells its rank; more is not needed here, and we are in the loop."""
        from sonde.schedulers.job import parse_environ, rank_from_environ, rank_variable
        from sonde.tracing.identity import Identity

        try:
            environ = parse_environ(self._host.read(f"proc/{pid}/environ"))
        except OSError:
            environ = {}
        return Identity("", "", None, rank_from_environ(environ), None, "", rank_variable(environ))

    def _offer(self, config: str) -> Callable[[Process], str]:
        text = _delivered(config, self._trace_id())
        return lambda process: text


def _delivered(config: str, trace_id: int) -> str:
    """As dynolog stores and delivers it; libkineto trims the blanks, and finds the id again in the trace file."""
    return f"\n    {config}\n    REQUEST_TRACE_ID={trace_id}\n"


def may_drive(peer: Peer, process: Process) -> bool:
    """May this caller have a process traced? Its own user and root may."""
    return peer.uid is not None and peer.uid in (0, process.uid)


def pause_profiling(request: Mapping[str, object], peer: Peer) -> Reply:
    """dcgmProfPause: false, because no DCGM is watched."""
    if "duration_s" not in request:
        return dict(_FAILED)
    try:
        _integer(request["duration_s"])
    except TypeMismatch as error:
        return {"status": f"failed with exception = {error}"}
    return {"status": False}


def resume_profiling(request: Mapping[str, object], peer: Peer) -> Reply:
    """dcgmProfResume."""
    return {"status": False}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeMismatch("string", value)
    return value


def _integers(value: object) -> list[int]:
    if not isinstance(value, list):
        raise TypeMismatch("array", value)
    return [_integer(item) for item in value]


def _integer(value: object) -> int:
    """A number as dynolog takes it: a 32-bit integer; a fraction is cut off."""
    if not isinstance(value, int | float):
        raise TypeMismatch("number", value)
    if value != value or value in (float("inf"), float("-inf")):
        raise TypeMismatch("number", None)
    number = int(value)
    return number if number in _INT32 else (number + 2**31) % 2**32 - 2**31


def _kind(value: object) -> str:
    kinds = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}
    return kinds.get(type(value), "null")

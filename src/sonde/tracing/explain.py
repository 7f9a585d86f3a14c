"""Whether a process can be traced and, if not, why: checks in the order in which things go wrong, from /proc/PID.

exists     ok   python train.py, for 3 min
framework  ok   pytorch
switch     bad  KINETO_USE_DAEMON is not set
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sonde.agent import wire
from sonde.clock import NS
from sonde.hostfs import HostFS
from sonde.ipc.processes import Process
from sonde.tracing.circumstances import (
    ENDED,
    SOCKET_DIR,
    STOPPED,
    SWITCH,
    Circumstances,
    circumstances_of,
    is_forked,
    obstacle,
    unasked,
    unreachable,
)
from sonde.tracing.identity import command_of, user_name

OK, BAD, UNKNOWN = "ok", "bad", "unknown"
SWITCH_ON = "start sonde daemon without --no-tracing, and without enabled = false in [tracing]"
_SILENT_PERIODS = 3
_LONGEST_PERIOD = 15.0  # seconds: libkineto's 5, and 10 of trying in vain


class Check(NamedTuple):
    name: str
    state: str  # ok, bad, unknown
    detail: str
    hint: str = ""


class Explanation(NamedTuple):
    pid: int
    registered: bool | None  # None: there is no daemon to ask
    traceable: bool
    verdict: str
    checks: tuple[Check, ...]

    def reply(self) -> dict[str, Any]:
        return {**self._asdict(), "checks": [check._asdict() for check in self.checks]}


class Subject(NamedTuple):
    """What the checks look at."""

    host: HostFS
    pid: int
    uid: int | None  # of who asks
    owner: int
    found: Circumstances
    process: Process | None
    addresses: Sequence[str] | None  # of the daemon; None: there is none


def explain(
    host: HostFS,
    pid: int,
    registered: Iterable[Process],
    *,
    uid: int | None,
    addresses: Sequence[str] | None,
) -> Explanation:
    """All checks of one process, for a caller. Without `addresses` there is no daemon, and only /proc is looked at."""
    processes = list(registered)
    process = next((one for one in processes if one.pid == pid), None)
    found, owner = circumstances_of(host, pid), _owner(host, pid)
    if found is None or owner is None or found.kinship.state in ENDED:
        return _absent(pid, processes, addresses is not None, ended=found is not None)
    subject = Subject(host, pid, uid, owner, found, process, addresses)
    checks = tuple(check for make in CHECKS for check in make(subject))
    return _judged(subject, checks)


def _judged(subject: Subject, checks: tuple[Check, ...]) -> Explanation:
    pid, registered = subject.pid, subject.process is not None
    bad = [check for check in checks if check.state == BAD]
    known = None if subject.addresses is None else registered
    if subject.addresses is None:
        reason = bad[0].detail if bad else "no daemon answers"
        return Explanation(pid, known, False, f"{pid} cannot be traced: {reason}", checks)
    if not bad and registered:
        return Explanation(pid, known, True, f"{pid} can be traced", checks)
    if registered and all(check.name == "switch" for check in bad):
        return Explanation(pid, known, True, f"{pid} can be traced for a duration, not for steps", checks)
    return Explanation(pid, known, False, f"{pid} cannot be traced: {bad[0].detail}", checks)


def _absent(pid: int, processes: list[Process], asked: bool, *, ended: bool) -> Explanation:
    inner = [process for process in processes if process.own_name == pid]
    what = f"{pid} has ended" if ended else f"there is no process {pid} on this host"
    hint = "sonde processes lists those that can be traced"
    if inner and not inner[0].pid:
        what, hint = f"{pid} is in a pid namespace that cannot be seen from here", "it can be chosen by its job or rank"
    elif inner:
        hint = f"the one that calls itself {pid} is {inner[0].pid} on this host"
    known = False if asked else None
    return Explanation(pid, known, False, f"{pid} cannot be traced: {what}", (Check("exists", BAD, what, hint),))


def _owner(host: HostFS, pid: int) -> int | None:
    """The real user: the first number behind `Uid:` in /proc/PID/status, the one its datagrams carry (unix(7))."""
    try:
        return int(host.read(f"proc/{pid}/status").partition(b"\nUid:")[2].split(None, 1)[0])
    except (OSError, ValueError, IndexError):
        return None


def _exists(subject: Subject) -> Iterator[Check]:
    age = subject.found.age_seconds
    since = "" if age is None else f", for {_span(age)}"
    yield Check("exists", OK, f"{command_of(subject.host, subject.pid)}{since}")


def _user(subject: Subject) -> Iterator[Check]:
    name = user_name(subject.owner)
    if subject.uid is None:
        detail = f"it is a process of {name}: it is not known who asks"
        yield Check("user", BAD, detail, "ask on the same host, or with the certificate of a user it has")
    elif subject.uid in (0, subject.owner):
        yield Check("user", OK, name)
    else:
        detail = f"it is a process of {name}: you are {user_name(subject.uid)}"
        yield Check("user", BAD, detail, _as_whom(subject))


def _as_whom(subject: Subject) -> str:
    """Who may see and trace it."""
    return f"ask as {user_name(subject.owner)}, or as root" if subject.owner else "ask as root"


def _running(subject: Subject) -> Iterator[Check]:
    state = subject.found.kinship.state
    if state in STOPPED:
        hint = f"kill -CONT {subject.pid}" if state == "T" else "a debugger holds it: let it go on"
        yield Check("running", BAD, f"it is stopped (state {state})", hint)
    else:
        yield Check("running", OK, f"state {state}")


def _framework(subject: Subject) -> Iterator[Check]:
    libraries = subject.found.libraries
    if libraries is not None and libraries.framework:
        yield Check("framework", OK, libraries.framework)
    elif subject.process is not None:
        yield Check("framework", OK, "it speaks libkineto's language")
    elif libraries is None:
        yield Check("framework", UNKNOWN, "what it has loaded may not be seen", _as_whom(subject))
    else:
        yield Check("framework", BAD, "no torch in it (yet)", "it registers about a second after `import torch`")


def _switch(subject: Subject) -> Iterator[Check]:
    value, found = subject.found.switch, subject.found
    if value:
        yield Check("switch", OK, f"{SWITCH}={value}")
    elif value is not None:
        yield Check("switch", BAD, f"{SWITCH} is set but empty: steps would be ignored", f"start it with {SWITCH}=1")
    elif subject.process is not None or found.client:
        yield Check("switch", OK, f"the program has set {SWITCH} itself")
    elif not found.environ_read:
        yield Check("switch", UNKNOWN, "its environment may not be read", _as_whom(subject))
    else:
        yield Check(
            "switch", BAD, f"{SWITCH} is not set", f"start it with {SWITCH}=1: it is read once, by `import torch`"
        )


def _fork(subject: Subject) -> Iterator[Check]:
    if subject.process is None and is_forked(subject.host, subject.found):
        parent = subject.found.kinship.parent
        yield Check(
            "fork",
            BAD,
            "it is a child of fork: libkineto does not poll there",
            f"its parent is {parent}; children that are spawned do poll",
        )


def _socket(subject: Subject) -> Iterator[Check]:
    theirs = subject.found.socket_dir
    if subject.addresses is None:
        yield Check("socket", UNKNOWN, f"{SOCKET_DIR}={theirs}" if theirs else f"@{wire.DAEMON_NAME}")
        return
    if not subject.addresses:
        yield Check("socket", BAD, "tracing is switched off in the daemon", SWITCH_ON)
        return
    flaw = (
        "" if subject.process is not None else unreachable(subject.found, subject.addresses, subject.host, subject.pid)
    )
    if flaw:
        yield Check("socket", BAD, flaw, "docs/how-to/trace.md: processes in containers")
    elif theirs:
        yield Check("socket", OK, os.path.join(theirs, wire.DAEMON_NAME))
    else:
        yield Check("socket", OK if subject.found.environ_read else UNKNOWN, f"@{wire.DAEMON_NAME}")


def _network(subject: Subject) -> Iterator[Check]:
    same = subject.found.same_network
    if same is None:
        yield Check("network", UNKNOWN, "its network namespace may not be seen")
    elif same:
        yield Check("network", OK, "the network namespace of this one")
    else:
        reaches = "reached by its socket's path" if subject.found.socket_dir else "abstract sockets end there"
        state = OK if subject.found.socket_dir or subject.process is not None else BAD
        yield Check(
            "network", state, f"in another network namespace: {reaches}", "" if state == OK else f"set {SOCKET_DIR}"
        )


def _registered(subject: Subject) -> Iterator[Check]:
    process = subject.process
    if subject.addresses is None:
        yield Check("registered", UNKNOWN, "no daemon answers", "start one: sonde daemon")
    elif process is None:
        reason = obstacle(subject.found, subject.addresses, subject.host, subject.pid)
        if reason == unasked(subject.found) and not is_forked(subject.host, subject.found):
            yield Check("registered", BAD, reason, "ss -xlp shows who listens at @dynolog")
        else:
            yield Check("registered", BAD, "it has not asked")  # and it has been said why
    else:
        polls = "1 poll" if process.polls == 1 else f"{process.polls} polls"
        yield Check("registered", OK, f"for {_span((time.monotonic_ns() - process.first_ns) / NS)}, {polls}")


def _polls(subject: Subject) -> Iterator[Check]:
    process = subject.process
    if process is None:
        return
    ago = (time.monotonic_ns() - process.polled_ns) / NS
    period = process.poll_ns / NS
    every = f", every {period:.1f} s" if period else ""
    if ago <= (_SILENT_PERIODS * period or _LONGEST_PERIOD):
        yield Check("polls", OK, f"{ago:.1f} s ago{every}")
    else:
        yield Check("polls", BAD, f"it last asked {_span(ago)} ago{every} before", _silence(subject))


def _silence(subject: Subject) -> str:
    state = subject.found.kinship.state
    if state in STOPPED:
        return f"it is stopped: kill -CONT {subject.pid}"
    if state == "D":
        return "it waits for a device or a file system and cannot be interrupted"
    return "libkineto asks in a thread of its own: is its cgroup frozen, or the machine overloaded?"


def _accepts(subject: Subject) -> Iterator[Check]:
    process = subject.process
    if process is None or not process.polls:
        return
    if process.session:
        yield Check("profiler", BAD, f"it is in the trace {process.session}", "wait for it, or cancel it")
    elif process.offer is not None:
        yield Check("profiler", BAD, "a request waits for its next poll already", "it is handed out with that")
    elif process.kinds & wire.ACTIVITIES:
        yield Check("profiler", OK, "no profiler runs in it")
    else:
        yield Check("profiler", BAD, "a profiler of its own runs in it", "a request waits until that has ended")


def _gpu(subject: Subject) -> Iterator[Check]:
    libraries = subject.found.libraries
    if libraries is None:
        yield Check("gpu", UNKNOWN, "what it has loaded may not be seen")
    else:
        yield Check("gpu", OK, "a GPU's libraries are loaded" if libraries.gpu else "none: a trace needs no warm-up")


def _names(subject: Subject) -> Iterator[Check]:
    name = subject.process.own_name if subject.process is not None else _inner_pid(subject.host, subject.pid)
    if name == subject.pid:
        yield Check("pid", OK, f"{name}, also for itself")
    else:
        yield Check("pid", OK, f"it calls itself {name}: so are its files called")


def _inner_pid(host: HostFS, pid: int) -> int:
    """The last number behind `NSpid:` in /proc/PID/status: `NSpid: 812 5` is 5 for itself."""
    try:
        line = host.read(f"proc/{pid}/status").partition(b"\nNSpid:")[2].partition(b"\n")[0]
        return int(line.split()[-1])
    except (OSError, ValueError, IndexError):
        return pid


def _span(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


CHECKS: tuple[Callable[[Subject], Iterator[Check]], ...] = (
    _exists,
    _user,
    _running,
    _framework,
    _fork,
    _switch,
    _socket,
    _network,
    _registered,
    _polls,
    _accepts,
    _gpu,
    _names,
)

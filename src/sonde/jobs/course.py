"""How a recording goes: around a command, or beside a job until that ends.

Everything that can end it is looked at once a second, in one thread, between two signals.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from sonde.jobs.follow import Presence
from sonde.jobs.signals import ENDING, Command, Signals
from sonde.jobs.stopfile import StopFile

_LOOK_SECONDS = 1.0


class Ending(NamedTuple):
    """Why a recording is over, and when."""

    by: str  # command, job, pid, signal, ipc
    time_ns: int
    exit_code: int | None = None
    signal: int = 0
    seen: bool = True  # False: there never was a process of the job


def around(command: Command, signals: Signals, stop: StopFile | None) -> Ending:
    """Until the command has ended, or is no longer to be watched. Passes signals on to it."""
    while True:
        info = signals.wait(None if stop is None else _LOOK_SECONDS)
        code = command.ended()
        if code is not None:
            return Ending("command", time.time_ns(), code)
        if info is not None:
            command.pass_on(info)
        if stop is not None and stop.asked():
            return Ending("ipc", time.time_ns())


def outlast(command: Command, signals: Signals) -> int:
    """Wait for a command that is not watched any more; its exit code."""
    while (code := command.ended()) is None:
        info = signals.wait(None)
        if info is not None and command.ended() is None:
            command.pass_on(info)
    return code


def beside(
    presence: Presence, signals: Signals, stop: StopFile | None, *, by: str, wait: float, linger: float
) -> Ending:
    """Until the job has no work left, somebody says so, or a signal comes.

    For `wait` seconds there may be nothing yet: a script starts the recorder before the job. Once there was something,
    `linger` seconds without are allowed: a script starts one program after the other.
    """
    begun = idle_since = time.monotonic()
    ended_ns = 0  # when the job was first found without work
    while True:
        now = time.monotonic()
        if presence.works():
            idle_since, ended_ns = now, 0
        else:
            ended_ns = ended_ns or time.time_ns()
            if now - idle_since >= (linger if presence.seen else wait):
                return Ending(by, ended_ns, seen=presence.seen)
        if stop is not None and stop.asked():
            return Ending("ipc", time.time_ns(), seen=presence.seen)
        number = _next(signals, begun)
        if number:
            return Ending("signal", time.time_ns(), signal=number, seen=presence.seen)


def _next(signals: Signals, begun: float) -> int:
    """A signal that ends a recording, or 0 at the next look. What else is sent to a whole job is not for us."""
    until = time.monotonic() + _LOOK_SECONDS - (time.monotonic() - begun) % _LOOK_SECONDS
    while (left := until - time.monotonic()) > 0:
        info = signals.wait(left)
        if info is not None and info.si_signo in ENDING:
            return info.si_signo
    return 0

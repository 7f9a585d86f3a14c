"""The life of a private daemon is that of one process: pidfd_open(2), or a look per second where the kernel has none.

The daemon of `sonde run` belongs to the command that was started with it. Whatever ends that process, also SIGKILL,
ends the daemon; and nothing else does, because a batch system that signals all processes of a job must not take away
what the training still speaks to while it writes its checkpoint.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.loop import READ, Loop
from sonde.procstat import parse_stat

_LOOK_SECONDS = 1.0
# Whatever is sent to a whole job, or to everybody who holds its terminal.
_OTHERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class Companion(NamedTuple):
    """A process: its pid is another's when the start time differs."""

    pid: int
    started: int  # clock ticks since boot

    def lives(self, host: HostFS) -> bool:
        return started(host, self.pid) == self.started


def started(host: HostFS, pid: int) -> int:
    """When a process was started, in clock ticks since boot; -1 when there is none."""
    try:
        return parse_stat(host.read(f"proc/{pid}/stat"))[1]
    except (OSError, ParseError):
        return -1


def follow(loop: Loop, host: HostFS, companion: Companion, ended: Callable[[], None]) -> None:
    """Have `ended` called when the process has ended; at once when it has already."""
    try:
        pidfd = os.pidfd_open(companion.pid)
    except ProcessLookupError:
        loop.post(ended)
    except OSError:  # a kernel before 5.3
        _look(loop, host, companion, ended)
    else:
        # Not before it is held: until then the pid could have become somebody else's.
        if companion.lives(host):
            loop.register(pidfd, READ, lambda _events: _let_go(loop, pidfd, ended))
        else:
            os.close(pidfd)
            loop.post(ended)


def _let_go(loop: Loop, pidfd: int, ended: Callable[[], None]) -> None:
    loop.unregister(pidfd)
    os.close(pidfd)
    ended()


def _look(loop: Loop, host: HostFS, companion: Companion, ended: Callable[[], None]) -> None:
    if companion.lives(host):
        loop.call_at(time.monotonic() + _LOOK_SECONDS, lambda: _look(loop, host, companion, ended))
    else:
        loop.post(ended)


def ignore_signals() -> None:
    for number in _OTHERS:
        signal.signal(number, signal.SIG_IGN)

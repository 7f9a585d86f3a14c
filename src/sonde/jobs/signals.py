"""Signals taken one at a time, with who has sent them (sigwaitinfo(2)), and the command they are passed on to.

All are blocked, in every thread started later too, so that none interrupts a commit; the main thread asks for them.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping, Sequence

# What a user, a shell or a batch system sends to a job. SIGTSTP and SIGCONT stay as they are: on Ctrl-Z the recorder
# stops with its command, and goes on with it.
_NAMES = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTERM", "SIGALRM", "SIGXCPU", "SIGPWR")
TAKEN = frozenset(
    [*(getattr(signal, name) for name in _NAMES), *range(signal.SIGRTMIN, signal.SIGRTMAX + 1), signal.SIGCHLD]
)
ENDING = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGXCPU))
_BY_KERNEL = 0x80  # SI_KERNEL of asm-generic/siginfo.h: from the terminal, to all of its foreground group
# These signal every process of a step or a task themselves.
_TO_ALL = ("slurmstepd", "pbs_mom", "oarexec")


class Signals:
    """Used as a context: what was blocked before is restored at the end."""

    def __enter__(self) -> Signals:
        self.before = signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN)
        return self

    def __exit__(self, *_: object) -> None:
        while self.wait(0) is not None:
            pass  # what came after the end was decided on must not change it
        signal.pthread_sigmask(signal.SIG_SETMASK, self.before)

    def wait(self, seconds: float | None) -> signal.struct_siginfo | None:
        """The next signal; None when there was none in this time."""
        return signal.sigwaitinfo(TAKEN) if seconds is None else signal.sigtimedwait(TAKEN, seconds)


class Command:
    """The wrapped command: a child in our own process group, with our terminal and standard streams."""

    def __init__(self, program: str, words: Sequence[str], environ: Mapping[str, str], signals: Signals) -> None:
        self.pid = _spawned(program, list(words), environ, signals.before)

    def ended(self) -> int | None:
        """Its exit code once it has ended, -N when signal N has ended it. It stays a zombie, whose account can be read,
        until `reap`."""
        found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def reap(self) -> None:
        os.waitpid(self.pid, 0)

    def pass_on(self, info: signal.struct_siginfo) -> None:
        """Let the command have what was sent to us, unless it has got it as well."""
        if info.si_signo == signal.SIGCHLD or info.si_code == _BY_KERNEL or _name_of(info.si_pid) in _TO_ALL:
            return
        os.kill(self.pid, info.si_signo)  # not reaped yet: the id is still its own


def _spawned(program: str, words: list[str], environ: Mapping[str, str], mask: set[int | signal.Signals]) -> int:
    # The interpreter ignores these two, and what is ignored stays so in the next program (execve(2)).
    defaults = [signal.SIGPIPE, signal.SIGXFSZ]
    try:
        return os.posix_spawn(program, words, environ, setsigmask=mask, setsigdef=defaults)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # A script without #!: every shell, and execvp(3), gives it to sh.
    return os.posix_spawn("/bin/sh", ["sh", program, *words[1:]], environ, setsigmask=mask, setsigdef=defaults)


def _name_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().rstrip("\n")
    except OSError:
        return ""  # gone, or of another namespace


def die_by(number: int) -> None:
    """End as the command has: whoever waits for us sees the signal, not a number that stands for it."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command has left a core if it wanted to
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)

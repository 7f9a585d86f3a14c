"""Signals taken one at a time, and the command they are passed on to: run by test_signals.py, in a process of its own.

A signal to a process goes to any thread that does not block it. In a process in which other tests have left threads of
numpy or pyarrow behind, these would get it, and it would end them all.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sonde.jobs.course import around, outlast
from sonde.jobs.signals import Command, Signals, die_by
from sonde.jobs.stopfile import StopFile


@pytest.fixture
def signals() -> Iterator[Signals]:
    with Signals() as found:
        yield found


def command(signals: Signals, *words: str) -> Command:
    return Command(words[0], list(words), dict(os.environ), signals)


def test_a_signal_is_waited_for_and_interrupts_nothing(signals: Signals) -> None:
    os.kill(os.getpid(), signal.SIGUSR1)
    info = signals.wait(5)

    assert info is not None
    assert (info.si_signo, info.si_pid) == (signal.SIGUSR1, os.getpid())
    assert signals.wait(0.01) is None


def test_what_comes_after_the_end_does_not_change_it() -> None:
    with Signals():
        os.kill(os.getpid(), signal.SIGTERM)

    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -9)])
def test_the_end_of_a_command_is_seen_before_it_is_reaped(signals: Signals, script: str, code: int) -> None:
    child = command(signals, "/bin/sh", "-c", script)
    ending = around(child, signals, None)
    state = Path(f"/proc/{child.pid}/stat").read_text().split()[2]
    child.reap()

    assert (ending.by, ending.exit_code, state) == ("command", code, "Z")


def test_a_command_that_a_file_stops_being_watched_goes_on(signals: Signals, tmp_path: Path) -> None:
    stop = StopFile([str(tmp_path / "stop")])
    child = command(signals, "/bin/sh", "-c", f"echo FINISHED > {tmp_path / 'stop'}; sleep 1.5; exit 4")
    ending = around(child, signals, stop)
    code = outlast(child, signals)
    child.reap()

    assert (ending.by, code) == ("ipc", 4)


def test_a_script_without_an_interpreter_line_is_given_to_the_shell(signals: Signals, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('exit "$1"\n')
    script.chmod(0o755)
    child = command(signals, str(script), "6")
    code = outlast(child, signals)
    child.reap()

    assert code == 6


def test_a_command_has_the_signals_we_had(signals: Signals, tmp_path: Path) -> None:
    out = tmp_path / "out"
    child = command(signals, "/bin/sh", "-c", f"exec grep -E '^Sig(Blk|Ign)' /proc/self/status > {out}")
    outlast(child, signals)
    child.reap()
    blocked, ignored = (int(line.split()[1], 16) for line in out.read_text().splitlines())

    assert not blocked & 1 << signal.SIGTERM - 1
    assert not ignored & 1 << signal.SIGPIPE - 1


def test_a_process_ends_by_the_signal_it_is_told() -> None:
    pid = os.fork()
    if not pid:
        die_by(signal.SIGUSR2)
        os._exit(1)
    _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == -signal.SIGUSR2


def test_a_signal_sent_to_us_is_passed_on(signals: Signals, tmp_path: Path) -> None:
    up = tmp_path / "up"
    code = f"import signal, time; signal.signal(10, lambda *_: exit(9)); open({str(up)!r}, 'w'); time.sleep(30)"
    child = command(signals, sys.executable, "-c", code)
    until = time.monotonic() + 10
    while not up.exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGUSR1)
    ending = around(child, signals, None)
    child.reap()

    assert ending.exit_code == 9

"""`sonde run` as a user meets it: the command is what it was without, and nothing is left of the daemon beside it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import SONDE, RunningDaemon
from tests.lacking import lacking

from sonde.errors import SondeError
from sonde.rpc.client import call

# Says who it is and whom it speaks to, then does as it is told.
INTRODUCTION = 'import os, signal, sys, time; print(os.getpid(), os.environ.get("SONDE_DAEMON"), flush=True); '


class Runs:
    """Starts `sonde run` in a runtime directory of its own."""

    def __init__(self, runtime: Path) -> None:
        self.runtime = runtime
        self._started: list[subprocess.Popen[str]] = []
        foreign = ("KINETO_", "SLURM_", "SONDE_", "LC_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        # A name at which nobody answers: a daemon of the machine under test is not to be found.
        self.environ = {**kept, "XDG_RUNTIME_DIR": str(runtime), "SONDE_DAEMON": f"unix:{runtime}/nobody"}

    def run(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SONDE, "run", *words], env={**self.environ, **environ}, capture_output=True, text=True, timeout=30
        )

    def start(self, program: str, **settings: Any) -> tuple[subprocess.Popen[str], str]:
        """Start a Python program; it runs when this returns. Its process, and the address of its daemon."""
        process = subprocess.Popen(
            [SONDE, "run", "--", sys.executable, "-c", INTRODUCTION + program],
            env=self.environ,
            stdout=subprocess.PIPE,
            text=True,
            **settings,
        )
        self._started.append(process)
        assert process.stdout
        pid, address = process.stdout.readline().split()
        assert int(pid) == process.pid
        return process, address

    def end(self) -> None:
        for process in self._started:
            with process:
                process.kill()

    def directories(self) -> list[str]:
        return os.listdir(self.runtime / "sonde/run") if (self.runtime / "sonde/run").exists() else []

    def wait_for(self, true: Callable[[], object]) -> None:
        until = time.monotonic() + 10
        while not true():
            assert time.monotonic() < until, self.directories()
            time.sleep(0.02)

    def wait_until_nothing_is_left(self, *pids: int) -> None:
        self.wait_for(lambda: not self.directories() and not any(os.path.exists(f"/proc/{pid}") for pid in pids))


@pytest.fixture
def runs() -> Iterator[Runs]:
    with tempfile.TemporaryDirectory(prefix="xdg") as runtime:  # short: a socket's name has 106 characters
        started = Runs(Path(runtime))
        yield started
        started.end()
        started.wait_until_nothing_is_left()


def test_the_exit_code_is_the_commands_and_nothing_is_left(runs: Runs) -> None:
    ended = [runs.run("--", "sh", "-c", what).returncode for what in ("exit 0", "exit 7", "kill -SEGV $$")]

    assert ended == [0, 7, -signal.SIGSEGV]
    runs.wait_until_nothing_is_left()


def test_a_command_that_cannot_be_run_is_named_with_the_code_of_shells(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("echo it has no first line $1\n")
    missing, denied = runs.run("no-such-program"), runs.run("--", str(tmp_path / "text"))
    (tmp_path / "text").chmod(0o755)
    script = runs.run("--", str(tmp_path / "text"), "but runs")

    assert (missing.returncode, missing.stderr) == (127, "sonde: run: no-such-program: not found\n")
    assert denied.returncode == 126
    assert denied.stderr.startswith(f"sonde: run: {tmp_path}/text: ")
    assert (script.returncode, script.stdout) == (0, "it has no first line but runs\n")
    runs.wait_until_nothing_is_left()


@pytest.mark.parametrize("words", [(), ("--",), ("--poll", "1500ms", "--", "true"), ("--pol", "x", "--", "true")])
def test_wrong_options_are_a_usage_error(runs: Runs, words: tuple[str, ...]) -> None:
    assert runs.run(*words).returncode == 2


def test_the_command_is_this_process_and_gets_every_signal_itself(runs: Runs) -> None:
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH]
    process, _ = runs.start(
        f"caught = []; [signal.signal(n, lambda n, _: caught.append(n)) for n in {[int(n) for n in numbers]}]\n"
        "print('ready', flush=True)\nwhile len(caught) < 6: time.sleep(0.01)\nprint(*caught)"
    )
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    for number in numbers:
        process.send_signal(number)
        time.sleep(0.03)  # two that wait together are handled by their numbers, not in their order

    assert process.stdout.readline().split() == [str(int(number)) for number in numbers]
    assert process.wait(10) == 0


def test_a_killed_command_leaves_no_daemon_and_no_files(runs: Runs) -> None:
    process, address = runs.start("time.sleep(60)")
    daemon = call(address, "daemon.status")["pid"]
    assert runs.directories() == [str(process.pid)]
    process.kill()
    assert process.wait(10) == -signal.SIGKILL

    runs.wait_until_nothing_is_left(daemon)


def descriptors(pid: int) -> set[str]:
    """What a process has open."""
    held = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            held.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return held


def test_the_daemon_is_not_a_child_and_keeps_no_descriptor_of_the_command(runs: Runs) -> None:
    hears, tells = os.pipe()
    os.set_inheritable(tells, True)
    process, address = runs.start(
        "\ntry: os.waitpid(-1, os.WNOHANG)\nexcept ChildProcessError: print('no child', flush=True)\n"
        "print(signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN, flush=True)\nsys.stdin.read()",
        stdin=subprocess.PIPE,
        close_fds=False,
    )
    os.close(tells)
    assert process.stdin
    assert process.stdout
    status = call(address, "daemon.status")
    said = [process.stdout.readline(), process.stdout.readline()]
    held = descriptors(status["pid"])
    process.stdin.close()
    process.wait(10)

    assert said[0] == "no child\n"
    assert not any(name.startswith("pipe:") for name in held), held
    assert set(status["addresses"]) == {"rpc", "ipc"}  # no TCP, no /metrics, no abstract name
    assert os.read(hears, 1) == b""
    os.close(hears)


def test_signals_to_the_whole_job_do_not_take_its_daemon_away(runs: Runs) -> None:
    process, address = runs.start(
        "[signal.signal(n, signal.SIG_IGN) for n in (signal.SIGTERM, signal.SIGUSR1)];"
        "print('ready', flush=True); time.sleep(60)"
    )
    assert process.stdout
    process.stdout.readline()
    pid = call(address, "daemon.status")["pid"]
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT):
        os.kill(pid, number)
    time.sleep(0.2)

    assert call(address, "daemon.status")["pid"] == pid
    process.kill()
    process.wait(10)
    runs.wait_until_nothing_is_left(pid)


def test_what_a_killed_daemon_left_is_removed_by_whoever_looks_next(runs: Runs) -> None:
    process, address = runs.start("time.sleep(60)")
    os.kill(call(address, "daemon.status")["pid"], signal.SIGKILL)
    process.kill()
    process.wait(10)
    assert runs.directories() == [str(process.pid)]
    environ = {name: value for name, value in runs.environ.items() if name != "SONDE_DAEMON"}
    subprocess.run([SONDE, "processes"], env=environ, capture_output=True, timeout=30)

    assert runs.directories() == []


def test_the_environment_is_the_callers_and_what_is_said(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "own.conf").write_text("VERBOSE_LOG_LEVEL=2\n  ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS = 60\n# mine\n")
    given = {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(runs.runtime), "KINETO_CONFIG": f"{tmp_path}/own.conf"}
    given |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    command = [SONDE, "run", "--private", "--poll", "2s", "--tag", "tune-3", "-v", "--", "sh", "-c"]
    ended = subprocess.run(
        [*command, "env -0; printf '%s' '---'; cat $KINETO_CONFIG"], env=given, capture_output=True, text=True
    )
    variables, config = ended.stdout.split("---")
    environ = dict(item.split("=", 1) for item in variables.split("\0") if item)
    added = {name: value for name, value in environ.items() if given.get(name) != value}

    folder = f"{runs.runtime}/sonde/run/"
    assert set(added) - {"PWD", "SHLVL", "_", "OLDPWD"} == {
        "KINETO_USE_DAEMON",
        "KINETO_CONFIG",
        "KINETO_IPC_SOCKET_DIR",
        "SONDE_DAEMON",
        "SONDE_JOB_ID",
    }
    assert (added["KINETO_USE_DAEMON"], added["SONDE_JOB_ID"]) == ("1", "tune-3")
    assert added["KINETO_IPC_SOCKET_DIR"].startswith(folder)
    assert config == "ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=2\nVERBOSE_LOG_LEVEL=2\n# mine\n"
    assert f"sonde: run: SONDE_DAEMON={added['SONDE_DAEMON']}" in ended.stderr.splitlines()


def test_the_daemon_of_the_node_is_used_when_it_can_be_reached(
    runs: Runs, daemon: Callable[..., RunningDaemon], tmp_path_factory: pytest.TempPathFactory
) -> None:
    sockets = tmp_path_factory.mktemp("ipc")
    running = daemon("--tracing", config=f'[tracing]\nabstract = false\nsocket_dir = "{sockets}"\n')
    address = f"unix:{running.state}/rpc.sock"
    program = ("sh", "-c", 'echo "$KINETO_IPC_SOCKET_DIR $SONDE_DAEMON"; cat "$KINETO_CONFIG"')
    nested = runs.run("--", SONDE, "run", "--", *program, SONDE_DAEMON=address)
    private = runs.run("--private", "--", *program, SONDE_DAEMON=address)

    assert nested.stdout == f"{sockets} {address}\nON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n", nested.stderr
    assert private.stdout.startswith(f"{runs.runtime}/sonde/run/")
    runs.wait_until_nothing_is_left()


def test_a_daemon_that_processes_cannot_speak_to_is_not_used(
    runs: Runs, daemon: Callable[..., RunningDaemon], tmp_path_factory: pytest.TempPathFactory
) -> None:
    sockets = tmp_path_factory.mktemp("ipc")
    silent = daemon("--collectors", "load", config="[tracing]\nenabled = false\n")
    gone = daemon("--tracing", config=f'[tracing]\nabstract = false\nsocket_dir = "{sockets}"\n')
    (sockets / "dynolog").unlink()  # as seen from a container that has another directory there
    used = [
        runs.run("--", "sh", "-c", "echo $SONDE_DAEMON", SONDE_DAEMON=f"unix:{one.state}/rpc.sock").stdout
        for one in (silent, gone)
    ]

    assert all(address.startswith(f"unix:{runs.runtime}/sonde/run/") for address in used), used


def test_without_a_place_for_a_daemon_the_command_runs_all_the_same(runs: Runs) -> None:
    if os.geteuid():
        lacking("a file system is mounted by root only")
    last = Path(f"/tmp/sonde-{os.geteuid()}")
    last.mkdir(mode=0o700, exist_ok=True)
    hide = f'mount -t tmpfs -o ro none /run && mount -t tmpfs -o ro none {last} && exec "$@"'
    command = [SONDE, "run", "--private", "--", "sh", "-c", "echo ${KINETO_USE_DAEMON:-not asked}; exit 3"]
    environ = {**runs.environ, "KINETO_USE_DAEMON": "1", "XDG_RUNTIME_DIR": ""}
    ended = subprocess.run(
        ["unshare", "--mount", "sh", "-c", hide, "sh", *command],
        env=environ,
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert (ended.returncode, ended.stdout) == (3, "not asked\n"), ended.stderr
    assert f"{last} is not a directory of this user alone" in ended.stderr
    assert "it cannot be traced" in ended.stderr


class Terminal:
    """A shell on a terminal, as a person has it."""

    def __init__(self, environ: dict[str, str], *command: str) -> None:
        self.pid, self._fd = pty.fork()
        if not self.pid:
            os.execvpe(command[0], list(command), environ)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def wait_for(self, text: str, times: int = 1) -> None:
        until = time.monotonic() + 20
        while self.seen.count(text) < times:
            ready, _, _ = select.select([self._fd], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"no {text!r} in {self.seen!r}"
            self.seen += os.read(self._fd, 4096).decode()

    def end(self) -> int:
        status = os.waitpid(self.pid, 0)[1]
        os.close(self._fd)
        return os.waitstatus_to_exitcode(status)


def test_ctrl_c_on_a_terminal_reaches_the_command_once(runs: Runs) -> None:
    script = "trap 'echo caught; exit 3' INT; read line; echo got $line; while :; do sleep 0.05; done"
    terminal = Terminal(runs.environ, SONDE, "run", "--", "sh", "-c", script)
    terminal.type("hello\n")
    terminal.wait_for("got hello")
    terminal.type("\x03")
    terminal.wait_for("caught")

    assert terminal.end() == 3
    assert terminal.seen.count("caught") == 1
    runs.wait_until_nothing_is_left()


def test_the_command_can_be_stopped_and_brought_back_by_a_shell(runs: Runs) -> None:
    terminal = Terminal({**runs.environ, "PS1": "prompt> "}, "bash", "--norc", "-i")
    terminal.type(f"{SONDE} run -- cat\n")
    runs.wait_for(lambda: any(Path(f"/proc/{pid}/comm").read_text() == "cat\n" for pid in runs.directories()))
    terminal.type("one\n")
    terminal.wait_for("one\r\n", 2)  # echoed by the terminal, then by cat
    terminal.type("\x1a")
    terminal.wait_for("Stopped")
    stopped = runs.directories()
    shown = terminal.seen.count("run -- cat\r\n")
    terminal.type("fg\n")
    terminal.wait_for("run -- cat\r\n", shown + 1)
    terminal.type("two\n")
    terminal.wait_for("two\r\n", 2)
    terminal.type("\x04")
    terminal.type("exit $?\n")

    assert terminal.end() == 0
    assert len(stopped) == 1
    runs.wait_until_nothing_is_left()


def test_processes_are_found_without_being_told_where(runs: Runs) -> None:
    """The list of the private daemon is shown: empty, but an answer."""
    process, address = runs.start("sys.stdin.read()", stdin=subprocess.PIPE)
    environ = {name: value for name, value in runs.environ.items() if name != "SONDE_DAEMON"}
    ended = subprocess.run([SONDE, "processes", "--json"], env=environ, capture_output=True, text=True, timeout=30)
    with pytest.raises(SondeError):
        call(f"unix:{runs.runtime}/nobody", "getStatus")
    assert process.stdin
    process.stdin.close()
    process.wait(10)

    assert json.loads(ended.stdout) == [], ended.stderr
    assert address.startswith(f"unix:{runs.runtime}/sonde/run/{process.pid}/")

"""`sonde trace` and real PyTorch processes, from the command line to the files: a DDP job, and what goes wrong."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import SONDE
from tests.torch.conftest import TracingDaemon, Training

Event = dict[str, Any]
NOBODY = "65534"
# Names that nobody else has: the daemon also looks for processes of a job that have not registered.
TUNE, LOOSE, SOLO = (f"{name}-{os.getpid()}" for name in ("tune", "loose", "solo"))


class Told:
    """What a command has said, its exit code, and the files it has gathered."""

    def __init__(self, code: int, out: str, err: str, output: Path) -> None:
        self.code = code
        self.out = out
        self.err = err
        self.output = output

    @property
    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.output / "manifest.json").read_text())
        return found

    def verdict(self, rank: int) -> str:
        (found,) = [row["verdict"] for row in self.manifest["ranks"] if row["rank"] == rank]
        return str(found)

    def events(self, name: str) -> list[Event]:
        found: list[Event] = json.loads(gzip.decompress((self.output / name).read_bytes()))["traceEvents"]
        return found

    def of_rank(self, rank: int) -> list[Event]:
        (row,) = [row for row in self.manifest["ranks"] if row["rank"] == rank]
        return self.events(row["file"])


class Commands:
    """Runs `sonde` in a directory of its own; each trace goes into another one below."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder = folder
        self.environ = {**os.environ, **environ}
        self.count = 0

    def start(self, *words: str, wrapper: tuple[str, ...] = ()) -> tuple[subprocess.Popen[str], Path]:
        self.count += 1
        output = self.folder / f"out{self.count}"
        command = [*wrapper, SONDE, "trace", *words, *(("--output", str(output)) if "--output" not in words else ())]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, text=True, cwd=self.folder, env=self.environ, **pipes)  # type: ignore[call-overload]
        return process, output

    def trace(self, *words: str, wrapper: tuple[str, ...] = ()) -> Told:
        process, output = self.start(*words, wrapper=wrapper)
        return self.end(process, output)

    def end(self, process: subprocess.Popen[str], output: Path) -> Told:
        try:
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
        return Told(process.returncode, out, err, output)

    def verb(self, *words: str) -> Told:
        """One of those that take no --output."""
        command = [SONDE, "trace", *words]
        done = subprocess.run(command, text=True, cwd=self.folder, env=self.environ, capture_output=True, timeout=60)
        return Told(done.returncode, done.stdout, done.stderr, self.folder)

    def trace_until(self, words: str, *options: str) -> tuple[subprocess.Popen[str], Path]:
        """Start a trace and wait until it says something of a rank."""
        process, output = self.start(*options, "--verbose")
        seen = ""
        assert process.stderr is not None
        for line in process.stderr:
            seen += line
            if words in line:
                return process, output
        process.wait()
        raise AssertionError(seen)


@pytest.fixture(scope="module")
def daemon(tracing_daemon: Callable[..., TracingDaemon]) -> TracingDaemon:
    return tracing_daemon()


@pytest.fixture(scope="module")
def commands(daemon: TracingDaemon, tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return Commands(tmp_path_factory.mktemp("commands"), {"SONDE_DAEMON": daemon.address})


@pytest.fixture(scope="module")
def ddp(daemon: TracingDaemon, training: Callable[..., Training]) -> Training:
    """Two ranks that train together, as the job `tune`."""
    running = training("--ranks", "2", ipc=daemon.ipc, environ={"SONDE_JOB_ID": TUNE})
    daemon.wait_for(lambda: set(running.pids) <= daemon.pids(), 20)
    return running


@pytest.fixture(scope="module")
def rank(daemon: TracingDaemon, training: Callable[..., Training]) -> Callable[..., Training]:
    """Start a rank of a job of two whose ranks do not wait for one another: what happens to one must not end the other.

    Its number comes from where MPICH puts it.
    """

    def start(job: str, number: int, *options: str, polls: bool = True) -> Training:
        environ = {"SONDE_JOB_ID": job, "PMI_RANK": str(number), "PMI_SIZE": "2"}
        running = training(*options, ipc=daemon.ipc if polls else None, environ=environ)
        if polls:
            daemon.wait_for(lambda: running.pid in daemon.pids(), 20)
        return running

    return start


@pytest.fixture(scope="module")
def lone(rank: Callable[..., Training]) -> Training:
    """Rank 0 of the job `loose`, whose other rank each test brings."""
    return rank(LOOSE, 0)


def named(events: list[Event], name: str) -> list[Event]:
    """Those with a name, by time."""
    found = [event for event in events if event.get("ph") == "X" and event["name"].startswith(name)]
    return sorted(found, key=lambda event: float(event["ts"]))


def steps_of(events: list[Event]) -> list[int]:
    return [int(event["name"].split()[1]) for event in named(events, "forward ")]


def overlap(one: Event, other: Event) -> bool:
    return bool(one["ts"] < other["ts"] + other["dur"] and other["ts"] < one["ts"] + one["dur"])


def test_both_ranks_of_a_training_record_the_same_steps_and_meet_in_the_merged_file(
    commands: Commands, ddp: Training
) -> None:
    for _ in range(4):
        told = commands.trace("--job", TUNE, "--steps", "5", "--round-up", "50", "--merge")
        if [told.verdict(rank) for rank in (0, 1)] == ["ok", "ok"]:
            break  # else the multiple came between the polls of the two, and the verdict says so

    assert told.code == 0, told.err
    assert [told.verdict(rank) for rank in (0, 1)] == ["ok", "ok"]
    assert f"2 processes on 1 host, ranks 0-1, job {TUNE}" in told.err
    assert told.out.splitlines()[-1] == f"2 of 2 in {told.output}, merged into merged.json.gz"
    steps = [steps_of(told.of_rank(rank)) for rank in (0, 1)]
    assert steps[0][:5] == steps[1][:5]
    assert len(steps[0]) >= 5  # PyTorch stops recording in a thread: a busy machine lets some more pass
    assert steps[0][0] % 50 == 2  # the first step makes libkineto's count 0, and the one after a multiple is recorded
    by_rank: dict[str, list[Event]] = {}
    for event in named(told.events("merged.json.gz"), "gloo:all_reduce"):
        by_rank.setdefault(event["pid"], []).append(event)
    assert len(by_rank) == 2
    pairs = list(zip(*by_rank.values(), strict=False))
    assert len(pairs) >= 10  # the gradients and the vote on the end, in each step
    assert all(overlap(one, other) for one, other in pairs)


def test_the_manifest_has_what_was_asked_who_answered_and_every_rank(commands: Commands, ddp: Training) -> None:
    told = commands.trace("--job", TUNE, "--duration", "300ms", "--shapes", "--json")

    found = told.manifest
    assert told.code == 0, told.err
    assert json.loads(told.out) == {**found, "exit_code": 0, "output": str(told.output)}
    assert (found["state"], found["request"]["job"], found["request"]["duration_ms"]) == ("done", TUNE, 300)
    (host,) = found["hosts"]
    assert abs(host["clock"]["offset_ns"]) <= host["clock"]["bound_ns"]  # it is our own clock
    assert host["daemon"]
    assert [row["process"]["framework"] for row in found["ranks"]] == ["pytorch"] * 2
    for row in found["ranks"]:
        assert row["pid"] in ddp.pids
        assert 0.15e9 < row["last_ns"] - row["first_ns"] < 0.35e9
        assert 0 <= row["first_ns"] - found["start_ns"] < 0.2e9
        assert len(gzip.decompress((told.output / row["file"]).read_bytes())) == row["size"]
        assert not os.path.exists(row["path"])  # it was gathered, and nothing is left where it was written
    assert named(told.of_rank(1), "aten::linear")[0]["args"]["Input Dims"][0] == [16, 32]


def test_a_trace_is_left_looked_at_and_fetched(commands: Commands, ddp: Training) -> None:
    left = commands.trace("--job", TUNE, "--steps", "3", "--no-wait")
    session = left.out.strip()
    listed = commands.verb("list")
    shown = commands.verb("show", session)
    fetched = commands.trace("fetch", session, "--output", str(left.output), "--merge")

    assert (left.code, listed.code, shown.code) == (0, 0, 0)
    assert f"2 of 2 armed; gather them with: sonde trace fetch {session} --output {left.output}" in left.err
    assert re.search(rf"^{session} .* (active|done) ", listed.out, re.MULTILINE)
    assert [line.split()[2] for line in shown.out.splitlines()[1:]] == [str(pid) for pid in ddp.pids]
    assert fetched.code == 0, fetched.err
    assert "2 of 2 in" in fetched.out
    assert "merged.json.gz" in os.listdir(left.output)


def test_a_request_that_nobody_has_fetched_is_called_back(commands: Commands, lone: Training) -> None:
    os.kill(lone.pid, signal.SIGSTOP)
    try:
        left = commands.trace("--pid", str(lone.pid), "--no-wait")
        cancelled = commands.verb("cancel", left.out.strip())
    finally:
        os.kill(lone.pid, signal.SIGCONT)
    again = commands.trace("--pid", str(lone.pid), "--steps", "1")

    assert left.code == 0, left.err
    assert cancelled.code == 0, cancelled.err
    assert cancelled.out.splitlines()[1].split()[-1] == "cancelled"
    assert again.code == 0, again.err


def test_what_pytorch_records_of_the_options_is_as_the_verdict_has_it(commands: Commands, lone: Training) -> None:
    """A PyTorch that records allocations on demand makes this fail: --help and docs/how-to/trace.md say none does."""
    told = commands.trace("--pid", str(lone.pid), "--steps", "3", "--shapes", "--memory", "--flops", "--modules")
    (row,) = told.manifest["ranks"]
    events = told.events(row["file"])

    assert told.code == 0, told.err
    assert row["verdict"] == "ok: PyTorch recorded no allocations, no floating-point operations"
    assert any("Input Dims" in event.get("args", {}) for event in events)
    assert any(event["name"].startswith("nn.Module: ") for event in events if event.get("cat") == "python_function")


def test_a_rank_that_ends_while_it_is_traced_is_named_and_the_other_is_gathered(
    commands: Commands, lone: Training, rank: Callable[..., Training]
) -> None:
    other = rank(LOOSE, 1)
    process, output = commands.trace_until(
        f"pid {other.pid}): started", "--job", LOOSE, "--duration", "2s", "--timeout", "30s"
    )
    os.kill(other.pid, signal.SIGKILL)
    killed = time.monotonic()
    told = commands.end(process, output)

    assert time.monotonic() - killed < 15
    assert told.code == 1
    assert told.verdict(0) == "ok"
    assert "ended while it was being traced: PyTorch keeps nothing" in told.verdict(1)
    assert re.search(rf"^ +1 .* {other.pid} .* failed: the process ended", told.out, re.MULTILINE)
    assert "1 of 2 in" in told.out
    assert steps_of(told.of_rank(0))
    assert not list(Path("/tmp").glob(f"sonde-*_{other.pid}.json.tmp"))  # where libkineto writes


def test_a_rank_that_was_started_without_the_variable_is_named(
    commands: Commands, lone: Training, rank: Callable[..., Training]
) -> None:
    other = rank(LOOSE, 1, polls=False)
    told = commands.trace("--job", LOOSE, "--steps", "2")
    other.stop()

    assert told.code == 1
    assert re.search(rf"rank 1 \(\S+, pid {other.pid}\): KINETO_USE_DAEMON is not set", told.err)
    assert told.verdict(1) == "not traced: KINETO_USE_DAEMON is not set"
    assert told.verdict(0) == "ok"


def test_a_rank_that_profiles_itself_is_told_of_and_traced_when_it_is_done(
    commands: Commands, daemon: TracingDaemon, lone: Training, rank: Callable[..., Training]
) -> None:
    other = rank(LOOSE, 1, "--profiler", "6")
    daemon.wait_for(lambda: any(one["state"] == "profiling" for one in daemon.processes()))
    told = commands.trace("--job", LOOSE, "--steps", "2")
    profiled = other.events("profiled")
    other.stop()

    assert re.search(rf"rank 1 \(\S+, pid {other.pid}\): a torch.profiler session is active, the request wa", told.err)
    assert told.code == 0, told.out
    assert profiled
    assert len(steps_of(told.of_rank(1))) >= 2


def test_a_process_that_stood_still_until_its_start_had_passed_is_told_to_have_dropped_the_request(
    commands: Commands, lone: Training
) -> None:
    process, output = commands.trace_until("delivered", "--pid", str(lone.pid), "--duration", "300ms")
    os.kill(lone.pid, signal.SIGSTOP)
    time.sleep(1.6)  # its start is 1.1 s after the delivery
    os.kill(lone.pid, signal.SIGCONT)
    resumed = time.monotonic()
    told = commands.end(process, output)

    assert told.code == 1
    assert "dropped the request, its start was in the past" in told.out
    assert time.monotonic() - resumed < 6
    assert not list(Path("/tmp").glob(f"sonde-*_{lone.pid}.json.tmp"))  # where libkineto writes


def test_a_process_that_makes_no_step_yet_is_said_to_make_none_and_traced_when_it_does(
    commands: Commands, daemon: TracingDaemon, training: Callable[..., Training]
) -> None:
    resting = training("--rest", "10", ipc=daemon.ipc)
    daemon.wait_for(lambda: resting.pid in daemon.pids(), 20)
    none = commands.trace("--pid", str(resting.pid), "--steps", "5", "--timeout", "1s")
    empty = commands.trace("--pid", str(resting.pid), "--duration", "100ms")
    rested = not resting.events("training")
    steps = commands.trace("--pid", str(resting.pid), "--steps", "5")
    resting.stop()

    assert rested
    assert none.code == 4
    assert "its step has not come in time, or it makes none" in none.out
    assert (empty.code, empty.manifest["ranks"][0]["verdict"]) == (0, "ok: no operator was recorded")
    assert steps.code == 0, steps.out
    assert len(steps_of(steps.events(steps.manifest["ranks"][0]["file"]))) >= 5


def test_another_user_is_refused_with_the_reason(commands: Commands, ddp: Training) -> None:
    setpriv = shutil.which("setpriv")
    assert setpriv is not None, "util-linux has it"
    # It may read everything: the interpreter may be in a directory of root's. What it may do here is told by its id.
    ambient = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    someone = (setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *ambient)
    told = commands.trace("--job", TUNE, wrapper=someone)

    assert told.code == 3
    assert f"rank 0 ({os.uname().nodename}, pid {ddp.pids[0]}): belongs to root, and only root may trace it" in told.err
    assert "all that was found belongs to root" in told.err
    assert not told.output.exists()


@pytest.fixture
def runtime() -> Iterator[str]:
    """A short path: sockets below it have names of at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="xdg") as folder:
        yield folder


def test_what_sonde_run_has_started_is_found_without_a_daemon_of_the_node(
    training: Callable[..., Training], runtime: str, tmp_path: Path
) -> None:
    environ = {"XDG_RUNTIME_DIR": runtime, "SONDE_DAEMON": f"unix:{runtime}/nobody"}
    running = training(wrapper=(SONDE, "run", "--tag", SOLO, "--"), environ=environ)
    alone = Commands(tmp_path, {"XDG_RUNTIME_DIR": runtime})
    alone.environ.pop("SONDE_DAEMON", None)
    told = alone.trace("--job", SOLO, "--steps", "3")
    running.stop()

    assert told.code == 0, told.err
    (host,) = told.manifest["hosts"]
    assert host["address"] == f"unix:{runtime}/sonde/run/{running.pid}/rpc.sock"
    (row,) = told.manifest["ranks"]
    assert (row["pid"], row["verdict"]) == (running.pid, "ok")
    assert len(steps_of(told.events(row["file"]))) >= 3

"""Traces of real PyTorch processes, through the functions of the RPC: what is promised is what is written."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.torch.conftest import TracingDaemon, Training

from sonde.errors import RpcError
from sonde.rpc.client import stream
from sonde.unixdiag import unread

Session = dict[str, Any]


class Tracer:
    """Asks for traces of one daemon's processes and follows them."""

    def __init__(self, daemon: TracingDaemon) -> None:
        self.daemon = daemon
        self.count = 0

    def start(self, *pids: int, **recording: Any) -> Session:
        self.count += 1
        name = f"t{os.getpid()}-{self.count}-{time.monotonic_ns()}"
        return self.daemon.call("trace.start", session=name, pids=list(pids), **recording)

    def follow(self, session: Session, seconds: float = 60.0) -> Session:
        until = time.monotonic() + seconds
        while session["state"] == "active":
            assert time.monotonic() < until, session
            session = self.daemon.call(
                "trace.show", session=session["session"], version=session["version"], wait_seconds=5
            )
        return session

    def trace(self, *pids: int, **recording: Any) -> Session:
        return self.follow(self.start(*pids, **recording))

    def fetch(self, session: Session, pid: int) -> Any:
        """The trace of a process, as it was written; its sum is checked."""
        frames = list(stream(self.daemon.address, "trace.fetch", session=session["session"], pid=pid))
        raw = gzip.decompress(b"".join(base64.b64decode(frame.get("data", "")) for frame in frames))
        assert frames[-1]["sha256"] == hashlib.sha256(raw).hexdigest()
        assert frames[-1]["size"] == len(raw)
        return json.loads(raw)

    def remove(self, session: Session) -> list[str]:
        removed: list[str] = self.daemon.call("trace.remove", session=session["session"])["removed"]
        return removed


def states(session: Session) -> list[str]:
    return [target["state"] for target in session["targets"]]


def operators(trace: Any, name: str = "") -> list[Any]:
    return [event for event in trace["traceEvents"] if event.get("cat") == "cpu_op" and name in event["name"]]


def span_seconds(trace: Any) -> float:
    times = [(event["ts"], event["ts"] + event["dur"]) for event in operators(trace)]
    return float(max(end for _, end in times) - min(start for start, _ in times)) / 1e6


def first_seconds(trace: Any) -> float:
    """When the first operator began, in Unix seconds."""
    first: float = min(event["ts"] for event in operators(trace))
    return float(trace["baseTimeNanoseconds"]) / 1e9 + first / 1e6


@pytest.fixture(scope="module")
def daemon(tracing_daemon: Callable[..., TracingDaemon]) -> TracingDaemon:
    return tracing_daemon()


@pytest.fixture(scope="module")
def tracer(daemon: TracingDaemon) -> Tracer:
    return Tracer(daemon)


@pytest.fixture(scope="module")
def one(daemon: TracingDaemon, training: Callable[..., Training]) -> Training:
    running = training(ipc=daemon.ipc)
    daemon.wait_for(lambda: running.pid in daemon.pids())
    return running


def test_a_duration_is_recorded_from_the_moment_that_was_promised(tracer: Tracer, one: Training) -> None:
    asked = time.time()
    session = tracer.trace(one.pid, duration_ms=400)
    trace = tracer.fetch(session, one.pid)

    target = session["targets"][0]
    assert states(session) == ["written"]
    assert 0.2 < span_seconds(trace) < 0.45
    assert 0 <= first_seconds(trace) - target["start_ns"] / 1e9 < 0.5
    assert first_seconds(trace) - asked < 6
    assert operators(trace, "aten::linear")
    assert tracer.remove(session) == [target["path"]]
    assert not os.path.exists(target["path"])


def test_steps_are_recorded_as_many_as_were_asked_for_and_again_in_the_same_process(
    tracer: Tracer, one: Training
) -> None:
    for steps in (5, 3):
        session = tracer.trace(one.pid, steps=steps, round_up=10)
        trace = tracer.fetch(session, one.pid)
        tracer.remove(session)

        assert states(session) == ["written"]
        assert len(operators(trace, "aten::linear")) == 2 * steps  # the model has two


def test_what_is_to_be_recorded_is_recorded(tracer: Tracer, one: Training) -> None:
    session = tracer.trace(one.pid, steps=2, shapes=True, stacks=True, modules=True, flops=True)
    trace = tracer.fetch(session, one.pid)
    tracer.remove(session)

    kinds = {event.get("cat") for event in trace["traceEvents"]}
    assert "python_function" in kinds
    assert operators(trace, "aten::linear")[0]["args"]["Input Dims"][0] == [16, 32]


def test_a_daemon_that_answered_too_late_once_can_still_have_a_process_traced(
    tracer: Tracer, daemon: TracingDaemon, one: Training
) -> None:
    """PyTorch gives up after 90 ms; what comes later stays in its queue, and all that follows is a poll behind."""
    daemon.process.send_signal(signal.SIGSTOP)
    time.sleep(1.5)  # a poll comes in between
    daemon.process.send_signal(signal.SIGCONT)
    time.sleep(1.5)
    clients = [os.fsencode(path) for path in daemon.ipc.folder.glob("dynoconfigclient*")]
    waiting = unread(clients)
    session = tracer.trace(one.pid, duration_ms=100)
    tracer.remove(session)

    assert any(waiting.values())
    assert states(session) == ["written"]
    assert not any(unread(clients).values())


def test_a_process_that_profiles_itself_is_traced_afterwards(
    tracer: Tracer, daemon: TracingDaemon, training: Callable[..., Training]
) -> None:
    running = training("--profiler", "5", ipc=daemon.ipc)
    running.wait_for("profiling")
    daemon.wait_for(lambda: any(one["state"] == "profiling" for one in daemon.processes()))
    session = tracer.start(running.pid, steps=2)
    session = tracer.follow(session)
    tracer.remove(session)
    running.stop()

    assert states(session) == ["written"]
    assert running.events("profiled")


def test_a_process_that_ends_during_its_trace_is_reported_and_nothing_hangs(
    tracer: Tracer, daemon: TracingDaemon, training: Callable[..., Training]
) -> None:
    running = training(ipc=daemon.ipc)
    daemon.wait_for(lambda: running.pid in daemon.pids())
    session = tracer.start(running.pid, duration_ms=20_000)
    until = time.monotonic() + 15
    while states(session) != ["started"]:
        assert time.monotonic() < until
        session = daemon.call("trace.show", session=session["session"], version=session["version"], wait_seconds=5)
    begun = time.monotonic()
    os.kill(running.pid, signal.SIGKILL)
    running.process.wait()
    session = tracer.follow(session, 5)
    tracer.remove(session)

    assert time.monotonic() - begun < 2
    assert states(session) == ["failed"]
    assert "ended while it was being traced" in session["targets"][0]["reason"]


def test_a_spawned_child_is_a_process_of_its_own(
    tracer: Tracer, daemon: TracingDaemon, training: Callable[..., Training]
) -> None:
    running = training("--spawn", ipc=daemon.ipc)
    pids = running.pids
    daemon.wait_for(lambda: set(pids) <= daemon.pids(), 20)
    session = tracer.trace(running.process.pid, steps=2)  # the parent's id means its children too
    traces = [tracer.fetch(session, pid) for pid in pids]
    tracer.remove(session)
    running.stop()

    assert states(session) == ["written", "written"]
    assert len({trace["traceName"] for trace in traces}) == 2


def test_four_ranks_begin_together_and_each_writes_its_file(
    tracer: Tracer, daemon: TracingDaemon, training: Callable[..., Training]
) -> None:
    running = training("--ranks", "4", "--steps-per-second", "20", ipc=daemon.ipc)
    daemon.wait_for(lambda: set(running.pids) <= daemon.pids(), 20)
    start = time.time_ns() + 4 * 10**9
    session = tracer.trace(*running.pids, duration_ms=500, start_ns=start)
    traces = [tracer.fetch(session, pid) for pid in running.pids]
    tracer.remove(session)
    running.stop()

    assert states(session) == ["written"] * 4
    assert [target["rank"] for target in session["targets"]] == [0, 1, 2, 3]
    assert [target["late_ns"] for target in session["targets"]] == [0] * 4
    for trace in traces:
        assert first_seconds(trace) * 1e9 >= start - 10**6
        collectives = [event["name"] for event in trace["traceEvents"] if "all_reduce" in event.get("name", "")]
        assert collectives


def test_a_process_registers_again_with_a_daemon_that_was_restarted(
    tracing_daemon: Callable[..., TracingDaemon], training: Callable[..., Training]
) -> None:
    first = tracing_daemon()
    running = training(ipc=first.ipc)
    first.wait_for(lambda: running.pid in first.pids())
    tracer = Tracer(first)
    lost = tracer.start(running.pid, duration_ms=30_000)
    first.stop()
    second = tracing_daemon(state=first.state, ipc=first.ipc)
    second.wait_for(lambda: running.pid in second.pids(), 30)
    session = Tracer(second).trace(running.pid, steps=1)
    Tracer(second).remove(session)
    remembered = second.call("trace.show", session=lost["session"])
    running.stop()

    assert states(session) in (["written"], ["refused"])
    assert states(remembered) == ["lost"]
    assert "the daemon was restarted" in remembered["targets"][0]["reason"]


def test_a_directory_that_is_not_there_is_refused_before_anything_is_armed(tracer: Tracer, one: Training) -> None:
    session = tracer.start(one.pid, steps=1, directory="/nowhere/at/all")

    assert states(session) == ["refused"]
    assert "does not exist" in session["targets"][0]["reason"]
    with pytest.raises(RpcError, match="an equals sign"):
        tracer.start(one.pid, steps=1, directory="/tmp/a=b")


def test_a_memory_snapshot_is_refused_where_it_would_spin(tracer: Tracer, one: Training) -> None:
    session = tracer.start(one.pid, duration_ms=100, snapshot=True)

    assert states(session) == ["refused"]
    assert "never writes a memory snapshot" in session["targets"][0]["reason"]

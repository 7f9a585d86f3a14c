"""The table of processes: who they are, when they go, what they are handed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sonde.agent import wire
from sonde.hostfs import HostFS
from sonde.ipc.endpoint import Endpoint, Sender
from sonde.ipc.processes import Process, Processes

if TYPE_CHECKING:
    from tests.conftest import RunningLoop

# A client in a process of its own: asks once for each line it is given, and prints what it gets.
CLIENT = """
import os, socket, sys
from sonde.agent import wire
sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sock.bind(b"\\0sonde-test-client-%d\\0" % os.getpid())
sock.settimeout(5)
for line in sys.stdin:
    kinds, job_id, *pids = map(int, line.split())
    sock.sendto(wire.pack_request(wire.Request(kinds, job_id, tuple(pids) or (os.getpid(),))), sys.argv[1].encode())
    print(repr(wire.parse_config(wire.parse(sock.recv(65536))[1])), flush=True)
"""


class Place:
    def __init__(self, loop: RunningLoop) -> None:
        self.loop = loop
        self.events: list[tuple[str, int]] = []
        self.processes = Processes(
            loop,
            HostFS(),
            arrived=lambda process: self.events.append(("arrived", process.pid)),
            departed=lambda process: self.events.append(("departed", process.pid)),
        )
        self.endpoint = Endpoint(loop, self.processes.handle, self.processes.repeated)
        self.address = f"\0sonde-test-{uuid.uuid4().hex}\0"
        self.clients: list[subprocess.Popen[str]] = []
        loop.call(lambda: self.endpoint.listen(self.address.encode()))

    def client(self) -> subprocess.Popen[str]:
        # An argument cannot hold a NUL: the client is given the name without them.
        code = CLIENT.replace("sys.argv[1].encode()", repr(self.address.encode()))
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.clients.append(child)
        return child

    def ask(self, child: subprocess.Popen[str], *numbers: int) -> str:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(" ".join(map(str, numbers)) + "\n")
        child.stdin.flush()
        answer: str = eval(child.stdout.readline())
        return answer

    def close(self) -> None:
        self.loop.call(self.endpoint.close)
        self.loop.call(self.processes.close)
        for child in self.clients:
            child.kill()
            child.communicate()


@pytest.fixture
def place(loop: RunningLoop) -> Iterator[Place]:
    found = Place(loop)
    yield found
    found.close()


def until(condition: Callable[[], bool], seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_the_first_request_registers_a_process_under_its_real_pid(place: Place) -> None:
    child = place.client()
    answer = place.ask(child, 3, 77, 5, 1)  # in its container it is pid 5

    process = place.processes.get(child.pid)
    assert answer == ""
    assert process is not None
    assert (process.pid, process.names, process.own_name, process.slurm_id) == (child.pid, (5, 1), 5, 77)
    assert (process.uid, process.kinds, process.polls) == (os.getuid(), 3, 1)
    assert process.started > 0


def test_the_time_between_two_polls_is_known_from_the_second_on(place: Place) -> None:
    child = place.client()
    place.ask(child, 3, 0)
    process = place.processes.get(child.pid)
    assert process is not None
    first = process.poll_ns
    time.sleep(0.05)
    place.ask(child, 3, 0)

    assert first == 0
    assert 50_000_000 <= process.poll_ns < 5_000_000_000


def test_another_program_in_the_same_process_is_somebody_new(loop: RunningLoop) -> None:
    processes = Processes(loop, HostFS())
    request = wire.parse(wire.pack_request(wire.Request(3, 0, (os.getpid(),))))
    before, after = (Sender(os.getpid(), 0, 0, address) for address in ("first", "second"))
    loop.call(lambda: processes.handle(before, *request))
    process = processes.get(os.getpid())
    assert process is not None
    process.identity = "python launch.py"
    registered = process.first_ns
    loop.call(lambda: processes.handle(before, *request))
    kept = process.identity
    loop.call(lambda: processes.handle(after, *request))
    loop.call(processes.close)

    assert kept == "python launch.py"
    assert process.identity is None
    assert process.first_ns > registered


def test_a_process_leaves_the_table_within_a_second_of_its_exit(place: Place) -> None:
    child = place.client()
    place.ask(child, 3, 0)
    begun = time.monotonic()
    child.kill()
    until(lambda: not len(place.processes), 1)

    assert time.monotonic() - begun < 1
    assert place.events == [("arrived", child.pid), ("departed", child.pid)]


def test_what_is_offered_is_delivered_once_and_only_to_a_poll_that_takes_it(place: Place) -> None:
    child = place.client()
    place.ask(child, 3, 0)
    process = place.processes.get(child.pid)
    assert process is not None
    process.offer = lambda asked: f"PID={asked.pid}"

    answers = [place.ask(child, kinds, 0) for kinds in (1, 0, 3, 3)]

    assert answers == ["", "", f"PID={child.pid}", ""]


def test_a_poll_like_the_last_one_is_counted_and_a_different_one_is_read(place: Place) -> None:
    child = place.client()
    polled = []
    for kinds in (3, 3, 3, 1, 3):
        place.ask(child, kinds, 7, 5, 1)
        process = place.processes.get(child.pid)
        assert process is not None
        polled.append((process.polls, process.kinds, process.polled_ns))

    assert [polls for polls, _, _ in polled] == [1, 2, 3, 4, 5]
    assert [kinds for _, kinds, _ in polled] == [3, 3, 3, 1, 3]
    assert len({moment for _, _, moment in polled}) == 5


def test_what_is_offered_comes_with_a_poll_like_the_last_one(place: Place) -> None:
    child = place.client()
    place.ask(child, 3, 0)
    place.ask(child, 3, 0)
    process = place.processes.get(child.pid)
    assert process is not None
    process.offer = lambda asked: "A=1"

    assert [place.ask(child, 3, 0) for _ in range(3)] == ["A=1", "", ""]


def test_processes_that_cannot_be_seen_are_not_taken_for_each_other(loop: RunningLoop) -> None:
    processes = Processes(loop, HostFS())
    payload = wire.parse(wire.pack_request(wire.Request(3, 0, (7, 1))))[1]
    # Two containers, and in each a pid 7 that is 0 for us.
    one, two = (Sender(0, 1000, 1000, name, b"the same bytes") for name in (b"\0one\0", b"\0two\0"))
    loop.call(lambda: processes.handle(one, wire.REQUEST, payload))
    loop.call(lambda: processes.handle(two, wire.REQUEST, payload))

    assert processes.repeated(b"the same bytes", b"\0one\0") is None
    assert len(processes) == 2
    loop.call(processes.close)


def test_what_a_process_said_is_forgotten_with_it(loop: RunningLoop) -> None:
    processes = Processes(loop, HostFS())
    payload = wire.parse(wire.pack_request(wire.Request(3, 0, (7, 1))))[1]
    with subprocess.Popen(["sleep", "60"]) as child:
        sender = Sender(child.pid, 1000, 1000, b"\0one\0", b"said")
        loop.call(lambda: processes.handle(sender, wire.REQUEST, payload))
        recognised = loop.call(lambda: processes.repeated(b"said", b"\0one\0"))
        child.kill()
    until(lambda: not len(processes))

    assert recognised == wire.pack_config("")
    assert processes.repeated(b"said", b"\0one\0") is None
    loop.call(processes.close)


def test_a_process_is_known_by_a_bounded_number_of_names(loop: RunningLoop) -> None:
    processes = Processes(loop, HostFS())
    payload = wire.parse(wire.pack_request(wire.Request(3, 0, tuple(range(1, 16_000)))))[1]
    sender = Sender(os.getpid(), 1000, 1000, b"\0one\0", bytes(64_000))
    loop.call(lambda: processes.handle(sender, wire.REQUEST, payload))

    (process,) = processes
    assert process.names == tuple(range(1, 65))
    assert process.said == b""
    loop.call(processes.close)


def test_pids_choose_a_process_or_the_children_of_an_ancestor(place: Place) -> None:
    one, two, other = place.client(), place.client(), place.client()
    place.ask(one, 3, 7, 100, 50, 10)
    place.ask(two, 3, 7, 101, 50, 10)
    place.ask(other, 3, 8, 200, 60, 10)

    def chosen(job_id: int, *pids: int) -> list[int]:
        return [process.pid for process in place.processes.matching(job_id, pids)]

    assert chosen(7, 0) == chosen(7) == chosen(7, 50) == [one.pid, two.pid]
    assert chosen(7, 101) == chosen(7, two.pid) == [two.pid]
    assert chosen(8, 10) == [other.pid]
    assert chosen(7, 60) == chosen(9) == chosen(0) == []


def test_a_process_may_introduce_itself_with_its_device(place: Place) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0sonde-test-{uuid.uuid4().hex}\0")
        sock.settimeout(5)
        counts = []
        for gpu in (0, 0, 1):
            sock.sendto(wire.pack_context(wire.Context(gpu, os.getpid(), 9)), place.address)
            counts.append(wire.parse_count(wire.parse(sock.recv(1000))[1]))

    assert counts == [1, 1, 1]
    assert len(place.processes) == 1


def test_a_user_cannot_fill_the_table_for_others(loop: RunningLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sonde.ipc.processes._USER_LIMIT", 3)
    processes = Processes(loop, HostFS())
    request = wire.pack_request(wire.Request(3, 0, (1,)))[40:]

    def flood() -> list[int]:
        for number in range(5):
            processes.handle(Sender(0, 1000, 1000, b"\0a%d\0" % number), wire.REQUEST, request)
        first = len(processes)
        processes.handle(Sender(0, 1001, 1001, b"\0b\0"), wire.REQUEST, request)
        return [first, len(processes), processes.refused]

    assert loop.call(flood) == [3, 4, 2]
    loop.call(processes.close)


def test_an_invisible_process_is_forgotten_when_it_is_silent(
    loop: RunningLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sonde.ipc.processes._KEPT_NS", 200_000_000)
    gone: list[Process] = []
    processes = Processes(loop, HostFS(), departed=gone.append)
    request = wire.pack_request(wire.Request(3, 0, (1,)))[40:]
    loop.call(lambda: processes.handle(Sender(0, 1000, 1000, b"\0a\0"), wire.REQUEST, request))

    assert len(processes) == 1
    until(lambda: not len(processes))
    assert len(gone) == 1
    loop.call(processes.close)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from([b"req", b"ctxt", b"data", b"x"]), payload=st.binary(max_size=200))
def test_any_payload_gives_an_answer_or_a_wire_error(loop: RunningLoop, kind: bytes, payload: bytes) -> None:
    processes = Processes(loop, HostFS())

    def ask() -> bytes | None:
        try:
            return processes.handle(Sender(0, 1000, 1000, b"\0a\0"), kind, payload)
        except wire.WireError:
            return None
        finally:
            processes.close()

    answer = loop.call(ask)
    assert answer is None or wire.parse(answer)[0] == kind

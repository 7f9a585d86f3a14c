"""Sessions: what becomes of a request in each process, as far as it can be seen."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sonde.agent import wire
from sonde.errors import RpcError
from sonde.hostfs import HostFS
from sonde.ipc.endpoint import Sender
from sonde.ipc.processes import Process, Processes
from sonde.rpc.peer import Peer
from sonde.rpc.server import Pending
from sonde.tracing.recording import Recording
from sonde.tracing.sessions import Plan, Session, Sessions

if TYPE_CHECKING:
    from tests.conftest import RunningLoop

ME = Peer(os.getuid(), os.getpid(), "unix")
SOMEBODY = Peer(54321, 1, "unix")


class Rank:
    """A real process that asks as libkineto does; what libkineto would do with its files, the test does."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.child = subprocess.Popen(["sleep", "60"])
        self.config = ""
        self.poll()

    def ask(self, kinds: int = 3) -> bytes | None:
        payload = wire.parse(wire.pack_request(wire.Request(kinds, 0, (self.child.pid,))))[1]
        sender = Sender(self.child.pid, os.getuid(), os.getgid(), b"\0client\0")
        return self.place.loop.call(lambda: self.place.processes.handle(sender, wire.REQUEST, payload))

    def poll(self, kinds: int = 3) -> str:
        reply = self.ask(kinds)
        assert reply is not None
        text = wire.parse_config(wire.parse(reply)[1])
        self.config = text or self.config
        return text

    @property
    def process(self) -> Process:
        found = self.place.processes.get(self.child.pid)
        assert found is not None
        return found

    def setting(self, key: str) -> str:
        found = re.search(rf"^{key}=(.*)$", self.config, re.MULTILINE)
        assert found is not None, f"{key} is not in {self.config!r}"
        return found[1]

    @property
    def file(self) -> Path:
        return Path(self.setting("ACTIVITIES_LOG_FILE").replace(".json", f"_{self.child.pid}.json"))

    def begin(self) -> None:
        self.file.with_suffix(".json.tmp").touch()

    def write(self, text: str = "{}") -> None:
        part = self.file.with_suffix(".json.tmp")
        part.write_text(text)
        part.rename(self.file)


class Place:
    def __init__(self, loop: RunningLoop, folder: Path) -> None:
        self.loop = loop
        self.folder = folder
        self.saved = 0
        self.processes = Processes(loop, HostFS())
        self.sessions = Sessions(loop, HostFS(), self.processes, changed=self._save)
        self.ranks: list[Rank] = []

    def _save(self) -> None:
        self.saved += 1

    def rank(self) -> Rank:
        self.ranks.append(Rank(self))
        return self.ranks[-1]

    def start(self, *ranks: Rank, name: str = "s1", gpu: bool | None = False, **recording: Any) -> Session:
        wanted = Recording(directory=str(self.folder), **recording)
        plans = [Plan(rank.process, gpu=gpu, rank=number, twin="self") for number, rank in enumerate(ranks)]
        return self.loop.call(lambda: self.sessions.start(name, wanted, plans, ME))

    def state(self, session: Session, number: int = 0) -> str:
        return session.targets[number].state

    def until(self, true: Callable[[], object], seconds: float = 6.0) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, [target.reply() for session in self.sessions for target in session.targets]
            time.sleep(0.01)


@pytest.fixture
def place(loop: RunningLoop, tmp_path: Path) -> Iterator[Place]:
    here = Place(loop, tmp_path)
    yield here
    loop.call(here.sessions.close)
    loop.call(here.processes.close)
    for rank in here.ranks:
        rank.child.kill()
        rank.child.wait()


def test_a_trace_goes_from_the_request_to_its_file(place: Place) -> None:
    rank = place.rank()
    session = place.start(rank, duration_ms=100)
    states = [place.state(session)]
    rank.poll()
    states.append(place.state(session))
    rank.begin()
    place.until(lambda: place.state(session) == "started")
    rank.write("{}")
    place.until(lambda: place.state(session) == "written")

    target = session.targets[0]
    assert states == ["requested", "delivered"]
    assert target.path == str(rank.file)
    assert target.size == 2
    assert target.requested_ns <= target.delivered_ns <= target.started_ns == target.start_ns  # type: ignore[operator]
    assert not session.active
    assert rank.process.session == ""
    assert rank.poll(kinds=1) == ""  # handed out once


def test_a_process_whose_trace_is_written_takes_another_though_its_last_poll_was_during_the_first(place: Place) -> None:
    rank = place.rank()
    place.start(rank, name="first", steps=1)
    rank.poll()
    rank.poll(kinds=1)
    rank.write()
    place.until(lambda: not rank.process.session)
    second = place.start(rank, name="second")

    assert (second.targets[0].state, second.targets[0].reason) == ("requested", "")


def test_a_process_without_a_gpu_begins_as_early_as_libkineto_allows(place: Place) -> None:
    rank = place.rank()
    place.start(rank)
    before = time.time()
    rank.poll()

    assert 1.09 < int(rank.setting("PROFILE_START_TIME")) / 1000 - before < 1.5
    assert rank.setting("ACTIVITIES_WARMUP_PERIOD_SECS") == "0"


def test_a_process_with_a_gpu_warms_up_first(place: Place) -> None:
    rank = place.rank()
    place.start(rank, gpu=True)
    before = time.time()
    rank.poll()

    assert 6.09 < int(rank.setting("PROFILE_START_TIME")) / 1000 - before < 6.5
    assert rank.setting("ACTIVITIES_WARMUP_PERIOD_SECS") == "5"


def test_a_common_start_is_kept_by_all_that_can_meet_it(place: Place) -> None:
    ranks = [place.rank(), place.rank()]
    start = (time.time_ns() // 10**6 + 3000) * 10**6
    session = place.start(*ranks, start_ns=start)
    for rank in ranks:
        rank.poll()

    assert [rank.setting("PROFILE_START_TIME") for rank in ranks] == [str(start // 10**6)] * 2
    assert [target.late_ns for target in session.targets] == [0, 0]


def test_a_start_that_has_come_too_near_is_moved_and_said(place: Place) -> None:
    rank = place.rank()
    start = time.time_ns() + 200_000_000
    session = place.start(rank, start_ns=start)
    rank.poll()

    assert 0.8e9 < session.targets[0].late_ns < 1.3e9
    assert session.targets[0].start_ns == start + session.targets[0].late_ns


def test_steps_have_no_start_and_begin_with_their_file(place: Place) -> None:
    rank = place.rank()
    session = place.start(rank, steps=3, round_up=100)
    rank.poll()
    rank.begin()
    place.until(lambda: place.state(session) == "started")

    assert rank.setting("ACTIVITIES_ITERATIONS") == "3"
    assert rank.setting("PROFILE_START_ITERATION_ROUNDUP") == "100"
    assert session.targets[0].start_ns is None
    assert session.targets[0].started_ns is not None


def test_a_process_that_ends_before_it_asks_has_failed(place: Place) -> None:
    rank = place.rank()
    session = place.start(rank)
    rank.child.kill()
    rank.child.wait()
    place.until(lambda: place.state(session) == "failed", 1.0)

    assert "ended before it asked" in session.targets[0].reason


def test_a_process_that_ends_while_it_is_traced_has_failed(place: Place) -> None:
    rank = place.rank()
    session = place.start(rank, steps=3)
    rank.poll()
    rank.begin()
    place.until(lambda: place.state(session) == "started")
    rank.child.kill()
    rank.child.wait()
    place.until(lambda: place.state(session) == "failed", 2.0)

    assert "while it was being traced" in session.targets[0].reason


def test_a_file_that_got_its_name_just_before_the_end_counts(place: Place) -> None:
    rank = place.rank()
    session = place.start(rank, steps=3)
    rank.poll()
    rank.begin()
    rank.write()
    rank.child.kill()
    rank.child.wait()
    place.until(lambda: place.state(session) in ("written", "failed"), 2.0)

    assert place.state(session) == "written"


def test_a_request_that_pytorch_drops_is_noticed(place: Place) -> None:
    rank = place.rank()
    session = place.start(rank, duration_ms=10)
    rank.poll()
    time.sleep(2)
    rank.poll()
    place.until(lambda: not session.active, 8.0)

    assert session.targets[0].state == "failed"
    assert "did not take the request up, most likely" in session.targets[0].reason


def test_a_profiler_that_was_quicker_than_the_request_is_named(place: Place) -> None:
    rank = place.rank()
    session = place.start(rank, duration_ms=10)
    rank.poll()
    rank.poll(kinds=1)
    place.until(lambda: not session.active, 8.0)

    assert session.targets[0].state == "failed"
    assert "a profiler was started in the process before" in session.targets[0].reason


def test_a_request_that_pytorch_came_to_too_late_is_called_dropped(place: Place) -> None:
    rank = place.rank()
    rank.poll()
    session = place.start(rank, duration_ms=10)
    rank.poll()
    time.sleep(1.3)  # the start is 1.1 s after the delivery
    rank.begin()
    place.until(lambda: session.targets[0].begun_ns is not None)
    meanwhile = place.state(session)
    place.until(lambda: not session.active, 8.0)

    assert meanwhile == "delivered"
    assert session.targets[0].state == "failed"
    assert "dropped the request, its start was in the past: it came to it 0.2 s late" in session.targets[0].reason


def test_a_file_that_is_dated_late_is_believed_when_its_process_polls_as_one_that_records(place: Place) -> None:
    rank = place.rank()
    rank.poll()
    session = place.start(rank, duration_ms=10)
    rank.poll()
    rank.begin()
    part = rank.file.with_suffix(".json.tmp")
    os.utime(part, (time.time() + 100, time.time() + 100))  # a file server whose clock is ahead
    place.until(lambda: session.targets[0].came_late)
    rank.poll(kinds=1)
    place.until(lambda: place.state(session) == "started")

    assert session.active


def test_a_request_that_a_stopped_process_has_fetched_says_that_it_is_silent(place: Place) -> None:
    rank = place.rank()
    session = place.start(rank, duration_ms=10)
    rank.poll()
    place.until(lambda: not session.active, 8.0)

    assert re.search("did not take the request up: it has not asked for 4 s: is it stopped", session.targets[0].reason)


def test_a_request_for_steps_is_repeated_until_the_process_takes_it_up(place: Place) -> None:
    rank = place.rank()
    session = place.start(rank, steps=3)
    texts = [rank.poll(), rank.poll(), rank.poll(kinds=1), rank.poll()]
    rank.begin()
    place.until(lambda: place.state(session) == "started")
    taken = rank.poll()
    rank.write()
    place.until(lambda: place.state(session) == "written")

    assert texts[0] == texts[1] == texts[3] != ""
    assert texts[2] == taken == rank.poll() == ""


def test_a_request_of_dyno_that_waits_for_the_end_of_a_trace_is_handed_out_then(place: Place) -> None:
    rank = place.rank()
    session = place.start(rank, steps=3)
    rank.poll()
    rank.begin()
    place.until(lambda: place.state(session) == "started")
    place.loop.call(lambda: setattr(rank.process, "offer", lambda process: "OF=dyno"))
    during = rank.poll(kinds=1)
    rank.write()
    place.until(lambda: place.state(session) == "written")

    assert (during, rank.poll()) == ("", "OF=dyno")


def test_a_request_for_steps_is_not_repeated_when_it_was_called_back_or_is_late(place: Place) -> None:
    first, second = place.rank(), place.rank()
    cancelled = place.start(first, name="s1", steps=3)
    late = place.start(second, name="s2", steps=3, timeout_seconds=1)
    first.poll()
    second.poll()
    place.loop.call(lambda: place.sessions.cancel(cancelled))
    place.until(lambda: place.state(late) == "timed-out")

    assert (first.poll(), second.poll()) == ("", "")


def test_a_trace_without_a_step_times_out(place: Place) -> None:
    rank = place.rank()
    session = place.start(rank, steps=3, timeout_seconds=1)
    rank.poll()
    place.until(lambda: place.state(session) == "timed-out", 3.0)

    assert "its step has not come in time" in session.targets[0].reason


def test_a_process_with_an_active_profiler_keeps_the_request_waiting(place: Place) -> None:
    rank = place.rank()
    rank.poll(kinds=1)
    session = place.start(rank, steps=3)
    waiting = session.targets[0].reason
    refused = rank.poll(kinds=1)
    rank.poll()

    assert "a profiler is active" in waiting
    assert refused == ""
    assert place.state(session) == "delivered"


def test_a_process_takes_one_request_at_a_time(place: Place) -> None:
    rank = place.rank()
    place.start(rank, name="first")
    waits = place.start(rank, name="second")
    rank.poll()
    traced = place.start(rank, name="third")

    assert (waits.targets[0].state, waits.active) == ("refused", False)
    assert "session first" in waits.targets[0].reason
    assert "it is in session first" in traced.targets[0].reason


def test_no_more_than_the_limit_are_armed(place: Place) -> None:
    ranks = [place.rank(), place.rank()]
    session = place.start(*ranks, limit=1)

    assert [target.state for target in session.targets] == ["requested", "refused"]
    assert "limit of 1" in session.targets[1].reason
    assert ranks[1].poll() == ""


def test_cancelling_takes_back_what_nobody_has_fetched(place: Place) -> None:
    ranks = [place.rank(), place.rank()]
    session = place.start(*ranks)
    ranks[0].poll()
    place.loop.call(lambda: place.sessions.cancel(session))

    assert [target.state for target in session.targets] == ["delivered", "cancelled"]
    assert "cannot be called back" in session.targets[0].reason
    assert ranks[1].poll() == ""


def test_whoever_waits_is_told_of_a_change_at_once(place: Place) -> None:
    rank = place.rank()
    session = place.start(rank)
    answers: list[Any] = []

    def ask(seconds: float) -> None:
        found = place.sessions.show(session, session.version, seconds)
        assert isinstance(found, Pending)
        found.then(answers.append)

    place.loop.call(lambda: ask(20.0))
    time.sleep(0.1)
    assert answers == []
    rank.poll()

    assert answers[0]["targets"][0]["state"] == "delivered"
    place.loop.call(lambda: ask(0.1))
    place.until(lambda: len(answers) == 2, 2.0)
    assert answers[1]["version"] == answers[0]["version"]


def test_no_more_than_64_wait_for_one_session(place: Place) -> None:
    session = place.start(place.rank())
    answers: list[Any] = []
    for _ in range(70):
        found = place.loop.call(lambda: place.sessions.show(session, session.version, 20.0))
        assert isinstance(found, Pending)
        found.then(answers.append)

    assert len(session.waiters) == 64
    assert len(answers) == 6


def test_a_session_of_somebody_else_does_not_exist(place: Place) -> None:
    place.start(place.rank())

    assert place.sessions.get("s1", ME).name == "s1"
    assert place.sessions.get("s1", Peer(0, 1, "unix")).name == "s1"
    for peer in (SOMEBODY, Peer(None, None, "10.0.0.1:5")):
        with pytest.raises(RpcError, match="no session 's1' of yours"):
            place.sessions.get("s1", peer)


def test_an_id_is_used_once(place: Place) -> None:
    rank = place.rank()
    place.start(rank)
    with pytest.raises(RpcError, match="there is a session 's1' already"):
        place.start(rank)


def test_old_sessions_are_forgotten_and_active_ones_are_not(place: Place) -> None:
    rank = place.rank()
    place.start(rank, name="active")
    for number in range(230):
        place.start(rank, name=f"s{number}")

    names = [session.name for session in place.sessions]
    assert len(names) == 200
    assert names[0] == "s229"
    assert "active" in names


def test_every_change_is_written_down(place: Place) -> None:
    rank = place.rank()
    place.start(rank, steps=1)
    before = place.saved
    rank.poll()

    assert place.saved > before


def test_nobody_is_told_before_the_time_has_come(place: Place) -> None:
    rank = place.rank()
    session = place.start(rank, steps=3, round_up=100, not_before_ns=time.time_ns() + 400_000_000)
    early = rank.poll()
    waiting = rank.process.offer is not None
    time.sleep(0.45)

    assert (early, waiting) == ("", True)
    assert "ACTIVITIES_ITERATIONS=3" in rank.poll()
    assert place.state(session) == "delivered"


def test_a_file_that_comes_after_its_time_was_over_still_counts(place: Place) -> None:
    rank = place.rank()
    session = place.start(rank, steps=3, timeout_seconds=1)
    rank.poll()
    place.until(lambda: place.state(session) == "timed-out", 3.0)
    rank.write()
    place.until(lambda: place.state(session) == "written", 3.0)

    assert "after the time was over" in session.targets[0].reason


def test_a_process_for_whom_an_old_answer_waits_is_brought_in_step_again(place: Place) -> None:
    rank = place.rank()
    wanted = Recording(directory=str(place.folder), steps=1)
    plan = Plan(rank.process, gpu=False, twin="self", behind=True)
    session = place.loop.call(lambda: place.sessions.start("s1", wanted, [plan], ME))
    first = rank.ask()
    second = rank.poll()

    assert first is None  # it reads the old one
    assert "ACTIVITIES_ITERATIONS=1" in second
    assert place.state(session) == "delivered"


def test_names_of_files_cannot_be_guessed(place: Place) -> None:
    ranks = [place.rank(), place.rank()]
    sessions = [place.start(rank, name=f"s{number}") for number, rank in enumerate(ranks)]

    names = [re.sub(r"_\d+\.json$", "", session.targets[0].path).rpartition("-")[2] for session in sessions]
    assert all(len(name) == 16 for name in names)
    assert names[0] != names[1]

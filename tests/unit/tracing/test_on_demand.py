"""dynolog's request for a trace: what it answers, and what it arms."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.trainee import start_trainee

from sonde.agent import wire
from sonde.hostfs import HostFS
from sonde.ipc.endpoint import Sender
from sonde.ipc.processes import Processes
from sonde.rpc.codec import encode
from sonde.rpc.peer import Peer
from sonde.tracing.on_demand import OnDemand, pause_profiling, resume_profiling

if TYPE_CHECKING:
    from tests.conftest import RunningLoop

ROOT = Peer(0, 1, "unix")
ADA = Peer(1000, 2, "unix")
CONFIG = "ACTIVITIES_LOG_FILE=/tmp/t.json\nPROFILE_START_TIME=0\nACTIVITIES_DURATION_MSECS=500"


class Place:
    def __init__(self, loop: RunningLoop) -> None:
        self.loop = loop
        self.processes = Processes(loop, HostFS())
        self.on_demand = OnDemand(self.processes, HostFS(), trace_id=lambda: 77)

    def poll(self, name: int, *, uid: int = 1000, job_id: int = 0, kinds: int = 3, pid: int = 0) -> str:
        """A process asks, in a pid namespace beside ours unless it has a pid; what it gets."""
        sender = Sender(pid, uid, uid, f"\0client{name}\0".encode())
        payload = wire.parse(wire.pack_request(wire.Request(kinds, job_id, (name, 10))))[1]
        answer = self.loop.call(lambda: self.processes.handle(sender, wire.REQUEST, payload))
        assert answer is not None
        return wire.parse_config(wire.parse(answer)[1])

    def ask(self, peer: Peer = ADA, **fields: Any) -> dict[str, Any]:
        return self.on_demand.request({"config": CONFIG, "pids": [0], **fields}, peer)


@pytest.fixture
def place(loop: RunningLoop) -> Iterator[Place]:
    found = Place(loop)
    yield found
    loop.call(found.processes.close)


def test_the_answer_and_the_delivered_text_are_dynologs_to_the_byte(place: Place) -> None:
    place.poll(812)
    reply = encode(place.ask())[4:]
    delivered = place.poll(812)

    assert reply == (
        b'{"activityProfilersBusy":0,"activityProfilersTriggered":[812],"eventProfilersBusy":0,'
        b'"eventProfilersTriggered":[],"processesMatched":[812]}'
    )
    assert delivered == f"\n    {CONFIG}\n    REQUEST_TRACE_ID=77\n"
    assert place.poll(812) == ""


def test_beyond_the_limit_processes_are_matched_but_not_triggered(place: Place) -> None:
    for name in (30, 31, 32, 33):
        place.poll(name)
    first, second = place.ask(process_limit=3), place.ask()

    assert (first["processesMatched"], first["activityProfilersTriggered"]) == ([30, 31, 32, 33], [30, 31, 32])
    assert (second["activityProfilersBusy"], second["activityProfilersTriggered"]) == (3, [33])


def test_a_limit_is_spent_on_ranks_before_their_launcher(place: Place, tmp_path: Path) -> None:
    ranks = [start_trainee("@nobody@", tmp_path, {"RANK": str(rank)}) for rank in range(2)]
    for name, pid in enumerate((os.getpid(), *(rank.pid for rank in ranks)), start=30):
        place.poll(name, pid=pid)
    first = place.ask(process_limit=2)
    second = place.ask(process_limit=2)
    for rank in ranks:
        rank.end()

    assert first["processesMatched"] == [30, 31, 32]
    assert first["activityProfilersTriggered"] == [31, 32]
    assert second["activityProfilersTriggered"] == [30]


def test_a_process_that_profiles_keeps_its_request_for_later(place: Place) -> None:
    place.poll(30)
    place.ask()

    assert [bool(place.poll(30, kinds=kinds)) for kinds in (1, 1, 3)] == [False, False, True]


@pytest.mark.parametrize(
    ("peer", "matched"),
    [(ADA, [30]), (ROOT, [30, 31]), (Peer(None, None, "192.0.2.1:5"), []), (Peer(1002, 3, "unix"), [])],
)
def test_a_user_drives_their_own_processes_and_root_all(place: Place, peer: Peer, matched: list[int]) -> None:
    place.poll(30, uid=1000)
    place.poll(31, uid=1001)

    assert place.ask(peer)["processesMatched"] == matched


def test_a_job_is_chosen_by_the_number_libkineto_reads(place: Place) -> None:
    place.poll(30, job_id=77)
    place.poll(31)

    assert place.ask(job_id=77)["processesMatched"] == [30]
    assert place.ask(pids=[])["processesMatched"] == [31]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"config": 5}, "type must be string, but is number"),
        ({"pids": ["a"]}, "type must be number, but is string"),
        ({"pids": 5}, "type must be array, but is number"),
        ({"job_id": "12"}, "type must be number, but is string"),
        ({"process_limit": {}}, "type must be number, but is object"),
    ],
)
def test_a_wrong_type_is_answered_in_dynologs_words(place: Place, fields: dict[str, Any], status: str) -> None:
    assert place.ask(**fields) == {"status": f"failed with exception = [json.exception.type_error.302] {status}"}


@pytest.mark.parametrize("config", ["A=1\0", "A=\ud800", "A=" + "x" * 65536, "A=" + "x" * 65470])
def test_what_cannot_be_delivered_is_refused_and_costs_no_process_its_answer(place: Place, config: str) -> None:
    place.poll(30)

    assert place.ask(config=config)["status"].startswith("failed with exception = ")
    assert place.poll(30) == ""


def test_what_is_missing_is_a_failure(place: Place) -> None:
    assert place.on_demand.request({"config": CONFIG}, ROOT) == {"status": "failed"}
    assert place.on_demand.request({"pids": []}, ROOT) == {"status": "failed"}


def test_profiling_of_devices_cannot_be_paused_where_none_is_watched() -> None:
    assert pause_profiling({"duration_s": 300}, ADA) == {"status": False}
    assert pause_profiling({}, ADA) == {"status": "failed"}
    assert "type must be number" in pause_profiling({"duration_s": "abc"}, ADA)["status"]
    assert resume_profiling({}, ADA) == {"status": False}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(["config", "pids", "job_id", "process_limit", "fn"]), JSON))
def test_any_request_is_answered(place: Place, request: dict[str, Any]) -> None:
    assert place.on_demand.request(request, ROOT)
    assert "status" in pause_profiling({"duration_s": request.get("pids")}, ROOT)

"""What is remembered of traces over a restart."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path

from sonde.ipc.endpoint import Sender
from sonde.ipc.processes import Process
from sonde.rpc.peer import Peer
from sonde.tracing.journal import Journal
from sonde.tracing.recording import Recording
from sonde.tracing.sessions import Session
from sonde.tracing.target import Target


def session(name: str, *states: str) -> Session:
    made = Session(name, Peer(1000, 1, "unix"), Recording(steps=3, activities=("cpu_op",)), 5)
    for number, state in enumerate(states, 1):
        target = Target(Process(Sender(number, 1000, 100, b""), 0), f"/tmp/t_{number}.json", 7)
        target.state = state
        target.rank = number
        made.targets.append(target)
    return made


def saved(path: Path, *sessions: Session) -> Journal:
    journal = Journal(str(path))
    journal.save(sessions)
    until = time.monotonic() + 5
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.01)
    return journal


def test_what_was_over_comes_back_as_it_was_and_what_was_active_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "traces.json"
    saved(path, session("s1", "written", "failed"), session("s2", "requested", "started", "written"))
    first, second = Journal(str(path)).load()

    assert [target.state for target in first.targets] == ["written", "failed"]
    assert [target.state for target in second.targets] == ["lost", "lost", "written"]
    assert "the daemon was restarted" in second.targets[0].reason
    assert (first.name, first.uid, first.recording.activities, first.targets[1].rank) == ("s1", 1000, ("cpu_op",), 2)
    assert not second.active


def test_nobody_else_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "traces.json"
    saved(path, session("s1"))

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_newest_state_is_what_is_written_in_the_end(tmp_path: Path) -> None:
    path = tmp_path / "traces.json"
    journal = Journal(str(path))
    one, two = session("s1", "requested"), session("s2", "written")
    for number in range(50):
        one.version = number
        one.targets[0].pid = number
        journal.save([one, two])
    until = time.monotonic() + 5
    while time.monotonic() < until:
        if path.exists() and json.loads(path.read_text())["sessions"][0]["targets"][0]["pid"] == 49:
            break
        time.sleep(0.01)

    assert [entry["session"] for entry in json.loads(path.read_text())["sessions"]] == ["s1", "s2"]


def test_a_damaged_or_missing_file_is_no_history(tmp_path: Path) -> None:
    path = tmp_path / "traces.json"
    for text in (None, "", "{", "[]", '{"sessions": 5}', '{"sessions": [{"session": "x"}]}', '{"sessions": [5]}'):
        if text is not None:
            path.write_text(text)

        assert Journal(str(path)).load() == []

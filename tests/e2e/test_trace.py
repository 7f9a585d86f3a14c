"""`sonde trace` against nodes that act their parts, over real sockets: what it says, gathers, and ends with."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.authority import Authority
from tests.conftest import RunningLoop
from tests.trace_node import Actor, TraceNode, trace_file

from sonde.cli.main import main

Make = Callable[..., TraceNode]


@pytest.fixture
def node(loop: RunningLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Make a node; the command runs in a directory of its own and knows no other daemon."""
    made: list[TraceNode] = []
    monkeypatch.chdir(tmp_path)

    def make(name: str, *actors: Actor, **settings: Any) -> TraceNode:
        made.append(TraceNode(loop, name, *actors, **settings))
        monkeypatch.setenv("SONDE_DAEMON", made[0].address)
        return made[-1]

    yield make
    for one in made:
        one.close()


def hosts(*nodes: TraceNode | str) -> list[str]:
    return ["--host", ",".join(one if isinstance(one, str) else one.address for one in nodes)]


@pytest.fixture
def free_address() -> str:
    """Nobody listens there."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{sock.getsockname()[1]}"


class Told:
    """What a command has printed, and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def object(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def verdicts(self) -> dict[int | None, str]:
        return {row["rank"]: row["verdict"] for row in self.object["ranks"]}


@pytest.fixture
def trace(capsys: pytest.CaptureFixture[str]) -> Callable[..., Told]:
    def run(*words: str) -> Told:
        capsys.readouterr()
        code = main(["trace", *words])
        printed = capsys.readouterr()
        return Told(code, printed.out, printed.err)

    return run


Trace = Callable[..., Told]


def four(**settings: Any) -> tuple[Actor, ...]:
    return tuple(Actor(100 + rank, rank, 4, **settings) for rank in range(4))


def test_every_rank_of_two_hosts_is_traced_gathered_and_removed(node: Make, trace: Trace, tmp_path: Path) -> None:
    actors = four()
    first, second = node("n1", *actors[:2]), node("n2", *actors[2:], skew=3.0)
    told = trace("--job", "tune", *hosts(first, second), "--output", "out")

    assert told.code == 0, told.err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "manifest.json",
        "rank-0_n1_100.json.gz",
        "rank-1_n1_101.json.gz",
        "rank-2_n2_102.json.gz",
        "rank-3_n2_103.json.gz",
    ]
    session = json.loads((tmp_path / "out/manifest.json").read_text())["session"]
    assert (first.removed, second.removed) == ([session], [session])
    assert "4 processes on 2 hosts, ranks 0-3, job tune" in told.err
    assert told.out.startswith("rank  host  pid  file ")
    assert [line.split()[-1] for line in told.out.splitlines()[1:5]] == ["ok"] * 4
    assert told.out.splitlines()[5] == "4 of 4 in out"


def test_the_start_is_the_same_instant_by_every_hosts_own_clock(node: Make, trace: Trace) -> None:
    actors = four()
    first, second = node("n1", *actors[:2]), node("n2", *actors[2:], skew=3.0)
    told = trace("--job", "tune", *hosts(first, second), "--output", "out", "--json")

    starts = [one.requests[-1]["start_ns"] for one in (first, second)]
    assert abs(starts[1] - starts[0] - 3 * 10**9) < 50 * 10**6
    assert {row["rank"]: row["skew_ns"] < 50 * 10**6 for row in told.object["ranks"]} == dict.fromkeys(range(4), True)


def test_the_skew_of_a_rank_that_began_late_is_told(node: Make, trace: Trace) -> None:
    one = node("n1", Actor(100, 0, 2), Actor(101, 1, 2, late=0.25))
    told = trace("--job", "tune", *hosts(one), "--json", "--output", "out")

    assert [row["skew_ns"] for row in told.object["ranks"]] == [0, 250_000_000]


def test_a_single_process_begins_as_soon_as_it_can(node: Make, trace: Trace) -> None:
    one = node("n1", Actor(100, job=""))
    told = trace("--output", "out")

    assert told.code == 0, told.err
    assert one.requests[-1]["start_ns"] == 0
    assert one.requests[-1]["pids"] == [100]
    assert sorted(os.listdir("out")) == ["manifest.json", "n1_100.json.gz"]


def test_the_object_has_everything(node: Make, trace: Trace) -> None:
    one = node("n1", *four())
    told = trace("--job", "tune", *hosts(one), "--json", "--output", "out", "--steps", "5", "--round-up", "10")

    found = told.object
    assert (found["exit_code"], found["state"], found["merged"]) == (0, "done", "")
    assert found["request"]["steps"] == 5
    assert found["request"]["round_up"] == 10
    assert "start_ns" not in one.requests[-1]
    (host,) = found["hosts"]
    assert (host["name"], host["address"], host["daemon"]) == ("n1", one.address, "9 (acting)")
    assert set(host["clock"]) == {"offset_ns", "bound_ns", "rounds"}
    row = found["ranks"][2]
    assert (row["rank"], row["host"], row["pid"], row["file"]) == (2, "n1", 102, "rank-2_n1_102.json.gz")
    assert (row["events"], row["operators"], row["ok"]) == (7, 2, True)
    assert row["process"]["framework"] == "torch 2.13.0"
    assert row["size"] == len(gzip.decompress(Path("out", row["file"]).read_bytes()))
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert manifest == {key: value for key, value in found.items() if key not in ("exit_code", "output")}


def test_a_dead_host_delays_nobody_and_is_named(node: Make, trace: Trace, free_address: str) -> None:
    one = node("n1", *four())
    told = trace("--job", "tune", *hosts(one, free_address), "--output", "out")

    assert told.code == 1
    assert f"{free_address}: nothing answers on {free_address}: Connection refused" in told.err
    assert "4 of 5 in out" in told.out


def test_a_daemon_without_ipc_is_told_from_one_without_processes(node: Make, trace: Trace) -> None:
    one, off, empty = node("n1", *four()), node("n2", ipc=False), node("n3")
    told = trace("--job", "tune", *hosts(one, off, empty), "--output", "out")

    assert told.code == 0
    assert "n2: daemon up, IPC off" in told.err
    assert "n3: daemon up, no process of job tune has registered there" in told.err


def test_missing_ranks_are_named_with_the_reason(node: Make, trace: Trace) -> None:
    missing = ({"pid": 105, "rank": 5, "command": "python", "reason": "not registered (KINETO_USE_DAEMON not set)"},)
    actors = tuple(Actor(100 + rank, rank, 8) for rank in range(5))
    one = node("n1", *actors, missing=missing)
    told = trace("--job", "tune", *hosts(one), "--output", "out")

    assert told.code == 1
    assert "rank 5 (n1, pid 105): not registered (KINETO_USE_DAEMON not set)" in told.err
    assert "ranks 6-7: no process found on this host" in told.err
    assert "6-7" in told.out.splitlines()[-2]


def test_nothing_at_all_is_never_only_that(node: Make, trace: Trace, free_address: str) -> None:
    off = node("n2", ipc=False)
    told = trace("--job", "tune", *hosts(off, free_address))

    assert told.code == 3
    assert "n2: daemon up, IPC off" in told.err
    assert f"{free_address}: nothing answers" in told.err
    assert os.listdir() == []


def test_a_rank_that_times_out_is_the_only_one_missing(node: Make, trace: Trace) -> None:
    late = Actor(101, 1, 2, part="timed-out", reason="no file 60 s after its start")
    told = trace("--job", "tune", *hosts(node("n1", Actor(100, 0, 2), late)), "--json", "--output", "out")

    assert told.code == 4
    assert told.verdicts == {0: "ok", 1: "timed out: no file 60 s after its start"}


def test_a_process_that_exits_in_the_middle_is_a_failure(node: Make, trace: Trace) -> None:
    gone = Actor(101, 1, 2, part="failed", reason="the process has ended")
    told = trace("--job", "tune", *hosts(node("n1", Actor(100, 0, 2), gone)), "--json", "--output", "out", "--verbose")

    assert told.code == 1
    assert told.verdicts == {0: "ok", 1: "failed: the process has ended"}
    assert "rank 1 (n1, pid 101): failed (the process has ended)" in told.err


def test_who_has_a_profiler_running_is_waited_for_and_told(node: Make, trace: Trace) -> None:
    told = trace("--job", "tune", *hosts(node("n1", Actor(812, accepts=False))), "--output", "out")

    assert told.code == 0
    assert "pid 812 on n1: a torch.profiler session is active, the request waits" in told.err


def test_a_wrong_checksum_is_the_verdict_and_leaves_the_file_on_its_host(node: Make, trace: Trace) -> None:
    one = node("n1", Actor(100, 0, 2), Actor(101, 1, 2, lies=True))
    told = trace("--job", "tune", *hosts(one), "--json", "--output", "out")

    assert told.code == 1
    assert told.verdicts[0] == "ok"
    assert told.verdicts[1].startswith("not gathered: the checksum is wrong")
    assert one.removed == []
    assert sorted(os.listdir("out")) == ["manifest.json", "rank-0_n1_100.json.gz"]


def test_a_file_beyond_the_limit_is_not_fetched(node: Make, trace: Trace) -> None:
    one = node("n1", Actor(100, 0, 2), Actor(101, 1, 2, file=b"x" * 5000))
    told = trace("--job", "tune", *hosts(one), "--json", "--output", "out", "--max-size", "1kB")

    assert told.code == 1
    assert "beyond --max-size" in told.verdicts[1]
    assert "n1: /tmp/sonde_101.json" in told.verdicts[1]


def test_what_is_no_trace_is_not_ok(node: Make, trace: Trace) -> None:
    one = node("n1", Actor(100, 0, 1, file=b"not JSON"))
    told = trace("--job", "tune", *hosts(one), "--json", "--output", "out")

    assert told.code == 1
    assert told.verdicts[0].startswith("not a trace")


def test_an_error_of_the_daemon_is_every_ranks_verdict_and_nothing_is_left_here(node: Make, trace: Trace) -> None:
    one = node("n1", *four())
    told = trace("--job", "tune", *hosts(one), "--directory", "/nowhere", "--json")

    assert told.code == 1
    assert set(told.verdicts.values()) == {"not armed: /nowhere is not there"}
    assert os.listdir() == []


def test_two_hundred_hosts_are_traced_at_once(node: Make, trace: Trace) -> None:
    nodes = [node(f"n{number}", Actor(100 + number, number, 200)) for number in range(200)]
    begun = time.monotonic()
    told = trace("--job", "tune", *hosts(*nodes), "--output", "out", "--json")

    assert told.code == 0, told.err
    assert len(os.listdir("out")) == 201
    assert time.monotonic() - begun < 25


def test_a_trace_can_be_left_and_fetched_later(node: Make, trace: Trace) -> None:
    one = node("n1", *four())
    left = trace("--job", "tune", *hosts(one), "--no-wait")
    session = left.out.strip()
    shown = trace("show", session)
    listed = trace("list", *hosts(one))
    fetched = trace("fetch", session, "--json", "--merge")

    assert left.code == 0
    assert f"gather them with: sonde trace fetch {session}" in left.err
    assert shown.code == 0
    assert "n1" in shown.out
    assert session in listed.out
    assert fetched.code == 0, fetched.err
    assert fetched.object["merged"] == "merged.json.gz"
    assert fetched.object["ranks"][0]["process"]["framework"] == "torch 2.13.0"
    assert len(os.listdir(f"trace-{session}")) == 6


def test_a_session_can_be_called_back(node: Make, trace: Trace) -> None:
    one = node("n1", Actor(100, 0, 1, part="stuck"))
    session = trace("--job", "tune", *hosts(one), "--no-wait").out.strip()
    cancelled = trace("cancel", session, "--json")
    again = trace("cancel", "no-such-session")

    assert cancelled.code == 0
    assert cancelled.verdicts == {0: "cancelled"}
    assert again.code == 3
    assert "no host has a session no-such-session" in again.err


def test_what_was_delivered_is_not_called_back_and_that_is_no_success(node: Make, trace: Trace) -> None:
    one = node("n1", Actor(100, 0, 2), Actor(101, 1, 2, part="refused", reason="not there"))
    session = trace("--job", "tune", *hosts(one), "--no-wait").out.strip()
    time.sleep(0.5)
    told = trace("cancel", session)

    assert told.code == 1
    assert told.out.splitlines()[-1] == "nothing was left to cancel: 1 written, 1 refused"


def test_when_nothing_was_armed_there_is_nothing_to_gather_later(node: Make, trace: Trace) -> None:
    one = node("n1", *four(part="refused", reason="/data is not writable for ada"))
    told = trace("--job", "tune", *hosts(one), "--no-wait")

    assert told.code == 1
    assert told.out.count("refused: /data is not writable for ada") == 4
    assert "fetch" not in told.err
    assert os.listdir() == []


def test_who_was_not_armed_is_named_when_others_are(node: Make, trace: Trace) -> None:
    one = node("n1", Actor(100, 0, 2), Actor(101, 1, 2, part="refused", reason="/data is not there"))
    told = trace("--job", "tune", *hosts(one), "--no-wait")

    assert told.code == 1
    assert "rank 1 (n1, pid 101): refused: /data is not there" in told.err
    assert "1 of 2 armed; gather them with" in told.err


def contents(folder: str) -> dict[str, tuple[bytes, int]]:
    """The files of a directory, and when they were written."""
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in Path(folder).iterdir()}


def test_a_trace_that_is_here_is_not_fetched_again(node: Make, trace: Trace) -> None:
    one = node("n1", *four())
    session = trace("--job", "tune", *hosts(one), "--no-wait").out.strip()
    first = trace("fetch", session)
    before = contents(f"trace-{session}")
    one.files.clear()  # as trace.remove has it
    again, as_object = trace("fetch", session), trace("fetch", session, "--json")
    untouched = contents(f"trace-{session}")
    merged = trace("fetch", session, "--merge")

    assert (first.code, again.code, as_object.code, merged.code) == (0, 0, 0, 0)
    assert again.out.splitlines() == [*first.out.splitlines()[:-1], f"already gathered: 4 of 4 in trace-{session}"]
    assert set(as_object.verdicts.values()) == {"ok"}
    assert untouched == before
    assert set(contents(f"trace-{session}")) - set(before) == {"merged.json.gz"}


def test_only_what_is_missing_is_fetched(node: Make, trace: Trace) -> None:
    one = node("n1", *four())
    session = trace("--job", "tune", *hosts(one), "--output", "out", "--keep", "--json").object["session"]
    os.unlink("out/rank-2_n1_102.json.gz")
    before = contents("out")
    told = trace("fetch", session, "--output", "out", "--json")

    assert told.code == 0, told.err
    assert "already gathered: 3 of 4" in told.err
    after = contents("out")
    assert set(after) - set(before) == {"rank-2_n1_102.json.gz"}
    assert {name: text for name, text in after.items() if name in before and name != "manifest.json"} == {
        name: text for name, text in before.items() if name != "manifest.json"
    }
    assert set(told.verdicts.values()) == {"ok"}


def test_what_is_here_of_a_host_that_has_died_stays_in_the_manifest(
    node: Make, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sonde.cli.trace_follow._PATIENCE", 0.5)
    one, dying = node("n1", Actor(100, 0, 2)), node("n2", Actor(101, 1, 2))
    session = trace("--job", "tune", *hosts(one, dying), "--output", "out", "--keep", "--json").object["session"]
    os.unlink("out/rank-0_n1_100.json.gz")
    dying.close()
    told = trace("fetch", session, "--output", "out", "--json")

    assert told.code == 0, told.err
    assert [row["file"] for row in told.object["ranks"]] == ["rank-0_n1_100.json.gz", "rank-1_n2_101.json.gz"]


def test_fetching_without_waiting_takes_what_is_there(node: Make, trace: Trace) -> None:
    one = node("n1", Actor(100, 0, 2), Actor(101, 1, 2, part="stuck"))
    session = trace("--job", "tune", *hosts(one), "--no-wait").out.strip()
    time.sleep(0.5)
    fetched = trace("fetch", session, "--no-wait", "--json")

    assert fetched.code == 1
    assert fetched.verdicts == {0: "ok", 1: "requested"}
    assert one.removed == []
    assert one.sessions[session]["targets"][1]["state"] == "requested"


def test_several_jobs_are_a_question(node: Make, trace: Trace) -> None:
    node("n1", Actor(100, 0, job="77"), Actor(101, 0, job="78"), Actor(102, job=""))
    told = trace()

    assert told.code == 2
    assert "job 77 of root (1 process, ranks 0); job 78 of root (1 process, ranks 0); pid 102 of root" in told.err
    assert "say which: --job 77, or --all" in told.err


def test_others_processes_are_not_announced_as_if_they_could_be_traced(node: Make, trace: Trace) -> None:
    others = [Actor(100 + rank, rank, 2, uid=7, user="ada", may_trace=False) for rank in range(2)]
    told = trace("--job", "tune", *hosts(node("n1", *others)))
    mixed = trace("--job", "both", *hosts(node("n2", Actor(5, job="both"), others[0]._replace(job="both"))), "--json")

    assert told.code == 3
    assert "2 processes" not in told.err
    assert "all that was found belongs to ada" in told.err
    assert "2 processes on 1 host, rank 0, job both, 1 of another user" in mixed.err


def test_a_pid_that_is_none_is_said_to_be_none(node: Make, trace: Trace) -> None:
    told = trace("--pid", "4194999", *hosts(node("n1")))

    assert told.code == 3
    assert "there is no process 4194999 on this host" in told.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--limit 0", "--limit must be from 1 to 4096, not 0"),
        ("--timeout 1ms", "--timeout must be from 1s to 1d, not 1ms"),
        ("--duration 2h", "--duration must be from 1ms to 1h, not 2h"),
        ("--warmup 1h", "--warmup must be from 0s to 10m, not 1h"),
    ],
)
def test_what_every_daemon_would_refuse_is_a_matter_of_usage(
    node: Make, trace: Trace, words: str, complaint: str
) -> None:
    one = node("n1", *four())
    told = trace("--job", "tune", *hosts(one), *words.split())

    assert told.code == 2
    assert complaint in told.err
    assert one.requests == []


def test_a_memory_snapshot_without_a_gpu_is_refused(node: Make, trace: Trace) -> None:
    one = node("n1", Actor(100, 0, 1))
    told = trace("--job", "tune", *hosts(one), "--memory-snapshot")

    assert told.code == 2
    assert "spins from then on" in told.err
    assert [request["fn"] for request in one.requests] == ["trace.check"]


def test_a_trace_that_would_outlast_its_job_is_refused(
    node: Make, trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\necho 0:30\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    one = node("n1", Actor(100, 0, 1, job="77"))
    told = trace("--job", "77", *hosts(one), "--duration", "40s")

    assert told.code == 2
    assert "job 77 ends in 30 s, and this trace may need 4" in told.err
    assert [request["fn"] for request in one.requests] == ["trace.check"]


def test_a_directory_with_another_trace_is_refused(node: Make, trace: Trace) -> None:
    one = node("n1", *four())
    assert trace("--job", "tune", *hosts(one), "--output", "out").code == 0
    told = trace("--job", "tune", *hosts(one), "--output", "out")

    assert told.code == 2
    assert "out has a trace already" in told.err


def test_an_older_daemon_is_told_from_a_dead_one(node: Make, trace: Trace) -> None:
    one, old = node("n1", *four()), node("n2", without=("trace.check",))
    told = trace("--job", "tune", *hosts(one, old), "--output", "out")

    assert told.code == 1
    assert f"the daemon on {old.address} is too old" in told.err


def test_a_daemon_that_was_restarted_may_still_have_the_file(node: Make, trace: Trace) -> None:
    one = node("n1", Actor(100, 0, 2, part="lost", reason="the daemon was restarted"), Actor(101, 1, 2, part="lost"))
    session = trace("--job", "tune", *hosts(one), "--no-wait").out.strip()
    time.sleep(0.5)
    one.files[100] = trace_file(time.time_ns())
    fetched = trace("fetch", session, "--json")

    assert fetched.code == 1
    assert fetched.verdicts == {0: "ok: the daemon was restarted", 1: "lost"}


def test_a_host_that_dies_in_the_middle_is_given_up(
    node: Make, trace: Trace, loop: RunningLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sonde.cli.trace_follow._PATIENCE", 0.5)
    one, dying = node("n1", Actor(100, 0, 2)), node("n2", Actor(101, 1, 2, part="stuck"))
    threading.Timer(0.6, dying.close).start()
    told = trace("--job", "tune", *hosts(one, dying), "--json", "--output", "out")

    assert told.code == 1
    assert told.verdicts[0] == "ok"
    assert told.verdicts[1].startswith("requested, then no news: nothing answers on")


def test_what_never_comes_is_given_up_and_called_back(
    node: Make, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sonde.cli.trace_follow.GRACE", -60.0)
    one = node("n1", Actor(100, 0, 1, part="stuck"))
    told = trace("--job", "tune", *hosts(one), "--json", "--output", "out")

    assert told.code == 4
    assert told.verdicts == {0: "timed out: still requested when it should have been over"}
    assert one.sessions[told.object["session"]]["targets"][0]["state"] == "cancelled"


def test_a_terminal_sees_each_rank_and_then_the_table_alone(node: Make, tmp_path: Path) -> None:
    one = node("n1", *four())
    words = [sys.executable, "-m", "sonde", "trace", "--job", "tune", *hosts(one), "--output", "out"]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=theirs, text=True, cwd=tmp_path)
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # EIO: the other side is closed
        while data := os.read(ours, 4096):
            seen += data
    os.close(ours)
    out, _ = process.communicate(timeout=20)

    assert process.returncode == 0
    assert b"rank 3  n1  103  requested\r\n" in seen
    assert b"\x1b[4A\r\x1b[J" in seen  # all four lines are taken back
    assert out.count("ok") == 4


def test_with_certificates_all_of_it_goes_over_mutual_tls(
    node: Make, trace: Trace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("certs")
    authority = Authority(folder / "authority")
    theirs = authority.directory("server", authority.signed("server"), folder / "server")
    ours = authority.directory("client", authority.signed("root"), folder / "client")
    one = node("n1", *four(), certs=theirs)
    secure = trace("--job", "tune", *hosts(one), "--output", "out", "--certs-dir", ours)
    plain = trace("--job", "tune", *hosts(one), "--output", "plain")

    assert secure.code == 0, secure.err
    assert "4 of 4 in out" in secure.out
    assert plain.code == 3
    assert f"{one.address}: this address speaks TLS only, and wants a certificate" in plain.err
    assert "--certs-dir" in plain.err
    assert not Path("plain").exists()


@contextlib.contextmanager
def dynolog() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """What a dynolog does: answers what it knows, closes the connection otherwise."""
    server = socket.create_server(("127.0.0.1", 0))
    asked: list[dict[str, Any]] = []
    replies = {
        "getVersion": {"version": "0.6.0"},
        "setKinetOnDemandRequest": {
            "activityProfilersBusy": 1,
            "activityProfilersTriggered": [812],
            "eventProfilersBusy": 0,
            "eventProfilersTriggered": [],
            "processesMatched": [812, 813],
        },
    }

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                (length,) = struct.unpack("=i", connection.recv(4))
                request = json.loads(connection.recv(length))
                asked.append(request)
                if request["fn"] in replies:
                    text = json.dumps(replies[request["fn"]]).encode()
                    connection.sendall(struct.pack("=i", len(text)) + text)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}", asked
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(10)


def test_a_real_dynolog_is_armed_and_not_believed_in(trace: Trace, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with dynolog() as (address, asked):
        told = trace("--job", "77", "--host", address, "--json", "--stacks")

    request = asked[-1]
    assert (request["job_id"], request["pids"], request["process_limit"]) == (77, [0], 1000)
    assert "PROFILE_WITH_STACK=true" in request["config"]
    assert told.code == 1
    assert f"{address}: a dynolog daemon (0.6.0): it can be armed, but not followed" in told.err
    rows = told.object["ranks"]
    assert [(row["pid"], row["state"]) for row in rows] == [(812, "armed"), (813, "refused")]
    assert rows[0]["path"] == f"/tmp/sonde-{told.object['session']}_812.json"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_call_back_what_they_can_and_say_what_remains(
    node: Make, tmp_path: Path, number: int, code: int
) -> None:
    one = node("n1", Actor(100, 0, 2), Actor(101, 1, 2, part="stuck"))
    words = [sys.executable, "-m", "sonde", "trace", "--job", "tune", *hosts(one), "--output", "out", "--verbose"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert process.stderr is not None
    seen = ""
    while "rank 0 (n1, pid 100): written" not in seen:
        line = process.stderr.readline()
        assert line, seen
        seen += line
    process.send_signal(number)
    _, rest = process.communicate(timeout=20)

    assert process.returncode == code
    assert "interrupted: 1 cancelled in time" in rest
    assert "1 cannot be called back or are written; to gather them: sonde trace fetch" in rest
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["state"] == "interrupted"
    assert [row["state"] for row in manifest["ranks"]] == ["written", "cancelled"]

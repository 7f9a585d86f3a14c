"""A node's part of a recording, handed out by its daemon."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.lacking import lacking

from sonde.errors import RpcError
from sonde.jobs.recorder import hold
from sonde.jobs.recording import About, write_about
from sonde.jobs.serving import fetch, listing
from sonde.rpc.codec import Message
from sonde.rpc.peer import Peer
from sonde.rpc.receipt import Receipt

ME = Peer(os.geteuid(), os.getpid(), "unix")


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    directory = tmp_path / "r" / "n1"
    directory.mkdir(parents=True)
    write_about(str(directory), About("n1", begun_ns=1, period_ns=2))
    (directory / "archive.db").write_bytes(os.urandom(1000))
    return tmp_path / "r"


def fetched(request: Message, peer: Peer = ME) -> bytes:
    """What a client gets."""
    receipt = Receipt(10**6, str)
    data = b"".join(receipt.take_plain(message) for message in messages(request, peer))
    receipt.verify()
    return data


def messages(request: Message, peer: Peer) -> Iterator[Message]:
    found: list[Message] = []
    feed = fetch(request, peer)
    feed._make(found.append)
    yield from found


def refusal(work: Any) -> str:
    with pytest.raises(RpcError) as caught:
        work()
    return caught.value.code


def test_the_files_of_a_node_are_listed_and_fetched(recording: Path) -> None:
    asked = {"path": str(recording), "host": "n1"}
    told = listing(asked, ME)

    assert set(told["files"]) == {"recording.json", "archive.db"}
    assert (told["about"]["host"], told["busy"]) == ("n1", False)
    assert fetched({**asked, "file": "archive.db"}) == (recording / "n1/archive.db").read_bytes()


def test_the_directory_of_the_node_may_be_named_itself(recording: Path) -> None:
    assert "archive.db" in listing({"path": str(recording / "n1")}, ME)["files"]


def test_one_that_is_being_recorded_is_busy(recording: Path) -> None:
    lock = hold(str(recording / "n1"))
    told = listing({"path": str(recording), "host": "n1"}, ME)
    os.close(lock)

    assert told["busy"]


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"path": "relative", "host": "n1"},
        {"path": 7},
        {"path": "/", "host": "../etc"},
        {"path": "/", "host": ".."},
        {"path": "/x\0y", "host": "n1"},
    ],
)
def test_what_is_no_path_is_refused(request_: Message) -> None:
    assert refusal(lambda: listing(request_, ME)) == "bad-request"


def test_no_other_file_is_handed_out(recording: Path) -> None:
    (recording / "n1/secret").write_text("x")

    assert refusal(lambda: fetch({"path": str(recording), "host": "n1", "file": "secret"}, ME)) == "bad-request"
    assert (
        refusal(lambda: fetch({"path": str(recording), "host": "n1", "file": "../n1/archive.db"}, ME)) == "bad-request"
    )


def test_a_directory_that_is_no_recording_is_none(tmp_path: Path) -> None:
    (tmp_path / "archive.db").write_text("x")
    assert refusal(lambda: listing({"path": str(tmp_path), "host": "n1"}, ME)) == "not-found"
    (tmp_path / "recording.json").write_text("[]")
    assert refusal(lambda: listing({"path": str(tmp_path), "host": "n1"}, ME)) == "not-found"


def test_a_link_or_a_pipe_in_the_place_of_a_file_is_not_followed(recording: Path) -> None:
    (recording / "n1/archive.db").unlink()
    (recording / "n1/archive.db").symlink_to("/etc/passwd")
    os.mkfifo(recording / "n1/context.json")
    asked = {"path": str(recording), "host": "n1"}

    assert set(listing(asked, ME)["files"]) == {"recording.json"}
    assert refusal(lambda: fetched({**asked, "file": "archive.db"})) == "not-found"
    assert refusal(lambda: fetched({**asked, "file": "context.json"})) == "not-found"


def test_a_caller_nobody_vouches_for_gets_nothing(recording: Path) -> None:
    assert refusal(lambda: listing({"path": str(recording), "host": "n1"}, Peer(None, None, "?"))) == "denied"


def test_another_user_gets_what_it_could_read_itself(recording: Path) -> None:
    if os.geteuid():
        lacking("only root can read for others")
    nobody = Peer(pwd.getpwnam("nobody").pw_uid, None, "?")
    asked = {"path": str(recording), "host": "n1"}
    recording.chmod(0o700)
    code = refusal(lambda: listing(asked, nobody))

    assert code == "denied"

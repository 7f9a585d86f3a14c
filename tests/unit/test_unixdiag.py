"""What waits at Unix sockets, as the kernel says."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.unixdiag import parse, unread


@pytest.fixture(params=["abstract", "path"])
def bound(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, bytes]]:
    abstract = request.param == "abstract"
    name = f"\0sonde-test-{os.getpid()}\0".encode() if abstract else os.fsencode(tmp_path / "client")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(name)
        yield sock, name


def test_a_message_that_nobody_has_read_is_seen(bound: tuple[socket.socket, bytes]) -> None:
    sock, name = bound
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        before = unread([name])
        sender.sendto(b"x" * 40, name)
        during = unread([name, b"\0nobody"])
        sock.recv(100)

    assert before == {name: 0}
    assert during == {name: 40}
    assert unread([name]) == {name: 0}


@given(st.binary(max_size=200))
def test_whatever_comes_is_parsed(body: bytes) -> None:
    name, waiting = parse(body)

    assert isinstance(name, bytes)
    assert waiting >= 0

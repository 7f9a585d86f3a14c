"""The datagram endpoint, with real senders."""

from __future__ import annotations

import array
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sonde.agent import wire
from sonde.errors import Unavailable
from sonde.ipc.endpoint import Endpoint, Sender, shown

if TYPE_CHECKING:
    from tests.conftest import RunningLoop


def abstract() -> bytes:
    return f"\0sonde-test-{uuid.uuid4().hex}\0".encode()


class Place:
    """An endpoint that answers every datagram with its own payload, and remembers who sent it."""

    def __init__(self, loop: RunningLoop) -> None:
        self.loop = loop
        self.heard: list[tuple[Sender, bytes, bytes]] = []
        self.endpoint = Endpoint(loop, self._handle)
        self.address = abstract()
        loop.call(lambda: self.endpoint.listen(self.address))

    def _handle(self, sender: Sender, kind: bytes, payload: bytes) -> bytes | None:
        self.heard.append((sender, kind, payload))
        if payload == b"bug":
            raise ValueError("on purpose")
        return wire.pack(kind, payload)


@pytest.fixture
def place(loop: RunningLoop) -> Iterator[Place]:
    found = Place(loop)
    yield found
    loop.call(found.endpoint.close)


@pytest.fixture
def client() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(abstract())
        sock.settimeout(5)
        yield sock


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_the_answer_comes_from_the_socket_that_was_asked_and_the_kernel_names_the_sender(
    place: Place, client: socket.socket
) -> None:
    client.sendto(wire.pack(b"req", b"hello"), place.address)
    data, address = client.recvfrom(1000)

    assert (wire.parse(data), address) == ((b"req", b"hello"), place.address)
    sender, kind, payload = place.heard[0]
    assert (sender.pid, sender.uid, sender.gid) == (os.getpid(), os.getuid(), os.getgid())
    assert (kind, payload) == (b"req", b"hello")


def test_a_full_queue_is_emptied_at_once(place: Place, client: socket.socket) -> None:
    for number in range(200):
        client.sendto(wire.pack(b"req", str(number).encode()), place.address)
        if number % 8 == 7:
            for _ in range(8):
                client.recv(1000)

    assert [int(payload) for _, _, payload in place.heard] == list(range(200))


@pytest.mark.parametrize(
    "data",
    [b"", b"x", b"\0" * 40, b"\xff" * 40, wire.pack(b"req", b"bug"), wire.pack(b"req", b"abc")[:-1]],
    ids=["empty", "one byte", "no type", "huge size", "a handler that fails", "cut off"],
)
def test_nonsense_is_counted_and_the_next_client_is_served(place: Place, client: socket.socket, data: bytes) -> None:
    client.sendto(data, place.address)
    client.sendto(wire.pack(b"req", b"next"), place.address)

    assert wire.parse(client.recv(1000)) == (b"req", b"next")
    assert place.endpoint.malformed == 1


def test_a_sender_without_a_name_gets_no_answer_and_hurts_nobody(place: Place, client: socket.socket) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as nameless:
        nameless.sendto(wire.pack(b"req", b"who am I"), place.address)
    client.sendto(wire.pack(b"req", b"next"), place.address)

    assert wire.parse(client.recv(1000)) == (b"req", b"next")
    assert (place.endpoint.malformed, len(place.heard)) == (1, 1)


def test_a_client_that_never_reads_its_answers_delays_nobody(place: Place, client: socket.socket) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(abstract())
        for _ in range(40):
            deaf.sendto(wire.pack(b"req", b"x"), place.address)
        begun = time.monotonic()
        client.sendto(wire.pack(b"req", b"next"), place.address)
        answer = wire.parse(client.recv(1000))
        took = time.monotonic() - begun

    assert answer == (b"req", b"next")
    assert took < 1
    assert place.endpoint.unanswered > 0


def test_a_client_that_is_gone_is_counted(place: Place, client: socket.socket) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as gone:
        gone.bind(abstract())

        def ask_and_go() -> None:  # in the loop's thread: it cannot answer before the socket is closed
            gone.sendto(wire.pack(b"req", b"x"), place.address)
            gone.close()

        place.loop.call(ask_and_go)
    until(lambda: place.endpoint.unanswered == 1)

    client.sendto(wire.pack(b"req", b"next"), place.address)
    assert wire.parse(client.recv(1000)) == (b"req", b"next")


def test_descriptors_sent_along_are_not_kept(place: Place, client: socket.socket) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with open("/dev/null", "rb") as file:
        for _ in range(50):
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()] * 20))
            client.sendmsg([wire.pack(b"req", b"x")], [rights], 0, place.address)
            client.recv(1000)

    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_path_serves_beside_an_abstract_name_and_is_removed_at_the_end(
    loop: RunningLoop, place: Place, tmp_path: Path
) -> None:
    path = tmp_path / "dynolog"
    loop.call(lambda: place.endpoint.listen(os.fsencode(path)))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "client"))
        sock.settimeout(5)
        sock.sendto(wire.pack(b"req", b"by path"), str(path))
        data, address = sock.recvfrom(1000)
    mode = path.stat().st_mode & 0o777
    named = place.endpoint.addresses
    loop.call(place.endpoint.close)

    assert (wire.parse(data), address) == ((b"req", b"by path"), str(path))
    assert mode == 0o666
    assert named == [shown(place.address), str(path)]
    assert not path.exists()


def test_a_name_that_is_taken_is_refused(loop: RunningLoop, place: Place, tmp_path: Path) -> None:
    path = os.fsencode(tmp_path / "taken")
    loop.call(lambda: place.endpoint.listen(path))

    for address in (place.address, path):
        with pytest.raises(Unavailable, match="already taken"):
            loop.call(partial(Endpoint(loop, lambda *_: None).listen, address))


def test_a_socket_left_behind_is_replaced_and_a_file_is_not(loop: RunningLoop, place: Place, tmp_path: Path) -> None:
    dead, file = tmp_path / "dead", tmp_path / "file"
    file.write_text("mine")
    subprocess.run(
        [sys.executable, "-c", f"import socket; socket.socket(1, 2).bind({str(dead)!r})"], check=True, timeout=30
    )
    loop.call(lambda: place.endpoint.listen(os.fsencode(dead)))

    with pytest.raises(Unavailable, match="a file of that name"):
        loop.call(lambda: place.endpoint.listen(os.fsencode(file)))
    assert file.read_text() == "mine"

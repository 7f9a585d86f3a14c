"""Listening sockets."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from sonde.address import Address
from sonde.errors import Denied, Unavailable
from sonde.sockets import listen


def test_a_taken_port_names_its_owner() -> None:
    with listen(Address("127.0.0.1", 0)) as first:
        with pytest.raises(Unavailable) as refused:
            listen(Address("127.0.0.1", first.getsockname()[1]))

    assert f"pid {os.getpid()}" in str(refused.value)
    assert refused.value.exit_code == 3


def test_a_port_taken_on_all_addresses_names_its_owner() -> None:
    with listen(Address("0.0.0.0", 0)) as first:
        with pytest.raises(Unavailable, match=f"pid {os.getpid()}"):
            listen(Address("127.0.0.1", first.getsockname()[1]))


def test_an_address_of_another_machine_cannot_be_listened_on() -> None:
    with pytest.raises(Unavailable, match=r"cannot listen on 192\.0\.2\.1:0"):
        listen(Address("192.0.2.1", 0))


def test_a_unix_socket_is_open_to_everyone_by_mode(tmp_path: Path) -> None:
    path = tmp_path / "rpc.sock"
    with listen(Address(path=str(path))):
        assert stat.S_IMODE(path.stat().st_mode) == 0o666


def test_a_unix_socket_left_behind_by_a_dead_process_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "rpc.sock")
    listen(Address(path=path)).close()  # closed, but the path stays

    with listen(Address(path=path)), socket.socket(socket.AF_UNIX) as client:
        client.connect(path)


def test_a_unix_socket_somebody_answers_on_names_its_owner(tmp_path: Path) -> None:
    path = str(tmp_path / "rpc.sock")
    with listen(Address(path=path)):
        with pytest.raises(Unavailable, match=f"pid {os.getpid()}"):
            listen(Address(path=path))


def test_a_file_that_is_no_socket_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("kept")

    with pytest.raises(Unavailable):
        listen(Address(path=str(path)))
    assert path.read_text() == "kept"


def test_a_missing_directory_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="No such file or directory"):
        listen(Address(path=str(tmp_path / "missing" / "rpc.sock")))


@pytest.mark.skipif(os.getuid() == 0, reason="root may listen anywhere")
def test_a_privileged_port_is_denied() -> None:
    with pytest.raises(Denied):
        listen(Address("127.0.0.1", 1))

"""Listening sockets."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sonde.address import Address
from sonde.errors import ConfigError, Denied, Unavailable
from sonde.listening import listen


def test_a_taken_port_names_its_owner() -> None:
    with listen(Address("127.0.0.1", 0)) as first:
        with pytest.raises(Unavailable) as refused:
            listen(Address("127.0.0.1", first.getsockname()[1]))

    assert f"pid {os.getpid()}" in str(refused.value)
    assert refused.value.exit_code == 3


# In a network namespace of its own, where 0.0.0.0 reaches nobody; its loopback is down and brought up by SIOCSIFFLAGS.
_ON_ALL_ADDRESSES = """
import fcntl, os, socket, struct
from sonde.address import Address
from sonde.errors import Unavailable
from sonde.listening import listen
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh22x", b"lo", 0x41))
with listen(Address("0.0.0.0", 0), insecure=True) as first:
    try:
        listen(Address("127.0.0.1", first.getsockname()[1]))
    except Unavailable as refused:
        assert f"pid {os.getpid()}" in str(refused), refused
        print("refused")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a network namespace")
def test_a_port_taken_on_all_addresses_names_its_owner() -> None:
    command = ["unshare", "--net", sys.executable, "-c", _ON_ALL_ADDRESSES]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30)

    assert (ended.stdout, ended.returncode) == ("refused\n", 0), ended.stderr


def test_what_other_machines_can_reach_is_refused_unless_it_is_allowed() -> None:
    with pytest.raises(ConfigError, match="other machines"):
        listen(Address("0.0.0.0", 0))


def test_an_address_of_another_machine_cannot_be_listened_on() -> None:
    with pytest.raises(Unavailable, match=r"cannot listen on 192\.0\.2\.1:0"):
        listen(Address("192.0.2.1", 0), insecure=True)


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

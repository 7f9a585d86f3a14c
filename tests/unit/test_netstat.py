"""Who owns a TCP socket."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.hostfs import HostFS
from sonde.netstat import Owner, Row, ask_kernel, holder, listener, listening_uid, peer_row, row_of

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
V4, MAPPED, V6 = "0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"


def line(local: str, remote: str, state: str, uid: int, inode: int) -> str:
    queues = "00000000:00000000 00:00000000 00000000"
    return f"   0: {local} {remote} {state} {queues} {uid:5}        0 {inode} 1 ffff888105f3a300 20 4 30 10 -1\n"


TCP = "".join(
    [
        HEADER,
        line("00000000:06F2", "00000000:0000", "0A", 0, 20731),
        line(f"{V4}:06F2", f"{V4}:9C40", "01", 0, 20736),
        line(f"{V4}:9C40", f"{V4}:06F2", "01", 1000, 20737),
        line(f"{V4}:9C41", f"{V4}:06F2", "05", 0, 0),
        line(f"{V4}:9C42", f"{V4}:06F2", "01", 0, 0),
    ]
)
TCP6 = "".join(
    [
        HEADER,
        line(f"{MAPPED}:9C43", f"{MAPPED}:06F2", "01", 1001, 30001),
        line(f"{V6}:9C44", f"{V6}:06F2", "01", 1002, 30002),
    ]
)
SERVER = ("127.0.0.1", 0x06F2)


@pytest.fixture
def host(tmp_path: Path) -> HostFS:
    net = tmp_path / "proc" / "net"
    net.mkdir(parents=True)
    (net / "tcp").write_text(TCP)
    (net / "tcp6").write_text(TCP6)
    (tmp_path / "proc" / "77" / "fd").mkdir(parents=True)
    (tmp_path / "proc" / "77" / "comm").write_text("dynolog\n")
    (tmp_path / "proc" / "77" / "fd" / "5").symlink_to("socket:[20731]")
    (tmp_path / "proc" / "78").mkdir()  # its descriptors are not ours to see
    return HostFS(str(tmp_path))


def test_the_clients_end_of_a_connection_tells_its_user(host: HostFS) -> None:
    assert peer_row(host, SERVER, ("127.0.0.1", 0x9C40)) == Row(1000, 20737)


def test_an_ipv6_socket_that_speaks_ipv4_is_found(host: HostFS) -> None:
    assert peer_row(host, SERVER, ("127.0.0.1", 0x9C43)) == Row(1001, 30001)
    assert peer_row(host, ("::ffff:127.0.0.1", 0x06F2), ("::ffff:127.0.0.1", 0x9C43)) == Row(1001, 30001)


def test_an_ipv6_connection_is_found(host: HostFS) -> None:
    assert peer_row(host, ("::1", 0x06F2), ("::1", 0x9C44)) == Row(1002, 30002)


def test_a_socket_its_process_has_closed_does_not_pass_for_roots(host: HostFS) -> None:
    assert peer_row(host, SERVER, ("127.0.0.1", 0x9C41)) is None  # FIN_WAIT2
    assert peer_row(host, SERVER, ("127.0.0.1", 0x9C42)) is None  # no inode


def test_a_connection_that_is_not_there_has_no_row(host: HostFS) -> None:
    assert peer_row(host, SERVER, ("127.0.0.1", 1)) is None


def test_a_listener_on_all_addresses_is_found_for_one_of_them(host: HostFS) -> None:
    assert listener(host, "127.0.0.1", 0x06F2) == Owner(77, "dynolog")
    assert listener(host, "::1", 0x06F2) == Owner(77, "dynolog")
    assert listener(host, "127.0.0.1", 1) is None
    assert (listening_uid(host, "127.0.0.1", 0x06F2), listening_uid(host, "127.0.0.1", 1)) == (0, None)


def test_a_socket_nobody_is_seen_to_hold_has_no_holder(host: HostFS) -> None:
    assert holder(host, 99) is None


def test_a_kernel_without_ipv6_is_searched_without_it(host: HostFS, tmp_path: Path) -> None:
    (tmp_path / "proc" / "net" / "tcp6").unlink()

    assert peer_row(host, SERVER, ("127.0.0.1", 0x9C40)) == Row(1000, 20737)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_the_kernels_own_tables_name_this_process(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:
        with socket.create_connection(server.getsockname()[:2]) as client:
            connection, _ = server.accept()
            with connection:
                ends = connection.getsockname()[:2], connection.getpeername()[:2]
                rows = peer_row(HostFS(), *ends), ask_kernel(*ends)
                owner = listener(HostFS(), address, server.getsockname()[1])
                inode = os.fstat(client.fileno()).st_ino

    assert rows == (Row(os.getuid(), inode),) * 2
    assert owner is not None
    assert owner.pid == os.getpid()


def test_an_ipv6_socket_that_speaks_ipv4_is_known_to_the_kernel() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        port = server.getsockname()[1]
        with socket.socket(socket.AF_INET6) as client:
            client.connect(("::ffff:127.0.0.1", port))
            connection, _ = server.accept()
            with connection:
                row = ask_kernel(connection.getsockname()[:2], connection.getpeername()[:2])
                inode = os.fstat(client.fileno()).st_ino

    assert row == Row(os.getuid(), inode)


def test_a_client_that_has_closed_is_nobody_to_the_kernel() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()):
            connection, client = server.accept()
        with connection:
            assert ask_kernel(server.getsockname(), client) is None
            assert peer_row(HostFS(), server.getsockname(), client) is None


def test_a_connection_that_never_was_is_not_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        with pytest.raises(OSError, match="does not know"):
            ask_kernel(address, ("127.0.0.1", 1))
        assert peer_row(HostFS(), address, ("127.0.0.1", 1)) is None


def _mutations() -> st.SearchStrategy[bytes]:
    text = TCP.encode()
    cut = st.tuples(st.integers(0, len(text)), st.integers(0, len(text)), st.binary(max_size=8))
    return cut.map(lambda c: text[: min(c[:2])] + c[2] + text[max(c[:2]) :])


@given(st.one_of(st.binary(max_size=300), _mutations()))
def test_odd_tables_give_a_row_with_an_inode_or_none(table: bytes) -> None:
    row = row_of(table, b"0100007F:9C40", b"0100007F:06F2", b"01")

    assert row is None or row.inode > 0

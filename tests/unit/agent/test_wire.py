"""The datagrams of libkineto and the addresses both ends look at."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.agent.wire import (
    ACTIVITIES,
    EVENTS,
    MAX_DATAGRAM,
    Context,
    Request,
    WireError,
    client_address,
    daemon_address,
    pack,
    pack_config,
    pack_context,
    pack_count,
    pack_request,
    parse,
    parse_config,
    parse_context,
    parse_count,
    parse_request,
)

# The poll of a process under torch 2.13, in job 0, with five ancestors: 80 bytes on a little-endian machine.
POLL = bytes.fromhex(
    "2800000000000000"
    "7265710000000000000000000000000000000000000000000000000000000000"
    "03000000060000000000000000000000"
    "d3040000d2040000d1040000d0040000cf040000ce040000"
)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
PIDS = st.integers(1, 2**31 - 1)
ONLY_LITTLE = pytest.mark.skipif(sys.byteorder != "little", reason="the bytes are of a little-endian machine")


@ONLY_LITTLE
def test_the_poll_of_torch_is_read() -> None:
    kind, payload = parse(POLL)

    assert (len(POLL), kind) == (80, b"req")
    assert parse_request(payload) == Request(EVENTS | ACTIVITIES, 0, (1235, 1234, 1233, 1232, 1231, 1230))


@ONLY_LITTLE
def test_a_request_of_ours_is_byte_for_byte_that_of_torch() -> None:
    assert pack_request(Request(3, 0, (1235, 1234, 1233, 1232, 1231, 1230))) == POLL


@ONLY_LITTLE
def test_nothing_pending_is_an_answer_without_payload() -> None:
    assert pack_config("") == b"\0" * 8 + b"req".ljust(32, b"\0")


@given(st.builds(Request, st.integers(0, 3), INT64, st.lists(PIDS, min_size=1, max_size=40).map(tuple)))
def test_a_request_arrives_as_it_was_sent(request: Request) -> None:
    kind, payload = parse(pack_request(request))

    assert kind == b"req"
    assert parse_request(payload) == request


@given(st.builds(Context, INT32, PIDS, INT64), st.integers(0, 2**31 - 1))
def test_a_context_and_its_answer_arrive_as_they_were_sent(context: Context, count: int) -> None:
    assert parse(pack_context(context))[0] == parse(pack_count(count))[0] == b"ctxt"
    assert parse_context(parse(pack_context(context))[1]) == context
    assert parse_count(parse(pack_count(count))[1]) == count


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=200))
def test_a_configuration_arrives_as_it_was_sent(text: str) -> None:
    assert parse_config(parse(pack_config(text))[1]) == text


@given(st.binary(min_size=1, max_size=31).filter(lambda kind: b"\0" not in kind), st.binary(max_size=99))
def test_a_datagram_of_any_type_arrives_as_it_was_sent(kind: bytes, payload: bytes) -> None:
    assert parse(pack(kind, payload)) == (kind, payload)


def test_bytes_after_the_payload_are_ignored() -> None:
    assert parse(pack(b"req", b"abc") + b"more") == (b"req", b"abc")


def test_a_type_ends_at_its_first_nul() -> None:
    datagram = struct.pack("=Q32s", 0, b"req\0left over")

    assert parse(datagram) == (b"req", b"")


@pytest.mark.parametrize(
    ("datagram", "reason"),
    [
        (b"", "less than a header"),
        (POLL[:39], "less than a header"),
        (POLL[:-1], "promises 40 bytes, 39 follow"),
        (struct.pack("=Q32s", 2**64 - 1, b"req"), "promises 18446744073709551615 bytes"),
        (struct.pack("=Q32s", 0, b""), "no type"),
        (struct.pack("=Q32s", 0, b"r" * 32), "without an end"),
    ],
)
def test_a_datagram_that_is_not_one_is_refused(datagram: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        parse(datagram)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (struct.pack("=iiq", 3, 1, 0)[:-1], "15 bytes"),
        (struct.pack("=iiq", 3, 0, 0), "names 0 pids in 0 bytes"),
        (struct.pack("=iiqi", 3, -1, 0, 7), "names -1 pids"),
        (struct.pack("=iiqi", 3, 2, 0, 7), "names 2 pids in 4 bytes"),
        (struct.pack("=iiqi", 3, 2**31 - 1, 0, 7), "names 2147483647 pids in 4 bytes"),
        (struct.pack("=iiqi", 4, 1, 0, 7), "bits beyond 3"),
        (struct.pack("=iiqi", -1, 1, 0, 7), "bits beyond 3"),
        (struct.pack("=iiq2i", 3, 2, 0, 7, 0), "not the pids"),
        (struct.pack("=iiqi", 3, 1, 0, -7), "not the pids"),
    ],
)
def test_a_request_that_is_not_one_is_refused(payload: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        parse_request(payload)


@pytest.mark.parametrize(
    "work",
    [
        lambda: parse_context(b"\0" * 15),
        lambda: parse_context(struct.pack("=iiq", 0, 0, 0)),
        lambda: parse_count(b"\0\0\0"),
        lambda: parse_count(struct.pack("=i", -1)),
        lambda: parse_config(b"\xff"),
        lambda: parse_config(b"A=1\0"),
        lambda: pack(b""),
        lambda: pack(b"r" * 32),
        lambda: pack(b"r\0q"),
        lambda: pack(b"req", b"x" * (MAX_DATAGRAM - 39)),
        lambda: pack_count(-1),
        lambda: pack_count(2**31),
        lambda: pack_context(Context(0, -1, 0)),
        lambda: pack_context(Context(2**31, 1, 0)),
        lambda: pack_request(Request(3, 0, ())),
        lambda: pack_request(Request(3, 2**63, (1,))),
        lambda: pack_request(Request(8, 0, (1,))),
        lambda: pack_request(Request(3, 0, (2**31,))),
        lambda: pack_config("A=1\0"),
        lambda: pack_config("\ud800"),
    ],
)
def test_what_makes_no_sense_is_neither_sent_nor_taken(work: Callable[[], object]) -> None:
    with pytest.raises(WireError):
        work()


@settings(max_examples=300)
@given(
    st.one_of(
        st.binary(max_size=120),
        st.tuples(st.integers(0, len(POLL) - 1), st.binary(min_size=1, max_size=9)).map(
            lambda change: POLL[: change[0]] + change[1] + POLL[change[0] + len(change[1]) :]
        ),
    )
)
def test_any_bytes_are_read_or_refused(datagram: bytes) -> None:
    try:
        _, payload = parse(datagram)
    except WireError:
        payload = datagram
    for parser in (parse_request, parse_context, parse_count, parse_config):
        try:
            parser(payload)
        except WireError:
            pass


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        ({}, b"\0dynolog\0"),
        ({"KINETO_IPC_SOCKET_DIR": ""}, b"\0dynolog\0"),
        ({"KINETO_IPC_SOCKET_DIR": "/tmp/k"}, b"/tmp/k/dynolog"),
        ({"SONDE_SOCKET": "/run/sonde/ipc", "KINETO_IPC_SOCKET_DIR": "/tmp/k"}, b"/run/sonde/ipc"),
        ({"SONDE_SOCKET": "", "KINETO_IPC_SOCKET_DIR": "/tmp/k"}, b"/tmp/k/dynolog"),
    ],
)
def test_the_daemon_is_where_libkineto_looks_for_it(environ: dict[str, str], address: bytes) -> None:
    assert daemon_address(environ) == address


def test_a_client_has_a_name_of_its_own() -> None:
    assert client_address("0b5c", {}) == b"\0dynoconfigclient0b5c\0"
    assert client_address("0b5c", {"KINETO_IPC_SOCKET_DIR": "/tmp/k"}) == b"/tmp/k/dynoconfigclient0b5c"


@pytest.mark.parametrize(
    ("environ", "reason"),
    [
        ({"SONDE_SOCKET": "ipc"}, "SONDE_SOCKET='ipc' must be an absolute path"),
        ({"SONDE_SOCKET": "/" + "x" * 106}, "at most 106"),
        ({"KINETO_IPC_SOCKET_DIR": "/" + "x" * 98}, "at most 106"),
        ({"KINETO_IPC_SOCKET_DIR": "/a\0b"}, "NUL"),
        ({"SONDE_SOCKET": "/\ud800"}, "cannot be a socket's name"),
    ],
)
def test_an_address_that_cannot_be_bound_is_refused(environ: dict[str, str], reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        daemon_address(environ)


@pytest.mark.parametrize("unique", ["", "a/b", "x" * 91])
def test_a_name_that_is_not_one_is_refused(unique: str) -> None:
    with pytest.raises(WireError):
        client_address(unique, {})


def test_the_longest_path_can_be_bound(tmp_path: Path) -> None:
    environ = {"SONDE_SOCKET": f"{tmp_path}/".ljust(106, "s")}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
        daemon.bind(daemon_address(environ))

    assert Path(environ["SONDE_SOCKET"]).is_socket()


def test_question_and_answer_go_over_real_sockets(tmp_path: Path) -> None:
    environ = {"KINETO_IPC_SOCKET_DIR": str(tmp_path)}
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client,
    ):
        daemon.bind(daemon_address(environ))
        client.bind(client_address("1", environ))
        client.sendto(pack_request(Request(ACTIVITIES, 77, (9,))), daemon_address(environ))
        datagram, sender = daemon.recvfrom(MAX_DATAGRAM)
        daemon.sendto(pack_config("ACTIVITIES_DURATION_MSECS=500"), sender)
        answer = client.recv(MAX_DATAGRAM)

    assert parse_request(parse(datagram)[1]) == Request(ACTIVITIES, 77, (9,))
    assert parse_config(parse(answer)[1]) == "ACTIVITIES_DURATION_MSECS=500"

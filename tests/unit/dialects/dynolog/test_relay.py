"""The FB relay, against real TCP receivers: good, gone, refusing, hanging and talking nonsense."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.dialects.dynolog.conftest import cpu_frame, uptime_frame

from sonde.dialects.dynolog.relay import DynologRelayConfig, DynologRelaySink
from sonde.errors import ConfigError, SinkError
from sonde.hostfs import HostFS
from sonde.units import Duration
from sonde.version import VERSION

NOWHERE = HostFS("/nonexistent")
Connect = Callable[..., DynologRelaySink]


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        sock.settimeout(5)
        yield sock


@pytest.fixture
def relay(listener: socket.socket) -> Iterator[Connect]:
    made: list[DynologRelaySink] = []

    def make(address: str = "", **keys: Any) -> DynologRelaySink:
        where = address or f"127.0.0.1:{listener.getsockname()[1]}"
        made.append(DynologRelaySink(DynologRelayConfig(where, **keys), host="node01", files=NOWHERE))
        return made[-1]

    yield make
    for sink in made:
        sink.close()


def send(sink: DynologRelaySink, uptime: int = 60) -> None:
    sink.write(sink.translate([uptime_frame(uptime)]))


def objects(text: bytes) -> list[dict[str, Any]]:
    """JSON objects that stand next to each other."""
    rest, found = text.decode(), []
    while rest:
        value, end = json.JSONDecoder().raw_decode(rest)
        found.append(value)
        rest = rest[end:]
    return found


def test_a_sample_is_one_object_in_dynologs_shape(relay: Connect, listener: socket.socket) -> None:
    send(relay())

    connection, _ = listener.accept()
    with connection:
        (message,) = objects(connection.recv(65536))
    assert message == {
        "@timestamp": "2026-11-15T21:42:38.123Z",
        "agent": {"hostname": "node01", "name": "node01", "type": "dyno", "version": VERSION},
        "backend": 0,
        "dyno": {"uptime": 60},
        "event": {"module": "dyno"},
        "stack_metrics": False,
    }
    assert list(message) == sorted(message)


def test_one_connection_carries_all_samples(relay: Connect, listener: socket.socket) -> None:
    sink = relay()
    for uptime in range(3):
        send(sink, uptime)

    connection, _ = listener.accept()
    with connection:
        sink.close()
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    assert [message["dyno"]["uptime"] for message in objects(received)] == [0, 1, 2]


def test_objects_can_end_with_a_newline(relay: Connect, listener: socket.socket) -> None:
    send(relay(newline=True))

    connection, _ = listener.accept()
    with connection:
        assert connection.recv(65536).endswith(b"}\n")


def test_a_relay_that_refuses_is_tried_again(relay: Connect, listener: socket.socket) -> None:
    sink = relay()
    listener.close()

    with pytest.raises(SinkError, match="refused") as caught:
        send(sink)
    assert caught.value.retry


def test_a_relay_that_closed_is_connected_anew_and_nothing_is_lost(relay: Connect, listener: socket.socket) -> None:
    sink = relay()
    send(sink, 1)
    connection, _ = listener.accept()
    connection.recv(65536)
    connection.close()
    time.sleep(0.05)

    send(sink, 2)

    connection, _ = listener.accept()
    with connection:
        assert objects(connection.recv(65536))[0]["dyno"]["uptime"] == 2


def test_what_a_relay_says_is_ignored(relay: Connect, listener: socket.socket) -> None:
    sink = relay()
    send(sink, 1)
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(b"\xff\x00 garbage " * 1000)
        time.sleep(0.05)
        send(sink, 2)

        assert objects(connection.recv(65536))[0]["dyno"]["uptime"] == 2


def test_a_relay_that_takes_nothing_costs_the_timeout_and_no_more(relay: Connect, listener: socket.socket) -> None:
    sink = relay(timeout=Duration(0.3))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    frames = [
        frame
        for number in range(20000)
        for frame in sink.translate([uptime_frame(number, number * 10**9), cpu_frame({"0": {"idle": number}})])
    ]
    begun = time.monotonic()

    with pytest.raises(SinkError, match="takes nothing") as caught:
        sink.write(frames)  # more than the kernel keeps for a receiver that does not read

    assert caught.value.retry
    assert time.monotonic() - begun < 3


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:0", "unix:/run/relay", ":10000"])
def test_addresses_that_are_none_are_refused_by_key(address: str, relay: Connect) -> None:
    with pytest.raises(ConfigError, match=r"sinks\.dynolog_relay\.address"):
        relay(address)

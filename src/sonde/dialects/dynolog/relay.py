"""dynolog's FB relay: one JSON object per sample on one TCP connection, with nothing between them.

    {"@timestamp":"2026-11-15T21:42:38.123Z","agent":{"hostname":"node01","name":"node01","type":"dyno",
     "version":"0.1.0"},"backend":0,"dyno":{"cpu_i":"71.342",…},"event":{"module":"dyno"},"stack_metrics":false}

Nobody confirms anything: a sample is delivered when the kernel has taken it. One that was cut off in the middle is sent
again, whole, on the next connection.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from sonde.address import Address, parse_address
from sonde.clock import iso
from sonde.dialects.dynolog.records import Record, Recorder
from sonde.dialects.dynolog.translate import Translator
from sonde.errors import ConfigError, SinkError, UsageError
from sonde.hostfs import HostFS
from sonde.model import Frame
from sonde.units import Duration
from sonde.version import VERSION

_DRAINED = 65536  # bytes of what a relay says, thrown away between two batches


class DynologRelayConfig(NamedTuple):
    address: str = "127.0.0.1:10000"  # of the relay
    timeout: Duration = Duration(5)  # for connecting and for sending a batch
    newline: bool = False  # end each object with a newline, for receivers that read lines; dynolog does not
    interface_prefixes: tuple[str, ...] = ()  # only network devices whose names begin so; empty: all


class DynologRelaySink:
    Config: ClassVar[type] = DynologRelayConfig
    inline: ClassVar[bool] = False
    default_queue: ClassVar[int] = 30_000
    reads_host: ClassVar[bool] = True

    def __init__(self, config: DynologRelayConfig, host: str, files: HostFS) -> None:
        self._to = _relay_address(config.address)
        self._timeout = config.timeout
        self._end = "\n" if config.newline else ""
        agent = {"hostname": host, "name": host, "type": "dyno", "version": VERSION}
        self._agent = json.dumps(agent, separators=(",", ":"))
        self.translate = Translator(files, config.interface_prefixes).frames
        self._recorder = Recorder()
        self._socket: socket.socket | None = None

    def write(self, frames: Sequence[Frame]) -> None:
        text = "".join([self._message(record) for record in self._recorder.records(frames)])
        if text:
            self._deliver(text.encode("utf-8", "replace"))

    def _message(self, record: Record) -> str:
        return (
            f'{{"@timestamp":"{iso(record.time_ns)}","agent":{self._agent},"backend":0,"dyno":{record.text},'
            f'"event":{{"module":"dyno"}},"stack_metrics":false}}{self._end}'
        )

    def _deliver(self, data: bytes) -> None:
        try:
            if self._socket is not None and _is_over(self._socket):
                self.close()
            if self._socket is None:
                self._socket = socket.create_connection((self._to.host, self._to.port), self._timeout)
            _send(self._socket, data, time.monotonic() + self._timeout)
        except TimeoutError:
            self.close()
            raise SinkError(f"{self._to}: the relay takes nothing for {self._timeout}", retry=True) from None
        except OSError as error:
            self.close()
            raise SinkError(f"{self._to}: {error.strerror or error}", retry=True) from None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _relay_address(text: str) -> Address:
    try:
        address = parse_address(text)
    except UsageError as error:
        raise ConfigError(f"sinks.dynolog_relay.address: {error}", hint=error.hint) from None
    if address.path or not address.port:
        raise ConfigError("sinks.dynolog_relay.address: a relay is reached by host and port", hint="127.0.0.1:10000")
    return address


def _is_over(sock: socket.socket) -> bool:
    """Has the relay closed the connection? The kernel would still take one batch then, and nobody would read it.

    What the relay says is thrown away, some of it at each batch: it is not asked anything.
    """
    sock.setblocking(False)
    try:
        return not sock.recv(_DRAINED)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _send(sock: socket.socket, data: bytes, deadline: float) -> None:
    """All of it within the deadline; sendall would give every piece the whole time-out."""
    view = memoryview(data)
    while view:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        sock.settimeout(remaining)
        view = view[sock.send(view) :]

"""A receiver of remote writes that keeps what it is sent and answers as a test says."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

Labels = tuple[tuple[str, str], ...]


class Answer(NamedTuple):
    status: int = 204
    body: bytes = b""
    headers: Mapping[str, str] = {}


class Request(NamedTuple):
    headers: Mapping[str, str]
    series: list[tuple[Labels, list[tuple[int, float]]]]  # in the order they were sent
    metadata: dict[str, tuple[int, str, str]]  # type, help and unit by name
    size: int  # bytes on the wire

    @property
    def samples(self) -> dict[str, list[tuple[int, float]]]:
        """Times in ms and values by the name of the metric."""
        found: dict[str, list[tuple[int, float]]] = {}
        for labels, samples in self.series:
            found.setdefault(dict(labels)["__name__"], []).extend(samples)
        return found


class Receiver:
    """Listens on a loopback port. `answers` are used up one by one; then everything is taken."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answers: list[Answer] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                request = Request(dict(self.headers), *decode(decompress(data)), len(data))
                receiver.requests.append(request)
                answer = receiver.judge(request)
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if answer.status != 204:
                    self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/api/v1/write"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def judge(self, request: Request) -> Answer:
        return self.answers.pop(0) if self.answers else Answer()

    @property
    def samples(self) -> dict[str, list[tuple[int, float]]]:
        found: dict[str, list[tuple[int, float]]] = {}
        for request in self.requests:
            for name, samples in request.samples.items():
                found.setdefault(name, []).extend(samples)
        return found

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()


def varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: numbers for varints, bytes for the rest."""
    place = 0
    while place < len(data):
        key, place = varint(data, place)
        if key & 7 == 0:
            value, place = varint(data, place)
            yield key >> 3, value
            continue
        if key & 7 == 2:
            size, place = varint(data, place)
        else:
            assert key & 7 == 1, f"wire type {key & 7}"
            size = 8
        assert place + size <= len(data), "the message is cut"
        yield key >> 3, data[place : place + size]
        place += size


def decode(data: bytes) -> tuple[list[tuple[Labels, list[tuple[int, float]]]], dict[str, tuple[int, str, str]]]:
    """The time series and the metadata of a WriteRequest."""
    series = []
    metadata = {}
    for number, body in fields(data):
        if number == 3:
            described = dict(fields(body))
            name, text, unit = (described.get(key, b"").decode() for key in (2, 4, 5))
            metadata[name] = (described.get(1, 0), text, unit)
            continue
        assert number == 1
        parts = list(fields(body))
        labels = [dict(fields(label)) for key, label in parts if key == 1]
        samples = [dict(fields(sample)) for key, sample in parts if key == 2]
        series.append(
            (
                tuple((label[1].decode(), label[2].decode()) for label in labels),
                [(sample[2], struct.unpack("<d", sample[1])[0]) for sample in samples],
            )
        )
    return series, metadata


def decompress(data: bytes) -> bytes:
    """Snappy's block format, all of its elements."""
    length, place = varint(data, 0)
    out = bytearray()
    while place < len(data):
        tag = data[place]
        kind, high = tag & 3, tag >> 2
        place += 1
        if kind == 0:
            if high >= 60:
                more = high - 59
                high = int.from_bytes(data[place : place + more], "little")
                place += more
            out += data[place : place + high + 1]
            place += high + 1
            continue
        if kind == 1:
            size, back = (high & 7) + 4, (tag >> 5) << 8 | data[place]
        else:
            size, back = high + 1, int.from_bytes(data[place : place + 2 * (kind - 1)], "little")
        place += (0, 1, 2, 4)[kind]
        assert 0 < back <= len(out)
        for _ in range(size):
            out.append(out[-back])
    assert len(out) == length
    return bytes(out)

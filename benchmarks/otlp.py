"""The cost of sending 2,000 series a second by OTLP, and the memory of a daemon that sends its own.

The sink writes to a receiver on loopback in a process of its own: what is measured is this thread's CPU, system calls
included, for each second of data, gzip off and on. The published classes of opentelemetry-proto do the same encoding
beside it. The daemon sends over HTTP, and over TLS with both sides' certificates.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Literal

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from tests.authority import Authority
from tests.receiver import receiving

from benchmarks.daemon import daemon
from benchmarks.harness import Row, resident_bytes
from benchmarks.ticks import ticks_of
from sonde.model import Frame
from sonde.sinks.otlp import OtlpSink
from sonde.sinks.otlp_encoding import Encoder
from sonde.sinks.otlp_names import RULES
from sonde.sinks.otlp_settings import OtlpConfig

SERIES = 2000
_TICKS = 60
_SECONDS = 40.0  # that the daemon runs before its memory is read

# Reads a request, answers 200; nothing else, so that it takes little of the two processors.
RECEIVER = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    sock, _ = server.accept()
    data = b""
    while True:
        while b"\\r\\n\\r\\n" not in data:
            more = sock.recv(1 << 20)
            if not more:
                break
            data += more
        else:
            head, _, data = data.partition(b"\\r\\n\\r\\n")
            left = int(head.lower().partition(b"content-length: ")[2].split()[0]) - len(data)
            while left > 0:
                left -= len(sock.recv(1 << 20))
            data = b""
            sock.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
            continue
        break
    sock.close()
"""


@contextmanager
def receiver() -> Iterator[str]:
    """The endpoint of a receiver in a process of its own, ended by its id."""
    process = subprocess.Popen([sys.executable, "-S", "-c", RECEIVER], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait(5)
        if process.stdout is not None:
            process.stdout.close()


def written(url: str, compression: Literal["gzip", "none"]) -> list[float]:
    """Milliseconds of CPU for each tick's write; the first has built the plans and is not among them."""
    sink = OtlpSink(OtlpConfig(url, compression=compression), host="node01", environ={})
    costs = []
    for _, frames in zip(range(_TICKS + 1), ticks_of(SERIES), strict=False):
        begun = time.thread_time_ns()
        sink.write(frames)
        costs.append((time.thread_time_ns() - begun) / 1e6)
        time.sleep(0.05)  # caches as cold as they are once a second, nearly
    sink.close()
    return costs[1:]


def encoded() -> tuple[float, float, int]:
    """Milliseconds to encode a tick: ours, and by the published classes from what ours decodes to; and its bytes."""
    encoder = Encoder(b"", b"", RULES, 1)
    ours, theirs, size = [], [], 0
    for _, frames in zip(range(15), ticks_of(SERIES), strict=False):
        cost, body = _timed(lambda frames=frames: encoder.encode(frames))  # type: ignore[misc]
        encoder.commit()
        ours.append(cost)
        size = len(body)
        message = ExportMetricsServiceRequest.FromString(body)
        theirs.append(_timed(lambda message=message: rebuilt(message))[0])  # type: ignore[misc]
    return median(ours[1:]), median(theirs[1:]), size


def rebuilt(message: ExportMetricsServiceRequest) -> bytes:
    """The same request, point by point, as a program writes it that has only names, labels and values."""
    made = ExportMetricsServiceRequest()
    scope = made.resource_metrics.add().scope_metrics.add()
    for metric in message.resource_metrics[0].scope_metrics[0].metrics:
        copy = scope.metrics.add(name=metric.name, unit=metric.unit, description=metric.description)
        which = "sum" if metric.HasField("sum") else "gauge"
        points = getattr(copy, which).data_points
        for point in getattr(metric, which).data_points:
            new = points.add(start_time_unix_nano=point.start_time_unix_nano, time_unix_nano=point.time_unix_nano)
            new.as_double = point.as_double
            for pair in point.attributes:
                new.attributes.add(key=pair.key).value.string_value = pair.value.string_value
    body: bytes = made.SerializeToString()
    return body


def _timed(work: Callable[[], bytes]) -> tuple[float, bytes]:
    begun = time.thread_time_ns()
    result = work()
    return (time.thread_time_ns() - begun) / 1e6, result


def resident(*keys: str) -> tuple[float, str]:
    """Megabytes of a daemon with its default collectors, archive and page at 1 Hz that sends OTLP, gzip on."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        path = Path(folder) / "sonde.toml"
        path.write_text("\n".join(["[sinks.otlp]", 'compression = "gzip"', *keys, ""]))
        pid, port = stack.enter_context(daemon(stack, "--config", str(path)))
        time.sleep(_SECONDS)
        return resident_bytes(pid) / 1e6, delivered(port)


def resident_with_tls() -> tuple[float, str]:
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        own = authority.signed("node01")
        with receiving(authority.signed("collector"), client_ca=authority.ca) as server:
            keys = {"endpoint": server.url, "ca_file": authority.ca}
            keys |= {"certificate_file": own.certificate, "key_file": own.key}
            return resident(*[f'{key} = "{value}"' for key, value in keys.items()])


def delivered(port: int) -> str:
    from sonde.httpclient import request

    lines = request(f"http://127.0.0.1:{port}/metrics").body.decode().splitlines()
    (line,) = [line for line in lines if line.startswith('sonde_sink_delivered_total{sink="otlp"}')]
    if int(line.split()[-1]) < _SECONDS:
        raise SystemExit(f"the daemon has delivered next to nothing: {line}")
    return f"{line.split()[-1]} frames delivered in {_SECONDS:.0f} s"


def frames_per_tick() -> int:
    frames: list[Frame] = next(ticks_of(SERIES))
    return len(frames)


def measure() -> list[dict[str, object]]:
    ours, theirs, size = encoded()
    detail = (
        f"{frames_per_tick()} frames, {size / 1e3:.0f} kB; encoding {ours:.2f} ms, by opentelemetry-proto"
        f" {theirs:.1f} ms, {theirs / ours:.0f} times as much"
    )
    with receiver() as url:
        plain, packed = median(written(url, "none")), median(written(url, "gzip"))
        again = median(written(url, "none"))
        memory, frames = resident(f'endpoint = "{url}"')
    secured, more = resident_with_tls()
    detail += f"; A/A {again / plain:.2f}"
    return [
        Row("OTLP: 2,000 series sent per second, CPU", plain, "ms", 15.0, detail).as_dict(),
        Row("OTLP: the same with gzip", packed, "ms", 15.0).as_dict(),
        Row("resident memory of a daemon that sends OTLP (statm)", memory, "MB", 30.0, frames).as_dict(),
        Row("resident memory of a daemon that sends OTLP over TLS", secured, "MB", 30.0, more).as_dict(),
    ]


if __name__ == "__main__":
    for row in measure():
        print(row)

"""Frames to an OpenTelemetry receiver: OTLP over HTTP, metrics in protobuf.

    POST /v1/metrics HTTP/1.1
    Content-Type: application/x-protobuf
    Content-Encoding: gzip

https://opentelemetry.io/docs/specs/otlp/#otlphttp says which answers are worth another try. The outlet queues and
waits; a batch that is larger than one request should be is sent in several, and after a failure only what was not
taken comes again.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from sonde.errors import ConfigError, ParseError, ReadError, SinkError, TimedOut, Unavailable, UsageError
from sonde.httpclient import Client, Reply, Tls, parse_url
from sonde.model import Frame
from sonde.sinks.answer import Keys, hint, is_taken, retry_after
from sonde.sinks.otlp_encoding import Encoder, attribute
from sonde.sinks.otlp_names import RULES, SCHEMA, Rules
from sonde.sinks.otlp_reply import PartialSuccess, partial_success, status_message
from sonde.sinks.otlp_settings import OtlpConfig, filled, is_disabled
from sonde.sinks.protobuf import message, text
from sonde.version import VERSION

log = logging.getLogger(__name__)

_WORTH_ANOTHER_TRY = (429, 502, 503, 504)  # OTLP/HTTP, "Failures": these and no others
_KEYS = Keys(credentials="headers", too_large="the receiver wants smaller requests: raise its limit")
_POINTS = 20_000  # in one request, about 2 MB; a frame with more is sent whole. Collectors take 20 MiB by default


class OtlpSink:
    """Sends to one receiver over one kept connection.

    `rules` are the names: the conventions' of OpenTelemetry, or none with `naming = "native"`, unless a dialect has
    its own.
    """

    Config: ClassVar[type] = OtlpConfig
    inline: ClassVar[bool] = False
    default_queue: ClassVar[int] = 30_000  # half an hour of a small node's frames at 1 Hz, within queue_memory

    def __init__(
        self,
        config: OtlpConfig,
        *,
        host: str,
        rules: Rules | None = None,
        scope: str = "sonde",
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.points_rejected = 0  # by a receiver that took the rest of their request
        self._disabled = is_disabled(environ)
        config = filled(config, environ)
        semantic = rules is None and config.naming == "semantic"
        resource = b"".join([message(1, attribute(*pair)) for pair in resource_attributes(config, host).items()])
        self._encoder = Encoder(
            resource,
            text(1, scope) + text(2, VERSION),
            (RULES if semantic else {}) if rules is None else rules,
            _boot_ns(),
            SCHEMA if semantic else "",
        )
        self._client, self._gzip = _client(config)
        self._sent: list[Frame] = []  # of a batch that failed half-way: what need not be sent again
        self._said = ""  # by the receiver about requests it took

    @staticmethod
    def check(config: Any) -> None:
        """Refuse what cannot work, naming the key."""
        _client(filled(config, os.environ))[0].close()

    def write(self, frames: Sequence[Frame]) -> None:
        if self._disabled:
            raise SinkError(
                "OTEL_SDK_DISABLED is true: nothing is sent",
                retry=False,
                hint="unset it, or take the sink out of the configuration",
            )
        sent = set(map(id, self._sent))
        self._sent = [frame for frame in frames if id(frame) in sent]
        refused = 0
        refusal: SinkError | None = None
        for part in _parts([frame for frame in frames if id(frame) not in sent]):
            try:
                self._deliver(self._encoder.encode(part))
            except SinkError as error:
                error.delivered, error.refused = len(self._sent) - refused, refused
                if error.retry:
                    raise
                refusal = error  # and go on: what comes after it may be welcome
                refused += len(part)
            self._encoder.commit()
            self._sent += part
        self._sent = []
        if refusal is not None:
            refusal.delivered, refusal.refused = len(frames) - refused, refused
            raise refusal

    def _deliver(self, body: bytes) -> None:
        if not body:
            return  # frames of events only
        try:
            reply = self._client.send(_compressed(body) if self._gzip else body)
        except (Unavailable, TimedOut, ReadError, ConfigError) as error:
            raise SinkError(str(error), retry=True, hint=error.hint) from None
        if is_taken(reply):
            self._taken(reply)
            return
        answer = f"{self._client.url}: {_explained(reply)}"
        if reply.status in _WORTH_ANOTHER_TRY:
            raise SinkError(answer, retry=True, retry_after=retry_after(reply))
        raise SinkError(answer, retry=False, hint=hint(reply, _KEYS))

    def _taken(self, reply: Reply) -> None:
        try:
            partial = partial_success(reply.body)
        except ParseError:
            partial = PartialSuccess(0, f"its answer is not OTLP's: is this a receiver of OTLP? {reply.body[:80]!r}")
        self.points_rejected += partial.rejected
        said = partial.message or ("no reason given" if partial.rejected else "")
        if said and said != self._said:
            what = f"refused {partial.rejected} of its points" if partial.rejected else "has something to say"
            log.warning("sink otlp: %s took a request but %s: %s", self._client.url, what, said)
        self._said = said

    def close(self) -> None:
        self._client.close()


def resource_attributes(config: OtlpConfig, host: str) -> dict[str, str]:
    """Who sends. The instance is the host: one daemon runs on it, and it is the same after a restart."""
    own = {
        "service.name": "sonde",
        "service.version": VERSION,
        "service.instance.id": host,
        "host.name": host,
        "os.type": "linux",
    }
    return own | dict(config.attributes)


def _client(config: OtlpConfig) -> tuple[Client, bool]:
    """The connection to be, and whether what is sent over it is compressed."""
    headers = {
        "User-Agent": f"sonde/{VERSION}",
        **config.headers,
        "Content-Type": "application/x-protobuf",
    }
    url = config.metrics_endpoint
    try:
        # On this machine the bytes cost less than making fewer of them.
        gzip = config.compression == "gzip" or (config.compression == "auto" and not parse_url(url).address.is_local)
        if gzip:
            headers["Content-Encoding"] = "gzip"
        tls = Tls(config.ca_file, config.certificate_file, config.key_file)
        return Client(url, headers=headers, timeout=config.timeout or 10.0, tls=tls), gzip
    except (UsageError, ConfigError) as error:
        raise ConfigError(f"sinks.otlp: {error}", hint=error.hint) from None


def _boot_ns() -> int:
    """When the kernel began to count, to the second: what the clock is off by now is not its business."""
    return (time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) // 10**9 * 10**9


def _parts(frames: Sequence[Frame]) -> Iterator[Sequence[Frame]]:
    """The frames in portions of not too many points."""
    begin = points = 0
    for index, frame in enumerate(frames):
        if points and points + len(frame.values) > _POINTS:
            yield frames[begin:index]
            begin, points = index, 0
        points += len(frame.values)
    if points:
        yield frames[begin:]


def _compressed(body: bytes) -> bytes:
    import zlib

    press = zlib.compressobj(1, zlib.DEFLATED, 31)  # 31: a gzip header (zlib.h, deflateInit2)
    return press.compress(body) + press.flush()


def _explained(reply: Reply) -> str:
    said = status_message(reply.body, reply.headers.get("content-type", ""))
    where = reply.headers.get("location", "")
    moved = f"moved to {where}" if 300 <= reply.status < 400 and where else ""
    return f"status {reply.status}" + "".join([f": {part}" for part in (moved, said) if part])

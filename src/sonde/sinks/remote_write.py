"""Frames to Prometheus, VictoriaMetrics, Mimir or Thanos, by Prometheus remote write 1.0 over HTTP.

    POST /api/v1/write   Content-Encoding: snappy   Content-Type: application/x-protobuf
    400 out of order sample                         Prometheus has then kept nothing of the request

A receiver that pushes are sent to cannot know who sends, so every series carries `job` and `instance`. It cannot see
either that a series has ended, so the end is written: when a layout no longer has the series, when a source has been
silent for two periods, and when the daemon stops.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from sonde.clock import NS
from sonde.errors import ConfigError, ReadError, SinkError, TimedOut, Unavailable, UsageError
from sonde.httpclient import Client, Reply, Tls, parse_url
from sonde.model import Frame, MetricSpec
from sonde.sinks.answer import is_taken, refusal
from sonde.sinks.credentials import Credentials
from sonde.sinks.exposition import Format, claims, is_of_one_process
from sonde.sinks.snappy import compressor
from sonde.sinks.write_request import BLOCK, Form, Labels, metadata, stale
from sonde.units import Duration
from sonde.version import VERSION

log = logging.getLogger(__name__)

_HEADERS = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
    "User-Agent": f"sonde/{VERSION}",
}
_TELL_EVERY_NS = 300 * NS  # type, help and unit again: Mimir forgets them after 10 minutes
_REQUESTS = 64  # at most, to find out which frames of a refused request are the bad ones
_PAUSE = 60.0  # seconds until that is tried again after it has saved nothing
_LAST_WORD = 0.3  # seconds for the ends of all series when the daemon stops
# Sources whose names are the users': on a clash the names that sonde gives are kept.
_GUESTS = frozenset({"textfile"})
# What Prometheus answers when it does not want single samples (storage/interface.go). It has rolled the whole request
# back. Mimir and Thanos use other words (err-mimir-…, 409) and have kept the good ones.
_SINGLE = (b"out of order sample", b"duplicate sample for timestamp", b"out of bounds", b"too old sample")


class RemoteWriteConfig(NamedTuple):
    url: str = ""  # where to, as http://victoria:8428/api/v1/write; required
    headers: Mapping[str, str] = MappingProxyType({})  # sent with every request, as X-Scope-OrgID
    bearer_token_file: str = ""  # a file with a token; read again when it changes
    username: str = ""  # for basic authentication, with password_file
    password_file: str = ""  # a file with the password; read again when it changes
    timeout: Duration = Duration(10)  # for a request, from connecting to the answer
    ca_file: str = ""  # the authorities to trust, PEM; empty: the system's
    certificate_file: str = ""  # our own certificate, PEM, for servers that ask for one
    key_file: str = ""  # its key; empty: in certificate_file
    job: str = "sonde"  # the label job of every series that has none of its own; empty: none
    instance: str = ""  # the label instance; empty: the host's name
    max_samples_per_request: int = 20_000  # more are sent as several requests
    processes: bool = False  # also the series of single processes; without it only sonde_process_tree_*


def check(config: RemoteWriteConfig) -> None:
    """Refuse what cannot work, naming the key."""
    where = "sinks.remote_write"
    if not config.url:
        raise ConfigError(f"{where}.url is required", hint='as url = "http://victoria:8428/api/v1/write"')
    if "@" in config.url.partition("://")[2].partition("/")[0]:
        raise ConfigError(f"{where}.url holds a name or a password", hint="use username and password_file")
    try:
        Client(config.url, headers=config.headers, tls=_tls(config))
    except (UsageError, ConfigError) as error:
        raise ConfigError(f"{where}: {error}", hint=error.hint) from None
    if bool(config.username) != bool(config.password_file):
        raise ConfigError(f"{where}: username and password_file go together")
    if config.bearer_token_file and config.username:
        raise ConfigError(f"{where}: either bearer_token_file or username and password_file, not both")
    if config.max_samples_per_request < 1 or config.timeout <= 0:
        raise ConfigError(f"{where}: max_samples_per_request and timeout must be positive")


def _tls(config: RemoteWriteConfig) -> Tls:
    return Tls(config.ca_file, config.certificate_file, config.key_file)


class _Alive(NamedTuple):
    """What the receiver has of a source."""

    form: Form
    time_ns: int  # of the newest frame
    period_ns: int
    told_ns: int  # when type, help and unit were last sent


class _Group(NamedTuple):
    """Frames of one source that share a form."""

    source: str
    form: Form
    frames: list[Frame]


class _Tally:
    """What has become of a batch so far, in frames."""

    def __init__(self) -> None:
        self.delivered = 0
        self.refused = 0
        self.problem: SinkError | None = None


class RemoteWriteSink:
    """Posts requests over one kept connection. Called by one thread; the state moves on when a request is answered."""

    Config: ClassVar[type] = RemoteWriteConfig
    inline: ClassVar[bool] = False
    default_queue: ClassVar[int] = 30_000
    check = staticmethod(check)

    def __init__(self, config: RemoteWriteConfig, host: str) -> None:
        check(config)
        self._config = config
        headers = {**_HEADERS, **config.headers}
        self._client = Client(config.url, headers=headers, timeout=config.timeout, tls=_tls(config))
        self._credentials = Credentials(
            bearer_token_file=config.bearer_token_file, username=config.username, password_file=config.password_file
        )
        if self._credentials.secret and not parse_url(config.url).secure:
            log.warning("sink remote_write: %s is not https: the password or token can be read on the way", config.url)
        self._labels = Labels({"job": config.job, "instance": config.instance or host})
        self._compress = compressor()
        self._block = min(BLOCK, config.max_samples_per_request)
        self._forms: dict[str, Form] = {}
        self._owners: dict[str, str] = {}  # which source has which name
        self._alive: dict[str, _Alive] = {}
        self._clashes: set[tuple[str, str]] = set()
        self._broken: set[str] = set()  # sources whose values do not fit their layout
        self._healthy = False
        self._undivided_until = 0.0  # monotonic

    def write(self, frames: Sequence[Frame]) -> None:
        tally = _Tally()
        try:
            for chunk in self._chunks(frames):
                self._deliver(chunk, tally)
        except SinkError as error:
            error.delivered, error.refused = tally.delivered, tally.refused
            raise
        if tally.problem is not None:
            message = f"{tally.refused} of {len(frames)} frames refused: {tally.problem}"
            raise SinkError(message, retry=False, hint=tally.problem.hint, delivered=tally.delivered)

    def _deliver(self, chunk: Sequence[Frame], tally: _Tally) -> None:
        """Send; what is refused because of single samples is halved until only those frames are lost."""
        todo = [chunk]
        requests = 0
        before = tally.delivered
        while todo:
            part = todo.pop()
            reply, alive = self._send(part)
            requests += 1
            if reply is None:
                self._alive = alive
                tally.delivered += len(part)
            elif len(part) > 1 and requests < _REQUESTS and self._divisible(reply):
                # The first half goes first: a series wants its samples in order.
                todo += (part[len(part) // 2 :], part[: len(part) // 2])
            else:
                # Here too: an end that the server did not want, it will not want the next time either.
                self._alive = alive
                tally.refused += len(part)
                tally.problem = refusal(self._config.url, reply)
        if requests > 1 and tally.delivered == before:
            self._undivided_until = time.monotonic() + _PAUSE

    def _chunks(self, frames: Sequence[Frame]) -> Iterator[Sequence[Frame]]:
        """As many frames in one request as may be; one that is too large stays whole."""
        limit = self._config.max_samples_per_request
        start = size = 0
        for place, frame in enumerate(frames):
            if size + len(frame.values) > limit and place > start:
                yield frames[start:place]
                start, size = place, 0
            size += len(frame.values)
        if start < len(frames):
            yield frames[start:]

    def _divisible(self, reply: Reply) -> bool:
        """Is it worth while to send the halves by themselves?"""
        if time.monotonic() < self._undivided_until:
            return False
        return reply.status == 413 or (reply.status == 400 and any(words in reply.body for words in _SINGLE))

    def _send(self, frames: Sequence[Frame]) -> tuple[Reply | None, dict[str, _Alive]]:
        """One request, or several for a frame that is too large for one.

        The answer, if it is a refusal, and what the receiver has now if it is none. Raises SinkError for what may be
        tried again.
        """
        alive = dict(self._alive)
        refused = None
        for body in self._bodies(frames, alive):
            reply = self._post(body)
            if not is_taken(reply):
                error = refusal(self._config.url, reply)
                if error.retry:
                    raise error
                refused = reply
        return refused, alive

    def _post(self, body: bytes) -> Reply:
        self._healthy = False
        try:
            reply = self._client.send(self._compress(body), headers=self._credentials.headers())
        except (Unavailable, TimedOut, ReadError, ConfigError, UsageError) as error:
            raise SinkError(str(error), retry=True, hint=error.hint) from None
        self._healthy = is_taken(reply)
        return reply

    def _bodies(self, frames: Sequence[Frame], alive: dict[str, _Alive]) -> Iterator[bytes]:
        """The requests for some frames; `alive` is brought up to what the receiver has then."""
        limit = self._config.max_samples_per_request
        parts: list[bytes] = []
        size = 0
        for group in self._groups(frames):
            parts += self._changes(group, alive)
            for part in self._encoded(group):
                parts.append(part)
                size += self._block
                if size + self._block > limit and len(frames) == 1:
                    yield b"".join(parts)
                    parts, size = [], 0
        parts += self._silent(max(frame.time_ns for frame in frames), alive)
        if parts:
            yield b"".join(parts)

    def _groups(self, frames: Sequence[Frame]) -> list[_Group]:
        """The frames by source and form, in order: a form that changes begins another group."""
        groups: list[_Group] = []
        latest: dict[str, _Group] = {}
        for frame in frames:
            if len(frame.values) != len(frame.layout):
                self._break(frame.source)
                continue
            group = latest.get(frame.source)
            if group is not None and group.form.fits(frame):
                group.frames.append(frame)
            else:
                group = latest[frame.source] = _Group(frame.source, self._form(frame), [frame])
                groups.append(group)
        return groups

    def _form(self, frame: Frame) -> Form:
        form = self._forms.get(frame.source)
        if form is None or not form.fits(frame):
            refused = self._claim(frame)
            form = Form(frame.layout, frame.values, self._labels, refused, self._block)
            self._labels.forget()
            self._forms[frame.source] = form
        return form

    def _claim(self, frame: Frame) -> set[MetricSpec]:
        """The metrics of a new layout that are left out: not wanted, or another source has their name."""
        source = frame.source
        owners = self._owners = {name: owner for name, owner in self._owners.items() if owner != source}
        refused = set()
        for spec in dict.fromkeys(spec for spec, _ in frame.layout):
            names = claims(spec, Format.TEXT)
            others = {owners[name] for name in names if name in owners}
            if is_of_one_process(spec) and not self._config.processes:
                refused.add(spec)
            elif others and not (others <= _GUESTS and source not in _GUESTS):
                refused.add(spec)
                self._clash(spec.name, source)
            else:
                owners.update(dict.fromkeys(names, source))
                for other in others:
                    self._forms.pop(other, None)  # made anew without what it has lost
        return refused

    def _clash(self, name: str, source: str) -> None:
        if (name, source) not in self._clashes:
            log.warning(
                "%s of source %s is not sent: source %s has it", name, source, self._owners.get(name, "another")
            )
        self._clashes.add((name, source))

    def _changes(self, group: _Group, alive: dict[str, _Alive]) -> Iterator[bytes]:
        """What goes before the values: the ends of series that are no more, and what new ones are."""
        first, last = group.frames[0], group.frames[-1]
        known = alive.get(group.source)
        told_ns = known.told_ns if known is not None else 0
        if known is not None and known.form is not group.form:
            kept = set(group.form.rows)
            yield stale([row for row in known.form.rows if row not in kept], first.time_ns // 1_000_000)
        if known is None or known.form is not group.form or not 0 <= last.time_ns - told_ns < _TELL_EVERY_NS:
            yield metadata(group.form.specs)
            told_ns = last.time_ns
        # A clock that is set back does not make a source silent.
        newest_ns = max(last.time_ns, known.time_ns if known is not None else 0)
        alive[group.source] = _Alive(group.form, newest_ns, last.period_ns, told_ns)

    def _encoded(self, group: _Group) -> Iterator[bytes]:
        try:
            yield from group.form.encode(group.frames)
        except (TypeError, ValueError):
            self._break(group.source)
        else:
            self._broken.discard(group.source)

    def _break(self, source: str) -> None:
        """A collector broke the promises of the model: the others go on."""
        if source not in self._broken:
            log.error("the values of source %s do not fit their layout and are not sent", source)
        self._broken.add(source)

    def _silent(self, now_ns: int, alive: dict[str, _Alive]) -> Iterator[bytes]:
        """The ends of the series of sources that have given nothing for two periods."""
        for source, known in tuple(alive.items()):
            period = known.period_ns
            if now_ns - known.time_ns > 2 * period + period // 10:
                # Before the next tick was due: a frame that comes late after all carries the time of that tick, and
                # Prometheus would refuse it for being older than the end.
                yield stale(known.form.rows, (known.time_ns + period - period // 10) // 1_000_000)
                del alive[source]
                self._forms.pop(source, None)
                self._owners = {name: owner for name, owner in self._owners.items() if owner != source}

    def close(self) -> None:
        """End all series, if the server is there to hear it, and let go of the connection."""
        if self._healthy and self._alive:
            now = time.time_ns()
            ends = [stale(known.form.rows, _end_ns(known, now) // 1_000_000) for known in self._alive.values()]
            try:
                body = self._compress(b"".join(ends))
                self._client.send(body, headers=self._credentials.headers(), timeout=_LAST_WORD)
            except (Unavailable, TimedOut, ReadError, ConfigError, UsageError, SinkError) as error:
                log.info("sink remote_write: the ends of the series were not sent: %s", error)
        self._alive = {}
        self._client.close()


def _end_ns(known: _Alive, now_ns: int) -> int:
    """Now; of history, when the next value would have come. Not later: a daemon that starts again goes on there."""
    due_ns = known.time_ns + known.period_ns - known.period_ns // 10
    return max(min(now_ns, due_ns), known.time_ns + 1_000_000)

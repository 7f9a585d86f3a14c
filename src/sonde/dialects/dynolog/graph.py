"""dynolog's two HTTP relays: forms with JSON inside, as its ODS and Scuba loggers post them.

    access_token=…&category_id=…&datapoints=[{"entity":"node01","key":"dynolog.cpu_i","value":"71.342"},…]
    access_token=…&logs=[{"category":"…","line_escape":false,"message":"{\\"double\\":{…},\\"int\\":{…},\\"normal\\":{…}}"}]

dynolog posts them to graph.facebook.com. Nothing leaves the site here unless somebody has written down where to: the
URL has no default.
"""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

from sonde.dialects.dynolog.records import Record, Recorder, text_of
from sonde.dialects.dynolog.translate import Translator
from sonde.errors import ConfigError, ReadError, SinkError, TimedOut, Unavailable, UsageError
from sonde.hostfs import HostFS
from sonde.httpclient import Client, Tls
from sonde.model import Frame
from sonde.units import Duration

_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_SAFE = frozenset((string.ascii_letters + string.digits + "-._*").encode())
_QUOTED = tuple(chr(code) if code in _SAFE else f"%{code:02X}" for code in range(256))
_TRY_AGAIN = (408, 429)  # and every 5xx: the fault is not in what was sent


class DynologOdsConfig(NamedTuple):
    url: str = ""  # where the form is posted; required: dynolog's own lies outside every site but one
    token_file: str = ""  # holds the access token; read for every batch, so it can be replaced
    ca_file: str = ""  # PEM file of the authorities trusted for https; empty: the system's
    timeout: Duration = Duration(5)  # for one post
    category_id: str = ""  # sent as it is
    entity_prefix: str = ""  # before the host's name
    interface_prefixes: tuple[str, ...] = ()  # only network devices whose names begin so; empty: all


class DynologScubaConfig(NamedTuple):
    url: str = ""  # where the form is posted; required: dynolog's own lies outside every site but one
    token_file: str = ""  # holds the access token; read for every batch, so it can be replaced
    ca_file: str = ""  # PEM file of the authorities trusted for https; empty: the system's
    timeout: Duration = Duration(5)  # for one post
    category: str = "perfpipe_fair_cluster_gpu_stats"  # of the messages
    interface_prefixes: tuple[str, ...] = ()  # only network devices whose names begin so; empty: all


class _Form:
    """Posts forms to one URL, with the token of a file."""

    def __init__(self, sink: str, config: DynologOdsConfig | DynologScubaConfig) -> None:
        if not config.url:
            raise ConfigError(f"sinks.{sink}.url is required", hint="the URL that takes dynolog's forms at your site")
        self._token_file = config.token_file
        try:
            self._client = Client(config.url, headers=_FORM, timeout=config.timeout, tls=Tls(ca=config.ca_file))
        except UsageError as error:
            raise ConfigError(f"sinks.{sink}.url: {error}", hint=error.hint) from None
        self.close = self._client.close

    def post(self, fields: Mapping[str, str]) -> None:
        form = {"access_token": self._token(), **fields}
        body = "&".join([f"{name}={quoted(value)}" for name, value in form.items()]).encode("ascii")
        try:
            reply = self._client.send(body)
        except (Unavailable, TimedOut, ReadError) as error:
            raise SinkError(str(error), retry=True, hint=error.hint) from None
        if not 200 <= reply.status < 300:
            retry = reply.status in _TRY_AGAIN or reply.status >= 500
            said = reply.body[:80].decode("utf-8", "replace")
            raise SinkError(f"the server answers {reply.status}: {said}", retry=retry)

    def _token(self) -> str:
        if not self._token_file:
            return ""
        try:
            with open(self._token_file, encoding="utf-8") as file:
                return file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SinkError(f"the token in {self._token_file} cannot be read: {error}", retry=True) from None


class DynologOdsSink:
    Config: ClassVar[type] = DynologOdsConfig
    inline: ClassVar[bool] = False
    default_queue: ClassVar[int] = 30_000
    reads_host: ClassVar[bool] = True

    def __init__(self, config: DynologOdsConfig, host: str, files: HostFS) -> None:
        self.translate = Translator(files, config.interface_prefixes).frames
        self._recorder = Recorder()
        self._form = _Form("dynolog_ods", config)
        self._category_id = config.category_id
        self._entity = json.dumps(config.entity_prefix + host)

    @staticmethod
    def check(config: DynologOdsConfig) -> None:
        _Form("dynolog_ods", config).close()

    def write(self, frames: Sequence[Frame]) -> None:
        # A data point has no time of its own: it is of the moment it arrives. Of those that had to wait, the newest is.
        for record in self._recorder.records(frames)[-1:]:
            self._form.post({"category_id": self._category_id, "datapoints": self._datapoints(record)})

    def _datapoints(self, record: Record) -> str:
        points = [
            f'{{"entity":{self._entity},"key":{json.dumps(f"dynolog.{key}")},"value":{text_of(value)}}}'
            for key, value in zip(record.keys, record.values, strict=True)
        ]
        return f"[{','.join(points)}]"

    def close(self) -> None:
        self._form.close()


class DynologScubaSink:
    Config: ClassVar[type] = DynologScubaConfig
    inline: ClassVar[bool] = False
    default_queue: ClassVar[int] = 30_000
    reads_host: ClassVar[bool] = True

    def __init__(self, config: DynologScubaConfig, host: str, files: HostFS) -> None:
        self.translate = Translator(files, config.interface_prefixes).frames
        self._recorder = Recorder()
        self._form = _Form("dynolog_scuba", config)
        self._category = config.category
        self._host = host

    @staticmethod
    def check(config: DynologScubaConfig) -> None:
        _Form("dynolog_scuba", config).close()

    def write(self, frames: Sequence[Frame]) -> None:
        logs = [self._log(record) for record in self._recorder.records(frames)]
        if logs:
            self._form.post({"logs": _dumps(logs)})

    def _log(self, record: Record) -> dict[str, object]:
        pairs = list(zip(record.keys, record.values, strict=True))
        whole: dict[str, float] = {key: value for key, value in pairs if isinstance(value, int)}
        message = {
            "double": {key: value for key, value in pairs if isinstance(value, float)},
            "int": {**whole, "time": record.time_ns // 10**9},
            "normal": {"host_name": self._host},
        }
        return {"category": self._category, "line_escape": False, "message": _dumps(message)}

    def close(self) -> None:
        self._form.close()


def quoted(text: str) -> str:
    """As a form has it; urllib.parse would bring a megabyte for this."""
    return "".join([_QUOTED[code] for code in text.encode("utf-8", "replace")])


_dumps = json.JSONEncoder(separators=(",", ":")).encode

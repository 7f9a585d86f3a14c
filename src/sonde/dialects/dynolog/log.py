"""dynolog's log line, for the parsers that are written for it: to standard error, or to a file that is rotated.

    I20261115 21:42:38.123456 4711 dynolog_log:1] time = 2026-11-15T21:42:38.123Z data = {"cpu_i":"71.342",…}

The prefix is glog's. The time is UTC in both places, as its Z says; dynolog writes the local time there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from sonde.clock import iso
from sonde.dialects.dynolog.records import Record, Recorder
from sonde.dialects.dynolog.translate import Translator
from sonde.hostfs import HostFS
from sonde.model import Frame
from sonde.sinks.linefile import STDERR, LineFile
from sonde.units import Size


class DynologLogConfig(NamedTuple):
    path: str = STDERR  # a file, "stderr", or "-" for standard output
    max_size: Size = Size(10 * 10**6)  # the file is rotated before it grows beyond this
    keep: int = 7  # rotated files kept: path.1 is the youngest
    prefix: bool = True  # glog's prefix before the line
    interface_prefixes: tuple[str, ...] = ()  # only network devices whose names begin so; empty: all


class DynologLogSink:
    Config: ClassVar[type] = DynologLogConfig
    inline: ClassVar[bool] = False
    reads_host: ClassVar[bool] = True

    def __init__(self, config: DynologLogConfig, host: str, files: HostFS) -> None:
        self.translate = Translator(files, config.interface_prefixes).frames
        self._recorder = Recorder()
        self._prefix = f" {os.getpid()} dynolog_log:1] " if config.prefix else ""
        self._file = LineFile("dynolog_log", config.path, config.max_size, config.keep)

    def write(self, frames: Sequence[Frame]) -> None:
        lines = "".join([self._line(record) for record in self._recorder.records(frames)])
        if lines:
            self._file.write(lines.encode("utf-8", "replace"))

    def _line(self, record: Record) -> str:
        prefix = _glog_time(record.time_ns) + self._prefix if self._prefix else ""
        return f"{prefix}time = {iso(record.time_ns)} data = {record.text}\n"

    def reopen(self) -> None:
        """Write to a new file of the same name from the next batch on."""
        self._file.reopen()

    def close(self) -> None:
        self._file.close()


def _glog_time(time_ns: int) -> str:
    """`I20261115 21:42:38.123456`."""
    text = iso(time_ns, digits=6)
    return f"I{text[:10].replace('-', '')} {text[11:-1]}"

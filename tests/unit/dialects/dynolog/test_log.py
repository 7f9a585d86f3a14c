"""dynolog's log line: byte for byte, in UTC, in files that rotate."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.dialects.dynolog.conftest import TIME, cpu_frame, network_frame, uptime_frame

from sonde.dialects.dynolog.log import DynologLogConfig, DynologLogSink
from sonde.dialects.dynolog.records import Recorder
from sonde.errors import ConfigError, Unavailable
from sonde.hostfs import HostFS
from sonde.model import Frame
from sonde.units import Size

GOLDEN = Path(__file__).parents[3] / "golden/dynolog.log"
NOWHERE = HostFS("/nonexistent")
LINE = re.compile(r"time = (\S+) data = (\{.*\})")  # what parsers of dynolog's log look for
Open = Callable[..., DynologLogSink]


def tick(number: int) -> list[Frame]:
    at = TIME + number * 10**9
    busy = {"user": 0.32 * number, "system": 0.23 * number, "iowait": 0.02 * number, "idle": 1.42 * number}
    traffic = {0: 100 + 8021 * number, 1: 3 + 12 * number}
    return [cpu_frame({"0": busy}, at), network_frame({"eth0": traffic}, at), uptime_frame(11488.61 + number, at)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "dynolog.log"


@pytest.fixture
def sink(path: Path) -> Iterator[Open]:
    opened: list[DynologLogSink] = []

    def open_sink(**keys: Any) -> DynologLogSink:
        opened.append(DynologLogSink(DynologLogConfig(str(path), **keys), host="node01", files=NOWHERE))
        return opened[-1]

    yield open_sink
    for each in opened:
        each.close()


def write(sink: DynologLogSink, *numbers: int) -> None:
    for number in numbers:
        sink.write(sink.translate(tick(number)))


def test_the_lines_are_dynologs(sink: Open, path: Path) -> None:
    write(sink(), 0, 1)

    assert path.read_text().replace(f" {os.getpid()} ", " PID ") == GOLDEN.read_text()


def test_a_parser_of_dynologs_log_reads_them(sink: Open, path: Path) -> None:
    write(sink(), 0, 1)

    records = [json.loads(match[2]) for match in map(LINE.search, path.read_text().splitlines()) if match]
    assert records[0] == {"uptime": 11488}
    assert records[1]["cpu_u"] == "16.080"
    assert records[1]["cpu_u_ms"] == 320
    assert list(records[1]) == sorted(records[1])


def test_the_time_is_utc_in_every_zone(tmp_path: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, '.')\n"
        "from tests.unit.dialects.dynolog.test_log import *\n"
        f"s = DynologLogSink(DynologLogConfig({str(tmp_path / 'log')!r}), host='n', files=NOWHERE)\n"
        "write(s, 0); s.close(); print(time.strftime('%z'))"
    )
    environ = {**os.environ, "TZ": "America/New_York"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environ, cwd=GOLDEN.parents[2], check=True
    )

    line = (tmp_path / "log").read_text()
    assert done.stdout.strip() in ("-0500", "-0400")
    assert line.startswith("I20261115 21:42:38.123456 ")
    assert "time = 2026-11-15T21:42:38.123Z " in line
    assert time.gmtime(TIME // 10**9)[:6] == (2026, 11, 15, 21, 42, 38)


def test_the_prefix_can_be_left_out(sink: Open, path: Path) -> None:
    write(sink(prefix=False), 0)

    assert path.read_text() == 'time = 2026-11-15T21:42:38.123Z data = {"uptime":11488}\n'


def test_several_ticks_of_one_batch_are_several_records(sink: Open, path: Path) -> None:
    target = sink()
    frames = [frame for number in range(4) for frame in target.translate(tick(number))]
    target.write(frames)

    assert [match[1] for match in LINE.finditer(path.read_text())] == [
        f"2026-11-15T21:42:{second}.123Z" for second in (38, 39, 40, 41)
    ]


def test_sources_of_different_paces_make_records_of_what_came_together(sink: Open) -> None:
    target = sink()
    for number in range(2):
        target.translate(tick(number))
    slow = target.translate(tick(2))
    fast = target.translate([tick(3)[0]])

    first, second = Recorder().records([*slow, *fast])

    assert "rx_bytes.eth0" in first.keys
    assert "rx_bytes.eth0" not in second.keys
    assert "cpu_u" in second.keys


def test_two_ticks_a_moment_apart_are_not_mixed(sink: Open) -> None:
    """The first tick comes at once, the second at the next multiple of the period: that can be a moment later."""
    target = sink()
    frames = target.translate(tick(0))
    frames += target.translate([frame._replace(time_ns=TIME + 10**6) for frame in tick(1)])

    first, second = Recorder().records(frames)

    assert first.keys == ["uptime"]
    assert (second.time_ns, len(second.keys)) == (TIME + 10**6, 24)


def test_frames_of_one_tick_are_one_record_of_its_first_time(sink: Open) -> None:
    target = sink()
    target.translate(tick(0))
    frames = [frame._replace(time_ns=TIME + number * 1000) for number, frame in enumerate(tick(1))]

    (record,) = Recorder().records(target.translate(frames))

    assert (record.time_ns, len(record.keys)) == (TIME, 24)


def test_nothing_is_written_for_frames_that_have_no_word(sink: Open, path: Path) -> None:
    sink().write(())

    assert path.read_text() == ""


def test_a_file_is_rotated_and_reopened(sink: Open, path: Path) -> None:
    target = sink(max_size=Size(150), keep=1)
    write(target, 0)
    write(target, 0)
    path.rename(path.with_suffix(".moved"))
    target.reopen()
    write(target, 0)

    assert Path(f"{path}.1").read_text().count("data = ") == 1
    assert path.with_suffix(".moved").read_text().count("data = ") == 1
    assert path.read_text().count("data = ") == 1


def test_standard_error_is_the_default(capfd: pytest.CaptureFixture[str]) -> None:
    sink = DynologLogSink(DynologLogConfig(), host="node01", files=NOWHERE)
    write(sink, 0)
    sink.close()

    assert 'data = {"uptime":11488}' in capfd.readouterr().err


def test_bad_keys_are_refused_by_name(sink: Open, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"sinks\.dynolog_log: .*keep"):
        sink(keep=-1)
    with pytest.raises(Unavailable, match="cannot write to"):
        DynologLogSink(DynologLogConfig(f"{tmp_path}/none/log"), host="n", files=NOWHERE)

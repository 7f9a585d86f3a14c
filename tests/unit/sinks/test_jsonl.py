"""Lines of JSON: their content, rotation, a full disk."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.errors import ConfigError, SinkError, Unavailable
from sonde.model import Event, Frame, Gap, Histogram, Kind, Layout, MetricSpec, Quality, Series, Unit, Value
from sonde.sinks.jsonl import JsonlConfig, JsonlSink
from sonde.units import Size

LOAD = MetricSpec("node_load1", Kind.GAUGE, Unit.NONE, "1m load average.")
LIMIT = MetricSpec("sonde_limit", Kind.GAUGE, Unit.NONE, "A limit.", ("path",))
LATENCY = MetricSpec("sonde_io_seconds", Kind.HISTOGRAM, Unit.SECONDS, "I/O.", ("device",))
TIME = 1_794_778_958_123_456_789
Open = Callable[..., JsonlSink]


def frame(series: dict[Series, Value], source: str = "load", **more: Any) -> Frame:
    return Frame(source, TIME, 41250, 10**9, Layout(series), list(series.values()), **more)


ONE = frame({(LOAD, ()): 0.03})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sonde.jsonl"


@pytest.fixture
def sink(path: Path) -> Iterator[Open]:
    opened: list[JsonlSink] = []

    def open_sink(**keys: Any) -> JsonlSink:
        opened.append(JsonlSink(JsonlConfig(str(path), **keys), host="node01"))
        return opened[-1]

    yield open_sink
    for each in opened:
        each.close()


def lines(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    assert not text or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_a_frame_is_one_line(sink: Open, path: Path) -> None:
    sink().write([ONE])

    assert path.read_text() == (
        '{"time":"2026-11-15T21:42:38.123Z","source":"load","host":"node01","took_ns":41250,'
        '"values":{"node_load1":0.03},"gaps":[],"events":[]}\n'
    )


def test_labels_infinities_and_histograms_are_written(sink: Open, path: Path) -> None:
    odd = ('/a "b"\\c\nd é',)
    sink().write(
        [
            frame({(LIMIT, odd): math.inf, (LIMIT, ("x",)): -math.inf, (LIMIT, ("y",)): 2**70}),
            frame({(LATENCY, ("sda",)): Histogram((0.1, 1.0), (1, 2, 3), 4.5)}),
        ]
    )

    assert [line["values"] for line in lines(path)] == [
        {
            'sonde_limit{path="/a \\"b\\"\\\\c\\nd é"}': "+Inf",
            'sonde_limit{path="x"}': "-Inf",
            'sonde_limit{path="y"}': 2**70,
        },
        {'sonde_io_seconds{device="sda"}': {"bounds": [0.1, 1.0], "counts": [1, 2, 3], "sum": 4.5}},
    ]


def test_gaps_and_events_are_written(sink: Open, path: Path) -> None:
    gaps = (Gap(LIMIT, ("/x",), Quality.DENIED, "not readable"), Gap(LOAD, (), Quality.UNSUPPORTED, "old kernel"))
    events = (Event(TIME + 10**9, "oom.kill", {"pid": 7, "name": 'a"b', "fatal": True}),)
    writer = sink()
    writer.write([frame({}, gaps=gaps, events=events)])
    writer.write([frame({})])

    first, second = lines(path)
    assert first["gaps"] == [
        {"name": 'sonde_limit{path="/x"}', "quality": "denied", "reason": "not readable"},
        {"name": "node_load1", "quality": "unsupported", "reason": "old kernel"},
    ]
    assert first["events"] == [
        {"time": "2026-11-15T21:42:39.123Z", "name": "oom.kill", "attrs": {"pid": 7, "name": 'a"b', "fatal": True}}
    ]
    assert (second["gaps"], second["events"]) == ([], [])


def test_a_layout_that_changes_changes_the_names(sink: Open, path: Path) -> None:
    writer = sink()
    for number in range(3):
        writer.write([frame({(LIMIT, (str(number),)): number})])

    assert [line["values"] for line in lines(path)] == [{f'sonde_limit{{path="{n}"}}': n} for n in range(3)]


def test_a_file_that_is_there_is_continued(sink: Open, path: Path) -> None:
    for _ in range(2):
        sink().write([ONE])

    assert len(lines(path)) == 2


def test_the_file_is_rotated_before_it_grows_beyond_its_size(sink: Open, path: Path) -> None:
    sink().write([ONE])
    size = path.stat().st_size
    writer = sink(max_size=Size(3 * size), keep=2)
    for number in range(2, 13):
        writer.write([frame({(LOAD, ()): number / 100})])

    kept = [lines(path.with_name(name)) for name in ("sonde.jsonl.2", "sonde.jsonl.1", "sonde.jsonl")]
    assert [line["values"]["node_load1"] for part in kept for line in part] == [n / 100 for n in range(4, 13)]
    assert sorted(p.name for p in path.parent.iterdir()) == ["sonde.jsonl", "sonde.jsonl.1", "sonde.jsonl.2"]


def test_nothing_is_kept_when_nothing_is_to_be_kept(sink: Open, path: Path) -> None:
    writer = sink(max_size=Size(1), keep=0)
    for _ in range(3):
        writer.write([ONE])

    assert len(lines(path)) == 1
    assert list(path.parent.iterdir()) == [path]


def test_no_record_is_lost_when_logrotate_moves_the_file(sink: Open, path: Path) -> None:
    writer = sink()
    moved = path.with_suffix(".old")
    values = iter(range(100))

    def write() -> None:
        writer.write([frame({(LOAD, ()): next(values)})])

    write()
    path.rename(moved)
    write()  # still to the old file: nobody has told us yet
    writer.reopen()
    write()

    found = [line["values"]["node_load1"] for part in (moved, path) for line in lines(part)]
    assert found == [0, 1, 2]


def test_a_file_that_cannot_be_opened_again_is_tried_again(sink: Open, path: Path, tmp_path: Path) -> None:
    path = tmp_path / "sub" / "sonde.jsonl"
    path.parent.mkdir()
    writer = JsonlSink(JsonlConfig(str(path)), host="node01")
    path.rename(tmp_path / "moved")
    path.parent.rmdir()
    writer.reopen()

    with pytest.raises(SinkError) as failed:
        writer.write([ONE])
    path.parent.mkdir()
    writer.write([ONE])
    writer.close()

    assert failed.value.retry
    assert len(lines(path)) == 1


def test_a_full_disk_leaves_no_half_line_and_is_tried_again(path: Path) -> None:
    # A file size limit fails as a full disk does: a short write first, then an error.
    child = os.fork()
    if child == 0:  # the limit must not touch the test process
        status = 1
        try:
            status = _write_beyond_a_limit(path)
        finally:
            os._exit(status)
    _, result = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(result) == 0
    assert len(lines(path)) == 4


def _write_beyond_a_limit(path: Path) -> int:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    sink = JsonlSink(JsonlConfig(str(path)), host="node01")
    sink.write([ONE])
    size = path.stat().st_size
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (size * 5 // 2, hard))
    for _ in range(2):
        try:
            sink.write([ONE, ONE, ONE])
        except SinkError as error:
            if not error.retry or path.stat().st_size != size:
                return 2
        else:
            return 3
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    sink.write([ONE, ONE, ONE])
    return 0


def test_a_reader_that_went_away_is_not_tried_again() -> None:
    code = (
        "import sys; from sonde.errors import SinkError; from sonde.sinks.jsonl import *; from sonde.model import *\n"
        "sink = JsonlSink(JsonlConfig(), 'node01'); sys.stdin.readline()\n"
        "try: sink.write([Frame('x', 0, 0, 1, EMPTY_LAYOUT, ())])\n"
        "except SinkError as error: sys.exit(10 + error.retry)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.communicate(b"go\n", timeout=30)

    assert process.returncode == 10


def test_standard_output_is_written_to(capfd: pytest.CaptureFixture[str]) -> None:
    sink = JsonlSink(JsonlConfig(), host="node01")
    sink.write([ONE])
    sink.close()

    assert json.loads(capfd.readouterr().out)["values"] == {"node_load1": 0.03}


def test_a_place_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="No such file or directory"):
        JsonlSink(JsonlConfig(str(tmp_path / "missing" / "x.jsonl")), host="node01")


@pytest.mark.parametrize("keys", [{"keep": -1}, {"max_size": Size(0)}])
def test_keys_without_sense_are_refused(path: Path, keys: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        JsonlSink(JsonlConfig(str(path), **keys), host="node01")


numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(max_size=8), numbers, max_size=5), st.text(max_size=8))
def test_any_labels_and_values_are_valid_json(values: dict[str, float], source: str) -> None:
    read, write = os.pipe()
    with open(read, "rb") as reader:
        sink = JsonlSink(JsonlConfig(f"/dev/fd/{write}"), host="node01")
        sink.write([frame({(LIMIT, (label,)): value for label, value in values.items()}, source)])
        sink.close()
        os.close(write)
        line = json.loads(reader.read())

    expected = [value if math.isfinite(value) else f"{'+' if value > 0 else '-'}Inf" for value in values.values()]
    assert list(line["values"].values()) == expected
    assert line["source"] == source

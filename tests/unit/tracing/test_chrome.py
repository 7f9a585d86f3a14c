"""Events from trace files: as json reads them, for every layout, form and window; and what is no trace."""

from __future__ import annotations

import gzip
import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.errors import ParseError, ReadError
from sonde.tracing.chrome import Trace, nanoseconds

TRACES = Path(__file__).parents[2] / "fixtures" / "traces"
FIELDS = ("ph", "cat", "name", "pid", "ts", "dur", "id", "bind_id")

texts = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ['"', "\\", "a\\", 'say "hi"', "\x00\x1f\x7f", "]}", '"pid": 3', "é漢😀", "\u2028", "NaN"]
)
scalars = texts | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=12
)
events = st.fixed_dictionaries(
    {},
    optional={
        "ph": st.sampled_from("XBEisfMC"),
        "cat": texts,
        "name": texts,
        "pid": st.integers(0, 2**40) | texts,
        "tid": st.integers(0, 2**40) | texts,
        "ts": st.integers(0, 2**52) | st.floats(0, 2**42),
        "dur": st.floats(0, 2**30),
        "id": st.integers(0, 2**64) | texts,
        "bind_id": st.integers(0, 2**64) | texts,
        "args": values,
        "extra": values,
    },
)
LAYOUTS: list[dict[str, Any]] = [{"separators": (",", ":")}, {}, {"indent": 2}, {"indent": 1, "sort_keys": True}]


@st.composite
def traces(draw: st.DrawFn) -> tuple[str, list[dict[str, Any]], dict[str, Any]]:
    """The text of a trace, its events, and the keys beside them."""
    listed = draw(st.lists(events, max_size=6))
    layout = draw(st.sampled_from(LAYOUTS)) | {"ensure_ascii": draw(st.booleans())}
    if draw(st.booleans()):
        return json.dumps(listed, **layout), listed, {}
    beside = st.dictionaries(texts.filter(lambda key: key != "traceEvents"), values, max_size=2)
    before, after = draw(beside), draw(beside)
    whole = {**before, "traceEvents": listed, **after}
    return json.dumps(whole, **layout), listed, {key: whole[key] for key in whole if key != "traceEvents"}


def written(data: bytes) -> str:
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(data)
    return file.name


def read(data: bytes, chunk: int = 1 << 18) -> tuple[list[dict[str, str | None]], dict[str, Any]]:
    """The groups of all events, and the metadata."""
    path = written(data)
    try:
        with Trace(path, chunk=chunk) as trace:
            found = [match.groupdict() for match in trace.events()]
            assert trace.count == len(found)
            return found, trace.metadata
    finally:
        Path(path).unlink()


def decoded(found: list[dict[str, str | None]]) -> Iterator[Any]:
    for groups in found:
        assert groups["event"] is not None
        yield json.loads(groups["event"])


@given(traces(), st.integers(1, 200), st.booleans())
@settings(max_examples=300, deadline=None)
def test_events_and_metadata_are_those_that_json_finds(
    trace: tuple[str, list[dict[str, Any]], dict[str, Any]], chunk: int, packed: bool
) -> None:
    text, expected, metadata = trace
    data = gzip.compress(text.encode(), 1) if packed else text.encode()

    found, beside = read(data, chunk)

    assert list(decoded(found)) == expected
    assert beside == metadata
    for groups, event in zip(found, expected, strict=True):
        assert {key: json.loads(groups[key] or "null") for key in FIELDS} == {key: event.get(key) for key in FIELDS}


@given(st.integers(0, 2**32), st.integers(1, 3000))
@settings(max_examples=150, deadline=None)
def test_a_damaged_trace_is_read_or_refused(seed: int, chunk: int) -> None:
    generator = random.Random(seed)
    data = bytearray((TRACES / "profiler-rank-0.json").read_bytes()[:6000] + b"]}")
    for _ in range(generator.randint(1, 4)):
        at = generator.randrange(len(data))
        data[at : at + generator.randint(0, 3)] = generator.choice(
            [
                b'"',
                b"\\",
                b"{",
                b"}",
                b"[",
                b"]",
                b",",
                b"\xff",
                b"\0",
                b"9" * 700,
                b"NaN",
                bytes([generator.randrange(256)]),
            ]
        )

    try:
        found, _ = read(bytes(data), chunk)
    except ParseError:
        return
    assert all(isinstance(event, dict) for event in decoded(found))


@given(st.binary(max_size=40), st.sampled_from([b"", b"[", b"{", b'{"traceEvents":[', b"\x1f\x8b"]))
@settings(max_examples=200, deadline=None)
def test_random_bytes_are_refused_and_nothing_worse(data: bytes, beginning: bytes) -> None:
    try:
        read(beginning + data)
    except ParseError:
        pass


def test_traces_of_libkineto() -> None:
    for path in TRACES.glob("*-rank-*.json"):
        whole = json.loads(path.read_bytes())
        found, metadata = read(path.read_bytes())

        assert list(decoded(found)) == whole.pop("traceEvents")
        assert metadata == whole


def test_the_fields_of_an_event_are_texts_in_their_place() -> None:
    path = written(b'[ {"ph": "X", "args": {"ts": 7}, "ts": 1.250, "pid": "Spans"} ]')
    with Trace(path) as trace:
        found = next(trace.events())

    assert found.group("ph", "pid", "ts", "cat") == ('"X"', '"Spans"', "1.250", None)
    assert found.string[slice(*found.span("ts"))] == "1.250"


def test_a_name_whose_quotation_marks_libkineto_did_not_escape() -> None:
    data = (TRACES / "quotation-marks.json").read_bytes()
    with pytest.raises(json.JSONDecodeError):
        json.loads(data)

    names = [event["name"] for event in decoded(read(data, chunk=100)[0])]
    assert {'quote"x', 'a/"b', "</script>"} <= set(names)
    assert len(names) == data.count(b'"ph"')


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    found, metadata = read(b'{"host_name":"a\xffb","traceEvents":[{"ph":"X","name":"\xc3\x28 \xe6\xbc"}]}', chunk=3)

    assert [event["name"] for event in decoded(found)] == ["\ufffd( \ufffd"]
    assert metadata == {"host_name": "a\ufffdb"}


def test_what_json_does_not_have_becomes_text() -> None:
    found, _ = read(b'[{"ph":"C","ts":1e3,"args":{"a":NaN,"b":[-Infinity],"c":1e999}},{"name":"a\tb","pid":Infinity}]')

    assert list(decoded(found)) == [
        {"ph": "C", "ts": 1000.0, "args": {"a": "NaN", "b": ["-Infinity"], "c": "1e999"}},
        {"name": "a\tb", "pid": "Infinity"},
    ]
    assert found[0]["ts"] == "1e3"


def test_of_a_key_that_is_there_twice_the_last_counts() -> None:
    found, _ = read(b'[{"pid":1,"pid":2},{"ts":1,"a":[[[[[[0]]]]]],"ts":2}]')

    assert (found[0]["pid"], found[1]["ts"]) == ("2", "2")


def test_a_trailing_comma_and_a_byte_order_mark_do_no_harm() -> None:
    found, _ = read(b'\xef\xbb\xbf {"traceEvents": [{"ph":"X"}, {"ph":"i"}, ]}')

    assert [groups["ph"] for groups in found] == ['"X"', '"i"']


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "there is no trace in it"),
        (b"hello", r"begins with \{ or \["),
        (b"[1]", "an event is expected"),
        (b'[{"ph":"X"} {"ph":"X"}]', r"a comma or \] is expected, after 0 events and 11 bytes"),
        (b'[{"ph":"X"}, {"ph" "X", "name": "aten::mm"}]', "Expecting ':' delimiter, after 1 events and 19 bytes"),
        (b'[{"ph":"X"}] x', "more behind its end"),
        (b'{"a":1', r"a comma or \} is expected, it looks cut off, after 0 events and 6 bytes"),
        (b'{"a" 1}', "a colon is expected behind 'a'"),
        (b"{1:2}", "a key is expected"),
        (b'{"a":1 "b":2}', r"a comma or \} is expected"),
        (b'{"a":tru}', "Expecting value"),
        (b'{"a":' + b"9" * 5000 + b"}", "limit"),
        (b'[{"a":' + b"9" * 5000 + b"}]", "limit"),
        (b'[{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}]", "recursion"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "recursion"),
        (b'[{"a":"' + b"x" * 9_000_000 + b'"}]', "more than 8 million characters"),
        (gzip.compress(b'[{"ph":"X"}]')[:-10], "the compressed file is damaged or cut off"),
        (gzip.compress(b"[]")[:12] + b"\xff" * 30, "the compressed file is damaged or cut off"),
    ],
)
def test_what_is_no_trace_is_refused_with_the_place(data: bytes, complaint: str) -> None:
    with pytest.raises(ParseError, match=complaint):
        read(data)


@pytest.mark.parametrize("name", ["profiler-rank-0.json", "on-demand-launcher.json"])
def test_a_file_that_was_cut_off_tells_how_far_it_goes(name: str) -> None:
    data = (TRACES / name).read_bytes()
    for size in range(200, len(data) - 1, 391):
        with pytest.raises(ParseError) as caught:
            read(data[:size], chunk=512)

        told = re.search(r"it looks cut off, after (\d+) events and (\d+) bytes$", str(caught.value))
        assert told is not None
        assert int(told[1]) == data[:size].count(b"\n  },")
        assert int(told[2]) <= size


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ReadError, match=r"/nowhere/t\.json: No such file"):
        Trace("/nowhere/t.json")


def test_a_base_that_is_no_time_is_refused(tmp_path: Path) -> None:
    for value in ('"x"', "-1", "1.5", "1e40"):
        (tmp_path / "t.json").write_text(f'{{"baseTimeNanoseconds":{value},"traceEvents":[]}}')
        with Trace(str(tmp_path / "t.json")) as trace:
            trace.begin()

            with pytest.raises(ParseError, match="not a time"):
                _ = trace.base_ns


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    head, _, rest = (TRACES / "profiler-rank-0.json").read_text().partition('"traceEvents": [')
    body, _, tail = rest.rpartition("\n  ],")
    path = tmp_path / "large.json"
    path.write_text(f'{head}"traceEvents": [' + ",".join([body] * 1500) + "\n  ]," + tail)
    program = (
        "import sys; from sonde.tracing.summary import summarise\n"
        "print(summarise(sys.argv[1]).events, open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60)

    count, kilobytes = map(int, ended.stdout.split())
    assert count == 1500 * 50
    assert path.stat().st_size > 20_000_000
    assert kilobytes < 40_000


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3944420974198.196", 3944420974198196),
        ("1.5", 1500),
        ("12", 12000),
        ("0.0009", 0),
        ("-2.25", -2250),
        ("1e3", 1000000),
        ('"7.5"', 7500),
    ],
)
def test_microseconds_become_nanoseconds_without_loss(text: str, value: int) -> None:
    assert nanoseconds(text, "t.json") == value


@pytest.mark.parametrize("text", ['"x"', '""', "1e300", "9" * 30, '"NaN"'])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match="not a time"):
        nanoseconds(text, "t.json")

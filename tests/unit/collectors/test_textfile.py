"""*.prom files in the Prometheus text format."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.collectors.textfile import TextfileCollector, TextfileConfig, parse_exposition, parse_sample
from sonde.errors import ParseError, Unavailable
from sonde.hostfs import HostFS
from sonde.model import Kind, Quality, Reading, Value
from sonde.units import Size

GOOD = """# HELP jobs_done_total Jobs done \\\\ and\\nforgotten.
# TYPE jobs_done_total counter
jobs_done_total{queue="long \\"night\\"",site="a"} 3
jobs_done_total{queue="short"} 4

# just a comment
# TYPE temperature_celsius gauge
temperature_celsius 21.5
plain 1e3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "drop").mkdir()
    return tmp_path / "drop"


def collector_of(folder: Path, max_size: int = 2**20) -> TextfileCollector:
    return TextfileCollector(HostFS(str(folder.parent)), TextfileConfig("/drop", Size(max_size)))


def read(folder: Path) -> Reading:
    return collector_of(folder).collect()


def named(reading: Reading) -> dict[tuple[str, tuple[str, ...]], Value]:
    return {(spec.name, labels): value for (spec, labels), value in zip(reading.layout, reading.values, strict=True)}


def error_of(reading: Reading) -> Value:
    return named(reading)["node_textfile_scrape_error", ()]


def test_without_a_directory_it_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no directory is configured"):
        TextfileCollector(HostFS(str(tmp_path)), TextfileConfig())


def test_a_file_gives_its_samples_with_kind_help_and_labels(folder: Path) -> None:
    (folder / "a.prom").write_text(GOOD)
    reading = read(folder)
    found = named(reading)
    specs = {spec.name: spec for spec, _ in reading.layout}

    assert specs["jobs_done_total"].kind is Kind.COUNTER
    assert specs["jobs_done_total"].help == "Jobs done \\ and\nforgotten."
    assert specs["jobs_done_total"].labels == ("queue", "site")
    assert found["jobs_done_total", ('long "night"', "a")] == 3
    assert found["jobs_done_total", ("short", "")] == 4
    assert specs["temperature_celsius"].kind is Kind.GAUGE
    assert specs["plain"].kind is Kind.UNTYPED
    assert specs["plain"].help == "Metric read from /drop/a.prom."
    assert found["plain", ()] == 1000.0
    assert reading.gaps == ()
    assert error_of(reading) == 0


def test_the_time_of_a_file_is_in_whole_seconds(folder: Path) -> None:
    (folder / "a.prom").write_text(GOOD)
    os.utime(folder / "a.prom", ns=(0, 1_700_000_000_900_000_000))

    assert named(read(folder))["node_textfile_mtime_seconds", ("/drop/a.prom",)] == 1_700_000_000


def test_other_files_are_not_looked_at(folder: Path) -> None:
    (folder / "a.prom.tmp").write_text("half")
    reading = read(folder)

    assert list(named(reading)) == [("node_textfile_scrape_error", ())]
    assert error_of(reading) == 0


def test_the_samples_of_histograms_and_summaries_travel_as_they_stand(folder: Path) -> None:
    (folder / "h.prom").write_text(
        "# HELP h Sizes.\n# TYPE h histogram\n"
        'h_bucket{le="1"} 2\nh_bucket{le="+Inf"} 3\nh_sum 4.5\nh_count 3\n'
        '# TYPE s summary\ns{quantile="0.5"} 7\ns_sum 2\ns_count 1\ns_bucket 5\n'
    )
    reading = read(folder)
    kinds = {spec.name: spec.kind for spec, _ in reading.layout}
    helps = {spec.name: spec.help for spec, _ in reading.layout}

    assert named(reading)["h_bucket", ("+Inf",)] == 3
    assert kinds["h_bucket"] is kinds["h_sum"] is kinds["h_count"] is kinds["s_sum"] is Kind.COUNTER
    assert kinds["s"] is Kind.GAUGE
    assert kinds["s_bucket"] is Kind.UNTYPED  # a summary has no buckets: a metric of its own
    assert helps["h_bucket"] == "Sizes."


def test_not_a_number_is_a_gap(folder: Path) -> None:
    (folder / "a.prom").write_text('t{room="1"} NaN\nt{room="2"} +Inf\n')
    reading = read(folder)

    assert named(reading)["t", ("2",)] == float("inf")
    assert ("t", ("1",)) not in named(reading)
    assert [(gap.spec.name, gap.labels, gap.quality) for gap in reading.gaps] == [("t", ("1",), Quality.BLANK)]
    assert error_of(reading) == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("b 3 1700000000000\n", "timestamp"),
        ("b 3", "no end"),
        ("b\n", "line 1"),
        ('ok 1\nb{x="1} 3\n', "line 2"),
        ("sonde_mine 1\n", "name of sonde's own"),
        ("node_textfile_scrape_error 0\n", "name of sonde's own"),
        ("b 1\nb 2\n", "same series again"),
    ],
)
def test_a_bad_file_is_refused_whole_and_the_others_count(folder: Path, text: str, reason: str) -> None:
    (folder / "bad.prom").write_text(text)
    (folder / "good.prom").write_text(GOOD)
    reading = read(folder)
    found = named(reading)

    assert found["temperature_celsius", ()] == 21.5
    assert ("node_textfile_mtime_seconds", ("/drop/bad.prom",)) not in found
    assert not any(name in ("b", "ok", "sonde_mine") for name, _ in found)
    assert error_of(reading) == 1
    (gap,) = reading.gaps
    assert (gap.labels, gap.quality) == (("/drop/bad.prom",), Quality.BLANK)
    assert reason in gap.reason


def test_the_log_has_each_refusal_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "bad.prom").write_text("b one\n")
    collector = collector_of(folder)
    collector.collect()
    (folder / "good.prom").write_text(GOOD)
    collector.collect()
    collector.collect()

    (record,) = caplog.records
    assert record.getMessage().startswith("textfile: /drop/bad.prom is left out: ")


def test_a_file_that_is_not_utf8_is_refused(folder: Path) -> None:
    (folder / "bad.prom").write_bytes(b"b 1\n# \xff\n")
    (gap,) = read(folder).gaps

    assert "not UTF-8" in gap.reason


def test_a_series_of_an_earlier_file_refuses_the_later_one(folder: Path) -> None:
    (folder / "a.prom").write_text('x{host="1"} 1\n')
    (folder / "b.prom").write_text('x{host="1",site=""} 2\ny 5\n')
    (folder / "c.prom").write_text('x{host="2"} 3\n')
    reading = read(folder)
    found = named(reading)

    assert (found["x", ("1",)], found["x", ("2",)]) == (1, 3)
    assert ("y", ()) not in found
    assert error_of(reading) == 1
    assert [gap.reason for gap in reading.gaps] == ["x{'host': '1'} is in a.prom already"]


def test_one_metric_of_two_files_stands_together_with_the_labels_of_both(folder: Path) -> None:
    (folder / "a.prom").write_text('x{host="1"} 1\ny 5\n')
    (folder / "b.prom").write_text('x{rack="7"} 2\n')
    found = named(read(folder))

    assert (found["x", ("1", "")], found["x", ("", "7")]) == (1, 2)


def test_two_kinds_for_one_metric_refuse_the_later_file(folder: Path) -> None:
    (folder / "a.prom").write_text("# TYPE x counter\nx 1\n")
    (folder / "b.prom").write_text('# TYPE x gauge\nx{a="1"} 1\n')
    (gap,) = read(folder).gaps

    assert gap.reason == "x is a gauge here and a counter in a.prom"


def test_a_file_that_is_too_large_is_refused(folder: Path) -> None:
    (folder / "a.prom").write_text("x 1\n" + "# padding\n" * 100)
    reading = collector_of(folder, max_size=1000).collect()

    assert error_of(reading) == 1
    assert reading.gaps[0].reason == "larger than max_size, 1kB"


def test_a_named_pipe_does_not_hang_the_collector(folder: Path) -> None:
    os.mkfifo(folder / "pipe.prom")
    (gap,) = read(folder).gaps

    assert gap.reason == "not a regular file"


def test_a_link_that_leads_nowhere_is_passed_over(folder: Path) -> None:
    (folder / "gone.prom").symlink_to(folder / "nowhere")

    assert error_of(read(folder)) == 0


def test_a_file_that_cannot_be_read_is_told_and_tried_again(folder: Path) -> None:
    (folder / "a.prom").symlink_to(folder / "a.prom")  # ELOOP, for root too
    collector = collector_of(folder)
    before = collector.collect()
    (folder / "a.prom").unlink()
    (folder / "a.prom").write_text("x 1\n")
    after = collector.collect()

    assert error_of(before) == 1
    assert "symbolic links" in before.gaps[0].reason
    assert named(after)["x", ()] == 1
    assert error_of(after) == 0


def test_a_directory_that_is_not_there_is_told_and_may_come(folder: Path) -> None:
    folder.rmdir()
    collector = collector_of(folder)
    before = collector.collect()
    folder.mkdir()
    after = collector.collect()

    assert error_of(before) == 1
    assert [(gap.labels, gap.reason) for gap in before.gaps] == [(("/drop/",), "No such file or directory")]
    assert error_of(after) == 0
    assert list(after.gaps) == []


def test_new_values_keep_the_layout_and_new_series_change_it(folder: Path) -> None:
    (folder / "a.prom").write_text("x 1\n")
    collector = collector_of(folder)
    first = collector.collect()
    again = collector.collect()
    (folder / "new").write_text("x 22\n")
    (folder / "new").rename(folder / "a.prom")
    moved = collector.collect()
    (folder / "a.prom").write_text("x 22\ny 3\n")
    grown = collector.collect()

    assert again.layout is first.layout
    assert again.values is first.values
    assert moved.layout is first.layout
    assert named(moved)["x", ()] == 22
    assert named(grown)["y", ()] == 3


def test_a_file_is_parsed_again_only_when_it_changed(folder: Path) -> None:
    path = folder / "a.prom"
    path.write_text("x 1\n")
    collector = collector_of(folder)
    collector.collect()
    before = path.stat()
    path.write_text("x 2\n")  # the same size and inode
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    unseen = named(collector.collect())
    os.utime(path)
    seen = named(collector.collect())

    assert unseen["x", ()] == 1
    assert seen["x", ()] == 2


def test_a_file_name_that_is_not_text_becomes_a_label(folder: Path) -> None:
    with open(os.fsencode(folder) + b"/\xff.prom", "wb") as file:
        file.write(b"x 1\n")

    assert ("node_textfile_mtime_seconds", ("/drop/\\xff.prom",)) in named(read(folder))


@pytest.mark.parametrize(
    "line",
    [
        "",
        "1x 3",
        "x",
        "x ",
        "x{",
        "x{} ",
        "x{a} 1",
        "x{a=1} 1",
        'x{a="1" b="2"} 1',
        'x{a="1",a="2"} 1',
        'x{__name__="y"} 1',
        'x{a="\\t"} 1',
        'x{a="1"}} 1',
        "x one",
        "x 1_000",
        "x 0x10",
        "x 1e999",
        "x ١",
        "x 1 2 3",
        "x 1 soon",
        "x+1",
    ],
)
def test_an_odd_line_is_a_parse_error(line: str) -> None:
    with pytest.raises(ParseError):
        parse_sample("a line", line)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("x 1", 1),
        ("x\t-1", -1),
        ("x{}1", 1),
        ('x { a = "1" , } 2.50', 2.5),
        ("x .5", 0.5),
        ("x 1.", 1.0),
        ("x 1E-3", 0.001),
        ("x -inf", float("-inf")),
        ("x 123456789012345678901", 123456789012345678901.0),
    ],
)
def test_a_value_is_read(line: str, value: float) -> None:
    found = parse_sample("a line", line)[2]

    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "# TYPE x blue\n",
        "# TYPE x\n",
        "# TYPE x counter\n# TYPE x counter\n",
        "x 1\n# TYPE x counter\n",
        "# HELP 1 x\n",
    ],
)
def test_an_odd_declaration_is_a_parse_error(text: str) -> None:
    with pytest.raises(ParseError):
        list(parse_exposition("a file", text.encode()))


@given(st.integers(0, len(GOOD)), st.integers(0, len(GOOD)), st.text(max_size=8) | st.sampled_from(['{a="', '"}', "#"]))
@settings(max_examples=400)
def test_mutated_text_is_read_or_refused(start: int, end: int, junk: str) -> None:
    try:
        points = list(parse_exposition("a file", (GOOD[:start] + junk + GOOD[end:]).encode()))
    except ParseError:
        return

    assert len({(point.name, point.labels) for point in points}) == len(points)


@given(st.binary(max_size=100))
@settings(max_examples=200)
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    try:
        points = list(parse_exposition("a file", text))
    except ParseError:
        return

    assert all(point.name for point in points)

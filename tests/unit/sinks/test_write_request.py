"""Frames as bytes of a WriteRequest."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.sinks.receiver import Labels as Pairs
from tests.unit.sinks.receiver import decode

from sonde.model import Frame, Histogram, Kind, Layout, MetricSpec, Series, Unit, Value
from sonde.sinks.write_request import Form, Labels, metadata, padded_time, stale

CPU = MetricSpec("node_cpu_seconds_total", Kind.COUNTER, Unit.SECONDS, "CPU time.", ("mode", "cpu"))
LOAD = MetricSpec("node_load1", Kind.GAUGE, Unit.NONE, "Load.")
LATENCY = MetricSpec("sonde_io_seconds", Kind.HISTOGRAM, Unit.SECONDS, "I/O.", ("device",))
INFO = MetricSpec("sonde_test_info", Kind.INFO, Unit.NONE, "Who.", ("name", "Zone"))
TIME = 1_794_778_958_123
HERE = Labels({"job": "sonde", "instance": "node01"})


def frame(layout: Layout, values: Sequence[Value], time_ms: int = TIME) -> Frame:
    return Frame("test", time_ms * 1_000_000 + 456_789, 0, 10**9, layout, values)


def written(*frames: Frame, labels: Labels = HERE) -> list[tuple[Pairs, list[tuple[int, float]]]]:
    form = Form(frames[0].layout, frames[0].values, labels)
    return decode(b"".join(form.encode(frames)))[0]


def test_labels_stand_in_order_with_the_identity_among_them() -> None:
    assert written(frame(Layout([(CPU, ("idle", "0"))]), [214.07])) == [
        (
            (
                ("__name__", "node_cpu_seconds_total"),
                ("cpu", "0"),
                ("instance", "node01"),
                ("job", "sonde"),
                ("mode", "idle"),
            ),
            [(TIME, 214.07)],
        )
    ]


def test_upper_case_sorts_before_the_name_and_empty_values_are_left_out() -> None:
    ((labels, _),) = written(frame(Layout([(INFO, ("", "A"))]), [1]), labels=Labels({"job": "", "instance": "n"}))

    assert labels == (("Zone", "A"), ("__name__", "sonde_test_info"), ("instance", "n"))


def test_a_series_keeps_its_own_job_and_instance() -> None:
    spec = MetricSpec("batch_up", Kind.GAUGE, Unit.NONE, "Up.", ("job", "instance"))

    ((labels, _),) = written(frame(Layout([(spec, ("nightly", "db"))]), [1]))

    assert labels == (("__name__", "batch_up"), ("instance", "db"), ("job", "nightly"))


def test_names_that_prometheus_would_drop_in_silence_are_made_valid() -> None:
    spec = MetricSpec("system.cpu.time", Kind.COUNTER, Unit.SECONDS, "Time.", ("cpu.mode",))

    ((labels, _),) = written(frame(Layout([(spec, ("idle",))]), [1]), labels=Labels({}))

    assert labels == (("__name__", "system_cpu_time"), ("cpu_mode", "idle"))


def test_a_histogram_is_cumulative_buckets_a_sum_and_a_count() -> None:
    layout = Layout([(LATENCY, ("sda",)), (LOAD, ())])
    found = written(frame(layout, [Histogram((0.1, 1.0), (1, 2, 3), 4.5), 0.25]), labels=Labels({"job": "x"}))

    named = {tuple(dict(labels).get(name, "") for name in ("__name__", "le", "device")): s for labels, s in found}
    assert named == {
        ("sonde_io_seconds_bucket", "0.1", "sda"): [(TIME, 1)],
        ("sonde_io_seconds_bucket", "1.0", "sda"): [(TIME, 3)],
        ("sonde_io_seconds_bucket", "+Inf", "sda"): [(TIME, 6)],
        ("sonde_io_seconds_sum", "", "sda"): [(TIME, 4.5)],
        ("sonde_io_seconds_count", "", "sda"): [(TIME, 6)],
        ("node_load1", "", ""): [(TIME, 0.25)],
    }
    assert all(list(labels) == sorted(labels) for labels, _ in found)


def test_a_form_fits_its_layout_with_the_bounds_it_has_seen() -> None:
    layout = Layout([(LATENCY, ("sda",))])
    form = Form(layout, [Histogram((0.1,), (1, 2), 3.0)], HERE)

    assert form.fits(frame(layout, [Histogram((0.1,), (5, 5), 9.0)]))
    assert not form.fits(frame(layout, [Histogram((0.2,), (5, 5), 9.0)]))
    assert not form.fits(frame(Layout([(LATENCY, ("sda",))]), [Histogram((0.1,), (1, 2), 3.0)]))


def test_several_frames_share_one_time_series() -> None:
    layout = Layout([(CPU, ("idle", str(cpu))) for cpu in range(3)])
    frames = [frame(layout, [tick, tick + 0.5, 2**40 + tick], TIME + tick * 1000) for tick in range(40)]

    found = written(*frames)

    assert [samples for _, samples in found] == [
        [(TIME + tick * 1000, tick + add) for tick in range(40)] for add in (0, 0.5, 2**40)
    ]


def test_many_rows_are_written_in_blocks_and_all_arrive() -> None:
    layout = Layout([(CPU, ("idle", str(cpu))) for cpu in range(5001)])

    one = written(frame(layout, range(5001)))
    two = written(frame(layout, range(5001)), frame(layout, range(5001), TIME + 1))

    assert [samples for _, samples in one] == [[(TIME, value)] for value in range(5001)]
    assert [samples for _, samples in two] == [[(TIME, value), (TIME + 1, value)] for value in range(5001)]


def test_what_is_refused_has_no_row() -> None:
    layout = Layout([(CPU, ("idle", "0")), (LOAD, ()), (CPU_TWO, ("x",))])
    form = Form(layout, [1, 2, 3], HERE, {CPU, CPU_TWO})

    ((labels, samples),) = decode(b"".join(form.encode([frame(layout, [1, 2, 3])])))[0]

    assert (dict(labels)["__name__"], samples) == ("node_load1", [(TIME, 2)])
    assert form.specs == (LOAD,)


CPU_TWO = MetricSpec("node_two", Kind.GAUGE, Unit.NONE, "Two.", ("x",))


def test_infinities_and_numbers_beyond_the_floats_are_written() -> None:
    layout = Layout([(CPU, (str(index), "0")) for index in range(4)])

    found = written(frame(layout, [math.inf, -math.inf, 10**400, -(10**400)]))

    assert [samples[0][1] for _, samples in found] == [math.inf, -math.inf, math.inf, -math.inf]


def test_values_that_are_no_numbers_raise_what_the_sink_expects() -> None:
    layout = Layout([(LOAD, ())])
    form = Form(layout, [1.0], HERE)

    for wrong in (["text"], ["12"], [None], [1.0, 2.0], []):
        with pytest.raises((TypeError, ValueError)):
            list(form.encode([frame(layout, wrong)]))  # type: ignore[arg-type]


def test_the_end_of_a_series_is_the_nan_of_prometheus() -> None:
    form = Form(Layout([(LOAD, ())]), [1.0], HERE)

    encoded = stale(form.rows, TIME)

    ((labels, ((time_ms, _),)),) = decode(encoded)[0]
    assert (dict(labels)["__name__"], time_ms) == ("node_load1", TIME)
    assert struct.pack("<Q", 0x7FF0000000000002) in encoded


def test_metadata_has_type_help_and_unit() -> None:
    assert decode(metadata([CPU, LOAD, LATENCY, INFO]))[1] == {
        "node_cpu_seconds_total": (1, "CPU time.", "seconds"),
        "node_load1": (2, "Load.", ""),
        "sonde_io_seconds": (3, "I/O.", "seconds"),
        "sonde_test_info": (6, "Who.", ""),
    }


@pytest.mark.parametrize("time_ms", [0, 1, 127, 128, 2**35 - 1, TIME, 2**42 - 1])
def test_a_time_has_six_bytes_whatever_it_is(time_ms: int) -> None:
    encoded = padded_time(time_ms)

    assert len(encoded) == 7
    assert decode(stale([b""], time_ms))[0][0][1][0][0] == time_ms


names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,10}", fullmatch=True)
numbers = st.integers(-(2**80), 2**80) | st.floats(allow_nan=False)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.tuples(names, st.text(max_size=20)), st.lists(numbers, min_size=2, max_size=2), max_size=8))
def test_any_series_is_read_back(series: dict[tuple[str, str], list[float]]) -> None:
    specs = {name: MetricSpec(name, Kind.GAUGE, Unit.NONE, "", ("x",)) for name, _ in series}
    ordered: list[Series] = [(specs[name], (value,)) for name, value in sorted(series)]
    layout = Layout(ordered)
    columns = [[series[spec.name, labels[0]][tick] for spec, labels in ordered] for tick in range(2)]

    found = written(*[frame(layout, column, TIME + tick) for tick, column in enumerate(columns)], labels=Labels({}))

    assert [
        (dict(labels)["__name__"], dict(labels).get("x", ""), [v for _, v in samples]) for labels, samples in found
    ] == [
        (spec.name, labels[0].encode("utf-8", "replace").decode(), [float(column[index]) for column in columns])
        for index, (spec, labels) in enumerate(ordered)
    ]

"""Numbers of /sys, and series put together by metric."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.collectors.sysfs import Arrangement, Findings, gap_of, parse_number, thousandths
from sonde.errors import ParseError
from sonde.model import Kind, MetricSpec, Quality, Series, Unit

HEAT = MetricSpec("node_heat", Kind.GAUGE, Unit.CELSIUS, "Heat.", ("zone",))
COLD = MetricSpec("node_cold", Kind.GAUGE, Unit.CELSIUS, "Cold.", ("zone",))
HEAT_0: Series = (HEAT, ("0",))
HEAT_1: Series = (HEAT, ("1",))
COLD_0: Series = (COLD, ("0",))
COLD_1: Series = (COLD, ("1",))


def failed(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(("text", "number"), [(b"48000\n", 48000), (b"-3250\n", -3250), (b"0", 0), (b" 7 \n", 7)])
def test_a_number_is_read(text: bytes, number: int) -> None:
    assert parse_number("temp", text) == number


@given(st.binary(max_size=30) | st.from_regex(rb"-?[0-9_+ ]{0,30}\n?", fullmatch=True))
def test_any_bytes_are_a_number_or_refused(text: bytes) -> None:
    try:
        number = parse_number("temp", text)
    except ParseError:
        return

    assert number == int(text)
    assert b"_" not in text


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENODEV, errno.ENXIO])
def test_a_file_that_is_not_there_is_no_gap(number: int) -> None:
    assert gap_of("temp", failed(number), HEAT_0) is None


@pytest.mark.parametrize(
    ("number", "quality"),
    [
        (errno.EACCES, Quality.DENIED),
        (errno.EPERM, Quality.DENIED),
        (errno.EOPNOTSUPP, Quality.UNSUPPORTED),
        (errno.EIO, Quality.BLANK),
        (errno.ENODATA, Quality.BLANK),
    ],
)
def test_a_file_that_cannot_be_read_is_a_gap(number: int, quality: Quality) -> None:
    gap = gap_of("temp", failed(number), HEAT_0)

    assert gap is not None
    assert (gap.spec, gap.labels, gap.quality) == (HEAT, ("0",), quality)
    assert gap.reason == f"temp: {os.strerror(number)}"


def test_a_number_is_scaled_and_words_are_a_gap() -> None:
    found = Findings()
    found.take("temp", b"48250\n", HEAT_0, thousandths)
    found.take("temp", b"N/A (no PMA)\n", HEAT_1, thousandths)
    found.take("temp", b"\n", COLD_0)

    assert (found.series, found.values) == ([HEAT_0], [48.25])
    assert [(gap.spec, gap.labels, gap.reason) for gap in found.gaps] == [
        (HEAT, ("1",), "temp: N/A (no PMA)"),
        (COLD, ("0",), "temp: empty"),
    ]


def test_series_of_a_metric_are_put_side_by_side_with_their_values() -> None:
    found = Findings()
    for number, series in enumerate((HEAT_0, COLD_0, HEAT_1, COLD_1)):
        found.add(series, number)

    reading = Arrangement().reading(found)

    assert list(reading.layout) == [HEAT_0, HEAT_1, COLD_0, COLD_1]
    assert list(reading.values) == [0, 2, 1, 3]


def test_the_layout_changes_only_with_the_series() -> None:
    arrangement = Arrangement()
    first, second, third = Findings(), Findings(), Findings()
    for found in (first, second):
        found.add(HEAT_0, 1)
        found.add(HEAT_1, 2)
    third.add(HEAT_1, 2)

    layouts = [arrangement.reading(found).layout for found in (first, second, third)]

    assert layouts[0] is layouts[1]
    assert [list(layout) for layout in layouts[1:]] == [[HEAT_0, HEAT_1], [HEAT_1]]


def test_nothing_found_is_an_empty_reading() -> None:
    reading = Arrangement().reading(Findings())

    assert (len(reading.layout), len(reading.values)) == (0, 0)

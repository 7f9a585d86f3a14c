"""Durations and sizes as people write them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.units import Duration, Size, human_bytes, human_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30),
        ("5m", 300),
        ("2h", 7200),
        ("7d", 604800),
        ("10us", 1e-5),
        ("10µs", 1e-5),
        ("1.5s", 1.5),
    ],
)
def test_a_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert Duration.parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "s", "5 parsecs", "-1s", "nans", "infs", "1e999s", "5S"])
def test_a_duration_without_a_good_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"unit|range"):
        Duration.parse(text)


@pytest.mark.parametrize(("text", "size"), [("512MB", 512_000_000), ("2GiB", 2**31), ("1.5kB", 1500), ("7B", 7)])
def test_a_size_is_read_in_bytes(text: str, size: int) -> None:
    assert Size.parse(text) == size


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (Size, "1KB", "'1KB': KB is not a unit here, which are B, kB, MB, .*; did you mean kB\\?"),
        (Size, "1kiB", "did you mean KiB"),
        (Size, "1K", "K is not a unit here, which are .*TiB$"),
        (Size, "1", "a size needs a unit, as in 512MB or 2GiB"),
        (Size, "2000000TiB", "out of range: the largest size is"),
        (Duration, "1w", "w is not a unit here, which are ns, us, ms, s, m, min, h, d$"),
        (Duration, "36526d", "out of range: the longest duration is 36525d, a hundred years"),
    ],
)
def test_what_is_wrong_with_a_unit_or_a_number_is_said(kind: type[Duration | Size], text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind.parse(text)


def test_the_longest_duration_fits_64_bits_of_nanoseconds_beside_the_time_of_day() -> None:
    assert Duration.parse("36525d").ns + time.time_ns() < 2**63


@given(st.integers(min_value=1, max_value=10**9))
def test_a_duration_survives_being_written_and_read(milliseconds: int) -> None:
    duration = Duration(milliseconds / 1000)

    assert Duration.parse(str(duration)) == pytest.approx(duration)


@given(st.integers(min_value=0, max_value=2**50))
def test_a_size_survives_being_written_and_read(size: int) -> None:
    assert Size.parse(str(Size(size))) == size


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    for kind in (Duration, Size):
        try:
            kind.parse(text)
        except ValueError:
            continue


def test_people_are_shown_short_numbers() -> None:
    assert [human_bytes(512), human_bytes(1536), human_bytes(3 * 2**40)] == ["512 B", "1.5 KiB", "3.0 TiB"]
    assert [human_seconds(s) for s in (0.00035, 0.0012, 42, 185, 11100, 180000)] == [
        "350 µs",
        "1.2 ms",
        "42 s",
        "3 m 5 s",
        "3 h 5 m",
        "2 d 2 h",
    ]

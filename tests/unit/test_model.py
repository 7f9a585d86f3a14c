"""Layouts keep their promises."""

from __future__ import annotations

import pytest

from sonde.model import Frame, Kind, Layout, MetricSpec, Sample, Unit

ONE = MetricSpec("one", Kind.GAUGE, Unit.NONE, "One.", ("device",))
TWO = MetricSpec("two", Kind.GAUGE, Unit.NONE, "Two.")


def test_a_series_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        Layout([(ONE, ("a",)), (ONE, ("a",))])


def test_a_wrong_number_of_labels_is_refused() -> None:
    with pytest.raises(ValueError, match="label values"):
        Layout([(ONE, ())])


def test_the_series_of_a_metric_stand_together() -> None:
    with pytest.raises(ValueError, match="together"):
        Layout([(ONE, ("a",)), (TWO, ()), (ONE, ("b",))])


def test_a_frame_is_iterated_as_samples() -> None:
    frame = Frame("it", 1, 2, 3, Layout([(ONE, ("a",)), (TWO, ())]), (5, 0.5))

    assert list(frame.samples()) == [Sample(ONE, ("a",), 5), Sample(TWO, (), 0.5)]

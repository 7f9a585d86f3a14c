"""Constant labels."""

from __future__ import annotations

import pytest

from sonde.errors import ConfigError
from sonde.model import Frame, Kind, Layout, MetricSpec, Unit
from sonde.pipeline.enrich import Enricher

PLAIN = MetricSpec("one", Kind.GAUGE, Unit.NONE, "One.")
OWN = MetricSpec("two", Kind.GAUGE, Unit.NONE, "Two.", ("site", "device"))
FRAME = Frame("it", 0, 0, 1, Layout([(PLAIN, ()), (OWN, ("mine", "a"))]), (1, 2))


def test_without_labels_the_frames_are_the_same_objects() -> None:
    frames = [FRAME]

    assert Enricher({}).apply(frames) is frames


def test_labels_are_added_and_a_series_own_label_wins() -> None:
    enriched = Enricher({"site": "north", "rack": "r7"}).apply([FRAME])[0]

    assert [(spec.labels, labels) for spec, labels in enriched.layout] == [
        (("site", "rack"), ("north", "r7")),
        (("site", "device", "rack"), ("mine", "a", "r7")),
    ]


def test_a_layout_is_rewritten_once() -> None:
    enricher = Enricher({"site": "north"})

    assert enricher.apply([FRAME])[0].layout is enricher.apply([FRAME])[0].layout


@pytest.mark.parametrize("name", ["job", "instance", "le", "__x", "a-b", ""])
def test_names_that_are_not_ours_to_give_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="label name"):
        Enricher({name: "x"})

"""What a sink gets of a frame, and under which names."""

from __future__ import annotations

import pytest

from sonde.errors import ConfigError
from sonde.model import Event, Frame, Gap, Kind, Layout, MetricSpec, Quality, Unit
from sonde.pipeline.selection import Selection

READ = MetricSpec("disk_read_bytes_total", Kind.COUNTER, Unit.BYTES, "Read.", ("device",))
LOAD = MetricSpec("load1", Kind.GAUGE, Unit.NONE, "Load.")
LAYOUT = Layout([(READ, ("sda",)), (READ, ("sdb",)), (LOAD, ())])
FRAME = Frame("disk", 1, 2, 3, LAYOUT, (10, 20, 0.5), gaps=(Gap(READ, ("sdc",), Quality.DENIED, "no"),))


def test_a_selection_of_everything_passes_frames_on_untouched() -> None:
    assert Selection().apply(FRAME) is FRAME


def test_a_renamed_metric_keeps_kind_unit_labels_and_values() -> None:
    renamed = Selection(rename={"disk_read_bytes_total": "io.read"}).apply(FRAME)

    assert renamed is not None
    assert [(spec.name, spec.kind, spec.unit, labels) for spec, labels in renamed.layout] == [
        ("io.read", Kind.COUNTER, Unit.BYTES, ("sda",)),
        ("io.read", Kind.COUNTER, Unit.BYTES, ("sdb",)),
        ("load1", Kind.GAUGE, Unit.NONE, ()),
    ]
    assert tuple(renamed.values) == (10, 20, 0.5)
    assert renamed.gaps[0].spec is renamed.layout[0][0]


def test_the_renamed_layout_is_the_same_object_tick_after_tick() -> None:
    selection = Selection(rename={"load1": "load"})
    first, second = selection.apply(FRAME), selection.apply(FRAME._replace(time_ns=2))

    assert first is not None
    assert second is not None
    assert first.layout is second.layout


def test_patterns_see_the_name_before_the_renaming() -> None:
    chosen = Selection(include=["load*"], rename={"load1": "system.load", "disk_read_bytes_total": "x"}).apply(FRAME)

    assert chosen is not None
    assert [spec.name for spec, _ in chosen.layout] == ["system.load"]
    assert chosen.gaps == ()


def test_events_pass_even_when_no_metric_does() -> None:
    frame = FRAME._replace(events=(Event(1, "oom.kill", {}),))
    chosen = Selection(include=["nothing"]).apply(frame)

    assert chosen is not None
    assert chosen.events == frame.events
    assert not len(chosen.layout)


def names(frame: Frame | None) -> list[str]:
    return [] if frame is None else [spec.name for spec, _ in frame.layout]


def test_a_metric_keeps_its_name_when_another_of_the_frame_has_the_one_it_should_get(
    caplog: pytest.LogCaptureFixture,
) -> None:
    selection = Selection(rename={"load1": "disk_read_bytes_total"}, key="sinks.it.rename")
    first = selection.apply(FRAME)
    again = selection.apply(FRAME._replace(layout=Layout(LAYOUT)))

    assert names(first) == names(again) == [spec.name for spec, _ in LAYOUT]
    assert caplog.messages == [
        "sinks.it.rename.load1: there is another metric called disk_read_bytes_total, so load1 keeps its name"
    ]


def test_a_metric_gets_its_name_back_when_another_source_turns_out_to_have_the_new_one() -> None:
    selection = Selection(rename={"load1": "disk_read_bytes_total"})
    load = FRAME._replace(source="load", layout=Layout([(LOAD, ())]), values=(0.5,), gaps=())
    before = selection.apply(load)
    selection.apply(FRAME)

    assert names(before) == ["disk_read_bytes_total"]
    assert names(selection.apply(load)) == ["load1"]


def test_a_renaming_that_is_given_up_takes_those_onto_its_old_name_along() -> None:
    third = MetricSpec("third", Kind.GAUGE, Unit.NONE, "Third.")
    frame = Frame("x", 1, 2, 3, Layout([(READ, ("sda",)), (LOAD, ()), (third, ())]), (1, 2, 3))
    chain = Selection(rename={"third": "load1", "load1": "disk_read_bytes_total"})

    assert names(chain.apply(frame)) == ["disk_read_bytes_total", "load1", "third"]


@pytest.mark.parametrize(
    "selection",
    [
        Selection(rename={"load1": "disk_read_bytes_total", "disk_read_bytes_total": "load1"}),
        Selection(rename={"load1": "disk_read_bytes_total"}, exclude=["disk*"]),
    ],
)
def test_a_name_that_its_metric_gives_up_is_free(selection: Selection, caplog: pytest.LogCaptureFixture) -> None:
    chosen = selection.apply(FRAME)

    assert names(chosen)[-1] == "disk_read_bytes_total"
    assert not caplog.messages


@pytest.mark.parametrize(
    ("rename", "message"),
    [({"a": "x", "b": "x"}, "cannot both be called x"), ({"a": "1x"}, "rename.a"), ({"a": "x y"}, "'x y'")],
)
def test_a_rename_that_makes_two_metrics_one_or_no_name_is_refused(rename: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Selection(rename=rename)

"""Requests of OTLP, read back with the published protobuf classes and compared value by value."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.otlp import Attributes, Decoded, points_of, scope_of

from sonde.errors import Unavailable
from sonde.hostfs import HostFS
from sonde.model import Frame, Histogram, Kind, Layout, MetricSpec, Unit, Value
from sonde.pipeline.assembly import construct
from sonde.registry import COLLECTORS, load
from sonde.sinks.otlp_encoding import Encoder
from sonde.sinks.otlp_names import RULES, Instrument, Rule, Rules

NOW = 1_800_000_000_000_000_000
S = 1_000_000_000
BOOT = NOW - 1000 * S

CPU = MetricSpec("node_cpu_seconds_total", Kind.COUNTER, Unit.SECONDS, "CPU time.", ("cpu", "mode"))
RECEIVED = MetricSpec("node_network_receive_bytes_total", Kind.COUNTER, Unit.BYTES, "In.", ("device",))
SENT = MetricSpec("node_network_transmit_bytes_total", Kind.COUNTER, Unit.BYTES, "Out.", ("device",))
JOBS = MetricSpec("sonde_job_cpu_seconds_total", Kind.COUNTER, Unit.SECONDS, "Of a job.", ("job_id",))
LOAD = MetricSpec("node_load1", Kind.GAUGE, Unit.NONE, "1m load average.")
INFO = MetricSpec("sonde_build_info", Kind.INFO, Unit.NONE, "Versions.", ("version",))
BIO = MetricSpec("sonde_bio_seconds", Kind.HISTOGRAM, Unit.SECONDS, "I/O.", ("device",))


def encoder(rules: Rules = RULES) -> Encoder:
    return Encoder(b"", b"", rules, BOOT)


def frame(layout: Layout, values: Sequence[Value], time_ns: int = NOW, source: str = "test") -> Frame:
    return Frame(source, time_ns, 0, S, layout, values)


def decoded(made: Encoder, *frames: Frame) -> list[Decoded]:
    request = made.encode(frames)
    made.commit()
    return points_of(request) if request else []


def having(*pairs: tuple[str, str | int]) -> Attributes:
    return frozenset(pairs)


def test_receive_and_transmit_become_one_metric_with_a_direction() -> None:
    layout = Layout([(RECEIVED, ("eth0",)), (RECEIVED, ("eth1",)), (SENT, ("eth0",))])
    request = encoder().encode([frame(layout, (5, 6, 7))])

    (metric,) = scope_of(request).metrics
    assert (metric.name, metric.unit, metric.description) == ("system.network.io", "By", "")
    io = [(dict(point.attributes), point.value, point.start_ns, point.time_ns) for point in points_of(request)]
    assert io == [
        ({"network.interface.name": "eth0", "network.io.direction": "receive"}, 5, BOOT, NOW),
        ({"network.interface.name": "eth1", "network.io.direction": "receive"}, 6, BOOT, NOW),
        ({"network.interface.name": "eth0", "network.io.direction": "transmit"}, 7, BOOT, NOW),
    ]


def test_a_cpu_has_a_number_and_an_interrupt_its_conventional_name() -> None:
    layout = Layout([(CPU, ("3", "irq")), (CPU, ("3", "softirq"))])
    points = decoded(encoder(), frame(layout, (1.5, 2.0)))

    assert [point.attributes for point in points] == [
        having(("cpu.logical_number", 3), ("cpu.mode", "interrupt")),
        having(("cpu.logical_number", 3), ("cpu.mode", "softirq")),
    ]
    assert {(point.name, point.unit, point.instrument) for point in points} == {("system.cpu.time", "s", "counter")}


def test_without_rules_names_labels_and_help_stay() -> None:
    request = encoder({}).encode([frame(Layout([(CPU, ("0", "irq")), (LOAD, ()), (INFO, ("1.0",))]), (2.5, 0.25, 1))])

    cpu, load1, info = points_of(request)
    assert cpu[:4] == ("node_cpu_seconds_total", "s", "counter", having(("cpu", "0"), ("mode", "irq")))
    assert load1[:4] == ("node_load1", "", "gauge", having())
    assert info == Decoded("sonde_build_info", "", "gauge", having(("version", "1.0")), 0, NOW, 1)
    assert [metric.description for metric in scope_of(request).metrics] == [
        "CPU time.",
        "1m load average.",
        "Versions.",
    ]


def test_whole_numbers_stay_whole_and_may_become_doubles_from_one_tick_to_the_next() -> None:
    made, layout = encoder({}), Layout([(LOAD, ())])
    ticks: list[Value] = [3, 3.5, 2**63 - 1, -(2**63), 2**64, True, 7]
    values = [decoded(made, frame(layout, (value,), NOW + n * S))[0].value for n, value in enumerate(ticks)]

    assert values == [3, 3.5, 2**63 - 1, -(2**63), 2.0**64, 1, 7]
    assert [type(value) for value in values] == [int, float, int, int, float, int, int]


def test_infinities_travel() -> None:
    assert decoded(encoder(), frame(Layout([(LOAD, ())]), (float("-inf"),)))[0].value == float("-inf")


def test_what_the_kernel_counts_began_with_the_host() -> None:
    (point,) = decoded(encoder(), frame(Layout([(RECEIVED, ("eth0",))]), (5,)))

    assert point.start_ns == BOOT


@pytest.mark.parametrize(
    ("spec", "source"),
    [
        (JOBS, "job"),
        (MetricSpec("node_backups_total", Kind.COUNTER, Unit.NONE, "", ("x",)), "textfile"),
        (MetricSpec("node_rapl_package_joules_total", Kind.COUNTER, Unit.JOULES, "", ("x",)), "power"),
    ],
)
def test_a_counter_of_unknown_age_begins_with_an_empty_interval_and_keeps_its_start(
    spec: MetricSpec, source: str
) -> None:
    made, layout = encoder(), Layout([(spec, ("7",))])
    first, second = (decoded(made, frame(layout, (100 + n,), NOW + n * S, source))[0] for n in range(2))

    assert (first.start_ns, first.time_ns) == (NOW, NOW)
    assert (second.start_ns, second.time_ns) == (NOW, NOW + S)


def test_a_start_is_kept_when_the_layout_changes_and_a_newcomer_has_its_own() -> None:
    made = encoder()
    decoded(made, frame(Layout([(JOBS, ("7",))]), (1,)))
    old, new = decoded(made, frame(Layout([(JOBS, ("7",)), (JOBS, ("8",))]), (2, 1), NOW + S))

    assert (old.start_ns, new.start_ns) == (NOW, NOW + S)


def test_a_counter_that_falls_has_started_anew_after_it_was_last_seen() -> None:
    made, layout = encoder(), Layout([(RECEIVED, ("eth0",)), (RECEIVED, ("eth1",))])
    starts = [
        [point.start_ns for point in decoded(made, frame(layout, values, NOW + n * S))]
        for n, values in enumerate([(5, 5), (6, 6), (2, 7), (3, 8)])
    ]

    assert starts == [[BOOT, BOOT], [BOOT, BOOT], [NOW + S, BOOT], [NOW + S, BOOT]]


def test_a_counter_that_falls_while_another_comes_has_started_anew_too() -> None:
    made = encoder()
    decoded(made, frame(Layout([(RECEIVED, ("eth0",)), (RECEIVED, ("eth1",))]), (5, 5)))
    layout = Layout([(RECEIVED, ("eth1",)), (RECEIVED, ("eth0",)), (RECEIVED, ("eth2",))])
    points = decoded(made, frame(layout, (6, 2, 1), NOW + S))

    assert [point.start_ns for point in points] == [BOOT, NOW, BOOT]


def test_a_value_that_may_fall_is_no_restart() -> None:
    total = MetricSpec("node_memory_MemFree_bytes", Kind.GAUGE, Unit.BYTES, "")
    made, layout = encoder(), Layout([(total, ())])
    points = [decoded(made, frame(layout, (value,), NOW + value))[0] for value in (9, 3)]

    assert [(point.instrument, point.start_ns) for point in points] == [("updowncounter", BOOT)] * 2


def test_a_batch_that_is_sent_again_is_the_same_request() -> None:
    made, layout = encoder(), Layout([(JOBS, ("7",))])
    batch = [frame(layout, (value,), NOW + n * S) for n, value in enumerate((5, 9, 2, 4))]
    first = made.encode(batch)
    again = made.encode(batch)
    made.commit()

    assert again == first
    assert [point.start_ns - NOW for point in points_of(again)] == [0, 0, S, S]
    assert decoded(made, frame(layout, (5,), NOW + 9 * S))[0].start_ns == NOW + S


def test_no_counter_begins_after_its_time() -> None:
    made, layout = encoder(), Layout([(RECEIVED, ("eth0",))])
    before_boot, clock_set_back = decoded(made, frame(layout, (5,), BOOT - S), frame(layout, (2,), BOOT - 2 * S))

    assert before_boot.start_ns == BOOT - S
    assert clock_set_back.start_ns == BOOT - 2 * S


def test_what_is_used_is_what_is_there_less_what_is_free() -> None:
    names = ("MemTotal", "MemFree", "MemAvailable", "SwapTotal", "SwapFree")
    specs = [MetricSpec(f"node_memory_{name}_bytes", Kind.GAUGE, Unit.BYTES, "") for name in names]
    points = decoded(encoder(), frame(Layout([(spec, ()) for spec in specs]), (100, 10, 70, 8, 3)))

    assert {(point.name, *(value for _, value in point.attributes)): point.value for point in points} == {
        ("system.memory.limit",): 100,
        ("system.memory.usage", "used"): 30,
        ("system.memory.usage", "free"): 10,
        ("system.memory.linux.available",): 70,
        ("system.paging.usage", "used"): 5,
        ("system.paging.usage", "free"): 3,
    }


def test_a_difference_without_its_other_side_is_left_out() -> None:
    total = MetricSpec("node_memory_MemTotal_bytes", Kind.GAUGE, Unit.BYTES, "")

    assert [point.name for point in decoded(encoder(), frame(Layout([(total, ())]), (100,)))] == ["system.memory.limit"]


def test_the_states_of_a_filesystem_add_up_to_its_size() -> None:
    labels = ("device", "mountpoint", "fstype")
    specs = [
        MetricSpec(f"node_filesystem_{name}_bytes", Kind.GAUGE, Unit.BYTES, "", labels)
        for name in ("size", "free", "avail")
    ]
    layout = Layout([(spec, ("/dev/sda1", "/", "ext4")) for spec in specs])
    points = decoded(encoder(), frame(layout, (100, 30, 25)))

    states = {dict(point.attributes).get("system.filesystem.state"): point.value for point in points}
    assert states == {None: 100, "used": 70, "reserved": 5, "free": 25}
    assert {("system.filesystem.mountpoint", "/"), ("system.device", "/dev/sda1")} <= points[1].attributes


def test_a_label_of_the_whole_daemon_is_an_attribute_beside_the_conventions_own() -> None:
    spec = MetricSpec(RECEIVED.name, Kind.COUNTER, Unit.BYTES, "", ("device", "cluster"))
    (point,) = decoded(encoder(), frame(Layout([(spec, ("eth0", "alpha"))]), (5,)))

    assert ("cluster", "alpha") in point.attributes


def test_a_dialect_scales_renames_makes_gauges_and_leaves_out() -> None:
    percent = MetricSpec("cpu_u", Kind.COUNTER, Unit.NONE, "")
    kept = MetricSpec("uptime", Kind.GAUGE, Unit.NONE, "")
    rules = {
        "cpu_u": (Rule("cpu_u", "1", 0.01, {"cpu.mode": "user"}, instrument=Instrument.GAUGE),),
        "uptime": (Rule("uptime", "s", 1.0),),
        "node_load1": (),
    }
    points = decoded(encoder(rules), frame(Layout([(percent, ()), (kept, ()), (LOAD, ())]), (50, 7, 0.5)))

    assert points == [
        Decoded("cpu_u", "1", "gauge", having(("cpu.mode", "user")), 0, NOW, 0.5),
        Decoded("uptime", "s", "gauge", having(), 0, NOW, 7.0),
    ]
    assert type(points[1].value) is float


def test_histograms_keep_their_bounds_and_notice_a_restart() -> None:
    made, layout = encoder(), Layout([(LOAD, ()), (BIO, ("sda",)), (BIO, ("sdb",))])
    empty = Histogram((), (4,), 2.0)
    ticks = [
        Histogram((0.1, 1.0), (3, 2, 1), 4.5),
        Histogram((0.1, 1.0), (4, 2, 1), 4.6),
        Histogram((0.5,), (1, 0), 0.2),
    ]
    points = [decoded(made, frame(layout, (0.5, value, empty), NOW + n * S)) for n, value in enumerate(ticks)]

    assert [tick[1].value for tick in points] == ticks
    assert [tick[2].value for tick in points] == [empty] * 3
    assert [tick[1].start_ns - NOW for tick in points] == [0, 0, S]
    assert points[0][1][:4] == ("sonde_bio_seconds", "s", "histogram", having(("device", "sda")))


def test_several_frames_of_several_sources_are_one_request() -> None:
    one, two = Layout([(LOAD, ())]), Layout([(JOBS, ("7",))])
    frames = [frame(one, (1.0,)), frame(two, (3,), source="job"), frame(one, (2.0,), NOW + S)]
    points = decoded(encoder(), *frames)

    assert [(point.name, point.time_ns, point.value) for point in points] == [
        ("node_load1", NOW, 1.0),
        ("sonde_job_cpu_seconds_total", NOW, 3),
        ("node_load1", NOW + S, 2.0),
    ]


def test_frames_without_values_make_no_request() -> None:
    assert encoder().encode([frame(Layout(()), ())]) == b""


def test_a_label_that_is_no_unicode_is_replaced() -> None:
    (point,) = decoded(encoder({}), frame(Layout([(RECEIVED, (os.fsdecode(b"\xff"),))]), (5,)))

    assert point.attributes == having(("device", "?"))


@pytest.mark.parametrize("host", ["vm", "big", "slurm_v1", "slurm_v2"])
@pytest.mark.parametrize("rules", [RULES, {}], ids=["semantic", "native"])
def test_every_value_of_a_captured_host_arrives_once(
    captured: Callable[[str], HostFS], host: str, rules: Rules
) -> None:
    made = encoder(rules)
    seen: set[tuple[str, Attributes]] = set()
    for name in COLLECTORS:
        cls: Any = load(COLLECTORS, name)
        try:
            collector = construct(cls, captured(host), cls.Config())
        except Unavailable:
            continue
        reading = collector.collect()
        collector.close()
        points = decoded(made, frame(reading.layout, reading.values, source=name))
        identities = [(point.name, point.attributes) for point in points]
        assert len(set(identities)) == len(identities)
        assert seen.isdisjoint(identities)
        seen |= set(identities)
        if not rules:
            assert [
                (spec.name, having(*zip(spec.labels, labels, strict=True)), value)
                for (spec, labels), value in zip(reading.layout, reading.values, strict=True)
            ] == [(point.name, point.attributes, point.value) for point in points]
        else:
            kept = [(s, v) for (s, _), v in zip(reading.layout, reading.values, strict=True) if s.name not in rules]
            assert [v for s, v in kept] == [p.value for p in points if p.name not in _SEMANTIC]

    assert seen


_SEMANTIC = {rule.name for rules in RULES.values() for rule in rules}

_texts = st.text(max_size=8)
_numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.integers(-(2**70), 2**70), st.booleans()
)
_counts = st.integers(0, 2**40)
_histograms = st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=4, unique=True).flatmap(
    lambda bounds: st.builds(
        Histogram,
        st.just(tuple(sorted(bounds))),
        st.tuples(*[_counts] * (len(bounds) + 1)),
        st.floats(allow_nan=False),
    )
)


@st.composite
def _series(draw: st.DrawFn) -> tuple[list[tuple[MetricSpec, tuple[str, ...]]], list[list[Value]]]:
    """A layout, and the values of a few ticks over it."""
    series: list[tuple[MetricSpec, tuple[str, ...]]] = []
    for index, kind in enumerate(draw(st.lists(st.sampled_from(list(Kind)), min_size=1, max_size=5))):
        spec = MetricSpec(draw(_texts) + str(index), kind, draw(st.sampled_from(list(Unit))), draw(_texts), ("a", "b"))
        series += [(spec, labels) for labels in draw(st.sets(st.tuples(_texts, _texts), max_size=4))]
    ticks = draw(st.integers(1, 3))
    values = [
        [draw(_histograms if spec.kind is Kind.HISTOGRAM else _numbers) for spec, _ in series] for _ in range(ticks)
    ]
    return series, values


@settings(max_examples=150, deadline=None)
@given(_series(), st.integers(1, 2**63 - 1))
def test_whatever_is_encoded_is_read_back(
    made: tuple[list[tuple[MetricSpec, tuple[str, ...]]], list[list[Value]]], time_ns: int
) -> None:
    series, ticks = made
    layout, sender = Layout(series), encoder({})
    for tick, values in enumerate(ticks):
        request = sender.encode([frame(layout, values, time_ns + tick)])
        sender.commit()
        points = points_of(request) if request else []
        expected = {
            (spec.name, frozenset(zip(spec.labels, labels, strict=True))): _as_sent(value)
            for (spec, labels), value in zip(series, values, strict=True)
        }
        assert {(point.name, point.attributes): point.value for point in points} == expected
        assert all(point.time_ns == time_ns + tick and point.start_ns <= point.time_ns for point in points)


def _as_sent(value: Value) -> Value:
    return float(value) if isinstance(value, int) and not -(2**63) <= value < 2**63 else value


def test_the_points_follow_the_devices_that_come_and_go() -> None:
    made = encoder()
    for devices in (["eth0"], ["eth0", "eth1"], ["eth1"]):
        points = decoded(made, frame(Layout([(RECEIVED, (name,)) for name in devices]), range(5, 5 + len(devices))))
        assert [dict(point.attributes)["network.interface.name"] for point in points] == devices

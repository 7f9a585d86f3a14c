"""mips and mega_cycles_per_second: rates of an average CPU over the interval."""

from __future__ import annotations

import pytest
from tests.unit.dialects.dynolog.conftest import PERIOD, TIME, cpu_frame, said, uptime_frame

from sonde.collectors.perf import EVENTS, RUNNING
from sonde.dialects.dynolog.flags import configuration, given, notes
from sonde.dialects.dynolog.heartbeat import HeartbeatTranslation
from sonde.dialects.dynolog.records import Recorder
from sonde.dialects.dynolog.translate import Translator
from sonde.hostfs import HostFS
from sonde.model import Frame, Gap, Layout, Quality, Series
from sonde.pipeline.enrich import Enricher

WHOM = ("system", "", "", "", "", "all")
NOWHERE = HostFS("/nonexistent")


def layout(cpus: tuple[str, ...] = ("",), events: tuple[str, ...] = ("cycles", "instructions")) -> Layout:
    series: list[Series] = [(EVENTS, (event, "core", *WHOM[:4], cpu, "all")) for event in events for cpu in cpus]
    series += [
        (EVENTS, ("instructions", "branch", *WHOM)),
        (EVENTS, ("cycles", "core", "tree", "7", "", "", "", "all")),
    ]
    series += [(RUNNING, ("core", *WHOM[:4], cpu, "all")) for cpu in cpus]
    return Layout([*series, (RUNNING, ("core", "tree", "7", "", "", "", "all"))])


LAYOUT = layout()


def frame(cycles: int, instructions: int, seconds: float, form: Layout = LAYOUT, time_ns: int = TIME) -> Frame:
    """Of all CPUs; another group and a job have numbers that must not be taken."""
    return Frame("perf", time_ns, 1000, PERIOD, form, [cycles, instructions, 5, 6, seconds, 99.0])


def test_counts_over_the_time_they_were_counted_in_are_millions_per_second() -> None:
    translation = HeartbeatTranslation()
    assert translation(frame(10**9, 10**9, 100.0)) is None

    # Two CPUs, 10 s each, of which 5 s were on the counters: 10 s in all.
    found = translation(frame(10**9 + 24 * 10**9, 10**9 + 30 * 10**9, 110.0))

    assert said(found) == {"mips": pytest.approx(3000), "mega_cycles_per_second": pytest.approx(2400)}


def test_series_of_single_cpus_are_put_together() -> None:
    translation = HeartbeatTranslation()
    form = layout(cpus=("0", "1"))

    def values(cycles: int, instructions: int, seconds: float) -> Frame:
        numbers = [cycles, cycles, instructions, 3 * instructions, 5, 6, seconds, seconds, 99.0]
        return Frame("perf", TIME, 1000, PERIOD, form, numbers)

    translation(values(0, 0, 0.0))
    found = translation(values(10**7, 10**7, 10.0))

    assert said(found) == {"mips": pytest.approx(2), "mega_cycles_per_second": pytest.approx(1)}


@pytest.mark.parametrize("after", [frame(5, 5, 20.0), frame(10, 10, 10.0)])
def test_counts_set_back_or_nothing_counted_says_nothing(after: Frame) -> None:
    translation = HeartbeatTranslation()
    translation(frame(10, 10, 10.0))

    assert translation(after) is None


def test_what_is_not_counted_is_unsupported_and_not_zero() -> None:
    translation = HeartbeatTranslation()
    form = Layout([(EVENTS, ("task_clock_ns", "software", *WHOM))])
    gaps = [Gap(EVENTS, (), Quality.UNSUPPORTED, "cycles: no hardware counters here")]

    found = translation(Frame("perf", TIME, 1000, PERIOD, form, [5], (), gaps))

    assert said(found) == {}
    assert found is not None
    assert {(gap.spec.name, gap.quality) for gap in found.gaps} == {
        ("mips", Quality.UNSUPPORTED),
        ("mega_cycles_per_second", Quality.UNSUPPORTED),
    }
    assert Recorder().records([found]) == []


def test_labels_of_the_configuration_are_kept_and_the_layout_stays() -> None:
    translation, enricher = HeartbeatTranslation(), Enricher({"rack": "r1"})
    frames = [translation(enricher.apply([frame(n, n, float(n))])[0]) for n in range(1, 5)]

    shown = [one.layout for one in frames if one is not None]
    assert [labels for _, labels in shown[0]] == [("r1",), ("r1",)]
    assert all(one is shown[0] for one in shown)


def test_counters_have_a_record_of_their_own_after_the_kernel_s() -> None:
    translator, recorder = Translator(NOWHERE), Recorder()
    translator.frames([frame(0, 0, 0.0), cpu_frame({"0": {}}), uptime_frame(1)])

    frames = translator.frames(
        [frame(10**6, 10**6, 1.0, time_ns=TIME + 5), cpu_frame({"0": {"user": 1}}), uptime_frame(2)]
    )
    records = recorder.records(frames)

    assert [("uptime" in record.keys, "mips" in record.keys) for record in records] == [(True, False), (False, True)]


def test_the_flag_switches_the_counters_on() -> None:
    config = configuration(["--enable_perf_monitor", "--perf_monitor_reporting_interval_s=7", "--use_JSON"])

    assert "perf" in config.daemon.collectors
    assert dict(config.collectors["perf"]) == {"period": "7s", "groups": ["core"]}
    assert notes(given(["--enable_perf_monitor", "--use_JSON"])) == []


def test_without_the_flag_nothing_is_counted() -> None:
    config = configuration(["--use_JSON"])

    assert "perf" not in config.daemon.collectors
    assert "perf" not in config.collectors

"""Our counters in dynolog's words: percent, milliseconds, increments."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.dialects.dynolog.conftest import TIME, cpu_frame, network_frame, said, uptime_frame

from sonde.collectors.cpu import CpuCollector
from sonde.collectors.network import NetworkCollector, NetworkConfig
from sonde.config import NoKeys
from sonde.dialects.dynolog.translate import CpuTranslation, NetworkTranslation, Translator, sockets_of
from sonde.hostfs import HostFS
from sonde.model import Frame, Quality
from sonde.pipeline.enrich import Enricher

NOWHERE = HostFS("/nonexistent")


def test_the_first_frames_say_the_uptime_and_nothing_else() -> None:
    translator = Translator(NOWHERE)

    first = translator.frames([cpu_frame({"0": {"user": 5}}), uptime_frame(71.99), network_frame({"eth0": 7})])

    assert [said(frame) for frame in first] == [{"uptime": 71}]


def test_cpu_time_becomes_percent_and_milliseconds() -> None:
    translation = CpuTranslation(NOWHERE)
    translation(cpu_frame({"0": {}, "1": {}}))

    frame = translation(
        cpu_frame(
            {
                "0": {"user": 0.25, "nice": 0.05, "system": 0.1, "idle": 0.5, "iowait": 0.1, "guest": 0.2},
                "1": {"user": 0.15, "irq": 0.02, "softirq": 0.03, "steal": 0.1, "idle": 0.7, "guest_nice": 0.01},
            }
        )
    )

    assert said(frame) == {
        "cpu_util": pytest.approx(40),
        "cpu_u": pytest.approx(20),
        "cpu_s": pytest.approx(5),
        "cpu_i": pytest.approx(60),
        "cpu_guest": pytest.approx(10),
        "cpu_guest_nice": pytest.approx(0.5),
        "cpu_u_ms": 400,
        "cpu_n_ms": 50,
        "cpu_s_ms": 100,
        "cpu_w_ms": 100,
        "cpu_x_ms": 20,
        "cpu_y_ms": 30,
        "cpu_z_ms": 100,
        "cpu_guest_ms": 200,
        "cpu_guest_nice_ms": 10,
    }


def test_the_layout_is_the_same_object_from_frame_to_frame() -> None:
    translator = Translator(NOWHERE)
    ticks = [
        translator.frames([cpu_frame({"0": {"idle": n}}), network_frame({"lo": n}), uptime_frame(n)]) for n in range(4)
    ]

    layouts = [[frame.layout for frame in tick] for tick in ticks[1:]]

    assert all(a is b for tick in layouts[1:] for a, b in zip(layouts[0], tick, strict=True))
    assert len(layouts[0]) == 3


def test_time_that_the_kernel_moves_from_iowait_to_idle_is_counted_once() -> None:
    translation = CpuTranslation(NOWHERE)
    translation(cpu_frame({"0": {"idle": 10, "iowait": 2}}))

    frame = translation(cpu_frame({"0": {"idle": 11, "iowait": 1.5, "user": 0.5}}))
    back = translation(cpu_frame({"0": {"idle": 10.5, "iowait": 2.5, "user": 1}}))

    assert (said(frame)["cpu_w_ms"], said(frame)["cpu_i"], said(frame)["cpu_u"]) == (0, 50, 50)
    assert (said(back)["cpu_w_ms"], said(back)["cpu_i"], said(back)["cpu_u"]) == (500, 0, 50)


def test_steal_that_steps_back_counts_as_nothing() -> None:
    translation = CpuTranslation(NOWHERE)
    translation(cpu_frame({"0": {"steal": 9}}))

    frame = translation(cpu_frame({"0": {"idle": 1, "steal": 5}}))

    assert (said(frame)["cpu_z_ms"], said(frame)["cpu_i"]) == (0, 100)


def test_times_that_were_set_back_are_left_out_once() -> None:
    translation = CpuTranslation(NOWHERE)
    translation(cpu_frame({"0": {"idle": 1000, "user": 50}}))

    assert translation(cpu_frame({"0": {"idle": 1, "user": 0.5}})) is None
    assert said(translation(cpu_frame({"0": {"idle": 1.5, "user": 1}})))["cpu_u"] == 50


def test_a_cpu_that_comes_back_with_old_counts_makes_no_leap() -> None:
    translation = CpuTranslation(NOWHERE)
    translation(cpu_frame({"0": {"idle": 100}}))

    frame = translation(cpu_frame({"0": {"idle": 101}, "1": {"user": 5000}}))
    after = translation(cpu_frame({"0": {"idle": 102}, "1": {"user": 5001}}))

    assert (said(frame)["cpu_i"], said(frame)["cpu_u_ms"]) == (100, 0)
    assert (said(after)["cpu_i"], said(after)["cpu_u_ms"]) == (50, 1000)


def test_a_cpu_that_goes_off_line_takes_nothing_with_it() -> None:
    translation = CpuTranslation(NOWHERE)
    translation(cpu_frame({"0": {"idle": 100}, "1": {"idle": 100}}))

    frame = translation(cpu_frame({"0": {"idle": 100.5, "user": 0.5}}))

    assert (said(frame)["cpu_i"], said(frame)["cpu_u_ms"]) == (50, 500)


def test_sockets_are_told_apart_where_there_are_two(topology: Callable[[dict[str, str]], HostFS]) -> None:
    translation = CpuTranslation(topology({"0": "0", "1": "36", "2": "0", "3": "36"}))
    translation(cpu_frame({"0": {}, "1": {}, "2": {}, "3": {}}))

    frame = translation(cpu_frame({"0": {"user": 1}, "1": {"idle": 1}, "2": {"system": 1}, "3": {"idle": 1}}))

    shown = {name: value for name, value in said(frame).items() if "_node" in name}
    assert shown == {
        "cpu_u_node0": 50,
        "cpu_s_node0": 50,
        "cpu_i_node0": 0,
        "cpu_u_node1": 0,
        "cpu_s_node1": 0,
        "cpu_i_node1": 100,
    }
    assert said(frame)["cpu_i"] == 50


def test_one_socket_has_no_numbers_of_its_own(topology: Callable[[dict[str, str]], HostFS]) -> None:
    translation = CpuTranslation(topology({"0": "0", "1": "0"}))
    translation(cpu_frame({"0": {}, "1": {}}))

    frame = translation(cpu_frame({"0": {"user": 1}, "1": {"idle": 1}}))

    assert not [name for name in said(frame) if "_node" in name]


def test_a_host_that_does_not_tell_its_sockets_has_one() -> None:
    assert sockets_of(NOWHERE, ["0", "1"]) == {"0": "0", "1": "0"}


def test_a_socket_whose_cpus_have_all_just_come_is_left_out_once(
    topology: Callable[[dict[str, str]], HostFS],
) -> None:
    translation = CpuTranslation(topology({"0": "0", "1": "1"}))
    translation(cpu_frame({"0": {}}))

    frame = translation(cpu_frame({"0": {"idle": 1}, "1": {"idle": 50}}))
    after = translation(cpu_frame({"0": {"idle": 2}, "1": {"idle": 51}}))

    assert "cpu_i_node0" not in said(frame)
    assert said(after)["cpu_i_node1"] == 100


def test_network_counts_become_increments_by_device() -> None:
    translation = NetworkTranslation()
    translation(network_frame({"lo": 5, "eth0": 100}))

    frame = translation(network_frame({"lo": 5, "eth0": {0: 300, 1: 110, 2: 101, 3: 100, 8: 100, 9: 100, 10: 100}}))

    assert frame is not None
    assert said(frame)["rx_bytes.eth0"] == 200
    assert said(frame)["rx_packets.eth0"] == 10
    assert said(frame)["rx_errors.eth0"] == 1
    assert said(frame)["rx_bytes.lo"] == 0
    assert {spec.name for spec, _ in frame.layout} == {
        f"{direction}_{what}" for direction in ("rx", "tx") for what in ("bytes", "packets", "errors", "drops")
    }


def test_a_new_device_begins_with_nothing_and_one_that_is_gone_says_nothing() -> None:
    translation = NetworkTranslation()
    translation(network_frame({"eth0": 10}))

    came = translation(network_frame({"eth0": 11, "eth1": 10**12}))
    later = translation(network_frame({"eth0": 12, "eth1": 10**12 + 7}))
    gone = translation(network_frame({"eth1": 10**12 + 8}))

    assert (said(came)["rx_bytes.eth0"], said(came)["rx_bytes.eth1"]) == (1, 0)
    assert said(later)["rx_bytes.eth1"] == 7
    assert set(said(gone)) == {
        f"{direction}_{what}.eth1" for direction in ("rx", "tx") for what in ("bytes", "packets", "errors", "drops")
    }
    assert said(gone)["rx_bytes.eth1"] == 1


def test_a_counter_that_begins_again_is_left_out_and_reported() -> None:
    translation = NetworkTranslation()
    translation(network_frame({"eth0": {0: 1000, 1: 10}}))

    frame = translation(network_frame({"eth0": {0: 5, 1: 12}}))
    after = translation(network_frame({"eth0": {0: 6, 1: 12}}))

    assert frame is not None
    assert "rx_bytes.eth0" not in said(frame)
    assert said(frame)["rx_packets.eth0"] == 2
    assert [(gap.spec.name, gap.labels, gap.quality) for gap in frame.gaps] == [("rx_bytes", ("eth0",), Quality.BLANK)]
    assert said(after)["rx_bytes.eth0"] == 1


def test_only_devices_that_begin_so_are_told() -> None:
    translation = NetworkTranslation(("eth", "en"))
    counts = {"eth0": 1, "enp3s0": 1, "lo": 1, "veth1": 1}
    translation(network_frame(counts))

    frame = translation(network_frame(dict.fromkeys(counts, 2)))

    assert frame is not None
    assert {labels[0] for _, labels in frame.layout} == {"eth0", "enp3s0"}


def test_constant_labels_of_the_daemon_stay_on_every_series() -> None:
    enricher = Enricher({"cluster": "alpha"})
    translator = Translator(NOWHERE)
    for idle in (0, 1):
        frames = enricher.apply([cpu_frame({"0": {"idle": idle}}), network_frame({"lo": idle}), uptime_frame(9)])
        translated = translator.frames(frames)

    assert len(translated) == 3
    for frame in translated:
        for spec, labels in frame.layout:
            assert dict(zip(spec.labels, labels, strict=True))["cluster"] == "alpha"
    assert said(translated[1])["rx_bytes.lo"] == 1


def test_sources_that_dynolog_does_not_know_are_passed_over() -> None:
    frame = uptime_frame(5)._replace(source="load")

    assert Translator(NOWHERE).frames([frame]) == []


def test_a_host_that_was_excluded_by_name_is_no_failure() -> None:
    translator = Translator(NOWHERE)
    empty = [frame._replace(layout=type(frame.layout)(()), values=()) for frame in (cpu_frame({}), uptime_frame(1))]

    assert translator.frames(empty) == []
    assert translator.frames(empty) == []


def test_the_collectors_own_readings_are_understood(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    cpu = CpuCollector(host, NoKeys())
    network = NetworkCollector(host, NetworkConfig(exclude=""))
    translator = Translator(host)

    def tick() -> list[Frame]:
        readings = {"cpu": cpu.collect(), "network": network.collect()}
        return translator.frames(Frame(name, TIME, 0, 10**9, r.layout, r.values) for name, r in readings.items())

    assert tick() == []
    _add(Path(host.path("proc/stat")), "cpu0 ", column=1, count=50)
    _add(Path(host.path("proc/stat")), "cpu1 ", column=4, count=50)
    _add(Path(host.path("proc/net/dev")), "eth0:", column=1, count=4096)
    frames = tick()
    cpu.close()
    network.close()

    values = {**said(frames[0]), **said(frames[1])}
    assert (values["cpu_util"], values["cpu_u"], values["cpu_u_ms"]) == (50, 50, 500)
    assert (values["rx_bytes.eth0"], values["tx_bytes.eth0"], values["rx_bytes.lo"]) == (4096, 0, 0)


def _add(path: Path, line: str, *, column: int, count: int) -> None:
    """Add to one number of a line, without making the file anew: it is kept open."""
    lines = path.read_text().splitlines(keepends=True)
    for index, text in enumerate(lines):
        if text.lstrip().startswith(line):
            words = text.split()
            words[column] = str(int(words[column]) + count)
            lines[index] = " ".join(words) + "\n"
    with path.open("r+") as file:
        file.write("".join(lines))
        file.truncate()


MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
TIMES = st.fixed_dictionaries({mode: st.integers(0, 10**9).map(lambda ticks: ticks / 100) for mode in MODES})
HOSTS = st.dictionaries(st.sampled_from("01234"), TIMES, max_size=3)


@settings(max_examples=150, deadline=None)
@given(st.lists(HOSTS, min_size=2, max_size=4))
def test_whatever_the_times_do_percent_stay_percent(ticks: list[dict[str, dict[str, float]]]) -> None:
    translation = CpuTranslation(NOWHERE)
    for times in ticks:
        frame = translation(cpu_frame(times))
        if frame is None:
            continue
        values = said(frame)
        assert len(frame.values) == len(frame.layout)
        assert all(math.isfinite(value) for value in values.values())
        assert all(isinstance(value, int) and value >= 0 for name, value in values.items() if name.endswith("_ms"))
        assert all(0 <= values[name] <= 100.0001 for name in ("cpu_util", "cpu_u", "cpu_s", "cpu_i"))
        assert values["cpu_util"] + values["cpu_i"] == pytest.approx(100)


COUNTS = st.dictionaries(st.sampled_from(("lo", "eth0", "eth1")), st.integers(0, 2**64), max_size=3)


@settings(max_examples=150, deadline=None)
@given(st.lists(COUNTS, min_size=2, max_size=4))
def test_no_increment_is_larger_than_what_the_counter_shows(ticks: list[dict[str, int]]) -> None:
    translation = NetworkTranslation()
    before: dict[str, int] = {}
    for number, counts in enumerate(ticks):
        frame = translation(network_frame(counts))
        values = said(frame)
        if number == 0:
            assert frame is None
        for name, value in values.items():
            device = name.partition(".")[2]
            assert value == counts[device] - before.get(device, counts[device])
            assert value >= 0
        if number and frame is not None:
            back = {device for device in counts if counts[device] < before.get(device, 0)}
            assert {gap.labels[0] for gap in frame.gaps} == back
        before = dict(counts)

"""uname, os-release, clock, entropy and uptime."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.collectors.host import HostCollector, os_version, parse_number, parse_os_release, parse_uptime
from sonde.config import NoKeys
from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.model import Labels, Quality, Reading, Value


def named(reading: Reading) -> dict[str, tuple[Labels, Value]]:
    return {spec.name: (labels, v) for (spec, labels), v in zip(reading.layout, reading.values, strict=True)}


def read(host: HostFS) -> Reading:
    collector = HostCollector(host, NoKeys())
    try:
        return collector.collect()
    finally:
        collector.close()


@pytest.fixture
def zone() -> Iterator[Callable[[str], None]]:
    """Set the process' time zone; put back what was."""
    before = os.environ.get("TZ")

    def choose(name: str | None) -> None:
        if name is None:
            os.environ.pop("TZ", None)
        else:
            os.environ["TZ"] = name
        time.tzset()

    yield choose
    choose(before)


def test_the_captured_host_tells_what_it_is(captured: Callable[[str], HostFS]) -> None:
    reading = read(captured("vm"))
    found = named(reading)

    assert found["node_uname_info"][0] == (
        "Linux",
        "6.18.44-fc-v445",
        "#1 SMP PREEMPT_DYNAMIC @0",
        "x86_64",
        "vm",
        "(none)",
    )
    assert found["node_os_version"] == (("debian", "", "Debian GNU/Linux"), 12)
    assert found["node_time_clocksource_current_info"] == (("0", "tsc"), 1)
    assert found["node_entropy_available_bits"] == ((), 256)
    assert found["node_entropy_pool_size_bits"] == ((), 256)
    assert found["sonde_uptime_seconds"][1] == float(captured("vm").text("proc/uptime").split()[0])
    assert len(found["sonde_boot_info"][0][0]) == 36
    assert reading.gaps == ()


def test_every_available_clock_source_is_a_series(captured: Callable[[str], HostFS]) -> None:
    layout = read(captured("vm")).layout

    assert [labels for spec, labels in layout if spec.name == "node_time_clocksource_available_info"] == [
        ("0", "tsc"),
        ("0", "kvm-clock"),
    ]


def later(collector: HostCollector) -> Reading:
    """The reading of ten ticks later: names, zone and clock source are looked at that often."""
    return [collector.collect() for _ in range(10)][-1]


def test_time_is_now(captured: Callable[[str], HostFS]) -> None:
    before = time.time()
    _, now = named(read(captured("vm")))["node_time_seconds"]

    assert isinstance(now, float)
    assert before - 0.001 <= now <= time.time()


def test_the_time_zone_is_a_label_and_its_offset_the_value(
    captured: Callable[[str], HostFS], zone: Callable[[str], None]
) -> None:
    zone("XYZ-5:30")
    found = named(read(captured("vm")))

    assert found["node_time_zone_offset_seconds"] == (("XYZ",), 19800)


def test_a_change_of_summer_time_changes_the_label(
    captured: Callable[[str], HostFS], zone: Callable[[str], None]
) -> None:
    zone("WIN-1")
    collector = HostCollector(captured("vm"), NoKeys())
    winter = collector.collect()
    zone("SUM-2")
    summer = later(collector)
    collector.close()

    assert named(winter)["node_time_zone_offset_seconds"] == (("WIN",), 3600)
    assert named(summer)["node_time_zone_offset_seconds"] == (("SUM",), 7200)


def test_the_layout_stays_while_only_time_passes(captured: Callable[[str], HostFS]) -> None:
    collector = HostCollector(captured("vm"), NoKeys())
    first = collector.collect()
    second = collector.collect()
    collector.close()

    assert second.layout is first.layout
    assert second.gaps is first.gaps


@pytest.mark.parametrize(
    ("name", "text", "metric", "label"),
    [
        ("proc/sys/kernel/hostname", "node-0042\n", "node_uname_info", 4),
        (
            "sys/devices/system/clocksource/clocksource0/current_clocksource",
            "hpet\n",
            "node_time_clocksource_current_info",
            1,
        ),
    ],
)
def test_a_new_host_name_and_a_new_clock_source_are_seen(
    scratch: Callable[[str], HostFS], name: str, text: str, metric: str, label: int
) -> None:
    host = scratch("vm")
    collector = HostCollector(host, NoKeys())
    collector.collect()
    Path(host.path(name)).write_text(text)
    labels, _ = named(later(collector))[metric]
    collector.close()

    assert labels[label] == text.strip()


def test_what_a_host_does_not_tell_is_a_gap(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    shutil.rmtree(host.path("sys"))
    shutil.rmtree(host.path("proc/sys"))
    shutil.rmtree(host.path("etc"))
    shutil.rmtree(host.path("usr"))
    reading = read(host)

    assert set(named(reading)) == {"node_time_seconds", "node_time_zone_offset_seconds", "sonde_uptime_seconds"}
    assert len(reading.gaps) == 8
    assert {gap.quality for gap in reading.gaps} == {Quality.UNSUPPORTED}


def test_the_machine_is_asked_of_the_kernel_where_proc_has_it_not(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("vm")
    Path(host.path("proc/sys/kernel/arch")).unlink()
    labels, _ = named(read(host))["node_uname_info"]

    assert labels[3] == os.uname().machine


def test_os_release_is_read_as_the_shell_would() -> None:
    text = """# a comment

ID=rocky
NAME="Rocky \\"Blue\\" Linux"
PRETTY_NAME='One $two'
odd
BROKEN="x
VARIANT=
VERSION_ID=9.3 # why
"""

    assert parse_os_release(text) == {
        "ID": "rocky",
        "NAME": 'Rocky "Blue" Linux',
        "PRETTY_NAME": "One $two",
        "VARIANT": "",
        "VERSION_ID": "9.3",
    }


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("12", 12),
        ("22.04", 22.04),
        ("9.3.1", 9.3),
        ("8-stream", 8),
        ("", None),
        ("rolling", None),
        ("20230107123456789", None),
    ],
)
def test_the_version_is_major_and_minor(text: str, version: float | None) -> None:
    assert os_version(text) == version


@pytest.mark.parametrize("text", [b"", b"soon", b"nan 1", b"-1 1", b"inf"])
def test_odd_uptime_is_a_parse_error(text: bytes) -> None:
    with pytest.raises(ParseError):
        parse_uptime(text)


@given(st.binary(max_size=30))
@settings(max_examples=200)
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    try:
        assert parse_uptime(text) >= 0
        assert isinstance(parse_number("entropy_avail", text), int)
    except ParseError:
        return


@given(st.text(max_size=80))
@settings(max_examples=200)
def test_any_os_release_is_read(text: str) -> None:
    fields = parse_os_release(text)

    assert all(isinstance(value, str) for value in fields.values())

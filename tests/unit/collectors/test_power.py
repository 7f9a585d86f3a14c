"""/sys/class/powercap."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.collectors.power import PowerCollector, parse_microjoules, parse_title
from sonde.config import NoKeys
from sonde.errors import ParseError, Unavailable
from sonde.hostfs import HostFile, HostFS
from sonde.model import Kind, Quality, Reading, Value

ZONES = "sys/class/powercap"
PACKAGE_0 = ("node_rapl_package_joules_total", "0", f"/{ZONES}/intel-rapl:0")
PACKAGE_1 = ("node_rapl_package_joules_total", "1", f"/{ZONES}/intel-rapl:1")
DRAM_0 = ("node_rapl_dram_joules_total", "0", f"/{ZONES}/intel-rapl:0:0")
DRAM_1 = ("node_rapl_dram_joules_total", "1", f"/{ZONES}/intel-rapl:1:0")
PSYS = ("node_rapl_psys_joules_total", "0", f"/{ZONES}/intel-rapl:2")
RANGE_UJ = 262143328850


class HostForRootOnly(HostFS):
    """A host whose energy counters this user may not read."""

    __slots__ = ()

    def record(self, name: str) -> HostFile:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), self.path(name))


class Failing(HostFile):
    """A zone that fails once it has been read."""

    __slots__ = ("_number", "_reads")

    def __init__(self, path: str, fd: int, number: int) -> None:
        super().__init__(path, fd, iterated=False)
        self._number = number
        self._reads = 0

    def read(self) -> bytes:
        self._reads += 1
        if self._reads > 1:
            raise OSError(self._number, os.strerror(self._number))
        return super().read()


class HostOfAFailingZone(HostFS):
    __slots__ = ("number",)
    number: int

    def record(self, name: str) -> HostFile:
        if "intel-rapl:1/" in name:
            return Failing(name, os.open(self.path(name), os.O_RDONLY), self.number)
        return super().record(name)


def joules(value: Value) -> float:
    assert isinstance(value, float)
    return value


def by_series(reading: Reading) -> dict[tuple[str, ...], float]:
    return {(s.name, *labels): joules(value) for (s, labels), value in zip(reading.layout, reading.values, strict=True)}


def set_energy(host: HostFS, zone: str, microjoules: int) -> None:
    Path(host.path(f"{ZONES}/{zone}/energy_uj")).write_text(f"{microjoules}\n")


def test_each_zone_is_a_counter_of_joules(captured: Callable[[str], HostFS]) -> None:
    reading = PowerCollector(captured("big"), NoKeys()).collect()

    assert by_series(reading) == {
        PACKAGE_0: 118204.331092,
        PACKAGE_1: 97711.200341,
        DRAM_0: 20118.23341,
        DRAM_1: 61200.334121,
        PSYS: 250.110334,
    }
    assert {spec.kind for spec, _ in reading.layout} == {Kind.COUNTER}
    assert reading.gaps == []


def test_energy_used_is_added(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("big")
    collector = PowerCollector(host, NoKeys())
    before = collector.collect()
    set_energy(host, "intel-rapl:0", 118204331092 + 350_000_000)

    after = collector.collect()

    assert by_series(after)[PACKAGE_0] == 118554.331092
    assert after.layout is before.layout


def test_the_counter_goes_on_rising_when_the_hardware_wraps(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("big")
    collector = PowerCollector(host, NoKeys())
    set_energy(host, "intel-rapl:0", RANGE_UJ - 1_000_000)
    before = by_series(collector.collect())[PACKAGE_0]
    set_energy(host, "intel-rapl:0", 2_000_000)

    after = by_series(collector.collect())[PACKAGE_0]

    assert after == pytest.approx(before + 3.0)


def test_many_wraps_one_by_one_are_all_counted(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("big")
    set_energy(host, "intel-rapl:0", 0)
    collector = PowerCollector(host, NoKeys())
    step = RANGE_UJ // 3 + 1

    for count in range(1, 20):
        set_energy(host, "intel-rapl:0", count * step % RANGE_UJ)
        total = by_series(collector.collect())[PACKAGE_0]

    assert total == 19 * step / 1_000_000


def test_energy_that_may_not_be_read_is_a_gap_and_never_zero(captured: Callable[[str], HostFS]) -> None:
    reading = PowerCollector(HostForRootOnly(captured("big").root), NoKeys()).collect()

    assert len(reading.layout) == 0
    assert {(gap.spec.name, *gap.labels) for gap in reading.gaps} == {PACKAGE_0, PACKAGE_1, DRAM_0, DRAM_1, PSYS}
    assert {gap.quality for gap in reading.gaps} == {Quality.DENIED}
    assert "CVE-2020-8694" in reading.gaps[0].reason


def test_a_zone_that_fails_is_a_gap_and_the_others_are_read(captured: Callable[[str], HostFS]) -> None:
    host = HostOfAFailingZone(captured("big").root)
    host.number = errno.EIO
    collector = PowerCollector(host, NoKeys())

    reading = collector.collect()

    assert by_series(reading).keys() == {PACKAGE_0, DRAM_0, DRAM_1, PSYS}
    assert [(gap.spec.name, *gap.labels) for gap in reading.gaps] == [PACKAGE_1]
    assert reading.gaps[0].quality is Quality.BLANK


def test_a_zone_that_goes_between_list_and_read_is_left_out(captured: Callable[[str], HostFS]) -> None:
    host = HostOfAFailingZone(captured("big").root)
    host.number = errno.ENODEV
    collector = PowerCollector(host, NoKeys())

    reading = collector.collect()

    assert by_series(reading).keys() == {PACKAGE_0, DRAM_0, DRAM_1, PSYS}
    assert reading.gaps == []


def test_zones_that_stay_keep_their_totals_when_one_goes(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("big")
    collector = PowerCollector(host, NoKeys())
    set_energy(host, "intel-rapl:0", 0)  # wrapped
    wrapped = by_series(collector.collect())[PACKAGE_0]
    shutil.rmtree(host.path(f"{ZONES}/intel-rapl:2"))

    values = by_series(collector.collect())

    assert values.keys() == {PACKAGE_0, PACKAGE_1, DRAM_0, DRAM_1}
    assert values[PACKAGE_0] == wrapped == RANGE_UJ / 1_000_000


def test_a_zone_that_comes_is_read(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("big")
    shutil.move(host.path(f"{ZONES}/intel-rapl:2"), host.path("away"))
    collector = PowerCollector(host, NoKeys())
    collector.collect()
    shutil.move(host.path("away"), host.path(f"{ZONES}/intel-rapl:2"))

    assert by_series(collector.collect())[PSYS] == 250.110334


def test_a_zone_that_only_limits_power_is_left_out(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("big")
    zone = Path(host.path(f"{ZONES}/dtpm:0"))
    zone.mkdir()
    (zone / "name").write_text("soc\n")

    values = by_series(PowerCollector(host, NoKeys()).collect())

    assert not [name for name, *_ in values if "soc" in name]


def test_a_second_interface_to_the_same_package_differs_in_its_path(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("big")
    shutil.copytree(host.path(f"{ZONES}/intel-rapl:0"), host.path(f"{ZONES}/intel-rapl-mmio:0"))

    values = by_series(PowerCollector(host, NoKeys()).collect())

    assert ("node_rapl_package_joules_total", "0", f"/{ZONES}/intel-rapl-mmio:0") in values
    assert PACKAGE_0 in values


def test_a_machine_without_powercap_is_unavailable(captured: Callable[[str], HostFS]) -> None:
    with pytest.raises(Unavailable, match="no power zones"):
        PowerCollector(captured("vm"), NoKeys())


def test_a_machine_without_zones_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / ZONES / "intel-rapl").mkdir(parents=True)

    with pytest.raises(Unavailable, match="energy_uj") as raised:
        PowerCollector(HostFS(str(tmp_path)), NoKeys())

    assert "intel_rapl_msr" in raised.value.hint


@pytest.mark.parametrize(
    ("titles", "zones"),
    [
        (["package-0", "dram", "package-1", "dram"], [("package", 0), ("dram", 0), ("package", 1), ("dram", 1)]),
        (["package-0-die-1"], [("package_0_die_1", 0)]),
        (["psys"], [("psys", 0)]),
    ],
)
def test_the_index_is_in_the_name_or_counted(titles: list[str], zones: list[tuple[str, int]]) -> None:
    used: dict[str, int] = {}

    assert [parse_title(title, used) for title in titles] == zones


@pytest.mark.parametrize("text", [b"", b"\n", b"x", b"-1", b"1 2", b"9" * 30, b"nan"])
def test_odd_energy_is_a_parse_error(text: bytes) -> None:
    with pytest.raises(ParseError):
        parse_microjoules(text, "energy_uj")


@given(text=st.binary(max_size=30) | st.from_regex(rb"[0-9]{1,25}\n?"))
def test_any_energy_is_a_number_or_a_parse_error(text: bytes) -> None:
    try:
        energy = parse_microjoules(text, "energy_uj")
    except ParseError:
        return

    assert 0 <= energy < 1 << 64


@given(titles=st.lists(st.text(max_size=12) | st.from_regex(r"\A[a-z]{1,4}(-[0-9]{1,12})?\Z"), max_size=6))
def test_any_title_gives_a_name_fit_for_a_metric(titles: list[str]) -> None:
    used: dict[str, int] = {}

    zones = [parse_title(title, used) for title in titles]

    assert all(zone.isascii() and zone.replace("_", "a").isalnum() for zone, _ in zones if zone)


@given(raws=st.lists(st.integers(0, RANGE_UJ - 1), min_size=1, max_size=8))
def test_the_counter_never_falls(tmp_path_factory: pytest.TempPathFactory, raws: list[int]) -> None:
    zone = tmp_path_factory.getbasetemp() / "power" / ZONES / "intel-rapl:0"
    zone.mkdir(parents=True, exist_ok=True)
    (zone / "name").write_text("package-0\n")
    (zone / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    (zone / "energy_uj").write_text(f"{raws[0]}\n")
    collector = PowerCollector(HostFS(str(tmp_path_factory.getbasetemp() / "power")), NoKeys())

    seen = []
    for raw in raws:
        (zone / "energy_uj").write_text(f"{raw}\n")
        seen.append(by_series(collector.collect())[PACKAGE_0])

    assert seen == sorted(seen)
    assert seen[0] == raws[0] / 1_000_000

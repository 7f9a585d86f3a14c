"""Energy used by packages, memory and platform (RAPL), from /sys/class/powercap/*/energy_uj.

    name                 package-0            node_rapl_package_joules_total{index="0",path="/sys/class/powercap/…"}
    energy_uj            118204331092         microjoules since some point in the past
    max_energy_range_uj  262143328850         where energy_uj starts again at 0

(Documentation/power/powercap/powercap.rst.) The names and labels are node_exporter's: a number behind a single hyphen
of the name is the index; zones of the same name without one (`dram` of each package) are counted in the order of their
directories.

The counter of the hardware has 32 bits and wraps. What is emitted goes on rising: it starts at the first value read
and adds what was used since. A value below the last one is taken for one wrap. Several wraps between two readings
cannot be told from one, so the period must be shorter than a wrap: 262 kJ are gone after 12 minutes at 350 W and
after 4 minutes at 1 kW, a `dram` zone of 65 kJ after 11 minutes at 100 W.
"""

from __future__ import annotations

import errno
import re
from typing import ClassVar

from sonde.config import NoKeys
from sonde.errors import ParseError, Unavailable
from sonde.hostfs import HostFile, HostFS
from sonde.model import EMPTY_LAYOUT, Gap, Kind, Labels, Layout, MetricSpec, Quality, Reading, Unit

_DIRECTORY = "sys/class/powercap"
_INDEXED = re.compile(r"([^-]*)-([0-9]{1,9})")
_MICROJOULES = 1_000_000
# Linux 5.10 closed the side channel of CVE-2020-8694 by making the file readable by root only.
_DENIED = "energy_uj is readable by root only since Linux 5.10 (CVE-2020-8694)"


def _spec(zone: str) -> MetricSpec:
    meaning = f"Energy used by the RAPL zone {zone}."
    return MetricSpec(f"node_rapl_{zone}_joules_total", Kind.COUNTER, Unit.JOULES, meaning, ("index", "path"))


_SPECS = {zone: _spec(zone) for zone in ("package", "core", "uncore", "dram", "psys")}


class Zone:
    """One power zone and what it has used since it was first read."""

    __slots__ = ("_file", "_last_uj", "_range_uj", "_total_uj", "labels", "spec")

    def __init__(self, spec: MetricSpec, labels: Labels, file: HostFile, range_uj: int) -> None:
        self.spec = spec
        self.labels = labels
        self._file = file
        self._range_uj = range_uj
        self._last_uj = self._total_uj = parse_microjoules(file.read(), labels[1])

    def joules(self) -> float:
        raw = parse_microjoules(self._file.read(), self.labels[1])
        used = raw - self._last_uj
        if used < 0:
            # The register wraps one unit (at most 61 µJ) after the range it announces: not worth knowing the unit.
            used += self._range_uj
        self._last_uj = raw
        self._total_uj += used
        return self._total_uj / _MICROJOULES

    def close(self) -> None:
        self._file.close()


class PowerCollector:
    Config: ClassVar[type] = NoKeys
    metrics: ClassVar[tuple[MetricSpec, ...]] = tuple(_SPECS.values())
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: NoKeys) -> None:
        self._host = host
        self._names: list[str] = []
        self._zones: dict[str, Zone] = {}  # by directory, in the order of the layout
        self._layout = EMPTY_LAYOUT
        self._gaps: list[Gap] = []
        try:
            self._scan(host.names(_DIRECTORY))
        except FileNotFoundError:
            raise Unavailable(f"no /{_DIRECTORY}: this kernel or machine has no power zones") from None
        if not self._zones and not self._gaps:
            raise Unavailable(
                f"no /{_DIRECTORY}/*/energy_uj: this machine does not count its energy",
                hint="on a physical machine: modprobe intel_rapl_msr (for AMD too)",
            )

    def collect(self) -> Reading:
        names = self._host.names(_DIRECTORY)
        if names != self._names:
            self._scan(names)
        try:
            return Reading(self._layout, [zone.joules() for zone in self._zones.values()], (), self._gaps)
        except OSError:
            return self._partly()

    def _partly(self) -> Reading:
        """Read what can be read. A zone that went since it was listed is left out, one that fails is a gap."""
        values, series, gaps = [], [], list(self._gaps)
        for zone in self._zones.values():
            try:
                values.append(zone.joules())
                series.append((zone.spec, zone.labels))
            except OSError as error:
                if error.errno != errno.ENODEV:
                    gaps.append(Gap(zone.spec, zone.labels, Quality.BLANK, f"energy_uj: {error.strerror}"))
        return Reading(Layout(series), values, (), gaps)

    def _scan(self, names: list[str]) -> None:
        """Find the zones; those known already keep their totals."""
        before, found = self._zones, []
        self._gaps = []
        for name, (spec, labels) in self._identities(names).items():
            try:
                zone = before.pop(name, None) or self._open(name, spec, labels)
            except FileNotFoundError:
                continue  # a zone that only limits power, or one that went since it was listed
            except PermissionError:
                self._gaps.append(Gap(spec, labels, Quality.DENIED, _DENIED))
                continue
            zone.spec, zone.labels = spec, labels
            found.append((name, zone))
        for zone in before.values():
            zone.close()
        # The series of one metric stand together.
        found.sort(key=lambda item: (item[1].spec.name, item[0]))
        self._zones = dict(found)
        self._layout = Layout((zone.spec, zone.labels) for _, zone in found)
        self._names = names

    def _identities(self, names: list[str]) -> dict[str, tuple[MetricSpec, Labels]]:
        """Metric and labels of each directory that has a name."""
        used: dict[str, int] = {}
        identities: dict[str, tuple[MetricSpec, Labels]] = {}
        for directory in names:
            try:
                title = self._host.text(f"{_DIRECTORY}/{directory}/name").strip()
            except (FileNotFoundError, NotADirectoryError):
                continue  # the directory of a control type, such as intel-rapl itself
            zone, index = parse_title(title, used)
            spec = _SPECS.get(zone) or _SPECS.setdefault(zone, _spec(zone))
            identities[directory] = (spec, (str(index), f"/{_DIRECTORY}/{directory}"))
        return identities

    def _open(self, directory: str, spec: MetricSpec, labels: Labels) -> Zone:
        text = self._host.read(f"{_DIRECTORY}/{directory}/max_energy_range_uj")
        file = self._host.record(f"{_DIRECTORY}/{directory}/energy_uj")
        return Zone(spec, labels, file, parse_microjoules(text, labels[1]))

    def close(self) -> None:
        for zone in self._zones.values():
            zone.close()


def parse_title(title: str, used: dict[str, int]) -> tuple[str, int]:
    """`package-1` is package 1, the second `dram` is dram 1; `used` keeps the count. Odd characters become `_`."""
    match = _INDEXED.fullmatch(title)
    zone, index = (match[1], int(match[2])) if match else (title, used.get(title, 0))
    used[zone] = index + 1
    return re.sub("[^A-Za-z0-9_]", "_", zone), index


def parse_microjoules(text: bytes, source: str) -> int:
    try:
        energy = int(text)
    except ValueError:
        raise ParseError(source, text) from None
    if not 0 <= energy < 1 << 64:
        raise ParseError(source, text)
    return energy

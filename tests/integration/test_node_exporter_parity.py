"""The real node_exporter and our collectors on the same host: the same families, types, labels and values.

On the live host the values are read three times: ours, theirs, ours again, and theirs must lie between. The host
changes meanwhile, so this is done several times and only what is wrong every time is wrong. On a captured host nothing
moves: there the values must be equal.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sonde.errors import Unavailable
from sonde.hostfs import HostFS
from sonde.model import Collector, Histogram, Kind
from sonde.pipeline.assembly import construct
from sonde.registry import COLLECTORS, load
from sonde.units import Duration

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/node-exporter.md"
ATTEMPTS = 5
# Without those that have no metric in common with node_exporter, or are compared with it in a test of their own.
APART = {"daemon", "ipmi", "job", "process", "container", "kvm", "lustre", "ethtool", "mountstats"}
NAMES = sorted(set(COLLECTORS) - APART)

# Collectors that are off by default and correspond to one of ours; and the one flag that sets a wrong value right
# (docs/node-exporter.md, "Unknown speed").
FLAGS = (
    "--collector.stat.softirq",
    "--collector.meminfo_numa",
    "--collector.interrupts",
    "--collector.netclass.ignore-invalid-speed",
)

# Settings of ours that correspond to those flags.
SETTINGS: Mapping[str, dict[str, Any]] = {"numa": {"single_node": True}}

# Gauges that may leave the interval between our two readings and come back: how far, as a share of the value and
# in their own unit.
SLACK: Mapping[str, tuple[float, float]] = {
    "node_load*": (0.0, 0.5),  # computed anew every 5 s
    "node_memory_*": (0.02, 64 * 2**20),
    "node_filesystem_*": (0.001, 16 * 2**20),
    "node_procs_*": (0.0, 16),
    "node_sockstat_*mem_bytes": (0.0, 2**20),  # per-CPU reserves are given back in batches
    "node_sockstat_*": (0.0, 256),  # the scrape itself opens sockets
    "node_netstat_Tcp_CurrEstab": (0.0, 16),
    "node_filefd_allocated": (0.0, 1024),  # counted per CPU and summed up in batches (fs/file_table.c)
    "node_entropy_available_bits": (0.0, 4096),  # emptied and filled at once before Linux 5.18
    "node_disk_io_now": (0.0, 256),
    "node_udp_queues": (0.0, 2**20),
}
# Counters of the kernel that can step back (proc_stat(5)); node_exporter holds the larger value then. In seconds.
BACKWARDS = {"idle": 3.0, "iowait": 3.0}

# Families of a node_exporter younger than the one here, with its first version.
YOUNGER = ("node_cpu_scaling_governor",)  # 1.7
# A wrong value of theirs, and what it must be multiplied by (docs/node-exporter.md, "Humidity").
CORRECTED = {"node_hwmon_humidity": 10.0, "node_hwmon_humidity_max": 10.0}
# At every tick what is read every minute by default, and what is off.
EVERYTHING: Mapping[str, dict[str, Any]] = {
    "tcp": {"udp_queues": True},
    "cpufreq": {"measured": True, "limits_every": Duration(0)},
    "hwmon": {"limits_every": Duration(0)},
}

# How many families of each the written machine brings at least.
HARDWARE = {
    "interrupts_": 1,
    "cpu_frequency_": 3,
    "cpu_scaling_": 3,
    "cpu_core_throttles": 1,
    "cpu_package_throttles": 1,
    "hwmon_": 50,
    "thermal_zone_": 1,
    "cooling_device_": 2,
    "infiniband_": 26,
}

# Asked of the kernel by a system call, whatever tree the files are read from.
BY_SYSTEM_CALL = ("node_uname_info", "node_time_*", "node_os_*", "node_filesystem_*")
NETLINK_ONLY = ("node_network_receive_nohandler_total",)  # not given with --no-collector.netdev.netlink

NUMBERED = (
    "diskstats",
    "interrupts",
    "loadavg",
    "meminfo",
    "net/dev",
    "net/netstat",
    "net/snmp",
    "net/snmp6",
    "net/sockstat",
    "net/sockstat6",
    "stat",
    "sys/fs/file-nr",
    "vmstat",
)

Labels = frozenset[tuple[str, str]]


class Family(NamedTuple):
    kind: str
    series: dict[Labels, float]


Families = dict[str, Family]


@pytest.fixture
def drop(tmp_path: Path) -> Path:
    folder = tmp_path / "textfiles"
    folder.mkdir()
    (folder / "a.prom").write_text(
        "# HELP node_backup_size_bytes Size of the last backup.\n# TYPE node_backup_size_bytes gauge\n"
        'node_backup_size_bytes{target="home",site="a\\\\b"} 4096\n'
        'node_backup_size_bytes{target="work \\"x\\""} 1.5e9\n'
        "# TYPE node_backups_total counter\nnode_backups_total 17\nnode_backup_untyped -1\n"
    )
    (folder / "half.prom").write_text("node_backup_half 1\nnode_backup_half")
    (folder / "stamped.prom").write_text("node_backup_stamped 1 1700000000000\n")
    return folder


def theirs_of(text: str) -> Families:
    """The families of an exposition."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    families: Families = {name: Family(kind, {}) for name, kind in kinds.items()}
    for name, labels, value in re.findall(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$", text, re.MULTILINE):
        pairs = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)
        # An empty label and none are the same to Prometheus.
        key = frozenset((label, re.sub(r"\\(.)", r"\1", found)) for label, found in pairs if found)
        families[name].series[key] = float(value)
    return {name: family for name, family in families.items() if name.startswith("node_")}


@contextmanager
def collectors(host: HostFS, **configs: dict[str, Any]) -> Iterator[list[Collector]]:
    """All of the registry that this host has something for."""
    with ExitStack() as stack:
        found = []
        for name in NAMES:
            cls: Any = load(COLLECTORS, name)
            config = cls.Config(**SETTINGS.get(name, {}) | configs.get(name, {}))
            try:
                found.append(stack.enter_context(closing(construct(cls, host, config))))
            except Unavailable:
                continue
        yield found


def ours_of(found: list[Collector]) -> Families:
    families: Families = {}
    for collector in found:
        layout, values, _, _ = collector.collect()
        for (spec, labels), value in zip(layout, values, strict=True):
            if not spec.name.startswith("node_") or isinstance(value, Histogram):
                continue
            kind = "gauge" if spec.kind is Kind.INFO else spec.kind.value
            key = frozenset((name, label) for name, label in zip(spec.labels, labels, strict=True) if label)
            families.setdefault(spec.name, Family(kind, {})).series[key] = float(value)
    return families


def left_out() -> list[str]:
    """The patterns in the first column of the document's table."""
    section = DOCUMENT.read_text().partition("## Left out")[2].partition("\n## ")[0]
    return [
        pattern for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for pattern in re.findall("`(.*?)`", row)
    ]


def covered(families: Families, besides: tuple[str, ...] = ()) -> Families:
    patterns = [*left_out(), *besides]
    return {n: f for n, f in families.items() if not any(fnmatchcase(n, pattern) for pattern in patterns)}


def shape_differences(ours: Families, theirs: Families) -> Iterator[str]:
    for name in sorted(ours.keys() | theirs.keys()):
        if name not in ours:
            yield f"{name}: node_exporter has it; sonde and the table of {DOCUMENT.name} do not"
        elif name not in theirs:
            yield f"{name}: only sonde has it"
        elif ours[name].kind != theirs[name].kind:
            yield f"{name}: a {ours[name].kind}, there a {theirs[name].kind}"
        else:
            for labels in ours[name].series.keys() ^ theirs[name].series.keys():
                who = "sonde" if labels in ours[name].series else "node_exporter"
                yield f"{name}{dict(sorted(labels))}: only {who} has it"


def slack_of(name: str, labels: Labels, value: float) -> float:
    if name == "node_cpu_seconds_total":
        return BACKWARDS.get(dict(labels)["mode"], 0.0)
    for pattern, (share, size) in SLACK.items():
        if fnmatchcase(name, pattern):
            return share * abs(value) + size
    return 0.0


def value_differences(before: Families, theirs: Families, after: Families) -> Iterator[str]:
    for name, family in theirs.items():
        for labels, value in family.series.items():
            try:
                ends = (before[name].series[labels], after[name].series[labels])
            except KeyError:
                continue  # told by shape_differences
            # 1e-12: they multiply by 0.001 where we divide by 1000.
            slack = slack_of(name, labels, value) + 1e-12 * abs(value)
            if not min(ends) - slack <= value <= max(ends) + slack:
                yield f"{name}{dict(sorted(labels))}: out of the interval"


def test_on_this_host_every_family_is_the_same_or_is_in_the_table(
    node_exporter: Callable[..., Any], drop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exporter = node_exporter(*FLAGS, f"--collector.textfile.directory={drop}")
    wrong: set[str] | None = None
    with collectors(
        HostFS(), **EVERYTHING, network={"state_every": Duration(0)}, textfile={"directory": str(drop)}
    ) as found:
        ours_of(found)
        exporter.scrape()  # both have opened what they keep open
        for _ in range(ATTEMPTS):
            before = covered(ours_of(found), YOUNGER)
            theirs = covered(theirs_of(exporter.scrape()))
            after = covered(ours_of(found), YOUNGER)
            differences = {*shape_differences(after, theirs), *value_differences(before, theirs, after)}
            wrong = differences if wrong is None else wrong & differences
            if not wrong:
                break
    with capsys.disabled():
        print(f" {len(theirs)} families, {sum(len(family.series) for family in theirs.values())} series", end=" ")

    assert not wrong, "\n".join(sorted(wrong or ()))
    assert len(theirs) > 100


def captured_differences(node_exporter: Callable[..., Any], host: HostFS) -> list[str]:
    exporter = node_exporter(
        *FLAGS,
        f"--path.procfs={host.path('proc')}",
        f"--path.sysfs={host.path('sys')}",
        f"--path.rootfs={host.root}",
        f"--path.udev.data={host.path('run/udev/data')}",
        "--no-collector.netdev.netlink",
        "--no-collector.textfile",
    )
    with collectors(host, **EVERYTHING) as found:
        ours = covered(ours_of(found), BY_SYSTEM_CALL + NETLINK_ONLY + YOUNGER)
    # A label that is a path (of a power zone) is below the tree there, and as on the host here.
    theirs = covered(theirs_of(exporter.scrape().replace(host.root, "/")), BY_SYSTEM_CALL)
    common = [(name, labels) for name in theirs.keys() & ours.keys() for labels in theirs[name].series]
    assert len(common) > 100
    different = [
        f"{name}{dict(sorted(labels))}: {ours[name].series[labels]!r}, there {theirs[name].series[labels]!r}"
        for name, labels in common
        if labels in ours[name].series
        and not math.isclose(
            ours[name].series[labels], theirs[name].series[labels] * CORRECTED.get(name, 1.0), rel_tol=1e-12
        )
    ]
    return [*shape_differences(ours, theirs), *different]


@pytest.mark.parametrize("tree", ["vm", "big", "metal"])
def test_on_a_captured_host_every_value_is_equal(
    node_exporter: Callable[..., Any], captured: Callable[[str], HostFS], tree: str
) -> None:
    assert captured_differences(node_exporter, captured(tree)) == []


def test_the_written_machine_has_what_is_compared(captured: Callable[[str], HostFS]) -> None:
    with collectors(captured("metal"), **EVERYTHING) as found:
        names = ours_of(found).keys()
    counts = {prefix: sum(name.startswith(f"node_{prefix}") for name in names) for prefix in HARDWARE}

    assert {prefix: count for prefix, count in counts.items() if count < HARDWARE[prefix]} == {}


def test_no_two_columns_are_swapped(node_exporter: Callable[..., Any], scratch: Callable[[str], HostFS]) -> None:
    """Most counters of a quiet host are 0 and would hide it: here every number is another one."""
    host = scratch("vm")
    numbers = itertools.count(1001)
    paths = [Path(host.path("proc")) / name for name in NUMBERED]
    paths += [path for device in Path(host.path("sys/class/net")).iterdir() for path in device.iterdir()]
    for path in paths:
        if path.is_file():
            path.write_text(re.sub(r"(?<![\w.:/-])\d+(?![\w.:/-])", lambda _: str(next(numbers)), path.read_text()))

    assert captured_differences(node_exporter, host) == []


def test_the_table_names_nothing_that_we_have() -> None:
    names = {spec.name for name in COLLECTORS for spec in load(COLLECTORS, name).metrics}  # type: ignore[attr-defined]
    patterns = left_out()

    assert len(patterns) > 40
    assert [(pattern, name) for pattern in patterns for name in names if fnmatchcase(name, pattern)] == []

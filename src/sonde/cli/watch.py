"""A line per second: CPU, memory, load, disk, network and jobs of a node, and what sonde itself costs."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any, NamedTuple

from sonde.cli.arguments import count, duration
from sonde.cli.connection import add_connection, call
from sonde.cli.terminal import paint
from sonde.units import Duration, human_bytes

_WANTED = [
    "node_cpu_seconds_total",
    "node_memory_Mem*_bytes",
    "node_load1",
    "node_disk_*_bytes_total",
    "node_network_*_bytes_total",
    "sonde_job_info",
    "sonde_daemon_*",
    "node_pressure_*",
]


class Sum(NamedTuple):
    """What the series of one source add up to, and when that source was read: each has a pace of its own."""

    value: float
    time_ns: int


class Reading(NamedTuple):
    """What a line is made of, from one snapshot; None where there is no source."""

    cpu_busy: Sum | None
    cpu_total: Sum | None
    memory_used: Sum | None
    memory_total: Sum | None
    load: Sum | None
    disk_read: Sum | None
    disk_written: Sum | None
    received: Sum | None
    sent: Sum | None
    own_cpu: Sum | None
    own_rss: Sum | None
    jobs: int


Samples = dict[str, list[tuple[dict[str, str], float, int]]]  # by metric: labels, value, time


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("--every", type=duration, default=Duration(1), metavar="1s", help="time between lines")
    parser.add_argument("--count", type=count, default=0, metavar="N", help="stop after N lines (default: at Ctrl-C)")
    parser.add_argument("--json", action="store_true", help="an object per line")


def run(args: argparse.Namespace) -> int:
    shown = Line(read(args))
    printed = 0
    while not args.count or printed < args.count:
        time.sleep(args.every)
        if not shown.take(read(args)):
            continue  # the daemon's period is longer than ours
        show(args, shown.figures, first=printed % 20 == 0)
        printed += 1
    return 0


def show(args: argparse.Namespace, figures: dict[str, Any], *, first: bool) -> None:
    if args.json:
        print(json.dumps(figures), flush=True)
        return
    if first and sys.stdout.isatty():
        print(paint(HEADER, "bold"))
    print(line(figures), flush=True)


def read(args: argparse.Namespace) -> Reading:
    """Ask for one snapshot and add up what a line shows."""
    samples: Samples = {}
    for frame in call(args, "metrics.snapshot", include=_WANTED)["frames"]:
        for name, _, labels, value in frame["samples"]:
            samples.setdefault(name, []).append((labels, float(value), frame["time_ns"]))
    return summarise(samples)


def summarise(samples: Samples) -> Reading:
    def total(name: str, *, without: tuple[str, ...] = (), label: str = "") -> Sum | None:
        found = [(value, at) for labels, value, at in samples.get(name, ()) if labels.get(label) not in without]
        return Sum(sum(value for value, _ in found), found[0][1]) if found else None

    memory, available = total("node_memory_MemTotal_bytes"), total("node_memory_MemAvailable_bytes")
    return Reading(
        cpu_busy=total("node_cpu_seconds_total", without=("idle", "iowait"), label="mode"),
        cpu_total=total("node_cpu_seconds_total"),
        memory_used=memory._replace(value=memory.value - available.value) if memory and available else None,
        memory_total=memory,
        load=total("node_load1"),
        disk_read=total("node_disk_read_bytes_total"),
        disk_written=total("node_disk_written_bytes_total"),
        received=total("node_network_receive_bytes_total", without=("lo",), label="device"),
        sent=total("node_network_transmit_bytes_total", without=("lo",), label="device"),
        own_cpu=total("sonde_daemon_cpu_seconds_total"),
        own_rss=total("sonde_daemon_resident_bytes"),
        jobs=len({labels.get("job_id") for labels, _, _ in samples.get("sonde_job_info", ())}),
    )


class Line:
    """The figures of the newest line. A rate spans two ticks of its own source, and stays until the next one."""

    def __init__(self, first: Reading) -> None:
        self._last = first
        self.figures: dict[str, Any] = {}

    def take(self, now: Reading) -> bool:
        """Take over a snapshot; False when no source has ticked since the one before."""
        before, self._last = self._last, now
        times = [field.time_ns for field in now if isinstance(field, Sum)]
        if not times or times == [field.time_ns for field in before if isinstance(field, Sum)]:
            return False
        kept = self.figures
        busy, whole = _rate(before.cpu_busy, now.cpu_busy), _rate(before.cpu_total, now.cpu_total)
        rates = {
            "cpu_ratio": busy / whole if busy is not None and whole else None,
            "disk_read_bytes_per_second": _rate(before.disk_read, now.disk_read),
            "disk_written_bytes_per_second": _rate(before.disk_written, now.disk_written),
            "received_bytes_per_second": _rate(before.received, now.received),
            "sent_bytes_per_second": _rate(before.sent, now.sent),
            "sonde_cpu_ratio": _rate(before.own_cpu, now.own_cpu),
        }
        self.figures = {
            "time_ns": max(times),
            "memory_used_bytes": _value(now.memory_used),
            "memory_total_bytes": _value(now.memory_total),
            "load1": _value(now.load),
            "jobs": now.jobs,
            "sonde_resident_bytes": _value(now.own_rss),
            **{key: kept.get(key) if rate is None else rate for key, rate in rates.items()},
        }
        return True


def _rate(before: Sum | None, now: Sum | None) -> float | None:
    """Per second; None without a new tick, or across a reset."""
    if before is None or now is None or now.time_ns <= before.time_ns or now.value < before.value:
        return None
    return (now.value - before.value) / ((now.time_ns - before.time_ns) / 1e9)


def _value(field: Sum | None) -> float | None:
    return field.value if field is not None else None


HEADER = (
    f"{'time UTC':8} {'cpu':>9} {'memory used':>12} / {'all':<10} {'load':>6} {'disk read/s':>12} {'written/s':>11}"
    f" {'net in/s':>10} {'out/s':>10} {'jobs':>6}  sonde"
)


def line(figures: dict[str, Any]) -> str:
    def size(key: str) -> str:
        return "-" if figures[key] is None else human_bytes(figures[key])

    clock = time.strftime("%H:%M:%S", time.gmtime(figures["time_ns"] // 10**9))
    cpu = "-" if figures["cpu_ratio"] is None else f"{figures['cpu_ratio']:.1%}"
    own = "-" if figures["sonde_cpu_ratio"] is None else f"{figures['sonde_cpu_ratio']:.2%}"
    load = "-" if figures["load1"] is None else f"{figures['load1']:.2f}"
    return (
        f"{clock} {cpu:>9} {size('memory_used_bytes'):>12} / {size('memory_total_bytes'):<10} {load:>6}"
        f" {size('disk_read_bytes_per_second'):>12} {size('disk_written_bytes_per_second'):>11}"
        f" {size('received_bytes_per_second'):>10} {size('sent_bytes_per_second'):>10} {figures['jobs']:>6}"
        f"  {own} {size('sonde_resident_bytes')}"
    )

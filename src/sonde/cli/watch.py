"""A line per second: CPU, memory, load, disk, network and jobs of a node, and what sonde itself costs."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any, NamedTuple

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


class Reading(NamedTuple):
    """What a line is made of, from one snapshot."""

    time_ns: int
    cpu_busy: float | None
    cpu_total: float | None
    memory_used: float | None
    memory_total: float | None
    load: float | None
    disk_read: float | None
    disk_written: float | None
    received: float | None
    sent: float | None
    jobs: int
    own_cpu: float
    own_rss: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("--every", type=Duration.parse, default=Duration(1), metavar="1s", help="time between lines")
    parser.add_argument("--count", type=int, default=0, metavar="N", help="stop after N lines (default: at Ctrl-C)")
    parser.add_argument("--json", action="store_true", help="an object per line")


def run(args: argparse.Namespace) -> int:
    previous = read(args)
    printed = 0
    while not args.count or printed < args.count:
        time.sleep(args.every)
        current = read(args)
        if current.time_ns == previous.time_ns:
            continue  # the daemon's period is longer than ours
        show(args, previous, current, first=printed % 20 == 0)
        previous = current
        printed += 1
    return 0


def show(args: argparse.Namespace, previous: Reading, current: Reading, *, first: bool) -> None:
    figures = derive(previous, current)
    if args.json:
        print(json.dumps(figures), flush=True)
        return
    if first and sys.stdout.isatty():
        print(paint(HEADER, "bold"))
    print(line(figures), flush=True)


def read(args: argparse.Namespace) -> Reading:
    """Ask for one snapshot and add up what a line shows."""
    reply = call(args, "metrics.snapshot", include=_WANTED)
    samples: dict[str, list[tuple[dict[str, str], float]]] = {}
    for frame in reply["frames"]:
        for name, _, labels, value in frame["samples"]:
            samples.setdefault(name, []).append((labels, float(value)))
    time_ns = max((frame["time_ns"] for frame in reply["frames"] if frame["samples"]), default=0)
    return summarise(samples, time_ns)


def summarise(samples: dict[str, list[tuple[dict[str, str], float]]], time_ns: int) -> Reading:
    def total(name: str, **unwanted: str) -> float | None:
        found = [
            value for labels, value in samples.get(name, ()) if all(labels.get(k) != v for k, v in unwanted.items())
        ]
        return sum(found) if found else None

    cpu = samples.get("node_cpu_seconds_total", [])
    idle = sum(value for labels, value in cpu if labels["mode"] in ("idle", "iowait"))
    whole = sum(value for _, value in cpu)
    memory, available = total("node_memory_MemTotal_bytes"), total("node_memory_MemAvailable_bytes")
    return Reading(
        time_ns,
        cpu_busy=whole - idle if cpu else None,
        cpu_total=whole if cpu else None,
        memory_used=memory - available if memory is not None and available is not None else None,
        memory_total=memory,
        load=total("node_load1"),
        disk_read=total("node_disk_read_bytes_total"),
        disk_written=total("node_disk_written_bytes_total"),
        received=total("node_network_receive_bytes_total", device="lo"),
        sent=total("node_network_transmit_bytes_total", device="lo"),
        jobs=len({labels.get("job_id") for labels, _ in samples.get("sonde_job_info", ())}),
        own_cpu=total("sonde_daemon_cpu_seconds_total") or 0.0,
        own_rss=total("sonde_daemon_resident_bytes") or 0.0,
    )


def derive(previous: Reading, current: Reading) -> dict[str, Any]:
    """Rates and ratios between two readings; None where a source is missing."""
    seconds = (current.time_ns - previous.time_ns) / 1e9

    def rate(now: float | None, before: float | None) -> float | None:
        # A counter that went back was reset: there is no rate across it.
        return (
            (now - before) / seconds
            if now is not None and before is not None and now >= before and seconds > 0
            else None
        )

    busy, whole = rate(current.cpu_busy, previous.cpu_busy), rate(current.cpu_total, previous.cpu_total)
    return {
        "time_ns": current.time_ns,
        "cpu_ratio": busy / whole if busy is not None and whole else None,
        "memory_used_bytes": current.memory_used,
        "memory_total_bytes": current.memory_total,
        "load1": current.load,
        "disk_read_bytes_per_second": rate(current.disk_read, previous.disk_read),
        "disk_written_bytes_per_second": rate(current.disk_written, previous.disk_written),
        "received_bytes_per_second": rate(current.received, previous.received),
        "sent_bytes_per_second": rate(current.sent, previous.sent),
        "jobs": current.jobs,
        "sonde_cpu_ratio": rate(current.own_cpu, previous.own_cpu),
        "sonde_resident_bytes": current.own_rss,
    }


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
        f"  {own} {human_bytes(figures['sonde_resident_bytes'])}"
    )

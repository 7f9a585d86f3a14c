"""Recordings for tests and benchmarks, written by the real archive: what `sonde record` leaves, without a job.

make_recording(tmp_path / "r", series={'node_cpu_seconds_total{cpu="0",mode="user"}': lambda t, host: t / 2})
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from sonde.clock import NS, ManualClock
from sonde.config import ArchiveConfig
from sonde.jobs.recording import ARCHIVE, CONTEXT, About, Recording, open_recording, write_about
from sonde.model import Frame, Gap, Kind, Layout, MetricSpec, Quality, Series, Unit, Value
from sonde.store.archive import Archive
from sonde.store.query import parse_selector
from sonde.units import Duration, Size

BEGUN_NS = 1_790_000_000 * NS  # 2026-09-21T14:13:20Z
JOB = {"scheduler": "slurm", "id": "4711", "raw_id": "4711", "name": "matmul", "user": "ada", "nodes": ["n1", "n2"]}

Course = Callable[[float, str], Value | None]  # seconds since the begin and the host; None: not read at that tick

_UNITS = {"seconds": Unit.SECONDS, "bytes": Unit.BYTES, "joules": Unit.JOULES, "ratio": Unit.RATIO, "watts": Unit.WATTS}
_KEPT = ArchiveConfig(max_age=Duration(100 * 365 * 86400), max_size=Size(4 * 10**9))

COURSES: dict[str, Course] = {
    "node_load1": lambda t, host: 0.25 + t % 7,
    "node_memory_MemAvailable_bytes": lambda t, host: 64 * 2**30 - int(t) * 2**20,
    'node_network_receive_bytes_total{device="eth0"}': lambda t, host: 10_000 + int(t * 1000),
    'sonde_job_cpu_seconds_total{job_id="4711",scheduler="slurm",mode="user"}': lambda t, host: t * 1.5,
    'sonde_job_cpu_seconds_total{job_id="4711",scheduler="slurm",mode="system"}': lambda t, host: t * 0.25,
    'sonde_job_memory_rss_bytes{job_id="4711",scheduler="slurm"}': lambda t, host: 2**30 + int(t) * 4096,
}


def make_recording(
    path: Path | str,
    hosts: Sequence[str] = ("n1", "n2"),
    seconds: float = 60,
    period: float = 1.0,
    series: Mapping[str, Course] | None = None,
    *,
    nodes: Mapping[str, Mapping[str, Any]] | None = None,
    gaps: Mapping[str, tuple[str, str]] | None = None,
    context: Callable[[str], Mapping[str, Any]] | None = None,
    **about: Any,
) -> Recording:
    """A recording of `seconds` from BEGUN_NS on, or `begun_ns`. `nodes` has what `recording.json` says of one host
    only, `gaps` a quality and a reason by metric; a course that gives a Histogram makes a histogram.
    """
    courses = _sorted(COURSES if series is None else series)
    for host in hosts:
        told = {"begun_ns": BEGUN_NS, "job": {**JOB, "nodes": list(hosts)}, **about, **(nodes or {}).get(host, {})}
        begun_ns = told.pop("begun_ns")
        period_ns = round(period * NS)
        ended = {"ended_ns": begun_ns + round(seconds * NS), "ended_by": "job"}
        folder = os.path.join(path, host)
        os.makedirs(folder)
        write_about(folder, About(host, begun_ns, period_ns, **{**ended, **told}))
        if context is not None:
            with open(os.path.join(folder, CONTEXT), "w", encoding="utf-8") as file:
                json.dump(context(host), file)
        frames = _frames(courses, host, begun_ns, round(seconds / period), period_ns, _gaps(gaps or {}))
        _write(folder, host, begun_ns, frames)
    return open_recording(str(path))


def _sorted(series: Mapping[str, Course]) -> list[tuple[Series, Course]]:
    """The series of a metric together, as a layout wants them."""
    specs: dict[str, MetricSpec] = {}
    found = []
    for text, course in series.items():
        selector = parse_selector(text)
        names = tuple(matcher.label for matcher in selector.matchers)
        spec = specs.setdefault(selector.metric, spec_of(selector.metric, names, course(0.0, "")))
        found.append(((spec, tuple(matcher.value for matcher in selector.matchers)), course))
    return sorted(found, key=lambda item: item[0][0].name)


def spec_of(name: str, labels: tuple[str, ...] = (), example: Value | None = None) -> MetricSpec:
    """Kind and unit as the name says them."""
    if hasattr(example, "counts"):
        kind = Kind.HISTOGRAM
    elif name.endswith("_info"):
        kind = Kind.INFO
    else:
        kind = Kind.COUNTER if name.endswith("_total") else Kind.GAUGE
    unit = _UNITS.get(name.removesuffix("_total").rpartition("_")[2], Unit.NONE)
    return MetricSpec(name, kind, unit, "", labels)


def _gaps(gaps: Mapping[str, tuple[str, str]]) -> tuple[Gap, ...]:
    return tuple(Gap(spec_of(name), (), Quality(quality), reason) for name, (quality, reason) in gaps.items())


def _frames(
    courses: Sequence[tuple[Series, Course]],
    host: str,
    begun_ns: int,
    ticks: int,
    period_ns: int,
    gaps: tuple[Gap, ...],
) -> Iterator[list[Frame]]:
    layouts: dict[tuple[Series, ...], Layout] = {}
    sources = [(name, list(group)) for name, group in groupby(courses, key=_source)]
    for tick in range(ticks):
        time_ns = begun_ns + tick * period_ns
        batch = []
        for name, members in sources:
            there = [
                (one, value) for one, course in members if (value := course(tick * period_ns / NS, host)) is not None
            ]
            key = tuple(one for one, _ in there)
            layout = layouts.get(key) or layouts.setdefault(key, Layout(key))
            batch.append(Frame(name, time_ns, 0, period_ns, layout, [value for _, value in there]))
        batch[0] = batch[0]._replace(gaps=gaps)
        yield batch


def _source(item: tuple[Series, Course]) -> str:
    return "_".join(item[0][0].name.split("_")[:2])


def _write(folder: str, host: str, begun_ns: int, frames: Iterator[list[Frame]]) -> None:
    archive = Archive(
        os.path.join(folder, ARCHIVE), _KEPT, host=host, boot_id="boot", clock=ManualClock(time_ns=begun_ns)
    )
    for batch in frames:
        archive.write(batch)
    archive.close()


def simulate(path: Path | str, nodes: int = 64, hours: float = 1.0) -> Recording:
    """A job of many nodes at 1 Hz with 60 series each, whose values differ and never repeat."""
    hosts = [f"n{number}" for number in range(1, nodes + 1)]
    layouts = _simulated_layouts()
    ticks = round(hours * 3600)
    for number, host in enumerate(hosts):
        folder = os.path.join(path, host)
        os.makedirs(folder)
        ended_ns = BEGUN_NS + ticks * NS
        job = {**JOB, "nodes": hosts}
        write_about(folder, About(host, BEGUN_NS, NS, ended_ns=ended_ns, ended_by="job", exit_code=0, job=job))
        _write(folder, host, BEGUN_NS, _simulated(layouts, number, ticks))
    return open_recording(str(path))


def _simulated(layouts: Sequence[tuple[str, Layout]], node: int, ticks: int) -> Iterator[list[Frame]]:
    chance = random.Random(node)
    noise = [chance.randrange(1000) for _ in range(4096)]
    courses = [
        [(spec.kind is Kind.COUNTER, chance.randrange(1000, 100_000), chance.randrange(10**9)) for spec, _ in layout]
        for _, layout in layouts
    ]
    for tick in range(ticks):
        time_ns = BEGUN_NS + tick * NS
        frames = []
        for (source, layout), course in zip(layouts, courses, strict=True):
            place = (tick * 31 + len(course)) % 4000
            values: list[Value] = [
                begin + step * tick + some if grows else begin + some
                for (grows, step, begin), some in zip(course, noise[place : place + len(course)], strict=True)
            ]
            if source in ("cpu", "load"):
                values = [value / 100 for value in values if isinstance(value, int)]
            frames.append(Frame(source, time_ns, 0, NS, layout, values))
        yield frames


def _simulated_layouts() -> list[tuple[str, Layout]]:
    job, label_names = ("4711", "slurm"), ("job_id", "scheduler")
    modes = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    cpu = spec_of("node_cpu_seconds_total", ("cpu", "mode"))
    used = spec_of("sonde_job_cpu_seconds_total", (*label_names, "mode"))
    waits = spec_of("sonde_job_pressure_waiting_seconds_total", (*label_names, "resource"))
    of_job = ["memory_rss_bytes", "memory_cache_bytes", "memory_usage_bytes", "memory_peak_bytes", "processes"]
    of_job += ["threads", "page_faults_total", "major_page_faults_total", "read_bytes_total", "written_bytes_total"]
    memory = ("MemTotal", "MemFree", "MemAvailable", "Buffers", "Cached", "SwapTotal", "SwapFree", "Dirty")
    network = ("receive_bytes", "transmit_bytes", "receive_packets", "transmit_packets")
    resources = ("cpu", "io", "memory")
    disk = ("reads_completed", "writes_completed", "read_bytes", "written_bytes")
    sources: list[tuple[str, list[Series]]] = [
        ("cpu", [(cpu, (str(number), mode)) for number in range(2) for mode in modes]),
        ("load", [(spec_of(f"node_load{minutes}"), ()) for minutes in (1, 5, 15)]),
        ("memory", [(spec_of(f"node_memory_{name}_bytes"), ()) for name in memory]),
        ("network", [(spec_of(f"node_network_{name}_total", ("device",)), ("eth0",)) for name in network]),
        ("disk", [(spec_of(f"node_disk_{name}_total", ("device",)), ("sda",)) for name in disk]),
        ("power", [(spec_of(f"node_rapl_{zone}_joules_total", ("index",)), ("0",)) for zone in ("package", "dram")]),
        ("vmstat", [(spec_of(f"node_vmstat_{name}"), ()) for name in ("pgfault", "pgmajfault", "pswpin", "pswpout")]),
        ("pressure", [(spec_of(f"node_pressure_{name}_waiting_seconds_total"), ()) for name in resources]),
        ("job", [(spec_of(f"sonde_job_{name}", label_names), job) for name in of_job]),
        ("jobtime", [*[(used, (*job, mode)) for mode in ("user", "system")],
                     *[(waits, (*job, resource)) for resource in resources]]),
    ]  # fmt: skip
    return [(source, Layout(series)) for source, series in sources]

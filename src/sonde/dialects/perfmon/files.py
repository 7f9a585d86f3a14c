"""perfmon's files out of a recording: its JSON in metrics/, its data frames beside them, its log for what is left out.

DIR/metrics/meta_data.json, cpu_metrics.json, perf_metrics.json
DIR/cpu_metrics.csv, .parquet, .feather, .orc, .pkl      Host, Timestamps, a column per metric
DIR/metrics.h5                                           keys cpu_metrics_<job>: many jobs may share it
DIR/ska_sdp_monitoring_metrics.log
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sonde.clock import NS, iso
from sonde.dialects.perfmon.lists import Listed, Lists, lists_of
from sonde.dialects.perfmon.names import CPU, META, PERF
from sonde.jobs.export.choice import choice_of, chosen
from sonde.jobs.export.destination import extended, replaced
from sonde.jobs.recording import Recording

LOG = "ska_sdp_monitoring_metrics.log"
STORE = "metrics.h5"
_SELECTED = ("node_*", "sonde_job_*", "sonde_process_tree_*", "sonde_process_memory_uss_bytes", "sonde_perf_*")


class Written(NamedTuple):
    paths: list[str]
    families: tuple[str, ...]
    notes: list[tuple[str, str]]  # host and what is left out of its lists
    damaged: int


def write_files(
    recording: Recording,
    directory: str,
    formats: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    tell: Callable[[float], None] = lambda share: None,
) -> Written:
    """Write everything perfmon would. `formats` of the frames are csv, hdf5, parquet, pickle, feather and orc."""
    os.makedirs(os.path.join(directory, "metrics"), exist_ok=True)
    job_id = str((recording.job or {}).get("id", ""))
    nodes: dict[str, Lists] = {}
    notes = [(host, "this node of the job has left no recording") for host in recording.missing]
    damaged = 0
    for number, node in enumerate(recording.nodes, 1):
        found = chosen(node, choice_of(_SELECTED))
        nodes[node.host] = lists = lists_of(found, job_id)
        damaged += found.damaged
        notes += [(node.host, note) for note in lists.notes]
        tell(number / len(recording.nodes))
    families = {CPU: {host: lists.cpu for host, lists in nodes.items()}}
    if any(lists.perf for lists in nodes.values()):
        families[PERF] = {host: lists.perf for host, lists in nodes.items()}
    paths = [_write_json(directory, META, _meta(recording, labels or {}))]
    for family, lists_by_host in families.items():
        paths.append(
            _write_json(directory, family, _tree(recording, nodes, lists_by_host, with_processes=family == CPU))
        )
    period_ns = recording.nodes[0].about.period_ns
    for family, lists_by_host in families.items() if formats else ():
        frame = _frame(nodes, lists_by_host, period_ns)
        paths += _write_frames(directory, family, frame, formats, _word(recording.name))
    paths.append(_write_log(directory, recording, notes))
    return Written(list(dict.fromkeys(paths)), tuple(families), notes, damaged)


def _tree(
    recording: Recording, nodes: Mapping[str, Lists], lists: Mapping[str, Sequence[Listed]], *, with_processes: bool
) -> dict[str, Any]:
    period_ns = recording.nodes[0].about.period_ns
    tree: dict[str, Any] = {"host_names": list(nodes), "sampling_frequency": _seconds(period_ns)}
    for node in recording.nodes:
        about = node.about
        branch: dict[str, Any] = {"time_stamps": _time_stamps(nodes[node.host].times, period_ns)}
        if with_processes:
            branch |= {
                "parent_proc_md": {"pids": list(about.pids), "command": list(about.command)},
                "child_proc_md": [],
            }
        for listed in lists[node.host]:
            place = branch
            for name in listed.path[:-1]:
                place = place.setdefault(name, {})
            place[listed.path[-1]] = _plain(listed)
        tree[node.host] = branch
    return tree


def _plain(listed: Listed) -> list[float | None]:
    number: Callable[[float], float] = int if listed.integral else float
    return [number(value) if math.isfinite(value) else None for value in listed.values.tolist()]


def _seconds(duration_ns: int) -> float:
    return duration_ns // NS if duration_ns % NS == 0 else duration_ns / NS


def _time_stamps(times: Iterable[int], period_ns: int) -> list[float]:
    """Whole seconds, as perfmon has them; with milliseconds when it was sampled more often than perfmon can."""
    if period_ns >= NS:
        return [int(time) // NS for time in times]
    return [int(time) // 1_000_000 / 1000 for time in times]


def _meta(recording: Recording, labels: Mapping[str, str]) -> dict[str, Any]:
    told: dict[str, Any] = {"host_names": [node.host for node in recording.nodes]}
    told |= {"job": dict(recording.job or {}), "labels": dict(labels)}
    return told | {node.host: node.context() or {} for node in recording.nodes}


def _write_json(directory: str, name: str, tree: Mapping[str, Any]) -> str:
    path = os.path.join(directory, "metrics", f"{name}.json")
    with replaced(path) as part, open(part, "w", encoding="utf-8") as file:
        json.dump(tree, file)
    return path


def _write_log(directory: str, recording: Recording, notes: Sequence[tuple[str, str]]) -> str:
    path = os.path.join(directory, LOG)
    ended_ns = max(node.about.ended_ns or node.about.begun_ns for node in recording.nodes)
    with open(path, "a", encoding="utf-8") as file:
        file.writelines(f"{iso(ended_ns)} [{recording.name}] {host}: {text}\n" for host, text in notes)
    return path


def _frame(nodes: Mapping[str, Lists], lists: Mapping[str, Sequence[Listed]], period_ns: int) -> Any:
    """Rows are host × moment, hosts one after the other; a column that a host lacks is NaN there."""
    import pandas as pd

    headers = dict.fromkeys(listed.header for listing in lists.values() for listed in listing)
    parts = []
    for host, one in nodes.items():
        columns: dict[str, Any] = {"Host": [host] * len(one.times)}
        columns["Timestamps"] = _time_stamps(one.times, period_ns)
        known = {listed.header: listed for listed in lists[host]}
        blank = np.full(len(one.times), np.nan)
        for header in headers:
            columns[header] = _dense(known[header]) if header in known else blank
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def _dense(listed: Listed) -> Any:
    whole = listed.integral and bool(np.isfinite(listed.values).all())
    return listed.values.astype(np.int64) if whole else listed.values


def _write_frames(directory: str, family: str, frame: Any, formats: Sequence[str], name: str) -> list[str]:
    paths = []
    for form in formats:
        if form == "hdf5":
            paths.append(_add_to_store(os.path.join(directory, STORE), f"{family}_{name}", frame))
            continue
        suffix = {"pickle": "pkl"}.get(form, form)
        path = os.path.join(directory, f"{family}.{suffix}")
        with replaced(path) as part:
            getattr(frame, f"to_{form}")(part, **({"index": False} if form == "csv" else {}))
        paths.append(path)
    return paths


def _add_to_store(path: str, key: str, frame: Any) -> str:
    """HDF5's table format: one may append to it and ask it for rows."""
    import pandas as pd

    with extended(path) as part, pd.HDFStore(part, "a", complevel=4, complib="zlib") as store:
        store.put(key, frame, format="table", track_times=False)
    return path


def _word(text: str) -> str:
    return re.sub(r"\W", "_", text, flags=re.ASCII)

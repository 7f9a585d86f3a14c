"""perfmon's files, with what perfmon gets wrong put right; the numbers are those of its list of defects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tables
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.recordings import BEGUN_NS, Course, make_recording

from sonde.clock import NS
from sonde.dialects.perfmon.files import LOG, write_files
from sonde.dialects.perfmon.lists import lists_of
from sonde.jobs.export.choice import Chosen
from sonde.jobs.stored import Stored
from sonde.model import Value
from sonde.store.form import Series

JOB = 'job_id="4711",scheduler="slurm"'
TREE = f'root="9",{JOB}'
SERIES: dict[str, Course] = {
    f'sonde_job_cpu_seconds_total{{{JOB},mode="user"}}': lambda t, host: t * 1.5,
    f'sonde_job_cpu_seconds_total{{{JOB},mode="system"}}': lambda t, host: t * 0.25,
    'sonde_job_cpu_seconds_total{job_id="12",scheduler="slurm",mode="user"}': lambda t, host: t * 100,
    f"sonde_job_memory_rss_bytes{{{JOB}}}": lambda t, host: 10,
    f"sonde_process_tree_memory_virtual_bytes{{{TREE}}}": lambda t, host: 100,
    f"sonde_process_tree_memory_shared_bytes{{{TREE}}}": lambda t, host: 1,
    f"sonde_process_tree_open_files{{{TREE}}}": lambda t, host: 7,
    f"sonde_job_threads{{{JOB}}}": lambda t, host: 4,
    f"sonde_job_read_bytes_total{{{JOB}}}": lambda t, host: int(t) * 5,
    f"sonde_job_written_bytes_total{{{JOB}}}": lambda t, host: int(t) * 6,
    "node_memory_MemTotal_bytes": lambda t, host: 1000,
    'node_cpu_seconds_total{cpu="0",mode="idle"}': lambda t, host: t * 0.25,
    'node_cpu_seconds_total{cpu="0",mode="user"}': lambda t, host: t * 0.75,
    'node_network_receive_bytes_total{device="eth0"}': lambda t, host: 1000 + int(t),
    'node_network_receive_bytes_total{device="eth1"}': lambda t, host: 2000 + int(t),
    'node_infiniband_port_data_transmitted_bytes_total{device="mlx5_0",port="1"}': lambda t, host: 4096,
    'node_infiniband_port_packets_transmitted_total{device="mlx5_0",port="1"}': lambda t, host: 64,
    'node_rapl_package_joules_total{index="0",path="/p"}': lambda t, host: 2.5 + t,
}


def written(folder: Path, name: str = "cpu_metrics") -> Any:
    return json.loads((folder / "metrics" / f"{name}.json").read_text())


def test_the_layout_is_perfmons(tmp_path: Path) -> None:
    recording = make_recording(tmp_path / "r", seconds=4, series=SERIES, context=lambda host: {"cpu": {"cores": 2}})

    result = write_files(recording, str(tmp_path / "out"), labels={"system": "alaska"})

    tree, meta = written(tmp_path / "out"), written(tmp_path / "out", "meta_data")
    assert list(tree) == ["host_names", "sampling_frequency", "n1", "n2"]
    assert tree["host_names"] == ["n1", "n2"]
    assert tree["sampling_frequency"] == 1
    node = tree["n1"]
    assert node["time_stamps"] == [1790000000, 1790000001, 1790000002, 1790000003]
    assert node["net_io_counters"] == {"bytes_recv": [3000, 3002, 3004, 3006]}
    assert node["io_counters"] == {"read_bytes": [0, 5, 10, 15], "write_bytes": [0, 6, 12, 18]}
    assert node["rapl_powercap"] == {"package-0": [2500000, 3500000, 4500000, 5500000]}
    assert node["memory_percent"] == [1.0] * 4
    assert node["cpu_percent"] == [None, 175.0, 175.0, 175.0]
    assert node["cpu_percent_sys"] == [None, 75.0, 75.0, 75.0]
    assert (node["num_fds"], node["num_threads"]) == ([7] * 4, [4] * 4)
    assert (node["parent_proc_md"], node["child_proc_md"]) == ({"pids": [], "command": []}, [])
    assert meta["n1"] == {"cpu": {"cores": 2}}
    assert meta["labels"] == {"system": "alaska"}
    assert result.families == ("cpu_metrics",)


def test_what_a_recording_lacks_is_left_out_and_the_log_says_why(tmp_path: Path) -> None:
    recording = make_recording(tmp_path / "r", seconds=2)

    result = write_files(recording, str(tmp_path / "out"))

    log = (tmp_path / "out" / LOG).read_text()
    assert "rapl_powercap" not in written(tmp_path / "out")["n1"]
    assert "[4711] n1: memory_info.vms is left out: no sonde_process_tree_memory_virtual_bytes was recorded" in log
    assert "nv_gpu_metrics is left out" in log
    assert any("io_counters.read_count" in text for _, text in result.notes)


def test_1_each_key_is_a_sum_of_its_own(tmp_path: Path) -> None:
    recording = make_recording(tmp_path / "r", seconds=2, series=SERIES)

    write_files(recording, str(tmp_path / "out"))

    memory = written(tmp_path / "out")["n1"]["memory_info"]
    assert memory == {"rss": [10, 10], "vms": [100, 100], "shared": [1, 1]}


NAMES = {
    "rss": "sonde_process_tree_memory_rss_bytes",
    "vms": "sonde_process_tree_memory_virtual_bytes",
    "shared": "sonde_process_tree_memory_shared_bytes",
}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(sorted(NAMES)),
        st.lists(st.lists(st.integers(0, 2**40), min_size=3, max_size=3), min_size=1, max_size=3),
        min_size=1,
    )
)
def test_1_whatever_trees_there_are_no_key_has_anothers_values(values: dict[str, list[list[int]]]) -> None:
    times = BEGUN_NS + np.arange(3) * NS
    series = [
        Stored(Series(NAMES[key], "gauge", "bytes", (("root", str(number)),)), NS, times, np.array(row))
        for key, rows in values.items()
        for number, row in enumerate(rows)
    ]

    found = {listed.path: listed.values.tolist() for listed in lists_of(Chosen(series, [], []), "").cpu}

    sums = {
        ("memory_info", key): [float(sum(column)) for column in zip(*rows, strict=True)] for key, rows in values.items()
    }
    assert found == sums


def test_6_infiniband_data_are_bytes_and_packets_are_packets(tmp_path: Path) -> None:
    recording = make_recording(tmp_path / "r", seconds=2, series=SERIES)

    write_files(recording, str(tmp_path / "out"))

    assert written(tmp_path / "out")["n1"]["ib_io_counters"] == {
        "port_xmit_data": [4096, 4096],
        "port_xmit_packets": [64, 64],
    }


def test_7_cpu_time_has_the_kernels_part_and_no_other_jobs(tmp_path: Path) -> None:
    recording = make_recording(tmp_path / "r", seconds=3, series=SERIES)

    write_files(recording, str(tmp_path / "out"))

    assert written(tmp_path / "out")["n1"]["cpu_time"] == [0, 1.75, 3.5]


def test_10_what_is_sampled_ten_times_a_second_has_times_that_differ(tmp_path: Path) -> None:
    recording = make_recording(tmp_path / "r", seconds=0.5, period=0.1, series=SERIES)

    write_files(recording, str(tmp_path / "out"), ["csv"])

    tree = written(tmp_path / "out")
    assert tree["sampling_frequency"] == 0.1
    assert tree["n1"]["time_stamps"] == [1790000000.0, 1790000000.1, 1790000000.2, 1790000000.3, 1790000000.4]
    assert pd.read_csv(tmp_path / "out" / "cpu_metrics.csv")["Timestamps"].nunique() == 5


def test_16_energy_that_may_not_be_read_is_left_out_with_the_reason(tmp_path: Path) -> None:
    series = {name: course for name, course in SERIES.items() if "rapl" not in name}
    gaps = {"node_rapl_package_joules_total": ("denied", "energy_uj is readable by root only")}
    recording = make_recording(tmp_path / "r", seconds=2, series=series, gaps=gaps)

    result = write_files(recording, str(tmp_path / "out"))

    assert "rapl_powercap" not in written(tmp_path / "out")["n1"]
    assert (
        "n1",
        "rapl_powercap is left out: node_rapl_package_joules_total is denied: energy_uj is readable by root only",
    ) in result.notes


def test_17_a_value_that_was_not_read_moves_no_other_in_time(tmp_path: Path) -> None:
    def sometimes(t: float, host: str) -> Value | None:
        return None if t == 1 else int(t)

    series = {**SERIES, f"sonde_job_threads{{{JOB}}}": sometimes}
    recording = make_recording(tmp_path / "r", seconds=4, series=series)

    write_files(recording, str(tmp_path / "out"), ["csv"])

    node = written(tmp_path / "out")["n1"]
    assert node["num_threads"] == [0, None, 2, 3]
    lengths = [len(value) for value in node.values() if isinstance(value, list) and value]
    lengths += [len(value) for group in node.values() if isinstance(group, dict) for value in group.values() if value]
    assert set(lengths) == {4}
    threads = pd.read_csv(tmp_path / "out" / "cpu_metrics.csv")["Threads [threads]"]
    assert threads[:4].isna().tolist() == [False, True, False, False]


def test_17_one_device_without_a_value_makes_the_sum_unknown_and_not_smaller(tmp_path: Path) -> None:
    def sometimes(t: float, host: str) -> Value | None:
        return None if t == 1 else 2000

    series = {**SERIES, 'node_network_receive_bytes_total{device="eth1"}': sometimes}
    recording = make_recording(tmp_path / "r", seconds=3, series=series)

    write_files(recording, str(tmp_path / "out"))

    assert written(tmp_path / "out")["n1"]["net_io_counters"]["bytes_recv"] == [3000, None, 3002]


def test_18_nodes_that_begin_apart_keep_their_own_times(tmp_path: Path) -> None:
    recording = make_recording(tmp_path / "r", seconds=3, series=SERIES, nodes={"n2": {"begun_ns": BEGUN_NS + 2 * NS}})

    write_files(recording, str(tmp_path / "out"), ["parquet"])

    tree = written(tmp_path / "out")
    frame = pd.read_parquet(tmp_path / "out" / "cpu_metrics.parquet")
    both = frame.groupby("Timestamps")["Network recv data [bytes]"].agg(["sum", "count"])
    assert tree["n2"]["time_stamps"][0] == tree["n1"]["time_stamps"][2]
    assert both["count"].tolist() == [1, 1, 2, 1, 1]
    assert both["sum"].loc[1790000002] == 3004 + 3000


@pytest.mark.parametrize(("form", "suffix"), [("csv", "csv"), ("parquet", "parquet"), ("pickle", "pkl"),
                                              ("feather", "feather"), ("orc", "orc")])  # fmt: skip
def test_the_frames_are_read_by_pandas(tmp_path: Path, form: str, suffix: str) -> None:
    recording = make_recording(tmp_path / "r", seconds=4, series=SERIES)

    write_files(recording, str(tmp_path / "out"), [form])

    frame: Any = getattr(pd, f"read_{form}")(tmp_path / "out" / f"cpu_metrics.{suffix}")
    tree = written(tmp_path / "out")
    assert list(frame)[:2] == ["Host", "Timestamps"]
    assert frame["Timestamps"].tolist() == tree["n1"]["time_stamps"] + tree["n2"]["time_stamps"]
    assert frame["RAPL package 0 [uJ]"].tolist() == 2 * tree["n1"]["rapl_powercap"]["package-0"]
    assert frame["IB xmit data [bytes]"].tolist() == [4096] * 8
    assert frame["CPU time [s]"].tolist() == 2 * tree["n1"]["cpu_time"]


def test_jobs_share_one_store_with_a_key_each(tmp_path: Path) -> None:
    first = make_recording(tmp_path / "a", seconds=2, series=SERIES)
    second = make_recording(tmp_path / "b", seconds=3, series=SERIES, job={"id": "4712[3]", "scheduler": "pbs"})

    for recording in (first, second):
        write_files(recording, str(tmp_path / "out"), ["hdf5"])

    path = str(tmp_path / "out" / "metrics.h5")
    with tables.open_file(path) as file:
        keys = sorted(file.root._v_children)
        rows = file.root.cpu_metrics_4711.table.nrows
    assert keys == ["cpu_metrics_4711", "cpu_metrics_4712_3_"]
    assert rows == 4
    data: Any = pd.read_hdf(path, "cpu_metrics_4711", where="index < 2")
    assert data["Host"].tolist() == ["n1", "n1"]


def test_counters_are_scaled_by_the_time_they_were_counted(tmp_path: Path) -> None:
    whom = 'scope="job",job_id="4711",scheduler="slurm"'
    system = 'scope="system",job_id="",scheduler=""'
    series: dict[str, Course] = {
        **SERIES,
        f'sonde_perf_events_total{{event="cache_misses",group="cache",{whom}}}': lambda t, host: int(t) * 10,
        f'sonde_perf_events_total{{event="instructions",group="cache",{whom}}}': lambda t, host: int(t) * 20,
        f'sonde_perf_events_total{{event="instructions",group="core",{whom}}}': lambda t, host: int(t) * 40,
        f'sonde_perf_events_total{{event="instructions",group="core",{system}}}': lambda t, host: int(t) * 999,
        f'sonde_perf_events_total{{event="l2_lines_in_all",group="l3",{whom}}}': lambda t, host: 5,
        f'sonde_perf_enabled_seconds_total{{group="cache",{whom}}}': lambda t, host: 1.0 + t,
        f'sonde_perf_running_seconds_total{{group="cache",{whom}}}': lambda t, host: (1.0 + t) / 2,
    }
    recording = make_recording(tmp_path / "r", seconds=3, series=series)

    result = write_files(recording, str(tmp_path / "out"), ["csv"])

    node = written(tmp_path / "out", "perf_metrics")["n1"]
    assert result.families == ("cpu_metrics", "perf_metrics")
    assert node["hardware_events"] == {"cache-misses": [0, 20, 40], "instructions": [0, 40, 80]}
    assert node["L3"] == {"l2_lines_in_all": [5, 5, 5]}
    assert "cache-misses" in pd.read_csv(tmp_path / "out" / "perf_metrics.csv")

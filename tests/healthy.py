"""A job without a fault, measured in every respect: what rules must not fire at, and what faults are put into."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.recordings import Course, make_recording

from sonde.jobs.recording import Recording

GIB = 2**30
SECONDS, PERIOD = 600, 5.0
JOB = 'job_id="4711",scheduler="slurm"'
ETH, IB = 'device="eth0"', 'device="mlx5_0",port="1"'
ROOT = 'device="/dev/sda1",mountpoint="/",fstype="ext4"'
TMP = 'device="tmpfs",mountpoint="/tmp",fstype="tmpfs"'
NFS = 'export="fs:/home",protocol="tcp",mountaddr="10.0.0.9",operation="READ"'
LUSTRE = 'filesystem="scratch",target="OST0000",superblock="a"'
GPU = 'vendor="nvidia",device="0"'
HOSTS = ("n1", "n2")


def steady(rate: float) -> Course:
    """A counter."""
    return lambda t, host: 1000 + t * rate


def still(value: float) -> Course:
    return lambda t, host: value


def _filesystem(labels: str, share: float) -> dict[str, Course]:
    return {
        f"node_filesystem_size_bytes{{{labels}}}": still(100 * GIB),
        f"node_filesystem_free_bytes{{{labels}}}": still((1 - share) * 100 * GIB),
        f"node_filesystem_avail_bytes{{{labels}}}": still((1 - share) * 100 * GIB),
        f"node_filesystem_files{{{labels}}}": still(1000),
        f"node_filesystem_files_free{{{labels}}}": still(900),
    }


HEALTHY: dict[str, Course] = {
    f'sonde_job_cpu_seconds_total{{{JOB},mode="user"}}': steady(3.4),
    f'sonde_job_cpu_seconds_total{{{JOB},mode="system"}}': steady(0.2),
    f"sonde_job_cpu_throttled_seconds_total{{{JOB}}}": steady(0),
    f"sonde_job_threads{{{JOB}}}": still(5),
    f"sonde_job_processes{{{JOB}}}": still(2),
    f"sonde_job_memory_rss_bytes{{{JOB}}}": still(6 * GIB),
    f"sonde_job_memory_swap_bytes{{{JOB}}}": still(0),
    f"sonde_job_oom_kills_total{{{JOB}}}": still(0),
    f"sonde_job_page_faults_total{{{JOB}}}": steady(200),
    f"sonde_job_major_page_faults_total{{{JOB}}}": steady(0),
    f"sonde_job_read_bytes_total{{{JOB}}}": steady(10e6),
    f"sonde_job_written_bytes_total{{{JOB}}}": steady(1e6),
    f'sonde_job_pressure_waiting_seconds_total{{{JOB},resource="cpu"}}': steady(0.01),
    f'sonde_job_pressure_waiting_seconds_total{{{JOB},resource="io"}}': steady(0.01),
    f'sonde_job_pressure_waiting_seconds_total{{{JOB},resource="memory"}}': steady(0),
    "node_memory_MemTotal_bytes": still(32 * GIB),
    "node_memory_MemAvailable_bytes": still(20 * GIB),
    "node_vmstat_oom_kill": still(0),
    "node_vmstat_pswpin": still(0),
    "node_vmstat_pswpout": still(0),
    "node_context_switches_total": steady(4000),
    "node_load1": still(3.7),
    "node_procs_running": still(4),
    'node_disk_read_bytes_total{device="sda"}': steady(10e6),
    'node_disk_written_bytes_total{device="sda"}': steady(1e6),
    'node_disk_io_time_seconds_total{device="sda"}': steady(0.1),
    **_filesystem(ROOT, 0.4),
    **_filesystem(TMP, 0.1),
    "node_nfs_rpcs_total": steady(100),
    "node_nfs_rpc_retransmissions_total": steady(0),
    f"node_mountstats_nfs_operations_response_time_seconds_total{{{NFS}}}": steady(0.1),
    f"sonde_lustre_client_target_wait_seconds_total{{{LUSTRE}}}": steady(0.1),
    f"node_network_receive_bytes_total{{{ETH}}}": steady(10e6),
    f"node_network_transmit_bytes_total{{{ETH}}}": steady(5e6),
    f"node_network_receive_packets_total{{{ETH}}}": steady(10_000),
    f"node_network_receive_drop_total{{{ETH}}}": steady(0),
    f"node_network_receive_errs_total{{{ETH}}}": steady(0),
    f"node_network_speed_bytes{{{ETH}}}": still(125e6),
    f"node_infiniband_port_data_received_bytes_total{{{IB}}}": steady(1e9),
    f"node_infiniband_port_data_transmitted_bytes_total{{{IB}}}": steady(1e9),
    f"node_infiniband_rate_bytes_per_second{{{IB}}}": still(12.5e9),
    'node_rapl_package_joules_total{index="0"}': steady(120),
    'node_rapl_dram_joules_total{index="0"}': steady(10),
    'node_cpu_core_throttles_total{package="0",core="0"}': still(0),
    'sonde_cpu_core_throttled_seconds_total{package="0",core="0"}': still(0),
    f"sonde_accelerator_utilization_ratio{{{GPU}}}": still(0.9),
    f"sonde_accelerator_memory_used_bytes{{{GPU}}}": still(8 * GIB),
    **{
        f'node_cpu_seconds_total{{cpu="{cpu}",mode="{mode}"}}': steady(share)
        for cpu in range(4)
        for mode, share in (("user", 0.85), ("system", 0.05), ("idle", 0.09), ("iowait", 0.01), ("steal", 0.0))
    },
    **{f'node_cpu_scaling_frequency_hertz{{cpu="{cpu}"}}': still(3.0e9) for cpu in range(4)},
    **{f'node_cpu_frequency_max_hertz{{cpu="{cpu}"}}': still(3.2e9) for cpu in range(4)},
    **{f'node_cpu_scaling_governor{{cpu="{cpu}",governor="powersave"}}': still(0) for cpu in range(4)},
    **{
        f'sonde_process_cpu_seconds_total{{pid="{pid}",comm="python",{JOB},mode="user"}}': steady(1.7)
        for pid in (811, 812)
    },
    **{f'sonde_process_memory_rss_bytes{{pid="{pid}",comm="python",{JOB}}}': still(3 * GIB) for pid in (811, 812)},
    **{f'sonde_job_rank_info{{{JOB},rank="{rank}",pid="{811 + rank}"}}': still(1) for rank in (0, 1)},
    'sonde_perf_events_total{event="instructions",group="core",scope="job"}': steady(2e9),
    'sonde_perf_enabled_seconds_total{group="core",scope="job"}': steady(3.6),
    'sonde_perf_running_seconds_total{group="core",scope="job"}': steady(0.9),
}
ABOUT: dict[str, Any] = {
    "asked": {"cpus": 4, "memory_bytes": 8 * GIB, "seconds": 800},
    "clock": {"offset_ns": 2_000_000, "bound_ns": 100_000},
    "exit_code": 0,
}


def recording(path: Path, changes: Mapping[str, Course | None] | None = None, **about: Any) -> Recording:
    """The healthy job with some series changed, or left out (None), and some of what it says of itself."""
    series = {name: course for name, course in {**HEALTHY, **(changes or {})}.items() if course is not None}
    return make_recording(path, HOSTS, SECONDS, PERIOD, series, **{**ABOUT, **about})

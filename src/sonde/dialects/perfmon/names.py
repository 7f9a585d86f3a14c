"""perfmon's keys and column headers, and the series of a recording that they are made of.

    cpu_metrics.json   {"n1": {"memory_info": {"rss": [1073741824, ...]}}}
    cpu_metrics.csv    Host,Timestamps,RSS memory [bytes]

Headers that perfmon's documents show are theirs (`IB recv data [bytes]`, `RAPL package 0 [uJ]`, `Memory (read)
bandwidth [MiB/s]`); the others are `Name [unit]` in the same style.
"""

from __future__ import annotations

from typing import NamedTuple

CPU, PERF, GPU, META = "cpu_metrics", "perf_metrics", "nv_gpu_metrics", "meta_data"


class Entry(NamedTuple):
    """One list of perfmon's, as a sum over series. Of several metrics the first that was recorded is taken."""

    path: tuple[str, ...]
    header: str
    metrics: tuple[str, ...]


def _job(name: str, tree: str = "") -> tuple[str, ...]:
    """The scheduler's account of a job, else that of the process tree."""
    return (f"sonde_job_{name}", f"sonde_process_tree_{tree or name}")


CPU_TIME = Entry(("cpu_time",), "CPU time [s]", _job("cpu_seconds_total"))
RSS = Entry(("memory_info", "rss"), "RSS memory [bytes]", _job("memory_rss_bytes"))

# Counted per name: perfmon added each of a group to the ones before it. InfiniBand's data counters are bytes already
# (the kernel's are words of 4); its packets are packets.
ENTRIES = (
    CPU_TIME,
    Entry(("net_io_counters", "bytes_sent"), "Network sent data [bytes]", ("node_network_transmit_bytes_total",)),
    Entry(("net_io_counters", "bytes_recv"), "Network recv data [bytes]", ("node_network_receive_bytes_total",)),
    Entry(
        ("net_io_counters", "packets_sent"), "Network sent packets [packets]", ("node_network_transmit_packets_total",)
    ),
    Entry(
        ("net_io_counters", "packets_recv"), "Network recv packets [packets]", ("node_network_receive_packets_total",)
    ),
    Entry(
        ("ib_io_counters", "port_xmit_data"),
        "IB xmit data [bytes]",
        ("node_infiniband_port_data_transmitted_bytes_total",),
    ),
    Entry(
        ("ib_io_counters", "port_rcv_data"), "IB recv data [bytes]", ("node_infiniband_port_data_received_bytes_total",)
    ),
    Entry(
        ("ib_io_counters", "port_xmit_packets"),
        "IB xmit packets [packets]",
        ("node_infiniband_port_packets_transmitted_total",),
    ),
    Entry(
        ("ib_io_counters", "port_rcv_packets"),
        "IB recv packets [packets]",
        ("node_infiniband_port_packets_received_total",),
    ),
    RSS,
    Entry(("memory_info", "vms"), "VMS memory [bytes]", ("sonde_process_tree_memory_virtual_bytes",)),
    Entry(("memory_info", "shared"), "Shared memory [bytes]", ("sonde_process_tree_memory_shared_bytes",)),
    Entry(("memory_full_info", "uss"), "USS memory [bytes]", ("sonde_process_memory_uss_bytes",)),
    Entry(("memory_full_info", "swap"), "Swap memory [bytes]", _job("memory_swap_bytes")),
    Entry(("io_counters", "read_bytes"), "IO read data [bytes]", _job("read_bytes_total")),
    Entry(("io_counters", "write_bytes"), "IO write data [bytes]", _job("written_bytes_total")),
    Entry(("num_fds",), "Open files [files]", ("sonde_process_tree_open_files",)),
    Entry(("num_threads",), "Threads [threads]", _job("threads")),
)
CPU_PERCENT = (("cpu_percent",), "CPU usage [%]")
CPU_PERCENT_SYS = (("cpu_percent_sys",), "System CPU usage [%]")
MEMORY_PERCENT = (("memory_percent",), "Memory usage [%]")
RAPL_ZONES = ("package", "core", "uncore", "dram")
# What perfmon has and a recording lacks.
LACKING = {
    ("io_counters", "read_count"): "the number of reads and writes is not recorded, their bytes are",
    ("memory_bw",): "perfmon's estimate of the memory bandwidth is not made: see the counters of sonde report",
}

_HARDWARE = ("cycles", "instructions", "cache-misses", "cache-references", "branches", "branch-misses")
_SOFTWARE = ("context-switches", "cpu-migrations", "page-faults", "major-faults", "task-clock")
_GROUPS = {"l2": "L2", "l3": "L3", "flops_sp": "FLOPS_SP", "flops_dp": "FLOPS_DP"}


def perf_place(event: str, group: str) -> tuple[str, str]:
    """perfmon's group and name of an event: those the kernel names as perf(1) writes them, others by their group."""
    name = event.removesuffix("_ns").replace("_", "-")
    if name in _HARDWARE:
        return "hardware_events", name
    if name in _SOFTWARE:
        return "software_events", name
    return _GROUPS.get(group, group), event

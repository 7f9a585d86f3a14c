"""Every figure a report knows, of a node, of a device or of a whole job, and every plot: name, unit, meaning.

Rules (rules.toml) and comparisons use these names. `over` says how the figures of the nodes become the job's; a figure
without it is of a node or of a device alone. A figure that was not measured is None.
"""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    unit: str  # bytes, bytes/s, seconds, ratio, cores, joules, watts, hertz, 1/s, or nothing
    over: str  # sum, mean, max, min over the nodes; nothing: not of the job
    meaning: str


class Plot(NamedTuple):
    unit: str
    over: str  # sum or mean over the nodes
    title: str
    worse: str = "high"  # which end of the bars comes first: high or low


NODE: dict[str, Figure] = {
    "duration": Figure("seconds", "max", "from the first to the last value"),
    "interrupted": Figure("", "sum", "1 when the recording of the node has no end"),
    "silent": Figure("seconds", "max", "how long before the last node's end the values of the node end"),
    "exit_code": Figure("", "max", "of the command that was recorded"),
    "sampling_gap": Figure("seconds", "max", "the longest time without a value"),
    "sampling_lost_share": Figure("ratio", "max", "share of the values that should be there and are not"),
    "clock_offset": Figure("seconds", "max", "what the node's clock was off the gatherer's, either way"),
    "clock_bound": Figure("seconds", "max", "how sure that is"),
    "cpu_there": Figure("cores", "sum", "CPUs of the node"),
    "cpu_asked": Figure("cores", "sum", "CPUs the job asked for on the node"),
    "cpu_granted": Figure("cores", "sum", "CPUs asked for; where that is not known, those of the node"),
    "cpu_used": Figure("cores", "sum", "CPUs the job kept busy, on average"),
    "cpu_used_peak": Figure("cores", "max", "CPUs the job kept busy in its busiest moment"),
    "cpu_used_share": Figure("ratio", "mean", "cpu_used of cpu_granted"),
    "cpu_seconds": Figure("seconds", "sum", "CPU time of the job"),
    "cpu_system_part": Figure("ratio", "mean", "share of the job's CPU time that was the kernel's"),
    "cpu_throttled_share": Figure("ratio", "max", "share of the time the job was held back by its CPU limit"),
    "host_user_share": Figure("ratio", "mean", "share of the node's CPU time in user mode, nice included"),
    "host_system_share": Figure("ratio", "mean", "share of the node's CPU time in the kernel, interrupts included"),
    "host_iowait_share": Figure("ratio", "mean", "share of the node's CPU time idle while I/O was under way"),
    "host_steal_share": Figure("ratio", "max", "share of the node's CPU time taken by the hypervisor"),
    "host_idle_share": Figure("ratio", "mean", "share of the node's CPU time idle, iowait included"),
    "threads_peak": Figure("", "max", "threads of the job, at most"),
    "processes_peak": Figure("", "max", "processes of the job, at most"),
    "idle_longest": Figure("seconds", "max", "the longest time the job used less than a twentieth of a CPU"),
    "idle_share": Figure("ratio", "mean", "share of the time in which it did"),
    "startup": Figure("seconds", "max", "time until the job used half of what it used later"),
    "startup_share": Figure("ratio", "max", "startup of duration"),
    "load_mean": Figure("", "sum", "load average of one minute, on average"),
    "runnable_mean": Figure("", "sum", "threads that ran or were ready to, on average"),
    "context_switches": Figure("1/s", "sum", "context switches of the node"),
    "context_switches_per_cpu": Figure("1/s", "max", "the same, for each CPU"),
    "frequency_share": Figure("ratio", "min", "mean frequency of the CPUs of the highest they have"),
    "powersave": Figure("", "max", "1 when the governor is powersave"),
    "throttle_events": Figure("", "sum", "times a core or package was slowed down for its heat"),
    "throttled_share": Figure("ratio", "max", "share of the time the slowest core was slowed down for its heat"),
    "memory_there": Figure("bytes", "sum", "memory of the node"),
    "memory_asked": Figure("bytes", "sum", "memory the job asked for on the node"),
    "memory_granted": Figure("bytes", "sum", "memory asked for, else the limit of the job, else the node's"),
    "memory_used": Figure("bytes", "sum", "resident memory of the job, on average"),
    "memory_used_peak": Figure("bytes", "max", "resident memory of the job, at most"),
    "memory_used_share": Figure("ratio", "max", "memory_used_peak of memory_granted"),
    "memory_last": Figure("bytes", "max", "resident memory of the job at its last value"),
    "memory_growth": Figure("bytes/s", "max", "growth of resident memory in the last five minutes"),
    "memory_full_in": Figure("seconds", "min", "when memory would be full at that growth, after the last value"),
    "memory_available_least": Figure("bytes", "min", "memory still available on the node, at least"),
    "memory_available_share": Figure("ratio", "min", "the same of the memory there is"),
    "oom_kills": Figure("", "sum", "processes of the job the kernel killed for want of memory"),
    "host_oom_kills": Figure("", "sum", "processes of the node killed for want of memory"),
    "swap_peak": Figure("bytes", "max", "memory of the job that was swapped out, at most"),
    "swapping": Figure("bytes/s", "max", "swapped in and out by the node, on average"),
    "page_faults": Figure("1/s", "max", "page faults of the job, or of the node where the job's are not known"),
    "major_faults": Figure("1/s", "max", "page faults that had to read storage"),
    "major_faults_peak": Figure("1/s", "max", "the same in the worst moment"),
    "read_bytes": Figure("bytes", "sum", "fetched from storage by the job"),
    "written_bytes": Figure("bytes", "sum", "sent to storage by the job"),
    "read_peak": Figure("bytes/s", "max", "fetched from storage in the busiest moment"),
    "written_peak": Figure("bytes/s", "max", "sent to storage in the busiest moment"),
    "nfs_retransmitted_share": Figure("ratio", "max", "share of NFS calls that had to be sent again"),
    "nfs_waiting": Figure("", "max", "NFS requests that waited for their reply, on average"),
    "lustre_waiting": Figure("", "max", "Lustre requests that waited for their reply, on average"),
    "network_received": Figure("bytes", "sum", "received by the network devices"),
    "network_sent": Figure("bytes", "sum", "sent by the network devices"),
    "infiniband_received": Figure("bytes", "sum", "received by InfiniBand ports"),
    "infiniband_sent": Figure("bytes", "sum", "sent by InfiniBand ports"),
    "pressure_cpu": Figure("ratio", "max", "share of the time a task of the job waited for a CPU"),
    "pressure_io": Figure("ratio", "max", "share of the time a task of the job waited for I/O"),
    "pressure_memory": Figure("ratio", "max", "share of the time a task of the job waited for memory"),
    "energy": Figure("joules", "sum", "used by packages and memory (RAPL)"),
    "power": Figure("watts", "sum", "the same per second"),
    "energy_estimated": Figure("joules", "sum", "an estimate from CPU time and memory, where nothing measures it"),
    "accelerators": Figure("", "sum", "accelerators the node has values of"),
    "accelerator_busy": Figure("ratio", "min", "share of the time the accelerators worked, on average"),
}

DEVICE: dict[str, Figure] = {
    "read_bytes": Figure("bytes", "", "disk: read"),
    "written_bytes": Figure("bytes", "", "disk: written"),
    "read_peak": Figure("bytes/s", "", "disk: read in the busiest moment"),
    "written_peak": Figure("bytes/s", "", "disk: written in the busiest moment"),
    "busy_share": Figure("ratio", "", "disk: time with a request in flight; accelerator: time it worked"),
    "filled_share": Figure("ratio", "", "filesystem: used of what users may use, at most"),
    "files_share": Figure("ratio", "", "filesystem: inodes in use, at most"),
    "free_least": Figure("bytes", "", "filesystem: space for users, at least"),
    "free_at_begin": Figure("bytes", "", "filesystem: space for users, at the begin"),
    "received_bytes": Figure("bytes", "", "network, InfiniBand: received"),
    "sent_bytes": Figure("bytes", "", "network, InfiniBand: sent"),
    "received_peak": Figure("bytes/s", "", "network, InfiniBand: received in the busiest moment"),
    "sent_peak": Figure("bytes/s", "", "network, InfiniBand: sent in the busiest moment"),
    "speed": Figure("bytes/s", "", "network, InfiniBand: what the link can do"),
    "saturated_share": Figure("ratio", "", "network, InfiniBand: share of the time at 80 % of that or more"),
    "lost": Figure("", "", "network: packets dropped or in error"),
    "lost_share": Figure("ratio", "", "network: the same of all packets"),
    "memory_peak": Figure("bytes", "", "accelerator: memory in use, at most"),
    "power": Figure("watts", "", "accelerator: power, on average"),
    "temperature_peak": Figure("celsius", "", "accelerator: temperature, at most"),
}

JOB: dict[str, Figure] = {
    "nodes": Figure("", "", "nodes that left values"),
    "nodes_missing": Figure("", "", "nodes of the job that left none"),
    "cpu_asked_per_node": Figure("cores", "", "CPUs asked for on each node"),
    "memory_asked_per_node": Figure("bytes", "", "memory asked for on each node"),
    "walltime_asked": Figure("seconds", "", "time the job asked for"),
    "walltime_used_share": Figure("ratio", "", "duration of walltime_asked"),
    "cpu_imbalance": Figure("ratio", "", "what the mean node used less than the busiest, of the busiest"),
    "memory_imbalance": Figure("ratio", "", "the same of peak memory"),
    "rank_imbalance": Figure("ratio", "", "the same of the CPU time of the ranks"),
    "ranks": Figure("", "", "ranks whose CPU time is known"),
}

PLOTS: dict[str, Plot] = {
    "cpu_used": Plot("cores", "sum", "CPUs the job uses", "low"),
    "memory_used": Plot("bytes", "sum", "Resident memory of the job"),
    "host_busy": Plot("ratio", "mean", "CPUs of the node busy", "low"),
    "host_iowait": Plot("ratio", "mean", "CPUs idle while I/O is under way"),
    "host_steal": Plot("ratio", "mean", "CPU time taken by the hypervisor"),
    "memory_available": Plot("bytes", "sum", "Memory available on the node", "low"),
    "swap": Plot("bytes", "sum", "Memory of the job swapped out"),
    "page_faults": Plot("1/s", "sum", "Page faults"),
    "read": Plot("bytes/s", "sum", "Read from storage by the job"),
    "written": Plot("bytes/s", "sum", "Written to storage by the job"),
    "disk_busy": Plot("ratio", "mean", "The busiest disk: time with a request in flight"),
    "network_received": Plot("bytes/s", "sum", "Network, received"),
    "network_sent": Plot("bytes/s", "sum", "Network, sent"),
    "infiniband_received": Plot("bytes/s", "sum", "InfiniBand, received"),
    "infiniband_sent": Plot("bytes/s", "sum", "InfiniBand, sent"),
    "pressure_cpu": Plot("ratio", "mean", "Waiting for a CPU (pressure)"),
    "pressure_io": Plot("ratio", "mean", "Waiting for I/O (pressure)"),
    "pressure_memory": Plot("ratio", "mean", "Waiting for memory (pressure)"),
    "load": Plot("", "sum", "Load average, 1 minute"),
    "context_switches": Plot("1/s", "sum", "Context switches"),
    "frequency": Plot("hertz", "mean", "Mean frequency of the CPUs", "low"),
    "power": Plot("watts", "sum", "Power of packages and memory (RAPL)"),
    "accelerator_busy": Plot("ratio", "mean", "Accelerators busy", "low"),
    "accelerator_memory": Plot("bytes", "sum", "Accelerator memory in use"),
}

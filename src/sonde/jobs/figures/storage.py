"""Storage: what the job read and wrote, disks, filesystems, and waiting for NFS and Lustre servers."""

from __future__ import annotations

from sonde.jobs.figures.sheet import Sheet
from sonde.jobs.tracks import Readings, least, mean, most, rate, ratio
from sonde.store.query import Points

NAMES = (
    "node_disk_read_bytes_total",
    "node_disk_written_bytes_total",
    "node_disk_io_time_seconds_total",
    "node_filesystem_size_bytes",
    "node_filesystem_free_bytes",
    "node_filesystem_avail_bytes",
    "node_filesystem_files",
    "node_filesystem_files_free",
    "node_filesystem_readonly",
    "node_nfs_rpcs_total",
    "node_nfs_rpc_retransmissions_total",
    "node_mountstats_nfs_operations_response_time_seconds_total",
    "sonde_lustre_client_target_wait_seconds_total",
    "sonde_job_read_bytes_total",
    "sonde_job_written_bytes_total",
    "sonde_process_tree_read_bytes_total",
    "sonde_process_tree_written_bytes_total",
    "sonde_job_pressure_waiting_seconds_total",
    "node_pressure_cpu_waiting_seconds_total",
    "node_pressure_io_waiting_seconds_total",
    "node_pressure_memory_waiting_seconds_total",
)
_READ = ("sonde_job_read_bytes_total", "sonde_process_tree_read_bytes_total")
_WRITTEN = ("sonde_job_written_bytes_total", "sonde_process_tree_written_bytes_total")


def measure(sheet: Sheet) -> None:
    readings = sheet.readings
    read, written = readings.rate(*_READ), readings.rate(*_WRITTEN)
    calls = readings.increase("node_nfs_rpcs_total")
    sheet.put(
        read_bytes=readings.increase(*_READ),
        written_bytes=readings.increase(*_WRITTEN),
        read_peak=most(read),
        written_peak=most(written),
        nfs_retransmitted_share=ratio(readings.increase("node_nfs_rpc_retransmissions_total"), calls),
        nfs_waiting=mean(readings.rate("node_mountstats_nfs_operations_response_time_seconds_total")),
        lustre_waiting=mean(readings.rate("sonde_lustre_client_target_wait_seconds_total")),
    )
    sheet.draw("read", read)
    sheet.draw("written", written)
    _pressure(sheet)
    _disks(sheet, readings)
    _filesystems(sheet, readings)


def _pressure(sheet: Sheet) -> None:
    """The job's own where its cgroup tells, else the node's. Series of several steps: the one that waited most."""
    readings = sheet.readings
    for resource in ("cpu", "io", "memory"):
        own = _worst(readings, "sonde_job_pressure_waiting_seconds_total", resource=resource)
        waited = own or _worst(readings, f"node_pressure_{resource}_waiting_seconds_total")
        sheet.put(**{f"pressure_{resource}": mean(waited)})
        sheet.draw(f"pressure_{resource}", waited)


def _worst(readings: Readings, metric: str, **labels: str) -> Points | None:
    rates = [made for points in readings.of(metric, **labels) if (made := rate(points)) is not None]
    return max(rates, key=lambda points: mean(points) or 0.0, default=None)


def _disks(sheet: Sheet, readings: Readings) -> None:
    names = sorted({dict(points.series.labels)["device"] for points in readings.of("node_disk_read_bytes_total")})
    busiest: Points | None = None
    for name in names:
        busy = readings.rate("node_disk_io_time_seconds_total", device=name)
        if busy is not None and (mean(busy) or 0.0) > (mean(busiest) or -1.0):
            busiest = busy
        sheet.device(
            "disk",
            name,
            read_bytes=readings.increase("node_disk_read_bytes_total", device=name),
            written_bytes=readings.increase("node_disk_written_bytes_total", device=name),
            read_peak=most(readings.rate("node_disk_read_bytes_total", device=name)),
            written_peak=most(readings.rate("node_disk_written_bytes_total", device=name)),
            busy_share=mean(busy),
        )
    sheet.draw("disk_busy", busiest)


def _filesystems(sheet: Sheet, readings: Readings) -> None:
    for points in readings.of("node_filesystem_size_bytes"):
        mount = dict(points.series.labels)["mountpoint"]
        if most(readings.total("node_filesystem_readonly", mountpoint=mount)):
            continue  # an image or a CD is full by design
        free, usable = (_one(readings, f"node_filesystem_{name}_bytes", mount) for name in ("free", "avail"))
        if usable is None or not points.values[-1]:
            continue
        # As df(1) has it: what root keeps for itself is neither used nor free.
        used = most(points) or 0.0
        lowest = least(usable) or 0.0
        taken = used - (least(free) or 0.0) if free is not None else used - lowest
        files, files_free = (
            _one(readings, "node_filesystem_files", mount),
            _one(readings, "node_filesystem_files_free", mount),
        )
        inodes = ratio(least(files_free), most(files))
        sheet.device(
            "filesystem",
            mount,
            filled_share=ratio(taken, taken + lowest),
            free_least=lowest,
            free_at_begin=float(usable.values[0]),
            files_share=None if inodes is None else 1 - inodes,
        )


def _one(readings: Readings, metric: str, mount: str) -> Points | None:
    return next(iter(readings.of(metric, mountpoint=mount)), None)

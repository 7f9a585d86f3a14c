"""Open files of the whole host, from /proc/sys/fs/file-nr.

483	0	2465610         allocated, unused, maximum (proc_sys_fs(5))
"""

from __future__ import annotations

from typing import ClassVar

from sonde.config import NoKeys
from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.model import Kind, Layout, MetricSpec, Reading, Unit

ALLOCATED = MetricSpec(
    "node_filefd_allocated",
    Kind.GAUGE,
    Unit.NONE,
    "File descriptor statistics: allocated.",
)
MAXIMUM = MetricSpec(
    "node_filefd_maximum",
    Kind.GAUGE,
    Unit.NONE,
    "File descriptor statistics: maximum.",
)
LAYOUT = Layout([(ALLOCATED, ()), (MAXIMUM, ())])


class FilesCollector:
    Config: ClassVar[type] = NoKeys
    metrics: ClassVar[tuple[MetricSpec, ...]] = (ALLOCATED, MAXIMUM)
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: NoKeys) -> None:
        self._file = host.record("proc/sys/fs/file-nr")

    def collect(self) -> Reading:
        return Reading(LAYOUT, parse_file_nr(self._file.read()))

    def close(self) -> None:
        self._file.close()


def parse_file_nr(text: bytes) -> tuple[int, int]:
    """Allocated and maximum. The number between them, of free handles, has been 0 since Linux 2.6."""
    try:
        allocated, _, maximum = map(int, text.split())
    except ValueError:
        raise ParseError("/proc/sys/fs/file-nr", text) from None
    return allocated, maximum

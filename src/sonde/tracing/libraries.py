"""Which framework a process has loaded, and whether for a GPU, from the file names in /proc/PID/maps.

7f33c3800000-7f33d7de5000 r-xp 00000000 fe:00 2262884    /opt/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so

A process of PyTorch has 340 lines, 48 kB, read in 0.5 ms; the kernel allows 65,530 lines (vm.max_map_count), and more
than that is read of none.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from sonde.hostfs import HostFS

PYTORCH = "pytorch"
MINDSPORE = "mindspore"

_END = rb"[-.\w]*\.so[.0-9]*(?= |$)"  # a bundled library has a hash in its name, a replaced one ` (deleted)` after it
_GPU = re.compile(rb"/(?:libcuda|libcudart|libtorch_cuda|libtorch_hip|libamdhip64|libascendcl)" + _END, re.MULTILINE)
_FRAMEWORK = re.compile(rb"^([0-9a-f]+)-[^\n]*/(?:(libtorch_cpu)|_c_expression)" + _END, re.MULTILINE)
_PIECE = 65536
_LARGEST = 16 * 2**20  # bytes: 65,530 lines of 256


class Libraries(NamedTuple):
    framework: str = ""  # PYTORCH, MINDSPORE or none
    gpu: bool = False
    base: str = ""  # where the framework lies: a child of fork has its parent's address, one that was executed another


def libraries_of(host: HostFS, pid: int) -> Libraries | None:
    """What a process has loaded; None when its maps may not be read, or it is gone."""
    try:
        fd = os.open(host.path(f"proc/{pid}/maps"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _read(fd)
    except OSError:
        return None  # gone, or another user's: that is checked by the read as well
    finally:
        os.close(fd)


def _read(fd: int) -> Libraries:
    found = Libraries()
    rest, size = b"", 0
    while size < _LARGEST and (piece := os.read(fd, _PIECE)):
        size += len(piece)
        lines, newline, rest = (rest + piece).rpartition(b"\n")
        found = _joined(found, parse_maps(lines + newline))
        if found.framework and found.gpu:
            return found
        rest = rest[-_PIECE:]
    return _joined(found, parse_maps(rest))


def parse_maps(text: bytes) -> Libraries:
    """What whole lines of /proc/PID/maps name. Any bytes will do: what is not understood names nothing."""
    match = _FRAMEWORK.search(text)
    gpu = _GPU.search(text) is not None
    if match is None:
        return Libraries(gpu=gpu)
    return Libraries(PYTORCH if match[2] else MINDSPORE, gpu, match[1].decode("ascii"))


def _joined(found: Libraries, more: Libraries) -> Libraries:
    first = found if found.framework else more
    return first._replace(gpu=found.gpu or more.gpu)

"""What a network driver says about its device: the SIOCETHTOOL ioctl (include/uapi/linux/ethtool.h, netdevice(7)).

An ifreq names the device and points to a command structure, into which the kernel writes:

ETHTOOL_GDRVINFO     u32 cmd; char driver[32], version[32], fw_version[32], bus_info[32], erom_version[32]; …
ETHTOOL_GSSET_INFO   u32 cmd, reserved; u64 sset_mask; u32 data[]      how many strings each of the named sets has
ETHTOOL_GSTRINGS     u32 cmd, string_set, len; char data[len][32]      the names of the statistics
ETHTOOL_GSTATS       u32 cmd, n_stats; u64 data[n_stats]               and their values, in the same order
ETHTOOL_GPAUSEPARAM  u32 cmd, autoneg, rx_pause, tx_pause

All of these may be asked by anybody. The kernel asks the driver anew how many statistics there are each time and writes
as many, whatever room was announced (ethtool_get_stats in net/ethtool/ioctl.c): if queues are added between two calls,
more is written than was expected. So there is always much more room than needed, and the count is checked afterwards.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
from array import array
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

_SIOCETHTOOL = 0x8946
GDRVINFO, GPAUSEPARAM, GSTRINGS, GSTATS, GSSET_INFO = 0x03, 0x12, 0x1B, 0x1D, 0x37
SS_STATS = 1  # ETH_SS_STATS: the set of statistics among the sets of strings
STRING = 32  # ETH_GSTRING_LEN
_SPARE = 8192  # statistics a device may gain between two calls; the largest drivers have some 4,000
_IFREQ = struct.Struct("16sP16x")  # struct ifreq of 64-bit kernels: the name, a pointer, the rest of the union
_DRVINFO = struct.Struct("=I32s32s32s32s32s12x5I")
_PAUSE = struct.Struct("=4I")

Buffer: TypeAlias = "array[int]"
Call: TypeAlias = Callable[[str, Buffer], None]


class Driver(NamedTuple):
    name: str
    version: str
    firmware: str
    bus: str
    expansion_rom: str


class Pause(NamedTuple):
    """Whether the link may be paused: 0 or 1."""

    autonegotiated: int
    received: int
    transmitted: int


class Ethtool:
    """Asks drivers. OSError as the kernel gives it: ENODEV for a device that is gone, EOPNOTSUPP for no answer."""

    def __init__(self, call: Call | None = None) -> None:
        """`call` does the ioctl: it fills the buffer that begins with a command."""
        self._socket: socket.socket | None = None
        if call is None:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._call = call or self._ioctl
        self._room = array("B", bytes(8 + 8 * _SPARE))

    def _ioctl(self, device: str, buffer: Buffer) -> None:
        if self._socket is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        address, _ = buffer.buffer_info()
        fcntl.ioctl(self._socket, _SIOCETHTOOL, _IFREQ.pack(os.fsencode(device), address))

    def driver(self, device: str) -> Driver:
        buffer = _command(GDRVINFO, _DRVINFO.size)
        self._call(device, buffer)
        return decode_driver(buffer.tobytes())

    def pause(self, device: str) -> Pause:
        buffer = _command(GPAUSEPARAM, _PAUSE.size)
        self._call(device, buffer)
        return decode_pause(buffer.tobytes())

    def names(self, device: str) -> list[str]:
        """The names of the device's statistics, in the order of their values."""
        buffer = _command(GSSET_INFO, 20, struct.pack("=IQ", 0, 1 << SS_STATS))
        self._call(device, buffer)
        count = decode_count(buffer.tobytes())
        if not count:
            return []
        buffer = _command(GSTRINGS, 12 + STRING * (count + _SPARE), struct.pack("=II", SS_STATS, count))
        self._call(device, buffer)
        return decode_names(buffer.tobytes())

    def values(self, device: str, count: int) -> list[int] | None:
        """The values of the device's statistics; None when there are not as many as there were names."""
        if len(self._room) < 8 + 8 * (count + _SPARE):
            self._room = array("B", bytes(8 + 8 * (count + 2 * _SPARE)))
        room = self._room
        room[0:8] = array("B", struct.pack("=II", GSTATS, count))
        self._call(device, room)
        return decode_values(memoryview(room), count)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _command(number: int, size: int, rest: bytes = b"") -> Buffer:
    head = struct.pack("=I", number) + rest
    return array("B", head + bytes(size - len(head)))


def decode_driver(data: bytes) -> Driver:
    _, name, version, firmware, bus, rom, *_ = _DRVINFO.unpack_from(data)
    return Driver(*map(_text, (name, version, firmware, bus, rom)))


def decode_pause(data: bytes) -> Pause:
    _, autoneg, received, transmitted = _PAUSE.unpack_from(data)
    return Pause(int(autoneg != 0), int(received != 0), int(transmitted != 0))


def decode_count(data: bytes) -> int:
    """The size of the set of statistics; 0 when the mask that comes back says that there is none."""
    _, _, mask, count = struct.unpack_from("=IIQI", data)
    return int(count) if mask & (1 << SS_STATS) else 0


def decode_names(data: bytes) -> list[str]:
    _, _, count = struct.unpack_from("=III", data)
    return [_text(data[at : at + STRING]) for at in range(12, 12 + STRING * count, STRING)]


def decode_values(data: memoryview, count: int) -> list[int] | None:
    found = int.from_bytes(data[4:8], "little" if struct.pack("=H", 1) == b"\1\0" else "big")
    return data[8 : 8 + 8 * count].cast("Q").tolist() if found == count else None


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace").strip()

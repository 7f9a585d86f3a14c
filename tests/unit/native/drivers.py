"""Network drivers that answer SIOCETHTOOL from a table, as net/ethtool/ioctl.c fills in the structures."""

from __future__ import annotations

import errno
import os
import re
import struct
from pathlib import Path

from sonde.native.ethtool import GDRVINFO, GPAUSEPARAM, GSSET_INFO, GSTATS, GSTRINGS, Buffer

RECORDED = Path(__file__).parents[2] / "fixtures/ethtool"


def recorded(name: str) -> dict[str, int]:
    """The statistics of a file in the form of `ethtool -S`."""
    text = (RECORDED / f"{name}.txt").read_text()
    return {key: int(value) for key, value in re.findall(r"^ +(.+): (\d+)$", text, re.MULTILINE)}


class Drivers:
    """Devices and their statistics; one that is not there is ENODEV, statistics of None are EOPNOTSUPP."""

    def __init__(
        self, statistics: dict[str, dict[str, int] | None], *, pause: tuple[int, int, int] | None = None
    ) -> None:
        self.statistics = statistics
        self.pause = pause
        self.error = 0  # given for everything, if not 0

    def listed(self) -> list[tuple[int, str]]:
        return list(enumerate(self.statistics, start=1))

    def call(self, device: str, buffer: Buffer) -> None:
        if device not in self.statistics:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        (command,) = struct.unpack_from("=I", buffer)
        answer = {
            GDRVINFO: self._driver,
            GPAUSEPARAM: self._pause,
            GSSET_INFO: self._count,
            GSTRINGS: self._names,
            GSTATS: self._values,
        }[command]
        data = answer(device)
        if len(data) > len(buffer):
            raise AssertionError("the kernel would write beyond the buffer")
        buffer[0 : len(data)] = type(buffer)("B", data)

    def _driver(self, device: str) -> bytes:
        texts = [b"mlx5_core", b"6.1.0", b"22.36.1010", b"0000:3b:00.0", b""]
        return struct.pack("=I32s32s32s32s32s12x5I", GDRVINFO, *texts, 0, len(self._table(device)), 0, 0, 0)

    def _pause(self, device: str) -> bytes:
        if self.pause is None:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return struct.pack("=4I", GPAUSEPARAM, *self.pause)

    def _count(self, device: str) -> bytes:
        has = self.statistics[device] is not None
        return struct.pack("=IIQI", GSSET_INFO, 0, 2 if has else 0, len(self._table(device)))

    def _names(self, device: str) -> bytes:
        table = self._table(device)
        return struct.pack("=III", GSTRINGS, 1, len(table)) + b"".join(name.encode().ljust(32, b"\0") for name in table)

    def _values(self, device: str) -> bytes:
        table = self._table(device)
        return struct.pack(f"=II{len(table)}Q", GSTATS, len(table), *table.values())

    def _table(self, device: str) -> dict[str, int]:
        return self.statistics[device] or {}

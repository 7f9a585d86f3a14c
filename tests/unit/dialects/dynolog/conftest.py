"""Frames of the collectors that dynolog has a word for, with numbers a test chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from sonde.collectors.cpu import GUEST, GUEST_MODES, MODES, SECONDS
from sonde.collectors.host import UPTIME
from sonde.collectors.network import COLUMNS
from sonde.hostfs import HostFS
from sonde.model import Frame, Layout

TIME = 1_794_778_958_123_456_789  # 2026-11-15T21:42:38.123456789Z
PERIOD = 10**9
_LAYOUTS: dict[object, Layout] = {}


def cpu_frame(times: Mapping[str, Mapping[str, float]], time_ns: int = TIME) -> Frame:
    """`times` by CPU and mode, in seconds; `guest` and `guest_nice` are modes too. The rest is 0."""
    cpus = tuple(times)
    if cpus not in _LAYOUTS:
        series = [(SECONDS, (cpu, mode)) for cpu in cpus for mode in MODES]
        _LAYOUTS[cpus] = Layout([*series, *((GUEST, (cpu, mode)) for cpu in cpus for mode in GUEST_MODES)])
    values = [float(times[cpu].get(mode, 0)) for cpu in cpus for mode in MODES]
    values += [float(times[cpu].get(mode, 0)) for cpu in cpus for mode in ("guest", "guest_nice")]
    return Frame("cpu", time_ns, 1000, PERIOD, _LAYOUTS[cpus], values)


def network_frame(counts: Mapping[str, int | Mapping[int, int]], time_ns: int = TIME) -> Frame:
    """`counts` by device: one number for all sixteen columns, or some columns by their place."""
    devices = ("network", *counts)
    if devices not in _LAYOUTS:
        _LAYOUTS[devices] = Layout((spec, (device,)) for spec in COLUMNS for device in counts)
    values = [
        count if isinstance(count, int) else count.get(column, 0)
        for column in range(len(COLUMNS))
        for count in counts.values()
    ]
    return Frame("network", time_ns, 1000, PERIOD, _LAYOUTS[devices], values)


def uptime_frame(seconds: float, time_ns: int = TIME) -> Frame:
    layout = _LAYOUTS.setdefault("uptime", Layout([(UPTIME, ())]))
    return Frame("host", time_ns, 1000, PERIOD, layout, [seconds])


def said(frame: Frame | None) -> dict[str, int | float]:
    """A translated frame as dynolog's keys and values."""
    from sonde.dialects.dynolog.names import key

    if frame is None:
        return {}
    return dict(zip(map(key, frame.layout), frame.values, strict=True))  # type: ignore[arg-type]


@pytest.fixture
def topology(tmp_path: Path) -> Callable[[dict[str, str]], HostFS]:
    """A host whose CPUs are in these sockets."""

    def make(sockets: dict[str, str]) -> HostFS:
        for cpu, socket in sockets.items():
            folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "physical_package_id").write_text(f"{socket}\n")
        return HostFS(str(tmp_path))

    return make

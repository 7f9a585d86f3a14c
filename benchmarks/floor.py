"""The nine system files at 1 Hz: the collectors through the runner into frames, against the C floor of the same files.

The same process is also the A/A: two of each run at the same time, for nine windows.
"""

from __future__ import annotations

import sys
import tempfile
import time

from benchmarks.harness import Row, compile_c, medians, running, windows

FILES = [
    "stat",
    "meminfo",
    "net/dev",
    "diskstats",
    "loadavg",
    "vmstat",
    "pressure/cpu",
    "pressure/io",
    "pressure/memory",
]
COLLECTORS = ("cpu", "memory", "network", "disk", "load", "vmstat", "pressure")
_WINDOWS, _SECONDS, _WARM_UP = 9, 8.0, 6.0


def sample() -> None:
    """The child: the real runners in the real sampling thread, frames handed to nobody."""
    from sonde.clock import SystemClock
    from sonde.config import from_tree
    from sonde.daemon.interpreter import tune_interpreter
    from sonde.hostfs import HostFS
    from sonde.pipeline.assembly import Assembly

    tables = {name: {"enabled": True} for name in COLLECTORS}
    # Only the nine files: the attributes of network devices below /sys are read by this collector too.
    config = from_tree(
        {
            "daemon": {"period": "1s", "collectors": list(COLLECTORS)},
            "collectors": {**tables, "network": {"state_every": "100d"}},
        },
        "benchmark",
    )
    assembly = Assembly(config, HostFS(), SystemClock(), [])
    tune_interpreter()
    assembly.start()
    time.sleep(600)


def measure() -> list[dict[str, object]]:
    floor = str(compile_c("floor.c"))
    files = [f"/proc/{name}" for name in FILES]
    ours = [sys.executable, "-m", "benchmarks.floor", "sample"]
    with tempfile.TemporaryDirectory() as folder:
        c = [floor, "1000"]
        with (
            running([*c, f"{folder}/a", *files]) as c_one,
            running([*c, f"{folder}/b", *files]) as c_two,
            running(ours) as ours_one,
            running(ours) as ours_two,
        ):
            time.sleep(_WARM_UP)
            pids = [c_one.pid, c_two.pid, ours_one.pid, ours_two.pid]
            floor_ms, floor_again, ours_ms, ours_again = medians(windows(pids, count=_WINDOWS, seconds=_SECONDS))
    detail = f"{ours_ms:.3f} ms/s against {floor_ms:.3f} ms/s"
    detail += f"; A/A ours {ours_again / ours_ms:.2f}, C {floor_again / floor_ms:.2f}"
    ratio = (ours_ms + ours_again) / (floor_ms + floor_again)
    return [Row("nine system files into frames at 1 Hz / C floor", ratio, "×", 2.5, detail).as_dict()]


if __name__ == "__main__":
    if sys.argv[1:] == ["sample"]:
        sample()
    else:
        print(measure())

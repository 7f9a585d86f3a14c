"""Softirqs handled, by vector, from the last line of /proc/stat.

    softirq 115430 0 18538 4 2033 34501 0 4 35179 0 26659
            total, then one number per vector in the order of include/linux/interrupt.h

/proc/softirqs has the same numbers per CPU. It costs the kernel less on few CPUs (1.5 against 3.3 µs on 2), but it has
ten numbers per possible CPU to be split and added up here; the line of /proc/stat is eleven numbers on any machine.
"""

from __future__ import annotations

from typing import ClassVar

from sonde.config import NoKeys
from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.model import Kind, Layout, MetricSpec, Reading, Unit

SOFTIRQS = MetricSpec("node_softirqs_total", Kind.COUNTER, Unit.NONE, "Number of softirq calls.", ("vector",))
# IRQ_POLL was BLOCK_IOPOLL until Linux 4.5; node_exporter keeps the old name, so we do.
VECTORS = ("hi", "timer", "net_tx", "net_rx", "block", "block_iopoll", "tasklet", "sched", "hrtimer", "rcu")
LAYOUT = Layout((SOFTIRQS, (vector,)) for vector in VECTORS)


class SoftirqCollector:
    Config: ClassVar[type] = NoKeys
    metrics: ClassVar[tuple[MetricSpec, ...]] = (SOFTIRQS,)
    blocks: ClassVar[bool] = False

    def __init__(self, host: HostFS, config: NoKeys) -> None:
        self._file = host.record("proc/stat")

    def collect(self) -> Reading:
        return Reading(LAYOUT, parse_softirqs(self._file.read()))

    def close(self) -> None:
        self._file.close()


def parse_softirqs(text: bytes) -> list[int]:
    """The counts in the order of VECTORS."""
    start = text.rfind(b"\nsoftirq ")
    try:
        counts = [*map(int, text[start + 9 :].split(b"\n", 1)[0].split())]
    except ValueError:
        raise ParseError("/proc/stat", text[start + 1 :]) from None
    if start < 0 or len(counts) <= len(VECTORS):
        raise ParseError("/proc/stat", text[start + 1 :])
    return counts[1 : len(VECTORS) + 1]
